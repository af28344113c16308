import type { AfterSigterm } from '../core/timeline/index.ts';
import type { VerdictTone } from './parts.tsx';

/** How the views say whether something sent to a pod after SIGTERM. */
export const AFTER_SIGTERM_WORDS: Readonly<
  Record<AfterSigterm, readonly [tone: VerdictTone, short: string]>
> = {
  sent: ['bad', 'sent after SIGTERM'],
  unknown: ['open', 'not known'],
  clear: ['good', 'nothing after SIGTERM'],
};
