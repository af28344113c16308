import type { WatchLimits } from './limits.ts';

type PauseLimits = Pick<WatchLimits, 'firstPauseMs' | 'longestPauseMs' | 'longestRetryAfterMs'>;

/** How long to pause before the next attempt: doubling, jittered, never under what the server asked for. */
export class Backoff {
  readonly #limits: PauseLimits;
  readonly #random: () => number;
  #failures = 0;

  /** @param random in [0, 1) */
  constructor(limits: PauseLimits, random: () => number) {
    this.#limits = limits;
    this.#random = random;
  }

  /** The pause after one more failure, in milliseconds. */
  next(retryAfterMs = 0): number {
    const { firstPauseMs, longestPauseMs, longestRetryAfterMs } = this.#limits;
    const full = Math.min(longestPauseMs, firstPauseMs * 2 ** this.#failures);
    this.#failures += 1;
    // The upper half: a pause near 0 would be none. Jitter on top of Retry-After: all clients were told the same.
    const pause = (full * (1 + this.#random())) / 2;
    const asked = Math.min(retryAfterMs, longestRetryAfterMs);
    return asked > pause ? asked + (firstPauseMs * this.#random()) / 2 : pause;
  }

  reset(): void {
    this.#failures = 0;
  }
}
