import type { Measuring } from '../measure.ts';

/** The author of the consumer declares its lag, so nothing is measured. */
export const declared: Measuring<'declared'> = { by: 'declaration' };
