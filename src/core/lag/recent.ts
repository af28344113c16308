import type { Density } from './combine.ts';
import { CELLS } from './grid.ts';
import { Histogram } from './histogram.ts';

const MINUTE_SECONDS = 60;

/** The last minutes: long enough for a rollout's removals to be many, short enough that a storm shows and passes. */
const MINUTES = 5;

/**
 * The lags that ended in the last 4 to 5 minutes, by the minute. Minutes are those of the wall clock, so that all
 * replicas forget the same lags at the same time: by clocks of their own, one would tell of a storm for up to a minute
 * longer than another. Instants are seconds since the epoch.
 */
export class RecentLags {
  static readonly windowSeconds: number = MINUTES * MINUTE_SECONDS;

  readonly #minutes = new Map<number, Histogram>();

  record(lagSeconds: number, epochSeconds: number): void {
    const minute = Math.floor(epochSeconds / MINUTE_SECONDS);
    let histogram = this.#minutes.get(minute);
    if (histogram === undefined) {
      this.#forget(minute);
      histogram = new Histogram();
      this.#minutes.set(minute, histogram);
    }
    histogram.record(lagSeconds);
  }

  /** By cell; all zeros when nothing ended lately. */
  counts(epochSeconds: number): Density {
    this.#forget(Math.floor(epochSeconds / MINUTE_SECONDS));
    const all = new Histogram();
    for (const histogram of this.#minutes.values()) all.merge(histogram);
    return all.counts;
  }

  get bytes(): number {
    return this.#minutes.size * CELLS * Float64Array.BYTES_PER_ELEMENT;
  }

  /**
   * A clock that was set back leaves minutes that are yet to come: they would stay, and with them memory would grow. The
   * next one may be there because the clock was only corrected a little.
   */
  #forget(current: number): void {
    for (const minute of this.#minutes.keys()) {
      if (minute <= current - MINUTES || minute > current + 1) this.#minutes.delete(minute);
    }
  }
}
