import { setTimeout as sleep } from 'node:timers/promises';
import type { TrueRemoval } from '../cluster-suite/support/endpoint-history.ts';
import type { Linger } from '../cluster-suite/support/linger.ts';

/** A reading of a running Linger's metrics; instants are milliseconds since the epoch. */
export interface Reading {
  /** When it was requested and answered; the reading is from in between. */
  readonly asked: number;
  readonly answered: number;
  /** Removals that have begun and not ended. */
  readonly unresolved: number;
  /** The current 99th percentile of the lag, in seconds; 0: nothing was measured lately. */
  readonly now: number;
}

/** A replica makes a page four times a second at most: read more often, it would sometimes be older than `asked`. */
const EVERY_MS = 250;

export function followGauges(linger: Linger) {
  const readings: Reading[] = [];
  const stopping = new AbortController();
  const reading = (async () => {
    while (!stopping.signal.aborted) {
      const asked = Date.now();
      const metric = await linger.metrics();
      const unresolved = metric('linger_removals_unresolved');
      const now = metric('linger_lag_now_seconds{quantile="0.99"}');
      readings.push({ asked, answered: Date.now(), unresolved, now });
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

/**
 * Readings that counted a removal that had not begun, or was over, by more than the tolerance; or left out one that
 * had begun, and went on, for longer than that.
 */
export function unexplained(
  readings: readonly Reading[],
  removals: readonly TrueRemoval[],
  toleranceMs: number,
): readonly Reading[] {
  return readings.filter(({ asked, answered, unresolved }) => {
    const spanning = (from: number, to: number) =>
      removals.filter(({ start, end = Number.POSITIVE_INFINITY }) => start <= from && end >= to).length;
    const least = spanning(asked - toleranceMs, answered + toleranceMs);
    const most = spanning(answered + toleranceMs, asked - toleranceMs);
    return unresolved < least || unresolved > most;
  });
}

/**
 * Readings at which many removals were under way, and the lag now was shorter than the oldest of them had lasted: the lag
 * now is about these, and no younger one has been seen to end.
 */
export function optimistic(
  readings: readonly Reading[],
  removals: readonly TrueRemoval[],
  toleranceMs: number,
): readonly Reading[] {
  // Ten of fewer than 1,000 removals are more than one per cent, and so the 99th percentile is theirs.
  const many = 10;
  return readings.filter(({ asked, answered, now }) => {
    const waiting = waitingAt(removals, asked).filter(({ end = Number.POSITIVE_INFINITY }) => end > answered);
    if (waiting.length < many) return false;
    const oldest = Math.max(...waiting.map(({ start }) => asked - start));
    return now * 1000 < oldest - toleranceMs;
  });
}
