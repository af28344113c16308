import type { Registry } from '@prometheus-io/client';
import { counterAtScrape, gaugeAtScrape, numberAtScrape, samplesBy } from '../telemetry/index.ts';
import type { WatchStats } from './resource.ts';

/**
 * How long a list-watch may do nothing at all before it counts as dead. A live one is silent for at most 70 s, waits at most
 * 65 s for a response (WATCH_LIMITS), and pauses for at most a minute if a server asks for it (Backoff).
 */
const DEAD_AFTER_MS = 240_000;

/** If the gap between two checks is longer, the process itself may have been paused, and silence proves nothing. */
const LOOKS_WITHIN_MS = 60_000;

/** A text that changes whenever a list-watch does anything. */
export function signOfLife({ bytes, restarts, lists, state }: WatchStats): string {
  return JSON.stringify([bytes, restarts, lists, state]);
}

/**
 * Finds list-watches whose loop has stopped, which would be a bug in Linger: even if the API server cannot be reached, a
 * list-watch keeps trying, and in a storm it keeps reading.
 */
export class DeadWatches {
  #signs = new Map<string, { readonly sign: string; readonly since: number }>();
  #lookedAt = Number.NEGATIVE_INFINITY;

  /** @param now monotonic milliseconds */
  look(watches: Readonly<Record<string, WatchStats>>, now: number): readonly string[] {
    const before = now - this.#lookedAt <= LOOKS_WITHIN_MS ? this.#signs : undefined;
    this.#lookedAt = now;
    const signs = Object.entries(watches).map(([name, stats]) => {
      const sign = signOfLife(stats);
      const known = before?.get(name);
      return [name, known?.sign === sign ? known : { sign, since: now }] as const;
    });
    this.#signs = new Map(signs);
    return signs.filter(([, { since }]) => now - since > DEAD_AFTER_MS).map(([name]) => name);
  }
}

interface ClusterReadings {
  watches(): Readonly<Record<string, WatchStats>>;
  /** How many objects of a resource were not read, by namespace. */
  unread(): Readonly<Record<string, ReadonlyMap<string, number>>>;
  /** How many objects of a resource cannot be used as they are. */
  refused(): Readonly<Record<string, number>>;
  /** Whether everything that decisions depend on has been read once. */
  synced(): boolean;
  readonly clock: () => number;
}

export function registerWatchMetrics(
  registry: Registry,
  { watches, unread, refused, synced, clock }: ClusterReadings,
): void {
  const each = (value: (watch: WatchStats) => number | undefined) => samplesBy('resource', watches(), value);
  numberAtScrape(registry, {
    name: 'linger_cluster_synced',
    help: '1 once Namespaces, Services and versions have been read: from then on reviews are answered from memory.',
    read: () => Number(synced()),
  });
  counterAtScrape(registry, {
    name: 'linger_watch_restarts_total',
    help: 'How often a list or a watch ended and was started again, by reason.',
    reference:
      'How often a list or a watch ended and was restarted, by [reason](#why-a-watch-restarts). `Ended` every 4 to 5 minutes is normal.',
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
  gaugeAtScrape(registry, {
    name: 'linger_watch_unread_objects',
    help: 'Objects that are too large, or whose namespace has used up its share: they count as unknown.',
    reference:
      'Objects that are too large, or whose namespace has used up [its share](../threat-model.md#shares-of-namespaces): `pods`, `services`, `endpoints`. They count as unknown; `linger check` names the namespace.',
    labelNames: ['resource'],
    read: () => samplesBy('resource', unread(), (byNamespace) => sumOf(byNamespace.values())),
  });
  gaugeAtScrape(registry, {
    name: 'linger_watch_refused_objects',
    help: 'Objects of Linger’s own kinds whose spec cannot be used, or for which there is no room.',
    reference:
      "Objects of Linger's own kinds whose spec this version cannot use, or for which there is no room. `linger check` and the log name them.",
    labelNames: ['resource'],
    read: () => samplesBy('resource', refused(), (count) => count),
  });
  for (const counter of COUNTERS)
    counterAtScrape(registry, { ...counter, labelNames: ['resource'], read: () => each(counter.of) });
}

function sumOf(numbers: Iterable<number>): number {
  let sum = 0;
  for (const each of numbers) sum += each;
  return sum;
}

const GAUGES = [
  {
    name: 'linger_watch_current',
    help: '1 while events arrive as they happen. Only then is anything measured.',
    of: ({ current }: WatchStats) => Number(current),
  },
  {
    name: 'linger_watch_last_event_age_seconds',
    help: 'Time since the last event or bookmark; absent before the first. Bookmarks arrive every minute if anything changes.',
    of: ({ lastEventAt }: WatchStats, now: number) =>
      lastEventAt === undefined ? undefined : (now - lastEventAt) / 1000,
  },
  {
    name: 'linger_watch_objects',
    help: 'Number of objects.',
    of: ({ objects }: WatchStats) => objects,
  },
];

const COUNTERS = [
  {
    name: 'linger_watch_events_total',
    help: 'Events of watches, without bookmarks and lists.',
    of: ({ events }: WatchStats) => events,
  },
  {
    name: 'linger_watch_received_bytes_total',
    help: 'Bytes of lists and watches, uncompressed.',
    of: ({ bytes }: WatchStats) => bytes,
  },
  {
    name: 'linger_watch_stalls_total',
    help: 'Silent watches that were dead: the next one delivered the missed events.',
    of: ({ stalls }: WatchStats) => stalls,
  },
  {
    name: 'linger_watch_handler_errors_total',
    help: 'Events dropped because of a bug in Linger: report it with the log line.',
    of: ({ handlerErrors }: WatchStats) => handlerErrors,
  },
];
