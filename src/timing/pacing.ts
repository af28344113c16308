import { Backoff, type BackoffLimits } from './backoff.ts';

/**
 * Combines many requests into one call: soon after the first request, then at most once in `everyMs` while there are more.
 * So a single change is passed on within a millisecond or two, and a storm costs only one call per interval.
 * @returns a function that requests a call
 */
export function throttle(
  everyMs: number,
  call: () => void,
  { clock, signal }: { readonly clock: () => number; readonly signal: AbortSignal },
): () => void {
  let last = Number.NEGATIVE_INFINITY;
  let timer: NodeJS.Timeout | undefined;
  signal.addEventListener('abort', () => clearTimeout(timer), { once: true });
  return () => {
    if (timer !== undefined || signal.aborted) return;
    const run = () => {
      timer = undefined;
      last = clock();
      call();
    };
    timer = setTimeout(run, Math.max(0, last + everyMs - clock())).unref();
  };
}

/** A burst, and a sustained rate. */
export interface Allowance {
  readonly perSecond: number;
  readonly atOnce: number;
}

/** Limits how often something may be done (a token bucket). */
export class RateLimit {
  readonly #allowance: Allowance;
  #left: number;
  #at: number;

  /** @param now milliseconds of a monotonic clock */
  constructor(allowance: Allowance, now: number) {
    this.#allowance = allowance;
    this.#left = allowance.atOnce;
    this.#at = now;
  }

  /** @returns false: too often; a refused request does not count */
  take(now: number): boolean {
    const { perSecond, atOnce } = this.#allowance;
    this.#left = Math.min(atOnce, this.#left + ((now - this.#at) / 1000) * perSecond);
    this.#at = now;
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }
}

/** Milliseconds. */
export interface Pace extends BackoffLimits {
  /** The interval if all is well. */
  readonly everyMs: number;
}

/** When to do something again: at its interval, sooner on request, and later after failures. */
export class Schedule {
  readonly #pace: Pace;
  readonly #backoff: Backoff;
  #at: number;
  #notBefore = Number.NEGATIVE_INFINITY;

  /** @param firstAt milliseconds of the caller's clock @param random in [0, 1) */
  constructor(pace: Pace, firstAt: number, random: () => number) {
    this.#pace = pace;
    this.#at = firstAt;
    this.#backoff = new Backoff(pace, random);
  }

  due(now: number): boolean {
    return now >= Math.max(this.#at, this.#notBefore);
  }

  /** Makes it due as soon as failures allow. */
  hasten(): void {
    this.#at = Number.NEGATIVE_INFINITY;
  }

  done(now: number): void {
    this.#at = now + this.#pace.everyMs;
    this.#notBefore = Number.NEGATIVE_INFINITY;
    this.#backoff.reset();
  }

  /** @returns the pause until the next attempt @param retryAfterMs what the server asked for */
  failed(now: number, retryAfterMs = 0): number {
    const pauseMs = this.#backoff.next(retryAfterMs);
    this.#notBefore = now + pauseMs;
    return pauseMs;
  }
}
