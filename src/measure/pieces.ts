import { setImmediate as turn } from 'node:timers/promises';

/** Well under what a review may take, and so long that handing over costs little. */
const PIECE_MS = 5;

/**
 * Takes the steps of a long computation to their end, and lets everything else that waits have its turn every few
 * milliseconds. What the steps read must bear that.
 * @param clock monotonic milliseconds
 */
export async function inPieces<T>(steps: Generator<unknown, T>, clock: () => number): Promise<T> {
  for (;;) {
    const until = clock() + PIECE_MS;
    do {
      const step = steps.next();
      if (step.done === true) return step.value;
    } while (clock() < until);
    await turn();
  }
}
