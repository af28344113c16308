import type { Density } from './combine.ts';
import { CELLS } from './grid.ts';

/**
 * The distribution of lags where some have not ended yet: the product-limit estimator (Kaplan and Meier, 1958).
 *
 * `ended[cell]` lags ended in that cell; `waiting[cell]` have reached it and still wait, so all that is known is that
 * they are longer. The rule: each one that waits shares its weight among what ended later than its age (it takes
 * as long as those that were as old as it is now); of equal age, the ended count first. Where nothing ended later,
 * the weight stands at the longest age of all: an age is the least that its lag can come to, and what all of the
 * waiting have in common is that nobody younger has been seen to end (Efron's rule for the tail).
 *
 * @returns a distribution of total 1, or undefined when there is neither an ended nor a waiting lag
 */
export function withWaiting(ended: Density, waiting: Density): Density | undefined {
  let atRisk = 0;
  let longest = -1;
  for (let cell = 0; cell < CELLS; cell += 1) {
    const here = (ended[cell] ?? 0) + (waiting[cell] ?? 0);
    if (here === 0) continue;
    atRisk += here;
    longest = cell;
  }
  if (longest < 0) return undefined;

  const density = new Float64Array(CELLS);
  let surviving = 1;
  for (let cell = 0; cell <= longest; cell += 1) {
    const ends = ended[cell] ?? 0;
    if (ends > 0) {
      const share = surviving * Math.min(1, ends / atRisk);
      density[cell] = share;
      surviving -= share;
    }
    atRisk -= ends + (waiting[cell] ?? 0);
  }
  density[longest] = (density[longest] ?? 0) + Math.max(0, surviving);
  return density;
}
