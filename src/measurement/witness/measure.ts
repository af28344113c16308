import { WITNESSED_ENOUGH } from '../../core/lag/index.ts';
import type { Measuring } from '../measure.ts';

/** The senders to a Service, as seen by its pods while they are held. hold/holds.ts records the samples. */
export const witness = {
  by: 'held pods',
  // Held pods give samples as they terminate, so nothing can fail and no interval is expected.
  state: {
    trouble: undefined,
    limits: [
      'Seen by pods with hook Hold, while they are held: new connections only, and none after their release.',
      `Waits take it in from ${WITNESSED_ENOUGH} terminations on.`,
    ],
  },
} as const satisfies Measuring<'witness'>;
