import type { Labels, PageFormat } from '../api/index.ts';

/** How the lag of a kind of consumer is determined, and where its documentation says so. */
export type CatalogueMeasure =
  | {
      readonly by: 'inspect';
      readonly format: PageFormat;
      readonly port: number;
      readonly path?: string;
      /**
       * The page is served only on the pod's loopback address, so `linger witness` has to run beside it and read it there.
       */
      readonly loopback?: string;
      /** What else has to be set up before the page can be used. */
      readonly first?: string;
    }
  /** Its proxies follow istiod. The files are those of --inspect-files, as mounted in docs/gateways.md. */
  | {
      readonly by: 'xds';
      readonly address: string;
      readonly tls: { readonly caFile: string };
      readonly tokenFile: string;
    }
  | { readonly by: 'declared'; readonly syncInterval?: string; readonly lag?: string }
  /** It sends to the ClusterIP or to a node port, so the built-in consumer `cluster-ip` covers its lag. */
  | { readonly by: 'clusterIp' };

/** Something that sends traffic to pods: how to recognise it, and how its lag is determined. */
export interface Ecosystem {
  /** The name of the DiscoveryConsumer. */
  readonly name: string;
  /** `spec.controller` of IngressClasses, `spec.controllerName` of GatewayClasses. */
  readonly controllers?: readonly string[];
  /** Names of classes, to be recognised in manifests without the class objects: those of the usual installation. */
  readonly classes?: readonly string[];
  /** Kinds that only it reads, as `group/Kind`. */
  readonly kinds?: readonly string[];
  /** How to recognise what sends: the image of a container, and labels of the pods if others use the image, too. */
  readonly image?: RegExp;
  readonly marked?: readonly Labels[];
  /** Where the usual installation puts it. */
  readonly usual?: { readonly namespace: string; readonly labels: Labels };
  readonly measure: CatalogueMeasure;
  /** A page of the project's documentation, or what the number assumes. */
  readonly source: string;
}

const ASSUMED = 'assumed: no documentation gives this number; measure it with a probe';

/** The port on which `linger witness` listens. */
const WITNESS_PORT = 8446;

function witnessed(page: string): CatalogueMeasure {
  return { by: 'inspect', format: 'Witness', port: WITNESS_PORT, loopback: page };
}

