import {
  isRecord,
  isSelected,
  isString,
  isStringMap,
  type Labels,
  listOf,
  memberAt,
  NAMESPACE_NAME_LABEL,
  NEVER_ASKED,
  NO_LABELS,
  neverWithdraws,
  recordsAt,
  taken,
  textOf,
  type WebhookSelectors,
} from '../api/index.ts';
import { workloadKey } from '../decision/index.ts';
import {
  backendsOf,
  discovering,
  groupKindOf,
  marksIn,
  reduced,
  TRAFFIC_SOURCE_KINDS,
  type UndeclaredSenders,
  undeclaredAmong,
} from '../discovery/index.ts';
import type { ConsumerView } from '../lag/index.ts';
import { type NodePool, nodePoolIn } from './node-pools.ts';
import { type DisruptionBudget, KnownPods, type TargetPorts } from './peers.ts';

/** What an audit knows besides the snapshot: what other objects say about workloads. */
export interface RelatedObjects {
  /** Senders to pods that the catalogue recognises and that no DiscoveryConsumer declares. */
  readonly undeclared: UndeclaredSenders;
  /** By consumer: the seconds within which it sends to 99 % of added endpoints, if that has been measured. */
  readonly additions: ReadonlyMap<string, number>;
  /** By Service: the objects that route traffic from outside to it: `Ingress shop/web`. */
  readonly routes: ReadonlyMap<string, readonly string[]>;
  /** By Service: those of its routes that the catalogue does not recognise. */
  readonly unrecognised: ReadonlyMap<string, readonly string[]>;
  /** By {@link serviceKey}. */
  readonly services: ReadonlyMap<string, ServiceTraits>;
  /** By {@link workloadKey}. */
  readonly scaled: ReadonlyMap<string, Autoscaler>;
  /** By namespace. */
  readonly budgets: ReadonlyMap<string, readonly DisruptionBudget[]>;
  /** By {@link workloadKey}: the Canary of Flagger that creates its Services. */
  readonly canaries: ReadonlyMap<string, string>;
  /** By namespace: what finds pods by their labels without a Service. */
  readonly pools: ReadonlyMap<string, readonly PodPool[]>;
  readonly nodePools: readonly NodePool[];
  /** All pods that Services and budgets may select besides a workload’s own. */
  readonly pods: KnownPods;
  /** The selectors of Linger's webhook, as configured in the cluster. */
  readonly webhook: WebhookSelectors;
  /** false: no configuration contains that webhook, so no pod reaches Linger. */
  readonly configured: boolean;
  /** Why new pods get no hook, if that is known: see `hooksNow`. */
  readonly noHooks?: string | undefined;
  /** By namespace: the kinds of which some objects were not read, because they were too large or there were too many. */
  readonly unread: ReadonlyMap<string, ReadonlySet<string>>;
  /**
   * These facts for an origin that is one of several ways to install the same, see `waysToInstall`; undefined: all of them
   * apply.
   */
  readonly aroundOf?: (origin: string) => Around | undefined;
}

/** The facts that come from the objects of one input. */
export type Around = Pick<
  RelatedObjects,
  'routes' | 'services' | 'scaled' | 'budgets' | 'canaries' | 'pools' | 'nodePools' | 'pods' | 'unread'
>;

/** Combines two sets of facts; where both have an object of the same name, the second's wins. */
export function togetherWith(one: Around, other: Around): Around {
  const lists = <T>(a: ReadonlyMap<string, readonly T[]>, b: ReadonlyMap<string, readonly T[]>) =>
    new Map([...a, ...[...b].map(([key, more]) => [key, [...(a.get(key) ?? []), ...more]] as const)]);
  const unread = [...other.unread].map(
    ([namespace, kinds]) => [namespace, new Set([...kinds, ...(one.unread.get(namespace) ?? [])])] as const,
  );
  return {
    routes: lists(one.routes, other.routes),
    services: new Map([...one.services, ...other.services]),
    scaled: new Map([...one.scaled, ...other.scaled]),
    budgets: lists(one.budgets, other.budgets),
    canaries: new Map([...one.canaries, ...other.canaries]),
    pools: lists(one.pools, other.pools),
    nodePools: [...one.nodePools, ...other.nodePools],
    pods: other.pods,
    unread: new Map([...one.unread, ...unread]),
  };
}

/** Something that sends traffic to the pods that it selects: `InferencePool ml/llm`. */
export interface PodPool {
  readonly by: string;
  /** matchLabels; not empty. */
  readonly labels: Labels;
}

