import { Counter, type Registry } from '@prometheus-io/client';
import type { SigningKeys } from '../../certs/index.ts';
import type { ReportResult } from '../../core/api/index.ts';
import type { Consumer, InstancesState, StageVersions } from '../../core/lag/index.ts';
import type { Leadership, PodEvent, Runnable } from '../../manager/index.ts';
import { counterAtScrape, gaugeAtScrape } from '../../telemetry/index.ts';
import { tick } from '../../timing/index.ts';
import type { ConsumerMeasurement } from '../measurement.ts';
import { measuredBy } from '../measures.ts';
import { ConsumerReports } from './reports.ts';

/**
 * Registers the metrics of reports.
 * @param readings by consumer; empty on a replica that does not lead
 * @returns a function that counts a report
 */
export function registerReportMetrics(
  registry: Registry,
  readings: () => readonly (readonly [consumer: string, state: InstancesState, lost: number])[],
): (consumer: string, result: ReportResult) => void {
  const reports = new Counter({
    name: 'linger_reports_total',
    help: 'Reports of consumers’ instances, by result; the consumer is empty where none has that name.',
    reference:
      '[Reports](../gateways.md#a-gateway-that-reports-when-it-has-synced) that reached this replica, by [result](consumers.md#answers-to-reports).',
    labelNames: ['consumer', 'result'] as const,
    registers: [registry],
  });
  gaugeAtScrape(registry, {
    name: 'linger_report_instances',
    help: 'Instances that report and have not fallen silent. Only on the leader.',
    labelNames: ['consumer'],
    read: () => readings().map(([consumer, { live }]) => [{ consumer }, live] as const),
  });
  gaugeAtScrape(registry, {
    name: 'linger_report_interval_seconds',
    help: 'Between two syncs of an instance, as reported: the median, and the longest of the last eight.',
    reference:
      'Time between two syncs of a live instance. `which`: `typical`, the median; `longest`, of the last eight of each. Only on the leader.',
    labelNames: ['consumer', 'which'],
    read: () =>
      readings().flatMap(([consumer, { interval = {} }]) =>
        Object.entries(interval).map(([which, seconds]) => [{ consumer, which }, seconds] as const),
      ),
  });
  counterAtScrape(registry, {
    name: 'linger_report_instants_lost_total',
    help: 'Instants for which there is no lag because an instance did not apply them; only on the leader, since it leads.',
    reference:
      'Instants without a lag, because an [instance fell silent](../measuring.md#instances-that-fall-silent) or applied nothing. Only on the leader, from when it began to lead.',
    labelNames: ['consumer'],
    read: () => readings().map(([consumer, , lost]) => [{ consumer }, lost] as const),
  });
  return (consumer, result) => reports.inc({ consumer, result });
}

interface ReportTakingContext {
  readonly consumers: () => readonly Consumer[];
  readonly measurement: ConsumerMeasurement;
  /** The keys that sign cursors; the same in all replicas. */
  readonly keys: () => SigningKeys;
  /** The newest resourceVersions that this replica has seen. */
  readonly newest: () => StageVersions;
  readonly registry: Registry;
  readonly clock: () => number;
  /** Called when an instance of the consumer has reported what it has applied. */
  readonly onSynced: (consumer: string) => void;
}

export interface ReportTaking {
  readonly runnable: Runnable;
  /** The reports of this term, and when it began; undefined if this replica does not lead. */
  readonly taken: () => { readonly taken: ConsumerReports; readonly since: number } | undefined;
  /** Counts a report. */
  readonly count: (consumer: string, result: ReportResult) => void;
}

/** How soon the silence of an instance is noticed. */
const TICK_MS = 1_000;

/** Takes reports while this replica leads. */
export function takeReports(context: ReportTakingContext): ReportTaking {
  const { consumers, measurement, keys, newest, registry, clock, onSynced } = context;
  let taken:
    | { readonly reports: ConsumerReports; readonly leadership: Leadership; readonly since: number }
    | undefined;
  const count = registerReportMetrics(registry, () => [...(taken?.reports.instances() ?? [])]);
  const lead = async (leadership: Leadership) => {
    const onLag = (consumer: string, lag: number) =>
      measurement.record({ consumer, direction: 'removal', lag });
    const reports = new ConsumerReports({ keys, newest, clock, onLag, onSynced });
    taken = { reports, leadership, since: clock() };
    do {
      const reported = consumers().filter((each) => measuredBy('reports', each) !== undefined);
      reports.keep(new Set(reported.map(({ name }) => name)));
      for (const [name, state] of reports.states()) measurement.report(name, state);
    } while (await tick(TICK_MS, leadership.signal));
    if (taken.reports === reports) taken = undefined;
  };
  const onPod = (event: PodEvent) => {
    if (event.type === 'deleted') taken?.reports.gone(event.identity.uid);
  };
  return {
    runnable: { name: 'reports', onPod, lead },
    taken: () => (taken?.leadership.holds() ? { taken: taken.reports, since: taken.since } : undefined),
    count,
  };
}
