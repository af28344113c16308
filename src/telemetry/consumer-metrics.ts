import { Histogram, type Registry } from '@prometheus-io/client';
import type { ConsumerView } from '../core/consumers/view.ts';
import { gaugeAtScrape } from './at-scrape.ts';
import { LAG_SECONDS } from './lag-metrics.ts';

/** What the metrics of consumers are read from, at each scrape. */
export interface ConsumerReadings {
  /** As far as this replica measures them. */
  views(): readonly ConsumerView[];
  /** Seconds since the epoch. */
  readonly epochSeconds: () => number;
}

/** What is told as it happens. */
export interface ConsumerMetrics {
  /** How long a consumer has taken to stop sending to a removed endpoint. Seconds. */
  readonly removal: (consumer: string, lag: number) => void;
  /** Those that there are: the others' series end. */
  readonly present: (consumers: readonly { readonly name: string }[]) => void;
}

/** Registers the metrics of consumers. Their names are the label: there are at most some hundreds. */
export function registerConsumerMetrics(registry: Registry, readings: ConsumerReadings): ConsumerMetrics {
  const lags = new Histogram({
    name: 'linger_consumer_lag_seconds',
    help: 'From an endpoint’s withdrawal until the consumer had stopped sending to it.',
    labelNames: ['consumer'] as const,
    buckets: LAG_SECONDS,
    registers: [registry],
  });
  const seen = new Set<string>();
  registerViews(registry, readings);
  return {
    removal: (consumer, lag) => {
      seen.add(consumer);
      lags.observe({ consumer }, lag);
    },
    present: (consumers) => {
      const names = new Set(consumers.map(({ name }) => name));
      for (const consumer of seen) {
        if (names.has(consumer)) continue;
        seen.delete(consumer);
        lags.remove({ consumer });
      }
    },
  };
}

function registerViews(registry: Registry, { views, epochSeconds }: ConsumerReadings): void {
  gaugeAtScrape(registry, {
    name: 'linger_consumer_measured',
    help: '1 where a consumer’s lag can be relied on, 0 where not or not yet; the reason is that of its condition.',
    labelNames: ['consumer', 'reason'],
    read: () =>
      views().map(({ name, condition: { status, reason } }) => [
        { consumer: name, reason },
        Number(status === 'True'),
      ]),
  });
  gaugeAtScrape(registry, {
    name: 'linger_consumer_samples',
    help: 'How often a consumer’s lag was timed in the last 7 days.',
    labelNames: ['consumer'],
    read: () => views().map(({ name, removals }) => [{ consumer: name }, removals?.samples ?? 0]),
  });
  gaugeAtScrape(registry, {
    name: 'linger_consumer_last_sample_age_seconds',
    help: 'How long ago it was timed last; absent before the first time.',
    labelNames: ['consumer'],
    read: () =>
      views().flatMap(({ name, lastSample }) =>
        lastSample === null ? [] : [[{ consumer: name }, epochSeconds() - lastSample] as const],
      ),
  });
}
