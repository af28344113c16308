import { NAMESPACE_NAME_LABEL } from './names.ts';
import { type LabelSelector, type Labels, labelOf, NO_LABELS, selects } from './selector.ts';

/** What the decision needs of a Namespace. */
export interface NamespaceRecord {
  readonly name: string;
  readonly labels: Labels;
  readonly annotations: Readonly<Record<string, string>>;
  /** Linger has not seen it: it may have more labels and annotations than these. */
  readonly unseen?: true;
}

/** A Namespace that Linger has not seen still has the label that the API server gives to every one of them. */
export function unseenNamespace(name: string): NamespaceRecord {
  return { name, labels: { [NAMESPACE_NAME_LABEL]: name }, annotations: NO_LABELS, unseen: true };
}

/** Whether a selector matches a Namespace; `'unknown'` where that depends on labels of one that has not been seen. */
export function selectsNamespace(
  selector: LabelSelector,
  { labels, unseen }: NamespaceRecord,
): boolean | 'unknown' {
  if (!unseen) return selects(selector, labels);
  const { matchLabels = {}, matchExpressions = [] } = selector;
  const isKnown = (key: string) => Object.hasOwn(labels, key);
  const known = {
    matchLabels: Object.fromEntries(Object.entries(matchLabels).filter(([key]) => isKnown(key))),
    matchExpressions: matchExpressions.filter(({ key }) => isKnown(key)),
  };
  if (!selects(known, labels)) return false;
  const complete =
    Object.keys(matchLabels).every(isKnown) && matchExpressions.every(({ key }) => isKnown(key));
  return complete || 'unknown';
}

/** A Namespace from a manifest, with the label that the API server would add. */
export function namespaceRecord(name: string, labels: Labels, annotations: Labels): NamespaceRecord {
  return { name, labels: { ...labels, [NAMESPACE_NAME_LABEL]: name }, annotations };
}

/** What the decision needs of a Service. Without a `selector` its endpoints are written by another controller or by hand. */
export interface ServiceRecord {
  readonly namespace: string;
  readonly name: string;
  readonly labels: Labels;
  readonly selector: Labels | undefined;
  /** Without a ClusterIP: DNS answers with its pods' addresses. */
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