export interface ServiceTraits {
  /** It lists a terminating pod as ready until it is gone (publishNotReadyAddresses). */
  readonly neverWithdraws: boolean;
  readonly headless: boolean;
  /** Its ports are only for metrics, as far as their names show. */
  readonly metricsOnly: boolean;
  /** The field that keeps traffic on the node where it arrived; undefined: none does. */
  readonly local: 'externalTrafficPolicy' | 'internalTrafficPolicy' | undefined;
  readonly targets: TargetPorts;
}

export interface Autoscaler {
  /** `ScaledObject web` */
  readonly by: string;
  /** The smallest number of replicas. */
  readonly least: number;
  /** Whether it scales up what has 0 replicas. */
  readonly wakes: boolean;
}

/** The selectors of deploy/webhook.yaml, except for the opt-outs, which decisions report themselves. */
const INSTALLED: WebhookSelectors = {
  namespaceSelector: {
    matchExpressions: [
      { key: NAMESPACE_NAME_LABEL, operator: 'NotIn', values: NEVER_ASKED },
      { key: 'app.kubernetes.io/name', operator: 'NotIn', values: ['linger'] },
    ],
  },
};

export function serviceKey(namespace: string, name: string): string {
  return `${namespace}/${name}`;
}

/** How many budgets of a namespace are read, and how many characters of one: each workload is compared with all of them. */
const MOST_BUDGETS = 1_000;
const LONGEST_BUDGET = 4_096;

/** The kinds that {@link relatedObjectsIn} reads. Many clusters do not serve all of them. */
export const RELATED_KINDS: readonly {
  readonly apiVersion: string;
  readonly kind: string;
  /** It has no namespace. */
  readonly ofCluster?: true;
}[] = [
  { apiVersion: 'v1', kind: 'Service' },
  { apiVersion: 'autoscaling/v2', kind: 'HorizontalPodAutoscaler' },
  { apiVersion: 'policy/v1', kind: 'PodDisruptionBudget' },
  { apiVersion: 'keda.sh/v1alpha1', kind: 'ScaledObject' },
  { apiVersion: 'inference.networking.k8s.io/v1', kind: 'InferencePool' },
  { apiVersion: 'inference.networking.x-k8s.io/v1alpha2', kind: 'InferencePool' },
  { apiVersion: 'networking.istio.io/v1', kind: 'ServiceEntry' },
  { apiVersion: 'karpenter.sh/v1', kind: 'NodePool', ofCluster: true },
  ...TRAFFIC_SOURCE_KINDS,
];

/**
 * Sorts objects by what they say about workloads. Ignores other kinds, and objects that the API server would not accept.
 * @param configurations objects of {@link WEBHOOK_KIND}; undefined: not known. If Linger's webhook is not among them, the
 * selectors of a usual installation are assumed
 */
export function relatedObjectsIn(...of: Parameters<typeof relating>): RelatedObjects {
  return taken(relating(...of));
}

