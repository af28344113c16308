import type { ClusterSnapshot } from '../../../src/core/decision/cluster-snapshot.ts';
import { decide, type PodRequest } from '../../../src/core/decision/decide.ts';
import { type Operation, patchFor } from '../../../src/core/decision/patch.ts';
import type { Decision } from '../../../src/core/decision/plan.ts';
import type { Pod } from '../../../src/core/decision/pod.ts';
import { holdToken, NOW } from './sample-hold.ts';
import { creationOf, type PodObject, patched } from './sample-pod.ts';
import { EMPTY_SNAPSHOT } from './sample-snapshot.ts';

/** What the API server asks when this object is created, with a token of its own where pods are held. */
export function reviewOf(object: unknown, snapshot: ClusterSnapshot, token = holdToken()): PodRequest {
  return creationOf(object, snapshot.hold && { holdToken: token });
}

/** One pass of admission, and the pod that comes out. */
export interface Pass {
  readonly decision: Decision;
  readonly operations: readonly Operation[];
  readonly result: PodObject;
}

export function pass(
  object: PodObject,
  snapshot: ClusterSnapshot = EMPTY_SNAPSHOT,
  token = holdToken(),
): Pass {
  const decision = decide(reviewOf(object, snapshot, token), snapshot);
  const operations = patchFor(object as unknown as Pod, decision);
  return { decision, operations, result: patched(object, operations) };
}

/** The pod after a first pass and what another webhook then did to it. */
export function altered(
  object: PodObject,
  change: (result: PodObject) => void,
  snapshot: ClusterSnapshot = EMPTY_SNAPSHOT,
): PodObject {
  const { result } = pass(object, snapshot);
  change(result);
  return result;
}

/** Another webhook cuts the grace. */
export const cutTo = (grace: number) => (result: PodObject) => {
  result.spec.terminationGracePeriodSeconds = grace;
};

/** The pod before its first pass, with its hooks, with those of another pod, and with handlers merged into its hooks. */
export function lives(object: PodObject, snapshot: ClusterSnapshot): readonly PodObject[] {
  const merged = altered(
    object,
    ({ spec }) => {
      for (const { lifecycle } of spec.containers) {
        const handler = (lifecycle as { readonly preStop?: object } | null | undefined)?.preStop;
        if (handler) Object.assign(handler, { httpGet: { path: '/drain', port: 80 } });
      }
    },
    snapshot,
  );
  const copied = pass(object, snapshot, holdToken(NOW - 3600)).result;
  return [object, pass(object, snapshot).result, copied, merged];
}
