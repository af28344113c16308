import { setImmediate as turn } from 'node:timers/promises';

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
