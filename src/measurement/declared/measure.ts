import type { Measuring } from '../measure.ts';

/** Its author declares the lag: nothing is measured. */
export const declared: Measuring<'declared'> = { by: 'declaration' };
