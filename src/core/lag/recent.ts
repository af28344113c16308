import type { Density } from './combine.ts';
import { CELLS } from './grid.ts';
import { Histogram } from './histogram.ts';

const MINUTE_MS = 60_000;

/** The last minutes: long enough for a rollout's removals to be many, short enough that a storm shows and passes. */
const MINUTES = 5;

/** The lags that ended in the last 4 to 5 minutes, by the minute; instants are the monotonic clock's milliseconds. */
export class RecentLags {
  static readonly windowSeconds: number = (MINUTES * MINUTE_MS) / 1000;

  readonly #minutes = new Map<number, Histogram>();

  record(lagSeconds: number, at: number): void {
    const minute = Math.floor(at / MINUTE_MS);
    let histogram = this.#minutes.get(minute);
    if (histogram === undefined) {
      this.#forget(minute);
      histogram = new Histogram();
      this.#minutes.set(minute, histogram);
    }
    histogram.record(lagSeconds);
  }

  /** By cell; all zeros when nothing ended lately. */
  counts(now: number): Density {
    this.#forget(Math.floor(now / MINUTE_MS));
    const all = new Histogram();
    for (const histogram of this.#minutes.values()) all.merge(histogram);
    return all.counts;
  }

  get bytes(): number {
    return this.#minutes.size * CELLS * Float64Array.BYTES_PER_ELEMENT;
  }

  #forget(current: number): void {
    for (const minute of this.#minutes.keys()) {
      if (minute <= current - MINUTES) this.#minutes.delete(minute);
    }
  }
}
