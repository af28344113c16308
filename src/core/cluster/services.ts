import { type Labels, labelOf } from './selector.ts';

/** What the decision needs of a Service. `selector` undefined: somebody else writes its endpoints. */
export interface ServiceRecord {
  readonly namespace: string;
  readonly name: string;
  readonly labels: Labels;
  readonly selector: Labels | undefined;
  /** Without a ClusterIP: whoever looks it up gets its pods' addresses. */
  readonly headless: boolean;
  /** spec.type is ExternalName: a DNS alias that sends nothing to pods. */
  readonly externalName: boolean;
}

/**
 * The Services by namespace.
 * `complete`: every Service of the cluster is here, so a namespace without an entry has none.
 * Otherwise (files, or a watch that has not synced) a namespace without an entry is simply unknown.
 */
export interface ServiceIndex {
  readonly complete: boolean;
  readonly byNamespace: ReadonlyMap<string, readonly ServiceRecord[]>;
}

export const NO_SERVICES: ServiceIndex = { complete: false, byNamespace: new Map() };

/**
 * Rollout controllers add these keys to a Service's selector to move traffic between ReplicaSets. A pod that is
 * not selected at this minute is selected at the next, so they do not decide whether it serves.
 */
const TRAFFIC_SHIFTING_KEYS: ReadonlySet<string> = new Set([
  'pod-template-hash',
  'rollouts-pod-template-hash',
]);

export function serviceIndex(services: readonly ServiceRecord[], complete: boolean): ServiceIndex {
  return { complete, byNamespace: Map.groupBy(services, (service) => service.namespace) };
}

/** The Services that select a pod with these labels, or 'unknown' when the namespace's Services are not known. */
export function servicesSelecting(
  index: ServiceIndex,
  namespace: string,
  labels: Labels,
): readonly ServiceRecord[] | 'unknown' {
  const services = index.byNamespace.get(namespace);
  if (services === undefined) return index.complete ? [] : 'unknown';
  return services.filter((service) => selectsPod(service, labels));
}

function selectsPod(service: ServiceRecord, labels: Labels): boolean {
  if (service.externalName || service.selector === undefined) return false;
  let compared = 0;
  for (const key in service.selector) {
    if (TRAFFIC_SHIFTING_KEYS.has(key)) continue;
    if (labelOf(labels, key) !== service.selector[key]) return false;
    compared += 1;
  }
  // An empty selector selects nothing. Source: k8s.io/kubernetes pkg/controller/endpointslice (Selector == nil).
  return compared > 0;
}
