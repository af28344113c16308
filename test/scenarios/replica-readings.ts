import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Linger } from '../cluster-suite/support/linger.ts';

/** The labels of `linger_lag_now_seconds`. */
export const QUANTILES = ['0.5', '0.9', '0.99'] as const;
export type Quantile = (typeof QUANTILES)[number];

/** A reading of one replica's metrics. */
interface Replica {
  /** Seconds; a quantile that is not published is missing. */
  readonly now: Readonly<Partial<Record<Quantile, number>>>;
  /** How many removals have ended, are open and were discarded, by their labels: the input of `now`. */
  readonly seen: string;
  readonly ended: number;
  readonly waiting: number;
  /** The age of the oldest open removal, in seconds; 0 if there is none. */
  readonly oldest: number;
  /** For how long it has had to wait for a processor since the previous reading, in seconds. */
  readonly stoodStill: number;
  /** Readings with removals that gave no sample. */
  readonly discarded: readonly string[];
}

/** Readings of two replicas at about the same instant. */
export interface ReplicaReading {
  readonly replicas: Both<Replica>;
  /** Seconds within which both answered: one may have been read earlier than the other by this much. */
  readonly apart: number;
}

/**
 * A replica makes its page four times a second at most. Read more often, one of the two would sometimes bring its page of before,
 * and differ by the time that passed since, which `apart` does not know.
 */
const EVERY_MS = 300;

export function followReplicas(lingers: readonly [Linger, Linger]) {
  const readings: ReplicaReading[] = [];
  const stopping = new AbortController();
  const reading = (async () => {
    const waits = lingers.map(({ pid }) => new ProcessorWaits(pid)) as [ProcessorWaits, ProcessorWaits];
    while (!stopping.signal.aborted) {
      const reading = await readReplicas(lingers, waits);
      if (reading !== undefined) readings.push(reading);
      await sleep(EVERY_MS);
    }
  })();
  return {
    readings,
    stop: () => {
      stopping.abort();
      return reading;
    },
  };
}

/** How long the main thread of a process waits for a processor; the event loop's own metric looks only twice a second. */
class ProcessorWaits {
  readonly #file: string;
  #before: number;

  constructor(pid: number) {
    this.#file = `/proc/${pid}/task/${pid}/schedstat`;
    this.#before = this.#total();
  }

  /** @returns seconds since the last call */
  since(): number {
    const before = this.#before;
    this.#before = this.#total();
    return this.#before - before;
  }

  /** The second number: nanoseconds on a run queue (Linux, Documentation/scheduler/sched-stats.rst). */
  #total(): number {
    return Number(readFileSync(this.#file, 'utf8').split(' ')[1]) / 1e9;
  }
}

type Both<T> = readonly [T, T];

/** @returns undefined if a minute ended meanwhile: one may have dropped old samples that the other still has */
async function readReplicas(
  [first, second]: Both<Linger>,
  [waitsOfFirst, waitsOfSecond]: Both<ProcessorWaits>,
): Promise<ReplicaReading | undefined> {
  const minute = () => Math.floor(Date.now() / 60_000);
  const minuteAsked = minute();
  const asked = performance.now();
  const replicas = await Promise.all([readReplica(first, waitsOfFirst), readReplica(second, waitsOfSecond)]);
  const apart = (performance.now() - asked) / 1000;
  return minute() === minuteAsked ? { replicas, apart } : undefined;
}

async function readReplica(linger: Linger, waits: ProcessorWaits): Promise<Replica> {
  const answer = await fetch(linger.metricsUrl);
  const lines = (await answer.text()).split('\n');
  const of = (metric: string) =>
    lines
      .filter((line) => line.startsWith(metric) && ['{', ' '].includes(line.charAt(metric.length)))
      .map((line) => line.slice(metric.length));
  const total = (samples: readonly string[]) => samples.reduce((sum, sample) => sum + numberOf(sample), 0);
  const ended = of('linger_removal_lag_seconds_count');
  const waiting = of('linger_removals_unresolved');
  const discarded = of('linger_removals_discarded_total');
  const now = of('linger_lag_now_seconds').map(
    (sample) => [/quantile="([^"]+)"/.exec(sample)?.[1], numberOf(sample)] as const,
  );
  return {
    now: Object.fromEntries(now),
    seen: [ended, waiting, discarded].flat().join('\n'),
    ended: total(ended),
    waiting: total(waiting),
    stoodStill: waits.since(),
    oldest: Math.max(...of('linger_removals_oldest_unresolved_seconds').map(numberOf)),
    discarded: discarded.filter((sample) => numberOf(sample) > 0),
  };
}

function numberOf(sample: string): number {
  return Number(sample.slice(sample.lastIndexOf(' ')));
}

/** Whether both had seen the same events: while one has seen an event that the other has not, their readings differ. */
export function sameKnowledge({ replicas: [first, second] }: ReplicaReading): boolean {
  return first.seen === second.seen;
}

export interface Difference {
  readonly quantile: Quantile;
  /** Seconds; NaN: one of them did not publish it. */
  readonly values: readonly [number, number];
  /** Seconds by which they differ, less those by which one was read later, since open removals age. */
  readonly by: number;
  /** The same, as a share of the longer one. */
  readonly share: number;
  /** Seconds beyond the tolerance; 0 or negative: within it. */
  readonly beyond: number;
}

/** One for each quantile that either of them publishes. */
export function differences(
  { replicas: [first, second], apart }: ReplicaReading,
  tolerance: { readonly share: number; readonly seconds: number },
): readonly Difference[] {
  return QUANTILES.filter((quantile) => quantile in first.now || quantile in second.now).map((quantile) => {
    const { [quantile]: one = Number.NaN } = first.now;
    const { [quantile]: other = Number.NaN } = second.now;
    const later = Math.min(apart, Math.abs(first.oldest - second.oldest));
    const by = Math.max(0, Math.abs(one - other) - later);
    const longer = Math.max(one, other);
    const beyond = by - Math.max(tolerance.share * longer, tolerance.seconds);
    return { quantile, values: [one, other], by, share: by / longer, beyond };
  });
}
