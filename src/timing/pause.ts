/** Never aborts. */
export const NEVER = new AbortController().signal;

/**
 * Waits without keeping the process alive, because a process never waits for its background work.
 * @returns false once the signal has aborted
 */
export function pause(milliseconds: number, signal: AbortSignal): Promise<boolean> {
  // Not node:timers/promises: with a signal, a pause there takes a fifth to a half more processor time, and an idle Linger
  // does little else but pause.
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
 * Like {@link pause}, but ends with the nearest beat; beats are a quarter of a second apart, and the same for the whole
 * process. For loops that check whether there is something to do. Waking an idle processor takes longer (some 0.15 ms) than
 * most checks, and a leader has a dozen such loops, so they are all woken together. A tick shorter than a beat is an
 * ordinary pause.
 */
export function tick(milliseconds: number, signal: AbortSignal): Promise<boolean> {
  if (milliseconds < BEAT_MS) return pause(milliseconds, signal);
  const now = performance.now();
  return pause(Math.ceil(Math.round((now + milliseconds) / BEAT_MS) * BEAT_MS - now), signal);
}

/**
 * Does work with a signal of its own, which aborts with the given one, on request, or after this many milliseconds. Not
 * AbortSignal.any, which leaves some 200 bytes behind for each signal that is derived from one that lives for months, and
 * there is a request a second.
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
