import { unseenNamespace } from '../cluster/namespaces.ts';
import { NO_LABELS } from '../cluster/selector.ts';
import { sendsTo } from '../consumers/consumer.ts';
import { effectivePolicy } from '../policy/effective.ts';
import { chooseWait, type WaitChoice } from './wait.ts';
import type { World } from './world.ts';

/** No pod can be in it: a namespace's name has at least one character. */
const NOWHERE = unseenNamespace('');

/**
 * The wait that the cluster as a whole comes to: of a pod without labels or annotations, in a namespace of which nothing
 * is known, with the consumers that go by every Service. For gauges: what pods get is decided for each.
 */
export function defaultWait({ policies, lags, consumers, modeLimit }: World): WaitChoice {
  const subject = { namespace: NOWHERE, labels: NO_LABELS, annotations: NO_LABELS };
  const { policy } = effectivePolicy(policies, subject, modeLimit);
  const everywhere = consumers.filter((consumer) => sendsTo(consumer, NOWHERE, NO_LABELS, 'unknown'));
  return chooseWait(policy, lags.planned(NOWHERE.name, everywhere));
}
