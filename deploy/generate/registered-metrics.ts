import { registerAuditMetrics, registerTerminationMetrics } from '../../src/audit/index.ts';
import { registerWatchMetrics } from '../../src/cluster/index.ts';
import { defaultWait, NO_SOURCES, snapshotOf } from '../../src/core/decision/index.ts';
import {
  registerDeliveryMetrics,
  registerHoldMetrics,
  registerNodeShutdownMetrics,
} from '../../src/hold/index.ts';
import { newStatus, registerFloorMetrics, registerPublishMetrics } from '../../src/leader/index.ts';
import { registerManagerMetrics } from '../../src/manager/index.ts';
import {
  Measurement,
  registerCanaryMetrics,
  registerConsumerMetrics,
  registerDeregistrationMetrics,
  registerInspectionMetrics,
  registerLagMetrics,
  registerReportMetrics,
} from '../../src/measurement/index.ts';
import { createMetrics } from '../../src/telemetry/index.ts';
import { AdmissionMetrics } from '../../src/webhook/index.ts';

/** What the registry's metrics carry beside their declared type. */
export interface Described {
  readonly name: string;
  readonly type: string;
  readonly help: string;
  readonly reference?: string;
  readonly labelNames: readonly string[];
}

const { registry } = createMetrics('0.0.0');
new AdmissionMetrics(registry);
/** How many of them a server has that follows no cluster: the first ones. */
const withoutCluster = ownOf(registry).length;
const clocks = { clock: () => 0, epochSeconds: () => 0 };
registerWatchMetrics(registry, {
  watches: () => ({}),
  unread: () => ({}),
  refused: () => ({}),
  synced: () => false,
  clock: clocks.clock,
});
registerLagMetrics(registry, new Measurement(clocks), () => defaultWait(snapshotOf(NO_SOURCES)));
registerManagerMetrics(registry);
registerPublishMetrics(registry, newStatus());
registerFloorMetrics(registry, () => undefined);
registerCanaryMetrics(registry, () => []);
registerReportMetrics(registry, () => []);
registerInspectionMetrics(
  registry,
  () => ({ instances: () => [].values(), stale: () => [].values() }) as never,
);
registerDeregistrationMetrics(registry);
registerConsumerMetrics(registry, { views: () => [], epochSeconds: clocks.epochSeconds });
registerTerminationMetrics(registry);
registerDeliveryMetrics(registry, { namespaces: () => 0, lacking: () => 0, kinds: () => ({}) });
registerHoldMetrics(registry, { held: () => 0, unreached: () => 0 });
registerNodeShutdownMetrics(registry);
registerAuditMetrics(registry, () => undefined, {
  configuration: '',
  configured: () => undefined,
  trusted: () => undefined,
});

/** What a scrape finds before anything has happened. */
export const atStart = registry.metrics();

/** Every metric of a server that follows a cluster, in the registry's order. */
export const registered = allOf(registry);

/** Linger's own. */
export const own = ownOf(registry);

/** Linger's own, by whether they need a cluster. */
export const serverMetrics = own.slice(0, withoutCluster);
export const clusterMetrics = own.slice(withoutCluster);

function allOf(from: typeof registry): readonly Described[] {
  return from.getMetricsAsArray() as unknown as readonly Described[];
}

function ownOf(from: typeof registry): readonly Described[] {
  return allOf(from).filter(({ name }) => name.startsWith('linger_'));
}

/** Every series of Linger's: a histogram has three. */
export const series: ReadonlyMap<string, Described> = new Map(
  own.flatMap((metric) => seriesOf(metric).map((name) => [name, metric])),
);

export function seriesOf({ name, type }: Described): readonly string[] {
  return type === 'histogram' ? [name, `${name}_bucket`, `${name}_sum`, `${name}_count`] : [name];
}
