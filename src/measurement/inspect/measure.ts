import type { Measuring } from '../measure.ts';

/** Its instances, or a discovery service that they poll, serve pages. */
export const inspect: Measuring<'inspect'> = {
  by: 'inspection',
  inspected: (measure) => ({ inspect: measure.inspect }),
};
