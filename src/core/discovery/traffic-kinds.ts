import { isRecord, isString, listOf, memberAt, textOf } from '../api/index.ts';

/** A kind of object that sends traffic to Services. */
interface TrafficKind {
  /** The version in which a cluster lists these kinds. */
  readonly apiVersion: string;
  readonly kinds: readonly string[];
  /**
   * Where its spec names Services: `[]` goes through a list. At the end there is an object with a `name`, or a text: a name,
   * or a host such as `web.shop.svc.cluster.local` or `http://web.shop:80`.
   */
  readonly services: readonly string[];
  /** They have no namespace. */
  readonly ofCluster?: true;
}

const ROUTE = {
  services: [
    'rules[].backendRefs[]',
    'rules[].filters[].requestMirror.backendRef',
    'rules[].backendRefs[].filters[].requestMirror.backendRef',
  ],
};

const TRAEFIK = [
  {
    kinds: ['IngressRoute', 'IngressRouteTCP', 'IngressRouteUDP'],
    services: ['routes[].services[]'],
  },
  {
    kinds: ['TraefikService'],
    services: ['weighted.services[]', 'mirroring', 'mirroring.mirrors[]'],
  },
  { kinds: ['Middleware'], services: ['errors.service'] },
];

/**
 * All kinds that lead traffic to a Service past kube-proxy, or in front of it. A cluster that does not serve a kind has no
 * objects of it.
 */
const TRAFFIC_KINDS: readonly TrafficKind[] = [
  {
    apiVersion: 'networking.k8s.io/v1',
    kinds: ['Ingress'],
    services: ['defaultBackend.service', 'rules[].http.paths[].backend.service'],
  },
  { apiVersion: 'gateway.networking.k8s.io/v1', kinds: ['HTTPRoute', 'GRPCRoute'], ...ROUTE },
  { apiVersion: 'gateway.networking.k8s.io/v1alpha2', kinds: ['TCPRoute', 'TLSRoute', 'UDPRoute'], ...ROUTE },
  {
    apiVersion: 'networking.istio.io/v1',
    kinds: ['VirtualService'],
    services: [
      ...['http[].route[].destination.host', 'http[].mirror.host', 'http[].mirrors[].destination.host'],
      ...['tcp[].route[].destination.host', 'tls[].route[].destination.host'],
    ],
  },
  // Version 2 serves both groups; version 3 does not read the second.
  ...['traefik.io/v1alpha1', 'traefik.containo.us/v1alpha1'].flatMap((apiVersion) =>
    TRAEFIK.map((each) => ({ apiVersion, ...each })),
  ),
  {
    apiVersion: 'projectcontour.io/v1',
    kinds: ['HTTPProxy'],
    services: ['routes[].services[]', 'tcpproxy.services[]'],
  },
  { apiVersion: 'projectcontour.io/v1alpha1', kinds: ['ExtensionService'], services: ['services[]'] },
  { apiVersion: 'route.openshift.io/v1', kinds: ['Route'], services: ['to', 'alternateBackends[]'] },
  {
    apiVersion: 'apisix.apache.org/v2',
    kinds: ['ApisixRoute'],
    services: ['http[].backends[].serviceName', 'stream[].backend.serviceName'],
  },
  {
    apiVersion: 'configuration.konghq.com/v1beta1',
    kinds: ['TCPIngress', 'UDPIngress'],
    services: ['rules[].backend.serviceName'],
  },
  // The second group is EKS Auto Mode’s.
  ...['elbv2.k8s.aws/v1beta1', 'eks.amazonaws.com/v1'].map((apiVersion) => ({
    apiVersion,
    kinds: ['TargetGroupBinding'],
    services: ['serviceRef'],
  })),
  {
    apiVersion: 'k8s.nginx.org/v1',
    kinds: ['VirtualServer', 'VirtualServerRoute', 'TransportServer'],
    services: ['upstreams[].service'],
  },
  {
    apiVersion: 'getambassador.io/v3alpha1',
    kinds: ['Mapping', 'TCPMapping', 'RateLimitService'],
    services: ['service'],
  },
  { apiVersion: 'getambassador.io/v3alpha1', kinds: ['AuthService'], services: ['auth_service'] },
  {
    apiVersion: 'gateway.solo.io/v1',
    kinds: ['VirtualService', 'RouteTable'],
    services: ['virtualHost.', ''].flatMap((host) => [
      `${host}routes[].routeAction.single.kube.ref`,
      `${host}routes[].routeAction.multi.destinations[].destination.kube.ref`,
    ]),
  },
  {
    apiVersion: 'split.smi-spec.io/v1alpha2',
    kinds: ['TrafficSplit'],
    services: ['backends[].service'],
  },
  { apiVersion: 'zalando.org/v1', kinds: ['RouteGroup'], services: ['backends[].serviceName'] },
  { apiVersion: 'networking.gke.io/v1', kinds: ['ServiceAttachment'], services: ['resourceRef'] },
  { apiVersion: 'http.keda.sh/v1alpha1', kinds: ['HTTPScaledObject'], services: ['scaleTargetRef.service'] },
  {
    apiVersion: 'cilium.io/v2',
    kinds: ['CiliumEnvoyConfig'],
    services: ['services[]', 'backendServices[]'],
  },
  {
    apiVersion: 'cilium.io/v2',
    kinds: ['CiliumClusterwideEnvoyConfig'],
    services: ['services[]', 'backendServices[]'],
    ofCluster: true,
  },
];

