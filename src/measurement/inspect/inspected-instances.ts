import type { Instances } from '../measure.ts';
import type { Inspection } from './inspect.ts';

/** The instances of inspected consumers, for Hold. */
export function inspectedInstances(
  inspection: Pick<Inspection, 'usersOf' | 'want' | 'done' | 'skipped'>,
): Instances {
  return {
    wordOf: (consumer, { uid, withdrawn }) => {
      const since = Math.max(...withdrawn.map(({ at }) => at));
      const still = inspection.usersOf(consumer, uid, since) ?? 'unknown';
      return still === 'unknown' ? undefined : { still, completeAt: 0 };
    },
    want: (pod) => inspection.want(pod),
    done: (uid) => inspection.done(uid),
    skipped: (consumer) => inspection.skipped(consumer),
  };
}
