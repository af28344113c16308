import type { Operation } from '../../src/core/patch/operation.ts';
import { patchFor } from '../../src/core/patch/patch.ts';
import { decide } from '../../src/core/plan/decide.ts';
import type { Decision } from '../../src/core/plan/plan.ts';
import type { Pod } from '../../src/core/plan/pod.ts';
import { EMPTY_WORLD, type World } from '../../src/core/plan/world.ts';
import { creationOf, type PodObject, patched } from './sample-pod.ts';

/** One pass of admission, and the pod that comes out. */
export interface Pass {
  readonly decision: Decision;
  readonly operations: readonly Operation[];
  readonly result: PodObject;
}

export function pass(object: PodObject, world: World = EMPTY_WORLD): Pass {
  const decision = decide(creationOf(object), world);
  const operations = patchFor(object as unknown as Pod, decision);
  return { decision, operations, result: patched(object, operations) };
}

/** The pod after a first pass and whatever somebody then did to it. */
export function altered(
  object: PodObject,
  change: (result: PodObject) => void,
  world: World = EMPTY_WORLD,
): PodObject {
  const { result } = pass(object, world);
  change(result);
  return result;
}

/** Somebody cuts the grace. */
export const cutTo = (grace: number) => (result: PodObject) => {
  result.spec.terminationGracePeriodSeconds = grace;
};