/**
 * Annotations or labels of Services which show that their pods' addresses are copied to something else that follows them.
 */
export const SERVICE_MARKS: Readonly<Record<string, RegExp>> = {
  'cloud.google.com/neg': /exposed_ports/,
  'external-dns.alpha.kubernetes.io/hostname': /./,
  'consul.hashicorp.com/service-sync': /^true$/,
  'service.cilium.io/global': /^true$/,
  'io.cilium/global-service': /^true$/,
  'mirror.linkerd.io/exported': /./,
  // Load balancers that send to the pods themselves.
  'service.beta.kubernetes.io/aws-load-balancer-nlb-target-type': /^ip$/,
  'service.beta.kubernetes.io/aws-load-balancer-type': /^nlb-ip$/,
  'service.beta.kubernetes.io/backend-type': /^eni$/,
  'service.cloud.tencent.com/direct-access': /^true$/,
};

/**
 * To which ecosystem the load balancers of those marks belong; for others, none is known. Source: the AWS Load Balancer
 * Controller.
 */
const TO_PODS: Readonly<Record<string, string | null>> = {
  'service.beta.kubernetes.io/aws-load-balancer-nlb-target-type': 'aws-target-groups',
  'service.beta.kubernetes.io/aws-load-balancer-type': 'aws-target-groups',
  'service.beta.kubernetes.io/backend-type': null,
  'service.cloud.tencent.com/direct-access': null,
};

/** The class of EKS Auto Mode, whose targets are pods unless configured otherwise. */
const AUTO_MODE = 'eks.amazonaws.com/nlb';

/** The ecosystem of a Service’s load balancer if that sends to the pods directly, past node ports; null: an unknown one. */
export function balancerToPods(
  service: unknown,
): { readonly mark: string; readonly name: string | null } | undefined {
  if (memberAt(service, ['spec', 'type']) !== 'LoadBalancer') return undefined;
  const marks = memberAt(service, ['metadata', 'annotations']);
  const markedBy = (mark: string) => textOf(memberAt(marks, [mark]));
  const mark = Object.keys(TO_PODS).find((each) => SERVICE_MARKS[each]?.test(markedBy(each)));
  if (mark !== undefined) return { mark, name: TO_PODS[mark] ?? null };
  const isAuto = memberAt(service, ['spec', 'loadBalancerClass']) === AUTO_MODE;
  const type = markedBy('service.beta.kubernetes.io/aws-load-balancer-nlb-target-type');
  return isAuto && type !== 'instance' ? { mark: AUTO_MODE, name: 'aws-target-groups' } : undefined;
}

