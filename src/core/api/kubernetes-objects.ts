import { memberAt } from './json.ts';
import { NAMESPACE_NAME_LABEL } from './names.ts';
import { EVERYTHING, type LabelSelector, type Labels, labelOf, NO_LABELS, selects } from './selector.ts';

export interface NamespaceRecord {
  readonly name: string;
  readonly labels: Labels;
  readonly annotations: Readonly<Record<string, string>>;
  /** Linger has not seen this Namespace, so it may have more labels and annotations than these. */
  readonly unseen?: true;
}

/** A Namespace that Linger has not seen. It certainly has the label that the API server gives to every Namespace. */
export function unseenNamespace(name: string): NamespaceRecord {
  return { name, labels: { [NAMESPACE_NAME_LABEL]: name }, annotations: NO_LABELS, unseen: true };
}

/** Whether a selector matches a Namespace; `'unknown'` if that depends on labels of one that has not been seen. */
export function selectsNamespace(
  selector: LabelSelector,
  { labels, unseen }: NamespaceRecord,
): boolean | 'unknown' {
  if (!unseen || selector === EVERYTHING) return selects(selector, labels);
  const { matchLabels = {}, matchExpressions = [] } = selector;
  const isKnown = (key: string) => Object.hasOwn(labels, key);
  const knownLabels = Object.entries(matchLabels).filter(([key]) => isKnown(key));
  const knownExpressions = matchExpressions.filter(({ key }) => isKnown(key));
  const known = { matchLabels: Object.fromEntries(knownLabels), matchExpressions: knownExpressions };
  if (!selects(known, labels)) return false;
  const asked = Object.keys(matchLabels).length + matchExpressions.length;
  return knownLabels.length + knownExpressions.length === asked || 'unknown';
}

/** A Namespace from a manifest, with the label that the API server would add. */
export function namespaceRecord(name: string, labels: Labels, annotations: Labels): NamespaceRecord {
  return { name, labels: { ...labels, [NAMESPACE_NAME_LABEL]: name }, annotations };
}

/**
 * The fields of a Service that decisions read. Without a `selector`, its endpoints are written by another controller or
 * by hand.
 */
export interface ServiceRecord {
  readonly namespace: string;
  readonly name: string;
  readonly labels: Labels;
  readonly selector: Labels | undefined;
  /** It is from a manifest and its selector cannot be read, so it may select any pod of its namespace. */
  readonly unreadable?: true;
  /** Without a ClusterIP: DNS answers with its pods' addresses. */
  readonly headless: boolean;
  /** spec.type is ExternalName: a DNS alias that sends nothing to pods. */
  readonly externalName: boolean;
  /** Known for Services of the cluster only. Undefined: headless, ExternalName, or not assigned yet. */
  readonly clusterIp?: string | undefined;
  /** Its TCP ports, or the first ones if there are many; known only for Services of the cluster. */
  readonly ports?: readonly number[];
}

export interface ServiceIndex {
  /**
   * Whether a namespace without an entry certainly has no Service. Otherwise (with files, or a watch that has not synced)
   * that is unknown.
   */
  readonly complete: boolean;
  readonly byNamespace: ReadonlyMap<string, readonly ServiceRecord[]>;
  /** Namespaces in which labels and selectors of some Services are unknown, because they are too large. */
  readonly unread?: ReadonlySet<string>;
}

/**
 * Keys that rollout controllers add to a Service's selector to shift traffic between ReplicaSets. A pod that is not selected
 * now may be selected a minute later, so they do not determine whether it serves.
 */
const TRAFFIC_SHIFTING_KEYS = new Set(['pod-template-hash', 'rollouts-pod-template-hash']);

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
  if (index.unread?.has(namespace)) return 'unknown';
  if (services === undefined) return index.complete ? [] : 'unknown';
  const selecting = services.filter((service) => selectsPod(service, labels));
  return selecting.length === 0 && services.some(({ unreadable }) => unreadable) ? 'unknown' : selecting;
}

/** The labels that a Service compares: each pod that it selects has all of them. */
export function selectedLabels({ selector = {} }: ServiceRecord): Labels {
  return Object.fromEntries(Object.entries(selector).filter(([key]) => !TRAFFIC_SHIFTING_KEYS.has(key)));
}

/** Whether the Service sends to pods with these labels. */
export function selectsPod(service: ServiceRecord, labels: Labels): boolean {
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

/**
 * Replaced by spec.publishNotReadyAddresses in 1.9; endpoint controllers before about 1.24 still honour it, and
 * wrongly assuming that a Service never withdraws only costs samples. Source: k8s.io/kubernetes
 * pkg/controller/endpoint (TolerateUnreadyEndpointsAnnotation).
 */
export const TOLERATE_UNREADY = 'service.alpha.kubernetes.io/tolerate-unready-endpoints';

/** Whether a Service (not validated) lists a terminating pod until it is gone. */
export function neverWithdraws(service: Readonly<Record<string, unknown>>): boolean {
  return (
    memberAt(service, ['spec', 'publishNotReadyAddresses']) === true ||
    memberAt(service, ['metadata', 'annotations', TOLERATE_UNREADY]) === 'true'
  );
}
