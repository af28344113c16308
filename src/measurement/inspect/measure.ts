import type { Measuring } from '../measure.ts';

/** Pages are served by the consumer's instances, or by a discovery service that they poll. */
export const inspect: Measuring<'inspect'> = {
  by: 'inspection',
  inspected: (measure) => ({ inspect: measure.inspect }),
};
