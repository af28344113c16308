import type { NamespaceRecord } from '../cluster/namespaces.ts';
import { selects } from '../cluster/selector.ts';
import type { servicesSelecting } from '../cluster/services.ts';
import { type Consumer, findsByItself, sendsTo } from '../consumers/consumer.ts';
import { labelsOf, type Pod, servingContainers } from './pod.ts';

/** The Services that select the pod; unknown while the namespace's are. */
export type SelectingServices = ReturnType<typeof servicesSelecting>;

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
  selecting: SelectingServices,
  consumers: readonly Consumer[],
): Serving {
  const labels = labelsOf(pod);
  const declared = servingContainers(pod).some(
    ({ ports, readinessProbe }) => (ports?.length ?? 0) > 0 || readinessProbe,
  );
  const found = consumers.some(
    (consumer) => selects(consumer.namespaceSelector, namespace.labels) && findsByItself(consumer, labels),
  );
  if (found) return { selected: true, declared };
  return { selected: selecting === 'unknown' ? selecting : selecting.length > 0, declared };
}

/** The consumers that send traffic to the pod, as far as one can know. */
export function consumersOf(
  pod: Pod,
  namespace: NamespaceRecord,
  selecting: SelectingServices,
  consumers: readonly Consumer[],
): readonly Consumer[] {
  const labels = labelsOf(pod);
  return consumers.filter((consumer) => sendsTo(consumer, namespace, labels, selecting));
}
