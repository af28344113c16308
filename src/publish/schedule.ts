/** Milliseconds. */
export interface Pace {
  /** Between two times, when all is well. */
  readonly everyMs: number;
  /** After the first failure; it doubles with each further one. Drawn from the upper half. */
  readonly firstPauseMs: number;
  readonly longestPauseMs: number;
}

/** When something is to be done again: at its interval, or sooner when asked for; later after failures. */
export class Schedule {
  readonly #pace: Pace;
  readonly #random: () => number;
  #at: number;
  #notBefore = Number.NEGATIVE_INFINITY;
  #failures = 0;

  /** @param firstAt milliseconds of the caller's clock @param random in [0, 1) */
  constructor(pace: Pace, firstAt: number, random: () => number) {
    this.#pace = pace;
    this.#at = firstAt;
    this.#random = random;
  }

  due(now: number): boolean {
    return now >= Math.max(this.#at, this.#notBefore);
  }

  /** As soon as failures allow. */
  hasten(): void {
    this.#at = Number.NEGATIVE_INFINITY;
  }

  done(now: number): void {
    this.#at = now + this.#pace.everyMs;
    this.#notBefore = Number.NEGATIVE_INFINITY;
    this.#failures = 0;
  }

  /** @returns the pause until it is tried again @param retryAfterMs what the server asked for */
  failed(now: number, retryAfterMs = 0): number {
    const { firstPauseMs, longestPauseMs } = this.#pace;
    const full = Math.min(longestPauseMs, firstPauseMs * 2 ** this.#failures);
    this.#failures += 1;
    const pauseMs = Math.min(retryAfterMs, longestPauseMs) + (full * (1 + this.#random())) / 2;
    this.#notBefore = now + pauseMs;
    return pauseMs;
  }
}
