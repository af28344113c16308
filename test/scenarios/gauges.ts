import { setTimeout as sleep } from 'node:timers/promises';
import type { TrueRemoval } from '../cluster-suite/support/endpoint-history.ts';
import type { Linger } from '../cluster-suite/support/linger.ts';

/** What a running Linger's metrics said at an instant, in milliseconds since the epoch. */
export interface Reading {
  readonly at: number;
  /** Removals that have begun and not ended. */
  readonly unresolved: number;
  /** The 99th percentile of the lag now, in seconds; 0: nothing has been measured lately. */
  readonly now: number;
}

const EVERY_MS = 250;

export function followGauges(linger: Linger) {
  const readings: Reading[] = [];
  const stopping = new AbortController();
  const reading = (async () => {
    while (!stopping.signal.aborted) {
      const before = Date.now();
      const unresolved = await linger.metric('linger_removals_unresolved');
      const at = (before + Date.now()) / 2;
      readings.push({ at, unresolved, now: await linger.metric('linger_lag_now_seconds{quantile="0.99"}') });
      await sleep(EVERY_MS);
    }
  })();
  return {
    stop: async (): Promise<readonly Reading[]> => {
      stopping.abort();
      await reading;
      return readings;
    },
  };
}

/** Removals that were under way at an instant. */
function waitingAt(removals: readonly TrueRemoval[], at: number): readonly TrueRemoval[] {
  return removals.filter(({ start, end = Number.POSITIVE_INFINITY }) => start <= at && at < end);
}

/** Readings of the unresolved removals that no instant within the tolerance explains. */
export function unexplained(
  readings: readonly Reading[],
  removals: readonly TrueRemoval[],
  toleranceMs: number,
): readonly Reading[] {
  return readings.filter(({ at, unresolved }) => {
    const instants = Array.from({ length: 41 }, (_, index) => at + toleranceMs * (index / 20 - 1));
    const truth = instants.map((instant) => waitingAt(removals, instant).length);
    return unresolved < Math.min(...truth) || unresolved > Math.max(...truth);
  });
}

/**
 * Readings at which many waited, and the lag now was shorter than the oldest of them had waited: they are what it is
 * about, and nobody younger has been seen to end.
 */
export function optimistic(
  readings: readonly Reading[],
  removals: readonly TrueRemoval[],
  toleranceMs: number,
): readonly Reading[] {
  // Of a hundred removals and a few, these are more than one per cent, and so the 99th percentile is theirs.
  const many = 10;
  return readings.filter(({ at, now }) => {
    const waiting = waitingAt(removals, at);
    if (waiting.length < many) return false;
    const oldest = Math.max(...waiting.map(({ start }) => at - start));
    return now * 1000 < oldest - toleranceMs;
  });
}
