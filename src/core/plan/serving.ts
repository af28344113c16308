import type { NamespaceRecord } from '../cluster/namespaces.ts';
import { type Labels, selects } from '../cluster/selector.ts';
import { type ServiceIndex, servicesSelecting } from '../cluster/services.ts';
import type { LabelSelector } from '../schema/selector.ts';
import { labelsOf, type Pod } from './pod.ts';

/** A DiscoveryConsumer, as far as it says which pods it sends traffic to. */
export interface ConsumerRecord {
  readonly name: string;
  readonly namespaceSelector: LabelSelector;
  /** Pods that it finds without any Service; undefined: it goes by Services only. */
  readonly podSelector: LabelSelector | undefined;
}

export type Serving = 'selected' | 'declared' | 'unknown' | 'no';

/**
 * Whether somebody sends traffic to the pod.
 * `selected`: a Service or a consumer selects it. `declared`: it has a port or a readiness probe, which says the
 * same of a pod whose Service is applied a moment later. `unknown`: the namespace's Services are not known.
 */
export function servingOf(
  pod: Pod,
  namespace: NamespaceRecord,
  services: ServiceIndex,
  consumers: readonly ConsumerRecord[],
): Serving {
  const labels = labelsOf(pod);
  if (consumers.some((consumer) => reaches(consumer, namespace, labels))) return 'selected';
  const selecting = servicesSelecting(services, namespace.name, labels);
  if (selecting !== 'unknown' && selecting.length > 0) return 'selected';
  if (pod.spec.containers.some(({ ports, readinessProbe }) => (ports?.length ?? 0) > 0 || readinessProbe))
    return 'declared';
  return selecting === 'unknown' ? 'unknown' : 'no';
}

function reaches(
  { podSelector, namespaceSelector }: ConsumerRecord,
  namespace: NamespaceRecord,
  labels: Labels,
): boolean {
  return (
    podSelector !== undefined && selects(podSelector, labels) && selects(namespaceSelector, namespace.labels)
  );
}
