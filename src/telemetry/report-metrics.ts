import { Counter, type Registry } from '@prometheus-io/client';
import type { ReportResult } from '../core/catalog/report-results.ts';
import { counterAtScrape, gaugeAtScrape } from './at-scrape.ts';

/** How the instances of one consumer stand. */
export interface ReportReading {
  readonly live: number;
  /** Instants given up because an instance fell silent. */
  readonly lost: number;
  /** Seconds. */
  readonly interval: { readonly typical: number; readonly longest: number } | undefined;
}

/**
 * Registers the metrics of reports.
 * @param readings by consumer; empty on a replica that does not lead
 * @returns what counts a report
 */
export function registerReportMetrics(
  registry: Registry,
  readings: () => Iterable<readonly [consumer: string, reading: ReportReading]>,
): (consumer: string, result: ReportResult) => void {
  const reports = new Counter({
    name: 'linger_reports_total',
    help: 'Reports of consumers’ instances, by what became of them; without a consumer where there is none of that name.',
    labelNames: ['consumer', 'result'] as const,
    registers: [registry],
  });
  gaugeAtScrape(registry, {
    name: 'linger_report_instances',
    help: 'Instances that report and have not fallen silent; only on the leader.',
    labelNames: ['consumer'],
    read: () => [...readings()].map(([consumer, { live }]) => [{ consumer }, live] as const),
  });
  gaugeAtScrape(registry, {
    name: 'linger_report_interval_seconds',
    help: 'Between two syncs of an instance, as reported: the median, and the longest of late.',
    labelNames: ['consumer', 'which'],
    read: () =>
      [...readings()].flatMap(([consumer, { interval }]) =>
        interval === undefined
          ? []
          : [
              [{ consumer, which: 'typical' }, interval.typical] as const,
              [{ consumer, which: 'longest' }, interval.longest] as const,
            ],
      ),
  });
  counterAtScrape(registry, {
    name: 'linger_report_instants_lost_total',
    help: 'Seconds for which there is no lag because an instance fell silent; only on the leader, since it leads.',
    labelNames: ['consumer'],
    read: () => [...readings()].map(([consumer, { lost }]) => [{ consumer }, lost] as const),
  });
  return (consumer, result) => reports.inc({ consumer, result });
}
