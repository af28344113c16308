import type { Measuring } from '../measure.ts';

/** The consumer's instances report what they have applied. */
export const reports: Measuring<'reports'> = { by: 'reports' };
