import type { Registry } from '@prometheus-io/client';
import { counterAtScrape, gaugeAtScrape, numberAtScrape, samplesBy } from './at-scrape.ts';

/** How publishing stands, as far as metrics tell of it. */
export interface PublishReadings {
  readonly leading: boolean;
  /** The lease's transitions, as last seen. */
  readonly term: number | undefined;
  /** By what was asked for, then by reason. */
  readonly failures: Readonly<Record<string, Readonly<Record<string, number>>>>;
  readonly published: Readonly<Record<string, PublishedReading>>;
}

interface PublishedReading {
  /** Seconds since the epoch. */
  readonly writtenAt: number | undefined;
  readonly bytes: number | undefined;
  readonly writes: number;
  readonly refusal: string | undefined;
}

/** Registers the metrics of publishing. */
export function registerPublishMetrics(registry: Registry, readings: PublishReadings): void {
  numberAtScrape(registry, {
    name: 'linger_leader',
    help: '1 on the replica that leads and publishes, 0 on the others.',
    read: () => Number(readings.leading),
  });
  numberAtScrape(registry, {
    name: 'linger_lease_transitions',
    help: 'How often the leader has changed, as the Lease says; 0 until it has been read.',
    read: () => readings.term ?? 0,
  });
  counterAtScrape(registry, {
    name: 'linger_publish_failures_total',
    help: 'Requests for the Lease, ConfigMaps (planned, history, consumers) and statuses that failed, by reason.',
    labelNames: ['object', 'reason'],
    read: () =>
      Object.entries(readings.failures).flatMap(([object, counts]) =>
        Object.entries(counts).map(([reason, count]) => [{ object, reason }, count] as const),
      ),
  });
  registerPublished(registry, readings);
}

function registerPublished(registry: Registry, readings: PublishReadings): void {
  const { published } = readings;
  const each = (value: (state: PublishedReading) => number | undefined) =>
    samplesBy('object', published, value);
  counterAtScrape(registry, {
    name: 'linger_publish_writes_total',
    help: 'How often this replica has written a ConfigMap, or the status of a DiscoveryConsumer.',
    labelNames: ['object'],
    read: () => each(({ writes }) => writes),
  });
  gaugeAtScrape(registry, {
    name: 'linger_published_timestamp_seconds',
    help: 'When what is in use was written, by its writer’s clock.',
    labelNames: ['object'],
    read: () => each(({ writtenAt }) => (Number.isNaN(writtenAt) ? undefined : writtenAt)),
  });
  gaugeAtScrape(registry, {
    name: 'linger_published_bytes',
    help: 'How much of a ConfigMap’s 1 MiB its contents take.',
    labelNames: ['object'],
    read: () => each(({ bytes }) => bytes),
  });
  gaugeAtScrape(registry, {
    name: 'linger_published_refused',
    help: '1 while what a ConfigMap holds cannot be used, by reason.',
    labelNames: ['object', 'reason'],
    read: () =>
      Object.entries(published).flatMap(([object, { refusal }]) => {
        // Who does not lead looks at the histories only once, and would not see that they have been written anew.
        const known = object !== 'history' || readings.leading;
        return known && refusal !== undefined ? [[{ object, reason: refusal }, 1] as const] : [];
      }),
  });
}
