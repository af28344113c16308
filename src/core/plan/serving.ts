import type { NamespaceRecord } from '../cluster/namespaces.ts';
import { type Labels, selects } from '../cluster/selector.ts';
import { type ServiceIndex, servicesSelecting } from '../cluster/services.ts';
import type { LabelSelector } from '../schema/selector.ts';
import { labelsOf, type Pod, servingContainers } from './pod.ts';

/** A DiscoveryConsumer, as far as it says which pods it sends traffic to. */
export interface ConsumerRecord {
  readonly name: string;
  readonly namespaceSelector: LabelSelector;
  /** Pods that it finds without any Service; undefined: it goes by Services only. */
  readonly podSelector: LabelSelector | undefined;
}

/** What is known of who sends traffic to a pod. */
export interface Serving {
  /** A Service or a consumer selects it; unknown while the namespace's Services are. */
  readonly selected: boolean | 'unknown';
  /** It declares a port or a readiness probe, which says the same of a pod whose Service is applied a moment later. */
  readonly declared: boolean;
}

/** Whether somebody sends traffic to the pod. */
export function servingOf(
  pod: Pod,
  namespace: NamespaceRecord,
  services: ServiceIndex,
  consumers: readonly ConsumerRecord[],
): Serving {
  const labels = labelsOf(pod);
  const declared = servingContainers(pod).some(
    ({ ports, readinessProbe }) => (ports?.length ?? 0) > 0 || readinessProbe,
  );
  if (consumers.some((consumer) => reaches(consumer, namespace, labels))) return { selected: true, declared };
  const selecting = servicesSelecting(services, namespace.name, labels);
  return { selected: selecting === 'unknown' ? selecting : selecting.length > 0, declared };
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
