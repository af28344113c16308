import type { Registry } from '@prometheus-io/client';
import { counterAtScrape, gaugeAtScrape, numberAtScrape, samplesBy } from '../telemetry/index.ts';
import type { WatchStats } from './resource.ts';

/** What the metrics of one list-watch are read from. */
export type WatchReading = Pick<
  WatchStats,
  'stalls' | 'events' | 'lastEventAt' | 'bytes' | 'objects' | 'handlerErrors' | 'current'
> & { readonly restarts: Readonly<Record<string, number>> };

export interface ClusterReadings {
  /** Those that there are now. */
  watches(): Readonly<Record<string, WatchReading>>;
  /** Whether everything that decisions read has been read once. */
  synced(): boolean;
  readonly clock: () => number;
}

/** Registers the metrics of the connection to the cluster. */
export function registerWatchMetrics(registry: Registry, readings: ClusterReadings): void {
  const { watches, synced, clock } = readings;
  const each = (value: (watch: WatchReading) => number | undefined) =>
    samplesBy('resource', watches(), value);
  numberAtScrape(registry, {
    name: 'linger_cluster_synced',
    help: '1 once Namespaces, Services and versions have been read; from then on reviews are answered from memory.',
    read: () => Number(synced()),
  });
  counterAtScrape(registry, {
    name: 'linger_watch_restarts_total',
    help: 'How often a list or a watch came to an end and was begun again, by reason.',
    labelNames: ['resource', 'reason'],
    read: () =>
      Object.entries(watches()).flatMap(([resource, watch]) =>
        Object.entries(watch.restarts).map(([reason, count]) => [{ resource, reason }, count] as const),
      ),
  });
  for (const gauge of GAUGES)
    gaugeAtScrape(registry, {
      ...gauge,
      labelNames: ['resource'],
      read: () => each((w) => gauge.of(w, clock())),
    });
  for (const counter of COUNTERS)
    counterAtScrape(registry, { ...counter, labelNames: ['resource'], read: () => each(counter.of) });
}

const GAUGES = [
  {
    name: 'linger_watch_current',
    help: '1 while events come when they happen; only then is anything measured.',
    of: ({ current }: WatchReading) => Number(current),
  },
  {
    name: 'linger_watch_last_event_age_seconds',
    help: 'How long ago the last event or bookmark came; absent before the first.',
    of: ({ lastEventAt }: WatchReading, now: number) =>
      lastEventAt === undefined ? undefined : (now - lastEventAt) / 1000,
  },
  {
    name: 'linger_watch_objects',
    help: 'How many objects there are.',
    of: ({ objects }: WatchReading) => objects,
  },
];

const COUNTERS = [
  {
    name: 'linger_watch_events_total',
    help: 'Events of watches, without bookmarks and what lists name.',
    of: ({ events }: WatchReading) => events,
  },
  {
    name: 'linger_watch_received_bytes_total',
    help: 'Bytes of lists and watches, as they are uncompressed.',
    of: ({ bytes }: WatchReading) => bytes,
  },
  {
    name: 'linger_watch_stalls_total',
    help: 'Silent watches that had been dead: the next one brought what they had withheld.',
    of: ({ stalls }: WatchReading) => stalls,
  },
  {
    name: 'linger_watch_handler_errors_total',
    help: 'Events that Linger failed on and left out; a mistake of its own.',
    of: ({ handlerErrors }: WatchReading) => handlerErrors,
  },
];
