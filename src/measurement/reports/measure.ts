import type { Measuring } from '../measure.ts';

/** Its instances report what they have applied. */
export const reports: Measuring<'reports'> = { by: 'reports' };