/** {@link relatedObjectsIn} in steps, so that a leader that audits a large cluster can answer reviews in between. */
export function* relating(
  objects: readonly unknown[],
  defaultNamespace: string,
  configurations?: readonly { readonly webhooks?: unknown }[],
): Generator<undefined, RelatedObjects> {
  const routes = new Map<string, string[]>();
  const services = new Map<string, ServiceTraits>();
  const pools = new Map<string, readonly PodPool[]>();
  const canaries = new Map<string, string>();
  const nodePools: NodePool[] = [];
  const scaled = new Map<string, Autoscaler>();
  const budgets = new Map<string, DisruptionBudget[]>();
  const leads = (route: string, key: string) => {
    const known = routes.get(key);
    if (known === undefined) routes.set(key, [route]);
    // If a route names a Service twice, the entries are adjacent.
    else if (known.at(-1) !== route) known.push(route);
  };
  const unread = new Map<string, Set<string>>();
  const leaveOut = (namespace: string, kind: string) =>
    void unread.set(namespace, (unread.get(namespace) ?? new Set()).add(kind));
  const kept: Readonly<Record<string, unknown>>[] = [];
  for (const each of objects) {
    yield;
    if (!isRecord(each) || !isString(each.kind)) continue;
    const { kind } = each;
    const name = textOf(memberAt(each, ['metadata', 'name']));
    const given = memberAt(each, ['metadata', 'namespace']);
    const namespace = isString(given) && given !== '' ? given : defaultNamespace;
    const object = reduced(each);
    if (object === undefined) {
      leaveOut(namespace, kind);
      continue;
    }
    kept.push(object);
    const spec = isRecord(object.spec) ? object.spec : {};
    const subject = `${kind} ${namespace}/${name}`;
    for (const target of backendsOf(object, namespace))
      leads(subject, serviceKey(target.namespace, target.service));
    if (kind === 'Service' && object.apiVersion === 'v1') {
      const key = serviceKey(namespace, name);
      for (const way of waysInto(object)) leads(way === '' ? subject : `${subject} (${way})`, key);
      services.set(key, traitsOf(object, spec));
    }
    if (kind === 'PodDisruptionBudget') {
      const own = budgets.get(namespace) ?? [];
      budgets.set(namespace, own);
      // A budget that the input has twice is one object.
      const same = own.findIndex((other) => other.name === name);
      const at = same < 0 ? own.length : same;
      if (at < MOST_BUDGETS && JSON.stringify(spec).length <= LONGEST_BUDGET)
        own[at] = { namespace, name, spec };
      else leaveOut(namespace, kind);
    }
    const pool = poolIn(object, spec, subject);
    if (pool !== undefined) pools.set(namespace, [...(pools.get(namespace) ?? []), pool]);
    // Source: fluxcd/flagger pkg/canary (the target is a Deployment where its kind is absent).
    if (groupKindOf(object) === 'flagger.app/Canary') {
      const { kind: of = 'Deployment', name: target } = isRecord(spec.targetRef) ? spec.targetRef : {};
      canaries.set(workloadKey(textOf(of), namespace, textOf(target)), subject);
    }
    const nodePool = nodePoolIn(object);
    if (nodePool !== undefined) nodePools.push(nodePool);
    const target = isRecord(spec.scaleTargetRef) ? spec.scaleTargetRef : undefined;
    const least = leastReplicas(kind, spec);
    if (target !== undefined && least !== undefined) {
      const key = workloadKey(textOf(target.kind ?? 'Deployment'), namespace, textOf(target.name));
      // The HorizontalPodAutoscaler that KEDA creates has at least 1 replica; only KEDA's own object shows that it scales to 0.
      const known = scaled.get(key);
      const wakes = kind !== 'HorizontalPodAutoscaler' || least === 0;
      if (known === undefined || least < known.least || (least === known.least && wakes))
        scaled.set(key, { by: `${kind} ${name}`, least, wakes });
    }
  }
  const discovered = yield* discovering(kept, defaultNamespace);
  const unrecognised = new Map<string, string[]>();
  for (const { seen, services: reached } of discovered.unrecognised)
    for (const service of new Set(reached)) {
      const known = unrecognised.get(service);
      if (known === undefined) unrecognised.set(service, [seen]);
      else known.push(seen);
    }
  return {
    undeclared: undeclaredAmong(discovered),
    unrecognised,
    additions: new Map(),
    routes,
    services,
    scaled,
    budgets,
    canaries,
    pools,
    nodePools,
    pods: new KnownPods(new Map()),
    unread,
    ...calledBy(configurations),
  };
}

/** The pods for which the webhook is called. @param configurations see {@link relatedObjectsIn} */
export function calledBy(
  configurations: readonly { readonly webhooks?: unknown }[] | undefined,
): Pick<RelatedObjects, 'webhook' | 'configured'> {
  const webhooks = configurations?.flatMap((each) => recordsAt(each, 'webhooks'));
  const webhook = webhooks?.find(({ name }) => name === WEBHOOK);
  return { webhook: webhook ?? INSTALLED, configured: webhooks === undefined || webhook !== undefined };
}

/** Source: gateway-api-inference-extension api/v1 (InferencePool; matchLabels, in alpha a plain map), istio.io ServiceEntry. */
function poolIn(
  object: Record<string, unknown>,
  spec: Record<string, unknown>,
  by: string,
): PodPool | undefined {
  const isOf = (pattern: RegExp) => pattern.test(groupKindOf(object));
  const selector = isOf(/^inference\.networking\.(x-)?k8s\.io\/InferencePool$/)
    ? (memberAt(spec, ['selector', 'matchLabels']) ?? spec.selector)
    : isOf(/^networking\.istio\.io\/ServiceEntry$/)
      ? memberAt(spec, ['workloadSelector', 'labels'])
      : isOf(/^cilium\.io\/CiliumLocalRedirectPolicy$/)
        ? memberAt(spec, ['redirectBackend', 'localEndpointSelector', 'matchLabels'])
        : undefined;
  return isStringMap(selector) && Object.keys(selector).length > 0 ? { by, labels: selector } : undefined;
}

/** With fewer samples than this, the slowest addition may have been chance. */
const ADDITIONS_ENOUGH = 20;

/** For {@link RelatedObjects.additions}. */
export function additionsIn(views: readonly ConsumerView[]): RelatedObjects['additions'] {
  const known = views.filter(({ additions }) => (additions?.samples ?? 0) >= ADDITIONS_ENOUGH);
  return new Map(known.map(({ name, additions }) => [name, additions?.p99 ?? 0]));
}