const SERVICE_EXPORT = 'multicluster.x-k8s.io/ServiceExport';

/** The kinds to list in a cluster. Many clusters do not serve most of them. */
export const TRAFFIC_SOURCE_KINDS: readonly {
  readonly apiVersion: string;
  readonly kind: string;
  readonly ofCluster?: true;
}[] = [
  ...TRAFFIC_KINDS.flatMap(({ apiVersion, kinds, ofCluster }) =>
    kinds.map((kind) => ({ apiVersion, kind, ...(ofCluster && { ofCluster }) })),
  ),
  { apiVersion: 'multicluster.x-k8s.io/v1alpha1', kind: 'ServiceExport' },
];

/** By group and kind, in whatever version, the paths in a spec at which Services are named. */
export const BACKENDS_AT: ReadonlyMap<string, readonly string[]> = new Map(
  TRAFFIC_KINDS.flatMap(({ apiVersion, kinds, services }) =>
    kinds.map((kind) => [`${apiVersion.split('/')[0]}/${kind}`, services] as const),
  ),
);

/** In whatever version: `gateway.networking.k8s.io/HTTPRoute`, `v1/Service`. */
export function groupKindOf(object: Readonly<Record<string, unknown>>): string {
  return `${textOf(object.apiVersion).split('/')[0]}/${textOf(object.kind)}`;
}

/** Whether objects of its kind lead traffic to Services. */
export function isTrafficKind(object: Readonly<Record<string, unknown>>): boolean {
  const key = groupKindOf(object);
  return key === SERVICE_EXPORT || BACKENDS_AT.has(key);
}

/** The {@link SERVICE_MARKS} that a Service has. */
export function marksIn(service: unknown): readonly string[] {
  const marks = { ...recordAt(service, 'labels'), ...recordAt(service, 'annotations') };
  return Object.keys(SERVICE_MARKS).filter((key) => SERVICE_MARKS[key]?.test(textOf(marks[key])) === true);
}

function recordAt(object: unknown, member: string): Readonly<Record<string, unknown>> {
  const value = memberAt(object, ['metadata', member]);
  return isRecord(value) ? value : {};
}

/** A Service to which traffic is led. */
export interface BackendService {
  readonly namespace: string;
  readonly service: string;
}

/** The Services that an object (of any kind, not validated) sends traffic to. */
export function backendsOf(
  object: Readonly<Record<string, unknown>>,
  namespace: string,
): readonly BackendService[] {
  const key = groupKindOf(object);
  const name = memberAt(object, ['metadata', 'name']);
  if (key === SERVICE_EXPORT) return isString(name) ? [{ namespace, service: name }] : [];
  const paths = BACKENDS_AT.get(key) ?? [];
  return paths.flatMap((path) => valuesAt(object.spec, path)).flatMap((each) => targetOf(each, namespace));
}

function valuesAt(value: unknown, path: string): readonly unknown[] {
  return path.split('.').reduce<readonly unknown[]>(
    (values, step) => {
      const name = step.replace('[]', '');
      const members = values.map((each) => memberAt(each, [name]));
      return name === step ? members : members.flatMap(listOf);
    },
    [value],
  );
}

/** References to kinds other than Service lead elsewhere. */
function targetOf(reference: unknown, namespace: string): readonly BackendService[] {
  if (isString(reference)) {
    const [service = '', other = namespace, svc = 'svc'] = reference
      .replace(/^\w+:\/\//, '')
      .replace(/[:/].*$/, '')
      .split('.');
    // The host of something outside the cluster has other labels.
    return service === '' || svc !== 'svc' ? [] : [{ namespace: other, service }];
  }
  const { name, namespace: other, kind = 'Service' } = isRecord(reference) ? reference : {};
  if (!isString(name) || kind !== 'Service') return [];
  return [{ namespace: isString(other) && other !== '' ? other : namespace, service: name }];
}
