import { Histogram, type Registry } from '@prometheus-io/client';
import type { DiscardCounts } from '../core/lag/discards.ts';
import { estimateOf, type MeasuredLag } from '../core/lag/estimate.ts';
import type { PlannedTable } from '../core/lag/planned.ts';
import { plannedLag } from '../core/lag/published.ts';
import { LAG_STAGES, type LagSample, type LagStage } from '../core/lag/sample.ts';
import type { WaitChoice } from '../core/plan/wait.ts';
import { counterAtScrape, gaugeAtScrape, numberAtScrape } from './at-scrape.ts';

/** What the metrics of the measurement are read from, at each scrape. */
export interface LagReadings {
  unresolved(): Readonly<Record<LagStage, { readonly count: number; readonly oldestSeconds: number }>>;
  now(): MeasuredLag | undefined;
  readonly table: PlannedTable;
  readonly discarded: DiscardCounts;
  readonly size: Readonly<Record<'pods' | 'objects' | 'open', number>>;
  readonly estimatorBytes: number;
}

/**
 * A calm cluster's removals take 10 to 100 ms, those of S3's gateways 10 s and more, those behind S1's storm 650 s:
 * 10 ms to 10 min in steps of 2 to 2.5.
 */
export const LAG_SECONDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600];

const PERCENTILES = [50, 90, 99];

/**
 * Registers the metrics of the measurement.
 * @param defaultWait the wait that the cluster as a whole comes to
 * @returns what to call with each sample
 */
export function registerLagMetrics(
  registry: Registry,
  readings: LagReadings,
  defaultWait: () => WaitChoice,
): (sample: LagSample) => void {
  const lags = new Histogram({
    name: 'linger_removal_lag_seconds',
    help: 'From a pod’s termination showing until its endpoint was withdrawn, by what withdrew it.',
    labelNames: ['stage'] as const,
    buckets: LAG_SECONDS,
    registers: [registry],
  });
  // From the start, so that the first sample is an increase.
  for (const stage of LAG_STAGES) lags.zero({ stage });
  registerUnresolved(registry, readings);
  registerPlanned(registry, readings);
  registerDefaultWait(registry, defaultWait);
  registerMemory(registry, readings);
  return ({ stage, lag }) => lags.observe({ stage }, lag);
}

function registerUnresolved(registry: Registry, readings: LagReadings): void {
  gaugeAtScrape(registry, {
    name: 'linger_removals_unresolved',
    help: 'Terminating pods whose endpoint has not been withdrawn yet.',
    labelNames: ['stage'],
    read: () => byStage(readings, ({ count }) => count),
  });
  gaugeAtScrape(registry, {
    name: 'linger_removals_oldest_unresolved_seconds',
    help: 'How long the oldest of them has been waiting; 0 where none waits.',
    labelNames: ['stage'],
    read: () => byStage(readings, ({ oldestSeconds }) => oldestSeconds),
  });
  gaugeAtScrape(registry, {
    name: 'linger_lag_now_seconds',
    help: 'Percentiles of the lag of the last minutes, with what is unresolved; absent when there is neither.',
    labelNames: ['quantile'],
    read: () => quantilesOf(readings.now()),
  });
  counterAtScrape(registry, {
    name: 'linger_removals_discarded_total',
    help: 'Removals that gave no sample, by reason.',
    labelNames: ['reason'],
    read: () => Object.entries(readings.discarded).map(([reason, count]) => [{ reason }, count]),
  });
}

function registerPlanned(registry: Registry, readings: LagReadings): void {
  const cluster = () => readings.table.cluster;
  gaugeAtScrape(registry, {
    name: 'linger_lag_planned_seconds',
    help: 'Percentiles of the lag that waits are planned with, of the cluster; absent while nothing is measured.',
    labelNames: ['quantile'],
    read: () => {
      const row = cluster();
      return quantilesOf(row && plannedLag(row));
    },
  });
  numberAtScrape(registry, {
    name: 'linger_lag_planned_samples',
    help: 'Removals behind the planned lag of the cluster.',
    read: () => cluster()?.samples ?? 0,
  });
  numberAtScrape(registry, {
    name: 'linger_lag_planned_history_seconds',
    help: 'How far back they reach.',
    read: () => cluster()?.historySeconds ?? 0,
  });
}

function registerDefaultWait(registry: Registry, defaultWait: () => WaitChoice): void {
  gaugeAtScrape(registry, {
    name: 'linger_default_wait_seconds',
    help: 'The wait of a pod to which only policies for everything apply. why: fixed, initial, declared, measured or storm.',
    labelNames: ['why'],
    read: () => {
      const { why, seconds } = defaultWait();
      return [[{ why }, seconds]];
    },
  });
  gaugeAtScrape(registry, {
    name: 'linger_default_wait_coverage',
    help: 'The share of the planned lags that this wait covers, 0 to 1; absent where it is not measured.',
    labelNames: ['why'],
    read: () => {
      const { why, seconds, lag } = defaultWait();
      return lag === undefined ? [] : [[{ why }, lag.coverage(seconds)]];
    },
  });
}

function registerMemory(registry: Registry, readings: LagReadings): void {
  gaugeAtScrape(registry, {
    name: 'linger_recorder_entries',
    help: 'What the recorder holds: pods that are listed or terminating, slices and Endpoints, open removals.',
    labelNames: ['kind'],
    read: () => Object.entries(readings.size).map(([kind, count]) => [{ kind }, count]),
  });
  numberAtScrape(registry, {
    name: 'linger_estimator_bytes',
    help: 'Memory of the estimate’s histograms.',
    read: () => readings.estimatorBytes,
  });
}

type Unresolved = ReturnType<LagReadings['unresolved']>[LagStage];

function byStage(readings: LagReadings, value: (of: Unresolved) => number) {
  const unresolved = readings.unresolved();
  return LAG_STAGES.map((stage) => [{ stage }, value(unresolved[stage])] as const);
}

function quantilesOf(lag: MeasuredLag | undefined) {
  if (lag === undefined) return [];
  return PERCENTILES.map(
    (percentile) => [{ quantile: String(percentile / 100) }, estimateOf(lag, percentile).value] as const,
  );
}
