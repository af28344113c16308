import { BUILT_IN_CONSUMERS } from '../catalog/vocabulary.ts';
import type { NamespaceRecord } from '../cluster/namespaces.ts';
import { EVERYTHING, type Labels, selects } from '../cluster/selector.ts';
import type { ServiceRecord } from '../cluster/services.ts';
import { type Density, exactly, uniformUpTo } from '../lag/combine.ts';
import type { LaggingConsumer } from '../lag/distribution.ts';
import type { DiscoveryConsumerSpec } from '../schema/consumer.ts';
import type { LabelSelector } from '../schema/selector.ts';

/** Whatever finds endpoints and sends traffic to them, as decisions and those who measure it know it. */
export interface Consumer extends LaggingConsumer {
  readonly namespaceSelector: LabelSelector;
  /** The Services that it sends traffic to; undefined: none, it finds its pods by itself. */
  readonly serviceSelector: LabelSelector | undefined;
  /** Pods that it finds without any Service; undefined: it goes by Services only. */
  readonly podSelector: LabelSelector | undefined;
  /** It goes by ClusterIPs, which headless Services do not have. */
  readonly clusterIps: boolean;
  readonly measure: Measure;
}

/** How a consumer's lag is known. */
export type Measure =
  | { readonly kind: 'declared' }
  | { readonly kind: 'reports' }
  /** Seconds. */
  | { readonly kind: 'probe'; readonly url: string; readonly every: number | undefined }
  /** The canary's own. */
  | { readonly kind: 'clusterIp' };

export type MeasureKind = Measure['kind'];

/** Programs every Service's ClusterIP on every node: kube-proxy, or what stands in for it. */
export const CLUSTER_IP: Consumer = {
  name: BUILT_IN_CONSUMERS.clusterIp,
  lagKey: BUILT_IN_CONSUMERS.clusterIp,
  declared: undefined,
  builtIn: true,
  namespaceSelector: EVERYTHING,
  serviceSelector: EVERYTHING,
  podSelector: undefined,
  clusterIps: true,
  measure: { kind: 'clusterIp' },
};

/** The consumer that a DiscoveryConsumer declares. */
export function consumerOf(name: string, { appliesTo = {}, measure }: DiscoveryConsumerSpec): Consumer {
  const { namespaceSelector = EVERYTHING, serviceSelector, podSelector } = appliesTo;
  const declared = measure.declared && declaredLag(measure.declared);
  return {
    name,
    // A declaration that is changed is another lag; a measured one follows the published table by its name.
    lagKey: measure.declared === undefined ? name : `${name}=${JSON.stringify(measure.declared)}`,
    declared,
    builtIn: false,
    namespaceSelector,
    // Whoever names pods and no Services has a discovery of its own.
    serviceSelector: serviceSelector ?? (podSelector === undefined ? EVERYTHING : undefined),
    podSelector,
    clusterIps: false,
    measure: measureOf(measure),
  };
}

function declaredLag({
  syncInterval,
  lag = 0,
}: NonNullable<DiscoveryConsumerSpec['measure']['declared']>): Density {
  return syncInterval === undefined ? exactly(lag) : uniformUpTo(syncInterval);
}

function measureOf({ reports, probe }: DiscoveryConsumerSpec['measure']): Measure {
  if (probe !== undefined) return { kind: 'probe', url: probe.url, every: probe.every };
  return reports === undefined ? { kind: 'declared' } : { kind: 'reports' };
}

/**
 * Whether it sends traffic to a pod with these labels.
 * @param services those that select the pod. Where there is none (not yet: a Deployment may be applied before its
 *   Service), or nobody knows, whoever goes by every Service is taken to: too long a wait is the cheaper mistake
 */
export function sendsTo(
  consumer: Consumer,
  namespace: NamespaceRecord,
  labels: Labels,
  services: readonly ServiceRecord[] | 'unknown',
): boolean {
  if (!selects(consumer.namespaceSelector, namespace.labels)) return false;
  if (findsByItself(consumer, labels)) return true;
  const { serviceSelector, clusterIps } = consumer;
  if (serviceSelector === undefined) return false;
  if (services === 'unknown' || services.length === 0) return selects(serviceSelector, {});
  return services.some(
    (service) => !(clusterIps && service.headless) && selects(serviceSelector, service.labels),
  );
}

/** Whether it finds the pod without any Service. */
export function findsByItself({ podSelector }: Consumer, labels: Labels): boolean {
  return podSelector !== undefined && selects(podSelector, labels);
}
