import { Histogram, type Registry } from '@prometheus-io/client';
import type { DefaultWait } from '../core/decision/index.ts';
import {
  type ConsumerView,
  type Density,
  ENDPOINT_SOURCES,
  quantileOf,
  type StageSample,
} from '../core/lag/index.ts';
import { counterAtScrape, gaugeAtScrape, numberAtScrape, samplesBy } from '../telemetry/index.ts';
import type { Measurement } from './measurement.ts';

/** The values of the measurement's metrics, read at each scrape. */
export type LagReadings = Pick<
  Measurement,
  'unresolved' | 'now' | 'table' | 'discarded' | 'size' | 'maintainsEndpoints'
>;

/**
 * Removals in a calm cluster take 10 to 100 ms, those of gateways (S3) 10 s and more, those in a storm (S1) 650 s: so from
 * 10 ms to 10 min in steps of 2 to 2.5.
 */
const LAG_SECONDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600];

const PERCENTILES = [50, 90, 99];

/** The metrics that `diagnose` reads from saved scrapes. */
export const LAG_METRICS = {
  lag: 'linger_removal_lag_seconds',
  unresolved: 'linger_removals_unresolved',
  oldest: 'linger_removals_oldest_unresolved_seconds',
} as const;

/**
 * Registers the metrics of the measurement.
 * @param defaultWait the cluster-wide default wait
 * @returns a function to call with each sample
 */
export function registerLagMetrics(
  registry: Registry,
  readings: LagReadings,
  defaultWait: () => DefaultWait,
): (sample: Pick<StageSample, 'stage' | 'lag'>) => void {
  const lags = new Histogram({
    name: LAG_METRICS.lag,
    help: 'From a pod’s termination showing until its endpoint was withdrawn, by what withdrew it.',
    reference:
      "From the first event of a pod's termination until its endpoint was withdrawn. `stage`: `EndpointSlice`, or `Endpoints`.",
    labelNames: ['stage'] as const,
    buckets: LAG_SECONDS,
    registers: [registry],
  });
  // Initialised to zero, so that the first sample counts as an increase.
  for (const stage of ENDPOINT_SOURCES) lags.zero({ stage });
  gaugeAtScrape(registry, {
    name: LAG_METRICS.unresolved,
    help: 'Terminating pods whose endpoint has not been withdrawn yet: the backlog of a storm, while it lasts.',
    labelNames: ['stage'],
    read: () => samplesBy('stage', readings.unresolved(), ({ count }) => count),
  });
  gaugeAtScrape(registry, {
    name: LAG_METRICS.oldest,
    help: 'Age of the oldest of them; 0 if there is none.',
    labelNames: ['stage'],
    read: () => samplesBy('stage', readings.unresolved(), ({ oldestSeconds }) => oldestSeconds),
  });
  gaugeAtScrape(registry, {
    name: 'linger_lag_now_seconds',
    help: 'Percentiles of the lag of the last minutes, with what is unresolved; absent when there is neither.',
    reference:
      'The lag of the last 5 minutes, with unresolved removals counted by their age. `quantile`: `0.5`, `0.9`, `0.99`. Absent without any.',
    labelNames: ['quantile'],
    read: () => quantilesOf(readings.now()?.density),
  });
  numberAtScrape(registry, {
    name: 'linger_cluster_endpoints_maintained',
    help: '1 while a controller maintains Endpoints, as far as is known; 0: they do not count.',
    reference:
      '1 while a controller [maintains Endpoints](operations.md#without-endpoints); 0: they do not count.',
    read: () => Number(readings.maintainsEndpoints),
  });
  counterAtScrape(registry, {
    name: 'linger_removals_discarded_total',
    help: 'Removals that gave no sample, by reason.',
    reference: 'Removals that gave no sample, by [reason](#why-a-removal-gives-no-sample).',
    labelNames: ['reason'],
    read: () => samplesBy('reason', readings.discarded, (count) => count),
  });
  gaugeAtScrape(registry, {
    name: 'linger_lag_planned_seconds',
    help: 'The lag of the cluster from which waits are computed; absent while nothing has been measured.',
    reference:
      'The lag of the cluster from which [waits](../concepts.md#the-history-behind-a-wait) are computed. Absent while nothing has been measured.',
    labelNames: ['quantile'],
    read: () => quantilesOf(readings.table.cluster?.slow),
  });
  numberAtScrape(registry, {
    name: 'linger_lag_planned_samples',
    help: 'Removals behind the planned lag of the cluster.',
    read: () => readings.table.cluster?.samples ?? 0,
  });
  numberAtScrape(registry, {
    name: 'linger_lag_planned_history_seconds',
    help: 'How far back they reach.',
    read: () => readings.table.cluster?.historySeconds ?? 0,
  });
  gaugeAtScrape(registry, {
    name: 'linger_default_wait_seconds',
    help: 'The wait of a pod to which only policies for everything apply. why: fixed, initial, declared, measured or storm.',
    reference:
      'The wait of a pod without labels in a namespace without labels. `why`: [as in the plan](reasons.md#why-the-wait-is-what-it-is).',
    labelNames: ['why'],
    read: () => {
      const { why, seconds } = defaultWait();
      return [[{ why }, seconds]];
    },
  });
  gaugeAtScrape(registry, {
    name: 'linger_default_wait_coverage',
    help: 'The share of the planned lags that this wait covers, 0 to 1. Absent if the wait is not measured.',
    labelNames: ['why'],
    read: () => {
      const { why, coverage } = defaultWait();
      return coverage === undefined ? [] : [[{ why }, coverage]];
    },
  });
  gaugeAtScrape(registry, {
    name: 'linger_recorder_entries',
    help: 'What the recorder holds: pods that are listed or terminating, slices and Endpoints, open removals.',
    reference:
      'What the recorder holds: `pods` that are listed or terminating, slices and Endpoints (`objects`), removals in progress (`open`).',
    labelNames: ['kind'],
    read: () => samplesBy('kind', readings.size, (count) => count),
  });
  return ({ stage, lag }) => lags.observe({ stage }, lag);
}