/** The kind that configures for which pods a webhook is called. */
export const WEBHOOK_KIND = {
  apiVersion: 'admissionregistration.k8s.io/v1',
  kind: 'MutatingWebhookConfiguration',
} as const;
/** The name of Linger's webhook, whatever the name of its configuration. */
export const WEBHOOK = 'pods.linger.dev';

/**
 * Whether Linger's webhook is called for the pods of a namespace. @param labels the namespace's labels, as far as they are
 * known
 */
export function isAsked({ webhook }: RelatedObjects, namespace: string, labels: Labels = NO_LABELS): boolean {
  const all = { ...labels, [NAMESPACE_NAME_LABEL]: namespace };
  return isSelected({ namespaceSelector: webhook.namespaceSelector }, all, NO_LABELS);
}

function traitsOf(service: Record<string, unknown>, spec: Record<string, unknown>): ServiceTraits {
  const isOpen = spec.type === 'LoadBalancer' || spec.type === 'NodePort';
  const external = isOpen && spec.externalTrafficPolicy === 'Local' ? 'externalTrafficPolicy' : undefined;
  const internal = spec.internalTrafficPolicy === 'Local' ? 'internalTrafficPolicy' : undefined;
  return {
    neverWithdraws: neverWithdraws(service),
    headless: spec.clusterIP === 'None',
    metricsOnly: isForMetrics(service),
    local: external ?? internal,
    targets: targetsIn(service),
  };
}

/** Without a targetPort, it is the number of the port. */
function targetsIn(service: Record<string, unknown>): TargetPorts {
  const ports = recordsAt(service, 'spec', 'ports');
  const isNamed = ({ targetPort }: Record<string, unknown>) => isString(targetPort) && targetPort !== '';
  const named = ports.filter(isNamed).map(({ targetPort, protocol = 'TCP' }) => ({
    target: `${textOf(targetPort)}/${textOf(protocol)}`,
  }));
  return { numbered: named.length < ports.length || ports.length === 0, named };
}

const METRICS = /(^|[-_])(metrics?|prom(etheus)?|telemetry|monitoring)([-_]|$)/i;
/** Names of Services that serve metrics. Not `metrics-server`, whose clients ask it for the metrics of others. */
const CALLED_METRICS = /(^|[-_])metrics([-_](svc|service|headless))?$/i;
/** Names of ports that a Service for metrics may have besides a telling one: projects of kubebuilder use `https`. */
const PLAIN_PORT = /^(https?)?$/i;

/** Judged by the names of its ports; if it has a single port without a telling name, by the name of the Service. */
function isForMetrics(service: Record<string, unknown>): boolean {
  const ports = recordsAt(service, 'spec', 'ports');
  const named = ports.every(
    ({ name, targetPort }) => METRICS.test(textOf(name)) || METRICS.test(textOf(targetPort)),
  );
  const [only, ...more] = ports;
  const isCalled =
    only !== undefined &&
    more.length === 0 &&
    PLAIN_PORT.test(textOf(only.name)) &&
    CALLED_METRICS.test(textOf(memberAt(service, ['metadata', 'name'])));
  return ports.length > 0 && (named || isCalled);
}

/**
 * The smallest number of replicas that an autoscaler keeps; undefined: the object is no autoscaler. Source: k8s.io/api
 * autoscaling/v2 (an absent minReplicas means 1), kedacore/keda apis/keda/v1alpha1 and kedacore/http-add-on
 * operator/apis/http/v1alpha1 (an absent minimum means 0).
 */
function leastReplicas(kind: string, spec: Record<string, unknown>): number | undefined {
  if (kind === 'HorizontalPodAutoscaler') return numberOr(spec.minReplicas, 1);
  if (kind === 'HTTPScaledObject') return numberOr(memberAt(spec, ['replicas', 'min']), 0);
  if (kind !== 'ScaledObject') return undefined;
  return Math.min(
    numberOr(spec.minReplicaCount, 0),
    numberOr(spec.idleReplicaCount, Number.POSITIVE_INFINITY),
  );
}

function numberOr(value: unknown, otherwise: number): number {
  return typeof value === 'number' ? value : otherwise;
}

/** Ways from outside into the Service that its own spec shows. */
function waysInto(service: Readonly<Record<string, unknown>>): readonly string[] {
  const { spec } = service;
  const type = memberAt(spec, ['type']);
  return [
    ...(type === 'LoadBalancer' ? [''] : []),
    ...(type === 'NodePort' ? ['NodePort'] : []),
    ...(listOf(memberAt(spec, ['externalIPs'])).length > 0 ? ['externalIPs'] : []),
    ...marksIn(service),
  ];
}
