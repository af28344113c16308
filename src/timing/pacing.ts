import { setImmediate as turn } from 'node:timers/promises';
import { Backoff, type BackoffLimits } from './backoff.ts';

/**
 * Waits, without keeping the process alive: what goes on in the background is never what a process waits for.
 * @returns false once the signal has aborted
 */
export function pause(milliseconds: number, signal: AbortSignal): Promise<boolean> {
  // Not node:timers/promises: with a signal a pause there takes a fifth to a half more of the processor, and at rest Linger does
  // little else but pause.
  return new Promise((resolve) => {
    if (signal.aborted) return resolve(false);
    const abort = () => {
      clearTimeout(timer);
      resolve(false);
    };
    const over = () => {
      signal.removeEventListener('abort', abort);
      resolve(true);
    };
    const timer = setTimeout(over, Math.max(0, milliseconds)).unref();
    signal.addEventListener('abort', abort, { once: true });
  });
}

/** Between two beats. Milliseconds. */
const BEAT_MS = 250;

/**
 * {@link pause}, but it ends with the beat that is nearest to its time: a quarter of a second apart, the same for the whole
 * process. For loops that look whether there is something to do. Waking a processor that rests takes it longer (some
 * 0.15 ms) than most looks do, and a leader has a dozen such loops, so they are all woken together. A tick shorter than
 * a beat is a pause.
 */
export function tick(milliseconds: number, signal: AbortSignal): Promise<boolean> {
  if (milliseconds < BEAT_MS) return pause(milliseconds, signal);
  const now = performance.now();
  return pause(Math.ceil(Math.round((now + milliseconds) / BEAT_MS) * BEAT_MS - now), signal);
}

/**
 * Makes one call out of many requests: soon after the first, then at most once in `everyMs` as long as there are more.
 * So a single change is passed on in a millisecond or two, and a storm costs no more than a tick's work for each tick.
 * @returns what to call to ask for one
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

/** Well under what a review may take, and so long that handing over costs little. */
const PIECE_MS = 5;

/**
 * Takes the steps of a long computation to their end, and lets everything else that waits have its turn every few
 * milliseconds. What the steps read must bear that.
 * @param clock monotonic milliseconds
 * @param pieceMs how long others wait for their turn, of which a review takes several
 */
export async function inPieces<T>(
  steps: Generator<unknown, T>,
  clock: () => number,
  pieceMs = PIECE_MS,
): Promise<T> {
  for (;;) {
    const until = clock() + pieceMs;
    do {
      const step = steps.next();
      if (step.done === true) return step.value;
    } while (clock() < until);
    await turn();
  }
}

/** @returns what does this work one call after the other, in the order of the calls */
export function serialize<I, O>(work: (input: I) => Promise<O>): (input: I) => Promise<O> {
  let last: Promise<unknown> = Promise.resolve();
  return (input) => {
    const done = last.then(() => work(input));
    last = done.catch(() => undefined);
    return done;
  };
}

/**
 * Does work with a signal of its own: it aborts with the given one, on request, or after so many milliseconds.
 * Not AbortSignal.any: on a signal that lives for months each leaves some 200 bytes behind, a request a second.
 */
export async function withSignal<T>(
  { signal: outer, withinMs }: { readonly signal: AbortSignal; readonly withinMs?: number },
  work: (signal: AbortSignal, abort: () => void) => Promise<T>,
): Promise<T> {
  const inner = new AbortController();
  const abort = () => inner.abort(outer.reason);
  if (outer.aborted) abort();
  outer.addEventListener('abort', abort, { once: true });
  const timer = withinMs === undefined ? undefined : setTimeout(abort, withinMs).unref();
  try {
    return await work(inner.signal, abort);
  } finally {
    clearTimeout(timer);
    outer.removeEventListener('abort', abort);
  }
}

/** So many may be taken at once, and so many a second for good. */
export interface Allowance {
  readonly perSecond: number;
  readonly atOnce: number;
}

/** Says how often something may be done (a token bucket). */
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

  /** @returns false: too often; asking costs nothing further */
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
  /** Between two times, when all is well. */
  readonly everyMs: number;
}

/** When something is to be done again: at its interval, or sooner when asked for; later after failures. */
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

  /** As soon as failures allow. */
  hasten(): void {
    this.#at = Number.NEGATIVE_INFINITY;
  }

  done(now: number): void {
    this.#at = now + this.#pace.everyMs;
    this.#notBefore = Number.NEGATIVE_INFINITY;
    this.#backoff.reset();
  }

  /** @returns the pause until it is tried again @param retryAfterMs what the server asked for */
  failed(now: number, retryAfterMs = 0): number {
    const pauseMs = this.#backoff.next(retryAfterMs);
    this.#notBefore = now + pauseMs;
    return pauseMs;
  }
}
