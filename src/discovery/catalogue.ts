import type { Labels, PageFormat } from '../api/index.ts';

/** How the lag of a kind of consumer is known, and where upstream says so. */
export type CatalogueMeasure =
  | {
      readonly by: 'inspect';
      readonly format: PageFormat;
      readonly port: number;
      readonly path?: string;
      /** The page is served on the pod's loopback only: `linger witness` has to run beside it, and asks there. */
      readonly loopback?: string;
    }
  | { readonly by: 'declared'; readonly syncInterval?: string; readonly lag?: string }
  /** It sends to the ClusterIP or to a node port: the built-in consumer `cluster-ip` is its lag. */
  | { readonly by: 'clusterIp' };

/** Something that sends traffic to pods: how it is recognised, and how its lag is known. */
export interface Ecosystem {
  /** Of the DiscoveryConsumer. */
  readonly name: string;
  /** `spec.controller` of IngressClasses, `spec.controllerName` of GatewayClasses. */
  readonly controllers?: readonly string[];
  /** Names of classes without an object, as manifests that were written for the usual installation name them. */
  readonly classes?: readonly string[];
  /** Kinds that only it reads, as `group/Kind`. */
  readonly kinds?: readonly string[];
  /** What sends: the image of a container, and labels of the pods where the image is used by others, too. */
  readonly image?: RegExp;
  readonly marked?: readonly Labels[];
  /** Where the usual installation puts it. */
  readonly usual?: { readonly namespace: string; readonly labels: Labels };
  readonly measure: CatalogueMeasure;
  /** A page of upstream's, or what the number assumes. */
  readonly source: string;
}

const ASSUMED = 'assumed, from no documentation; measure it with a probe';

/** The port on which `linger witness` listens. */
const WITNESS_PORT = 8446;

function witnessed(page: string): CatalogueMeasure {
  return { by: 'inspect', format: 'Witness', port: WITNESS_PORT, loopback: page };
}

/** One row for each kind of consumer that is recognised. */
export const CATALOGUE: readonly Ecosystem[] = [
  {
    name: 'contour',
    controllers: ['projectcontour.io/ingress-controller', 'projectcontour.io/gateway-controller'],
    classes: ['contour'],
    kinds: ['projectcontour.io/HTTPProxy'],
    image: /\benvoy\b/,
    marked: [
      { app: 'envoy' },
      { 'app.kubernetes.io/name': 'contour', 'app.kubernetes.io/component': 'envoy' },
    ],
    usual: { namespace: 'projectcontour', labels: { app: 'envoy' } },
    measure: witnessed('--page http://127.0.0.1:9001/clusters'),
    source: 'https://projectcontour.io/docs/main/troubleshooting/envoy-admin-interface/',
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
    source: 'https://gateway.envoyproxy.io/docs/troubleshooting/envoy-proxy-admin-interface',
  },
  {
    name: 'istio-gateway',
    controllers: ['istio.io/gateway-controller', 'istio.io/ingress-controller'],
    classes: ['istio'],
    image: /\b(istio\/proxyv2|^auto$)/,
    marked: [{ istio: 'ingressgateway' }, { 'gateway.istio.io/managed': 'istio.io-gateway-controller' }],
    usual: { namespace: 'istio-system', labels: { istio: 'ingressgateway' } },
    measure: witnessed('--page http://127.0.0.1:15000/clusters'),
    source: 'https://istio.io/latest/docs/ops/deployment/application-requirements/ (port 15000, Envoy admin)',
  },
  {
    name: 'istio-sidecars',
    measure: { by: 'declared', lag: '10s' },
    source: 'https://istio.io/latest/docs/reference/commands/pilot-discovery/ (PILOT_DEBOUNCE_MAX is 10s)',
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
    source: 'https://kubernetes.github.io/ingress-nginx/user-guide/cli-arguments (--status-port is 10246)',
  },
  {
    name: 'traefik',
    controllers: ['traefik.io/ingress-controller', 'traefik.io/gateway-controller'],
    classes: ['traefik'],
    kinds: [
      ...['traefik.io/IngressRoute', 'traefik.io/IngressRouteTCP', 'traefik.io/IngressRouteUDP'],
      ...['traefik.containo.us/IngressRoute', 'traefik.containo.us/IngressRouteTCP'],
    ],
    image: /(^|\/)traefik(:|@|$)/,
    usual: { namespace: 'traefik', labels: { 'app.kubernetes.io/name': 'traefik' } },
    measure: { by: 'inspect', format: 'Traefik', port: 8080 },
    source: 'https://doc.traefik.io/traefik/operations/api/ (port 8080, with --api.insecure)',
  },
  {
    name: 'haproxy-kubernetes-ingress',
    controllers: ['haproxy.org/ingress-controller/haproxy', 'haproxy.org/ingress-controller'],
    image: /\bhaproxytech\/kubernetes-ingress\b/,
    usual: {
      namespace: 'haproxy-controller',
      labels: { 'app.kubernetes.io/name': 'kubernetes-ingress' },
    },
    measure: { by: 'inspect', format: 'HAProxy', port: 1024 },
    source: 'https://github.com/haproxytech/kubernetes-ingress (container port stat, 1024)',
  },
  {
    name: 'haproxy-ingress',
    controllers: ['haproxy-ingress.github.io/controller'],
    classes: ['haproxy'],
    image: /\bhaproxy-ingress(:|@|$)/,
    usual: { namespace: 'ingress-controller', labels: { 'app.kubernetes.io/name': 'haproxy-ingress' } },
    measure: { by: 'inspect', format: 'HAProxy', port: 1936 },
    source: 'https://haproxy-ingress.github.io/docs/configuration/keys/ (stats-port is 1936)',
  },
  {
    name: 'openshift-router',
    controllers: ['openshift.io/ingress-to-route', 'openshift.io/gateway-controller/v1'],
    kinds: ['route.openshift.io/Route'],
    measure: { by: 'declared', syncInterval: '5s' },
    source:
      'https://docs.redhat.com/en/documentation/openshift_container_platform/4.20/html/scalability_and_performance/routing-optimization (reloadInterval is 5s)',
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
      'https://developer.konghq.com/kubernetes-ingress-controller/reference/configuration-options (--proxy-sync-seconds is 3)',
  },
  {
    name: 'nginx-gateway-fabric',
    controllers: ['gateway.nginx.org/nginx-gateway-controller'],
    measure: { by: 'declared', lag: '5s' },
    source: ASSUMED,
  },
  {
    name: 'cilium-gateway',
    controllers: ['io.cilium/gateway-controller'],
    classes: ['cilium'],
    measure: { by: 'declared', lag: '5s' },
    source: ASSUMED,
  },
  {
    name: 'aws-target-groups',
    kinds: ['elbv2.k8s.aws/TargetGroupBinding'],
    measure: { by: 'declared', lag: '30s' },
    source: ASSUMED,
  },
  {
    name: 'gke-neg',
    measure: { by: 'declared', lag: '60s' },
    source: ASSUMED,
  },
  {
    name: 'keda-http-add-on',
    kinds: ['http.keda.sh/HTTPScaledObject'],
    measure: { by: 'clusterIp' },
    source: 'its interceptor connects to the Service, not to pods',
  },
  {
    name: 'node-ports',
    measure: { by: 'clusterIp' },
    source: 'kube-proxy forwards node ports as it does the ClusterIP',
  },
];
