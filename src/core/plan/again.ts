import { note } from '../catalog/notes.ts';
import { ANNOTATION } from '../catalog/vocabulary.ts';
import { labelOf } from '../cluster/selector.ts';
import type { EffectivePolicy } from '../policy/values.ts';
import { refitGrace } from './grace.ts';
import { type Decision, matchesHooks, type Plan, parsePlan } from './plan.ts';
import { annotationsOf, graceOf, type Pod } from './pod.ts';
import { changedBy, targetsOf } from './targets.ts';

/** The pod's own plan annotation: none, one that its hooks bear out, or one that means nothing. */
export type Recorded =
  | { readonly state: 'none' | 'stale' }
  | { readonly state: 'valid'; readonly plan: Plan };

/**
 * Reads the plan of an earlier pass. It counts only when the hooks that it claims are there and its wait is one
 * that a ceiling allows: otherwise anybody could order a wait by writing our annotation.
 */
export function recordedPlan(pod: Pod, policy: EffectivePolicy): Recorded {
  const text = labelOf(annotationsOf(pod), ANNOTATION.plan);
  if (text === undefined) return { state: 'none' };
  const plan = parsePlan(text);
  const valid = plan !== undefined && plan.wait <= policy['ceiling.wait'].value && matchesHooks(plan, pod);
  return valid ? { state: 'valid', plan } : { state: 'stale' };
}

/**
 * Decides for a pod that already carries a plan (the API server asks again when a later webhook has changed the
 * pod, and manifests may come out of `linger inject`). Recorded wait and base grace are reused, so the answer does
 * not depend on what has been learned meanwhile; a container that was added is completed; where somebody cut the
 * grace, the wait shrinks with it, and is taken back when nothing is left: the pod would be rejected otherwise.
 */
export function decideAgain(pod: Pod, recorded: Plan, policy: EffectivePolicy): Decision {
  const grace = graceOf(pod);
  const cut = grace < recorded.grace;
  const wait = cut ? refitGrace(recorded.wait, recorded.baseGrace, grace) : recorded.wait;
  if (wait < 1) return withdrawal(recorded, policy, grace);

  const added = changedBy(targetsOf(pod, policy), wait).map(({ name }) => name);
  const carriers = new Set([...recorded.containers, ...added]);
  if (wait === recorded.wait && carriers.size === recorded.containers.length) {
    return { outcome: 'skip', reason: 'AlreadyInjected', policy, notes: [] };
  }
  const containers = pod.spec.containers.map(({ name }) => name).filter((name) => carriers.has(name));
  const notes = wait === recorded.wait ? [] : [note('WaitShrunk', shrunk(recorded, wait, grace))];
  return { outcome: 'inject', plan: { ...recorded, wait, grace, containers }, policy, notes };
}

function shrunk(recorded: Plan, wait: number, grace: number): string {
  return `the wait is ${wait}s instead of ${recorded.wait}s: terminationGracePeriodSeconds was cut from ${recorded.grace} to ${grace} after injection`;
}

function withdrawal(recorded: Plan, policy: EffectivePolicy, grace: number): Decision {
  const text = `terminationGracePeriodSeconds was cut from ${recorded.grace} to ${grace} after injection, which leaves no room for a wait; the hook is taken back`;
  return {
    outcome: 'skip',
    reason: grace === 0 ? 'ZeroGrace' : 'NoRoom',
    policy,
    notes: [note('HookWithdrawn', text)],
    withdraw: recorded.containers,
  };
}
