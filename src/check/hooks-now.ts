import { memberAt } from '../core/api/index.ts';
import { type HookFacts, type HooksNow, hooksNow } from '../core/judge/index.ts';
import type { Inquiry } from './checks.ts';
import { floorState } from './floor.ts';
import { anyOwnWebhook, obstaclesTo } from './pod-webhooks.ts';
import { deployment, replicaPods, replicaStatuses } from './replicas.ts';

/** Whether pods created now get a hook. What may not be read counts as unknown. Never rejects. */
export async function hooksNowIn(inquiry: Inquiry): Promise<HooksNow> {
  const seen = <T>(ask: Promise<T>) => ask.catch(() => undefined);
  const { configuration } = inquiry.options;
  const own = await anyOwnWebhook(inquiry).then(
    (webhook) => ({ webhook }),
    () => undefined,
  );
  const statuses = await seen(replicaStatuses(inquiry));
  const floor = await seen(floorState(inquiry));
  const webhook = own?.webhook;
  return hooksNow({
    configuration,
    configured: own && webhook !== undefined,
    replicas: await seen(replicasOf(inquiry)),
    astray: webhook && (await seen(obstaclesTo(webhook, inquiry)))?.[0],
    trusted: trustIn([...(statuses?.values() ?? [])].map(({ trusted }) => trusted)),
    failsClosed: webhook?.failurePolicy === 'Fail',
    floor: floor?.bound === true && floor.validUntil !== null,
  });
}

/**
 * Combines the answers of replicas: they have the same certificate, but learn of a changed configuration at different times.
 */
function trustIn(all: readonly (boolean | null)[]): boolean | undefined {
  const known = all.filter((each) => each !== null);
  return known.length === 0 ? undefined : known.includes(true);
}

/** @returns undefined if there is no such Deployment: then replicas may be run by something else */
async function replicasOf(inquiry: Inquiry): Promise<HookFacts['replicas']> {
  const declared = await deployment(inquiry);
  if (declared === undefined) return undefined;
  const wanted = memberAt(declared, ['spec', 'replicas']);
  const pods = await replicaPods(inquiry);
  return {
    wanted: typeof wanted === 'number' ? wanted : 1,
    ready: pods.filter(({ ready }) => ready).length,
  };
}
