/** Milliseconds. */
export interface BackoffLimits {
  /** The pause after the first failure, drawn from its upper half. It doubles with each further failure. */
  readonly firstPauseMs: number;
  readonly longestPauseMs: number;
  /** The longest Retry-After of a server that is honoured. Default: {@link LONGEST_RETRY_AFTER_MS}. */
  readonly longestRetryAfterMs?: number;
}

/** Priority and Fairness asks for 1 s, a server that shuts down for 5 s; beyond a minute it is a mistake. */
const LONGEST_RETRY_AFTER_MS = 60_000;

/** The pause before the next attempt: it doubles, is jittered, and is never shorter than the server asked for. */
export class Backoff {
  readonly #limits: BackoffLimits;
  readonly #random: () => number;
  #failures = 0;

  /** @param random in [0, 1) */
  constructor(limits: BackoffLimits, random: () => number) {
    this.#limits = limits;
    this.#random = random;
  }

  /** The pause after one more failure, in milliseconds. */
  next(retryAfterMs = 0): number {
    const { firstPauseMs, longestPauseMs, longestRetryAfterMs = LONGEST_RETRY_AFTER_MS } = this.#limits;
    const full = Math.min(longestPauseMs, firstPauseMs * 2 ** this.#failures);
    this.#failures += 1;
    // The upper half, because a pause near 0 would be none. Jitter is added to Retry-After, because all clients got the same
    // one.
    const pause = (full * (1 + this.#random())) / 2;
    const asked = Math.min(retryAfterMs, longestRetryAfterMs);
    return asked > pause ? asked + (firstPauseMs * this.#random()) / 2 : pause;
  }

  reset(): void {
    this.#failures = 0;
  }
}