function quantilesOf(lag: Density | undefined) {
  if (lag === undefined) return [];
  return PERCENTILES.map(
    (percentile) => [{ quantile: String(percentile / 100) }, quantileOf(lag, percentile)] as const,
  );
}

interface ConsumerReadings {
  /** The views of the consumers that this replica measures. */
  views(): readonly ConsumerView[];
  /** Seconds since the epoch. */
  readonly epochSeconds: () => number;
}

export type ConsumerMetrics = ReturnType<typeof registerConsumerMetrics>;

/** Registers the metrics of consumers, labelled by name: there are at most some hundreds. */
export function registerConsumerMetrics(registry: Registry, { views, epochSeconds }: ConsumerReadings) {
  const lags = new Histogram({
    name: 'linger_consumer_lag_seconds',
    help: 'From an endpoint’s withdrawal until the consumer had stopped sending to it.',
    reference:
      "From an endpoint's withdrawal until a [consumer](../concepts.md#consumers) had stopped sending to it. The leader measures.",
    labelNames: ['consumer'] as const,
    buckets: LAG_SECONDS,
    registers: [registry],
  });
  const seen = new Set<string>();
  gaugeAtScrape(registry, {
    name: 'linger_consumer_measured',
    help: '1 where a consumer’s lag can be relied on, 0 where not or not yet; the reason is that of its condition.',
    reference:
      "1 while a consumer's lag is reliable, 0 if not or not yet, with the [reason](consumers.md#conditions). Only on the leader.",
    labelNames: ['consumer', 'reason'],
    read: () =>
      views().map(({ name, condition: { status, reason } }) => [
        { consumer: name, reason },
        Number(status === 'True'),
      ]),
  });
  gaugeAtScrape(registry, {
    name: 'linger_consumer_samples',
    help: 'A consumer’s samples of the last 7 days. Only on the leader.',
    labelNames: ['consumer'],
    read: () => views().map(({ name, removals }) => [{ consumer: name }, removals?.samples ?? 0]),
  });
  gaugeAtScrape(registry, {
    name: 'linger_consumer_last_sample_age_seconds',
    help: 'Time since the last sample; absent before the first. Only on the leader.',
    labelNames: ['consumer'],
    read: () =>
      views().flatMap(({ name, lastSample }) =>
        lastSample === null ? [] : [[{ consumer: name }, epochSeconds() - lastSample] as const],
      ),
  });
  return {
    /** @param lag how many seconds the consumer took to stop sending to a removed endpoint */
    removal: (consumer: string, lag: number): void => {
      seen.add(consumer);
      lags.observe({ consumer }, lag);
    },
    /** Removes the series of all consumers but these. */
    present: (consumers: readonly { readonly name: string }[]): void => {
      const names = new Set(consumers.map(({ name }) => name));
      for (const consumer of seen) {
        if (names.has(consumer)) continue;
        seen.delete(consumer);
        lags.remove({ consumer });
      }
    },
  };
}
