import {
  isRecord,
  isSelected,
  isString,
  type Labels,
  memberAt,
  NAMESPACE_NAME_LABEL,
  NO_LABELS,
  recordsAt,
  type WebhookSelectors,
} from '../api/index.ts';
import { neverWithdraws } from '../cluster/index.ts';

/** What an audit knows beside the World: the routes to Services, and the autoscalers of workloads. */
export interface RelatedObjects {
  /** By Service, the objects that route traffic from outside to it: `Ingress shop/web`. */
  readonly routes: ReadonlyMap<string, readonly string[]>;
  /** Services that list a terminating pod as ready until it is gone (publishNotReadyAddresses). */
  readonly neverWithdrawing: ReadonlySet<string>;
  /** An autoscaler's minimum of replicas, by {@link workloadKey}. */
  readonly scaled: ReadonlyMap<string, number>;
  /** The selectors of Linger's webhook, as the cluster has it. */
  readonly webhook: WebhookSelectors;
  /** false: the cluster has no configuration with that webhook, so no pod reaches Linger. */
  readonly configured: boolean;
}

/** As installed by deploy/webhook.yaml, but without the opt-outs, which decisions report themselves. */
const INSTALLED: WebhookSelectors = {
  namespaceSelector: {
    matchExpressions: [
      { key: NAMESPACE_NAME_LABEL, operator: 'NotIn', values: ['kube-system', 'kube-node-lease'] },
      { key: 'app.kubernetes.io/name', operator: 'NotIn', values: ['linger'] },
    ],
  },
};

export function serviceKey(namespace: string, name: string): string {
  return `${namespace}/${name}`;
}

export function workloadKey(kind: string, namespace: string, name: string): string {
  return `${kind}/${namespace}/${name}`;
}

/** The kinds that {@link relatedObjectsIn} reads. */
export const RELATED_KINDS = [
  { apiVersion: 'v1', kind: 'Service' },
  { apiVersion: 'networking.k8s.io/v1', kind: 'Ingress' },
  { apiVersion: 'gateway.networking.k8s.io/v1', kind: 'HTTPRoute' },
  { apiVersion: 'gateway.networking.k8s.io/v1', kind: 'GRPCRoute' },
  { apiVersion: 'autoscaling/v2', kind: 'HorizontalPodAutoscaler' },
] as const;

/**
 * Sorts the related of workloads by what they say about them. Ignores other kinds, and objects that the API server would
 * not accept.
 * @param configurations {@link WEBHOOK_KIND}; undefined: not known. Without Linger's webhook, its installed selectors are assumed
 */
export function relatedObjectsIn(
  objects: Iterable<unknown>,
  defaultNamespace: string,
  configurations?: readonly { readonly webhooks?: unknown }[],
): RelatedObjects {
  const routes = new Map<string, string[]>();
  const neverWithdrawing = new Set<string>();
  const scaled = new Map<string, number>();
  const leads = (route: string, namespace: string, service: unknown) => {
    if (!isString(service)) return;
    const key = serviceKey(namespace, service);
    const known = routes.get(key);
    if (known === undefined) routes.set(key, [route]);
    // If a route names a Service twice, the entries are adjacent.
    else if (known.at(-1) !== route) known.push(route);
  };
  for (const object of objects) {
    if (!isRecord(object) || !isString(object.kind)) continue;
    const { kind } = object;
    const name = String(memberAt(object, ['metadata', 'name']));
    const given = memberAt(object, ['metadata', 'namespace']);
    const namespace = isString(given) && given !== '' ? given : defaultNamespace;
    const spec = isRecord(object.spec) ? object.spec : {};
    const route = `${kind} ${namespace}/${name}`;
    if (kind === 'Service') {
      if (spec.type === 'LoadBalancer') leads(route, namespace, name);
      if (neverWithdraws(object)) neverWithdrawing.add(serviceKey(namespace, name));
    }
    if (kind === 'Ingress') for (const service of servicesOfIngress(spec)) leads(route, namespace, service);
    if (kind === 'HTTPRoute' || kind === 'GRPCRoute')
      for (const { name: service, namespace: other } of backendsOf(spec))
        leads(route, isString(other) ? other : namespace, service);
    if (kind === 'HorizontalPodAutoscaler') {
      const target = isRecord(spec.scaleTargetRef) ? spec.scaleTargetRef : {};
      const least = typeof spec.minReplicas === 'number' ? spec.minReplicas : 1;
      scaled.set(workloadKey(String(target.kind), namespace, String(target.name)), least);
    }
  }
  const webhooks = configurations?.flatMap((each) => recordsAt(each, 'webhooks'));
  const webhook = webhooks?.find(({ name }) => name === WEBHOOK);
  const configured = webhooks === undefined || webhook !== undefined;
  return { routes, neverWithdrawing, scaled, webhook: webhook ?? INSTALLED, configured };
}

/** The kind that configures which pods a webhook is called for. */
export const WEBHOOK_KIND = {
  apiVersion: 'admissionregistration.k8s.io/v1',
  kind: 'MutatingWebhookConfiguration',
} as const;
/** The name of Linger's webhook in a configuration of any name. */
const WEBHOOK = 'pods.linger.dev';

/** Whether Linger's webhook is called for the pods of a namespace. @param labels its labels, as far as they are known */
export function isAsked({ webhook }: RelatedObjects, namespace: string, labels: Labels = NO_LABELS): boolean {
  const all = { ...labels, [NAMESPACE_NAME_LABEL]: namespace };
  return isSelected({ namespaceSelector: webhook.namespaceSelector }, all, NO_LABELS);
}

function servicesOfIngress(spec: Readonly<Record<string, unknown>>): readonly unknown[] {
  const backends = [
    spec.defaultBackend,
    ...recordsAt(spec, 'rules').flatMap((rule) =>
      recordsAt(rule, 'http', 'paths').map((path) => path.backend),
    ),
  ];
  return backends.map((backend) => memberAt(backend, ['service', 'name']));
}

/** A route's backends; those of other kinds than Service lead elsewhere. */
function backendsOf(spec: Readonly<Record<string, unknown>>): readonly Readonly<Record<string, unknown>>[] {
  const backends = recordsAt(spec, 'rules').flatMap((rule) => recordsAt(rule, 'backendRefs'));
  return backends.filter(({ kind }) => (kind ?? 'Service') === 'Service');
}