/** One row for each kind of consumer that Linger recognises. */
export const CATALOGUE: readonly Ecosystem[] = [
  {
    name: 'contour',
    // Contour takes IngressClasses by name, whatever their controller is; the first controller is a convention.
    controllers: ['projectcontour.io/ingress-controller', 'projectcontour.io/gateway-controller'],
    classes: ['contour'],
    kinds: ['projectcontour.io/HTTPProxy', 'projectcontour.io/ExtensionService'],
    image: /\benvoy\b/,
    marked: [
      { app: 'envoy' },
      { 'app.kubernetes.io/name': 'contour', 'app.kubernetes.io/component': 'envoy' },
      { 'app.kubernetes.io/managed-by': 'contour-gateway-provisioner' },
    ],
    usual: { namespace: 'projectcontour', labels: { app: 'envoy' } },
    measure: witnessed('--page http://127.0.0.1:9001/clusters'),
    source:
      'https://github.com/projectcontour/contour/blob/main/site/content/docs/main/troubleshooting/envoy-admin-interface.md (bound to 127.0.0.1:9001)',
  },
  {
    name: 'envoy-gateway',
    controllers: ['gateway.envoyproxy.io/gatewayclass-controller'],
    image: /\benvoy\b/,
    marked: [{ 'app.kubernetes.io/managed-by': 'envoy-gateway', 'app.kubernetes.io/component': 'proxy' }],
    usual: {
      namespace: 'envoy-gateway-system',
      labels: { 'app.kubernetes.io/managed-by': 'envoy-gateway', 'app.kubernetes.io/component': 'proxy' },
    },
    measure: witnessed('--page http://127.0.0.1:19000/clusters'),
    source:
      'https://github.com/envoyproxy/gateway/blob/main/internal/xds/bootstrap/bootstrap.go (admin on 127.0.0.1; port 19000)',
  },
  {
    name: 'istio-gateway',
    // OpenShift's Gateway API is an Istio that its ingress operator installs.
    controllers: [
      ...['istio.io/gateway-controller', 'istio.io/ingress-controller'],
      'openshift.io/gateway-controller/v1',
    ],
    classes: ['istio'],
    image: /\bproxyv2\b|^auto$/,
    marked: [
      { istio: 'ingressgateway' },
      { istio: 'ingress' },
      { 'gateway.istio.io/managed': 'istio.io-gateway-controller' },
    ],
    usual: { namespace: 'istio-system', labels: { istio: 'ingressgateway' } },
    measure: witnessed('--page http://127.0.0.1:15000/clusters'),
    source:
      'https://istio.io/latest/docs/ops/deployment/requirements (15000 is Envoy admin, inside of the pod only)',
  },
  {
    name: 'istio-sidecars',
    measure: {
      by: 'xds',
      address: 'istiod.istio-system.svc:15012',
      tls: { caFile: 'root-cert.pem' },
      tokenFile: 'istio-token',
    },
    source: 'https://istio.io/latest/docs/ops/deployment/requirements (15012 is XDS with TLS)',
  },
  {
    name: 'linkerd',
    measure: { by: 'declared', lag: '5s' },
    source: ASSUMED,
  },
  {
    name: 'ingress-nginx',
    controllers: ['k8s.io/ingress-nginx'],
    classes: ['nginx'],
    image: /\bingress-nginx\/controller\b/,
    usual: {
      namespace: 'ingress-nginx',
      labels: { 'app.kubernetes.io/name': 'ingress-nginx', 'app.kubernetes.io/component': 'controller' },
    },
    measure: witnessed('--format Text --page http://127.0.0.1:10246/configuration/backends'),
    source:
      'https://github.com/kubernetes/ingress-nginx/blob/main/docs/user-guide/cli-arguments.md (--status-port is 10246)',
  },
  {
    name: 'traefik',
    controllers: ['traefik.io/ingress-controller', 'traefik.io/gateway-controller'],
    classes: ['traefik'],
    kinds: [
      ...['traefik.io/IngressRoute', 'traefik.io/IngressRouteTCP', 'traefik.io/IngressRouteUDP'],
      ...['traefik.containo.us/IngressRoute', 'traefik.containo.us/IngressRouteTCP'],
      ...['traefik.containo.us/IngressRouteUDP', 'traefik.io/Middleware', 'traefik.containo.us/Middleware'],
    ],
    image: /(^|\/)traefik(:|@|$)/,
    usual: { namespace: 'traefik', labels: { 'app.kubernetes.io/name': 'traefik' } },
    measure: { by: 'inspect', format: 'Traefik', port: 8080 },
    source:
      'https://github.com/traefik/traefik/blob/master/pkg/config/static/static_config.go (:8080, with --api.insecure)',
  },
  {
    name: 'haproxy-kubernetes-ingress',
    controllers: ['haproxy.org/ingress-controller/haproxy', 'haproxy.org/ingress-controller'],
    image: /\bhaproxytech\/kubernetes-ingress\b/,
    usual: {
      namespace: 'haproxy-controller',
      labels: { 'app.kubernetes.io/name': 'kubernetes-ingress' },
    },
    measure: {
      by: 'inspect',
      format: 'HAProxy',
      port: 1024,
      first:
        'put stats-config-snippet: stats show-legends into its ConfigMap, and restart it: its page omits addresses otherwise',
    },
    source:
      'https://github.com/haproxytech/kubernetes-ingress/blob/master/pkg/utils/flags.go (--stats-bind-port is 1024)',
  },
  {
    name: 'haproxy-ingress',
    // No class: both HAProxy controllers' usual one is `haproxy`.
    controllers: ['haproxy-ingress.github.io/controller'],
    image: /\bhaproxy-ingress(:|@|$)/,
    usual: { namespace: 'ingress-controller', labels: { 'app.kubernetes.io/name': 'haproxy-ingress' } },
    measure: { by: 'inspect', format: 'HAProxy', port: 1936 },
    source:
      'https://github.com/jcmoraisjr/haproxy-ingress/blob/master/docs/content/en/docs/configuration/keys.md (stats-port is 1936)',
  },
  {
    name: 'openshift-router',
    controllers: ['openshift.io/ingress-to-route'],
    kinds: ['route.openshift.io/Route'],
    measure: { by: 'declared', syncInterval: '5s' },
    source:
      'https://github.com/openshift/router/blob/master/pkg/cmd/infra/router/template.go (RELOAD_INTERVAL is 5s)',
  },
  {
    name: 'apisix',
    controllers: ['apisix.apache.org/apisix-ingress-controller', 'apisix.apache.org/apisix-ingress'],
    classes: ['apisix'],
    kinds: ['apisix.apache.org/ApisixRoute'],
    measure: { by: 'declared', lag: '5s' },
    source: ASSUMED,
  },
  {
    name: 'kong',
    controllers: ['ingress-controllers.konghq.com/kong', 'konghq.com/kic-gateway-controller'],
    classes: ['kong'],
    kinds: ['configuration.konghq.com/TCPIngress', 'configuration.konghq.com/UDPIngress'],
    measure: { by: 'declared', syncInterval: '3s' },
    source:
      'https://github.com/Kong/kubernetes-ingress-controller/blob/main/docs/cli-arguments.md (--proxy-sync-seconds is 3)',
  },
  {
    name: 'nginx-gateway-fabric',
    controllers: ['gateway.nginx.org/nginx-gateway-controller'],
    measure: { by: 'declared', lag: '5s' },
    source: ASSUMED,
  },
  {
    name: 'cilium-gateway',
    controllers: ['io.cilium/gateway-controller', 'cilium.io/ingress-controller'],
    classes: ['cilium'],
    measure: { by: 'declared', lag: '5s' },
    source: ASSUMED,
  },
  {
    name: 'aws-target-groups',
    controllers: [
      ...['ingress.k8s.aws/alb', 'gateway.k8s.aws/alb', 'gateway.k8s.aws/nlb'],
      'eks.amazonaws.com/alb',
    ],
    classes: ['alb'],
    kinds: ['elbv2.k8s.aws/TargetGroupBinding', 'eks.amazonaws.com/TargetGroupBinding'],
    measure: { by: 'declared', lag: '30s' },
    source: `${ASSUMED} (https://github.com/kubernetes-sigs/aws-load-balancer-controller/issues/3270 reports two minutes)`,
  },
  {
    name: 'gke-neg',
    // A Gateway of GKE, and an internal Ingress, send to the pods.
    controllers: ['networking.gke.io/gateway'],
    classes: [
      ...['global-external-managed', 'regional-external-managed', 'cross-regional-internal-managed'],
      ...['rilb', 'gxlb'],
    ]
      .flatMap((each) => [`gke-l7-${each}`, `gke-l7-${each}-mc`])
      .concat('gce-internal'),
    measure: { by: 'declared', lag: '60s' },
    source: `${ASSUMED} (https://cloud.google.com/knowledge/kb/502-503-errors-on-external-http-s-load-balancer-000006416 has a pause of 40 s in its example)`,
  },
  {
    name: 'tailscale',
    controllers: ['tailscale.com/ts-ingress'],
    classes: ['tailscale'],
    measure: { by: 'clusterIp' },
    source:
      'https://github.com/tailscale/tailscale/blob/main/cmd/k8s-operator/ingress.go (its proxies send to the ClusterIP)',
  },
  {
    name: 'keda-http-add-on',
    kinds: ['http.keda.sh/HTTPScaledObject'],
    measure: { by: 'clusterIp' },
    source:
      'https://github.com/kedacore/http-add-on/blob/main/interceptor/config/serving.go (to the ClusterIP, unless KEDA_HTTP_DIRECT_POD_ROUTING is true)',
  },
  {
    name: 'node-health-checks',
    measure: { by: 'declared', syncInterval: '30s' },
    source:
      'https://kubernetes.io/docs/tutorials/services/source-ip (a load balancer follows its health checks of the nodes: declare their interval × threshold in place of 30s)',
  },
  {
    name: 'node-ports',
    measure: { by: 'clusterIp' },
    source: 'kube-proxy forwards node ports as it does the ClusterIP',
  },
];
