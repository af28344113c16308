/**
 * Makes one call out of many requests: soon after the first, then at most once in `everyMs` as long as there are more.
 * So a single change is passed on in a millisecond or two, and a storm costs no more than a tick's work for each tick.
 * @returns what to call to ask for one
 */
export function atMostEvery(
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
