import { note } from '../catalog/notes.ts';
import type { SkipReason } from '../catalog/reasons.ts';
import { ANNOTATION } from '../catalog/vocabulary.ts';
import { labelOf } from '../cluster/selector.ts';
import type { EffectivePolicy } from '../policy/values.ts';
import { refitGrace } from './grace.ts';
import { type Decision, isWithdrawn, matchesHooks, type Plan, parsePlan, type Released } from './plan.ts';
import { annotationsOf, graceOf, type Pod } from './pod.ts';
import { changedBy, changeNotes, extendedSeconds, targetsOf } from './targets.ts';

/** The pod's own plan annotation: none, one that its hooks bear out, or one that means nothing. */
export type Recorded =
  | { readonly state: 'none' | 'stale' }
  | { readonly state: 'valid'; readonly plan: Plan };

/**
 * Reads the plan of an earlier pass. It counts only when the hooks that it claims are there and its wait is one
 * that a ceiling allows: otherwise anybody could order a wait by writing our annotation. A withdrawn plan claims no
 * hook, so it counts only while there really is no room for one: anybody could opt out with it otherwise.
 */
export function recordedPlan(pod: Pod, policy: EffectivePolicy): Recorded {
  const text = labelOf(annotationsOf(pod), ANNOTATION.plan);
  if (text === undefined) return { state: 'none' };
  const plan = parsePlan(text);
  if (plan === undefined) return { state: 'stale' };
  const borneOut = isWithdrawn(plan)
    ? isWithoutRoom(pod, plan, policy)
    : plan.wait <= policy['ceiling.wait'].value && matchesHooks(plan, pod);
  return borneOut ? { state: 'valid', plan } : { state: 'stale' };
}

/** Whether even the longest wait would be shrunk to nothing, or to less than the sleeps that authors wrote. */
function isWithoutRoom(pod: Pod, { baseGrace }: Plan, policy: EffectivePolicy): boolean {
  const room = refitGrace(Number.MAX_SAFE_INTEGER, baseGrace, graceOf(pod));
  return room < 1 || changedBy(targetsOf(pod, policy), room).length === 0;
}

/**
 * Decides for a pod that already carries a plan (the API server asks again when a later webhook has changed the
 * pod, and manifests may come out of `linger inject`). Recorded wait and base grace are reused, so the answer does
 * not depend on what has been learned meanwhile; a container that was added is completed; where somebody cut the
 * grace, the wait shrinks with it, and is taken back when nothing is left: the pod would be rejected otherwise.
 */
export function decideAgain(pod: Pod, recorded: Plan, policy: EffectivePolicy): Decision {
  const grace = graceOf(pod);
  if (isWithdrawn(recorded)) return { outcome: 'skip', reason: reasonOf(grace), policy, notes: [] };
  const cut = grace < recorded.grace;
  const wait = cut ? refitGrace(recorded.wait, recorded.baseGrace, grace) : recorded.wait;
  const added = changedBy(targetsOf(pod, policy), wait).filter(
    ({ container }) => !recorded.containers.includes(container.name),
  );
  const kept = recorded.containers.filter((name) => wait > (authorsSeconds(recorded, name) ?? 0));
  const carriers = new Set([...kept, ...added.map(({ container }) => container.name)]);
  if (wait < 1 || carriers.size === 0) return withdrawal(recorded, policy, grace);
  if (wait === recorded.wait && added.length === 0) {
    return { outcome: 'skip', reason: 'AlreadyInjected', policy, notes: [] };
  }
  const plan: Plan = {
    ...withoutExtended(wait === recorded.wait ? recorded : withoutMeasurement(recorded)),
    wait,
    grace,
    containers: pod.spec.containers.map(({ name }) => name).filter((name) => carriers.has(name)),
    ...extendedIn(recorded, kept, extendedSeconds(added)),
  };
  const released = releasedBy(recorded, (name) => !kept.includes(name));
  const notes = changeNotes(added, wait);
  if (wait === recorded.wait) return { outcome: 'inject', plan, policy, notes };
  return {
    outcome: 'inject',
    plan,
    policy,
    notes: [...notes, note('WaitShrunk', shrunk(recorded, wait, grace))],
    released,
  };
}

/** The seconds that the container's own sleep had before we lengthened it; undefined for a hook of ours. */
function authorsSeconds({ extended = {} }: Plan, name: string): number | undefined {
  return Object.hasOwn(extended, name) ? extended[name] : undefined;
}

/** What was covered by the recorded wait says nothing of a shorter one. */
function withoutMeasurement({ coverage: _coverage, samples: _samples, ...plan }: Plan): Plan {
  return plan;
}

function withoutExtended({ extended: _extended, ...plan }: Plan): Plan {
  return plan;
}

function extendedIn(
  { extended = {} }: Plan,
  kept: readonly string[],
  added: Readonly<Record<string, number>> = {},
): Pick<Plan, 'extended'> {
  const still = Object.entries(extended).filter(([name]) => kept.includes(name));
  const entries = [...still, ...Object.entries(added)];
  return entries.length === 0 ? {} : { extended: Object.fromEntries(entries) };
}

function releasedBy(recorded: Plan, goes: (name: string) => boolean): Released {
  const names = recorded.containers.filter(goes);
  return new Map(names.map((name) => [name, authorsSeconds(recorded, name)]));
}

function shrunk(recorded: Plan, wait: number, grace: number): string {
  return `the wait is ${wait}s instead of ${recorded.wait}s: terminationGracePeriodSeconds was cut from ${recorded.grace} to ${grace} after injection`;
}

/** Everything of ours goes, but for an annotation that says so: another pass must not put it back. */
function withdrawal(recorded: Plan, policy: EffectivePolicy, grace: number): Decision {
  const text = `terminationGracePeriodSeconds was cut from ${recorded.grace} to ${grace} after injection, which leaves no room for a wait; the hook is taken back`;
  return {
    outcome: 'skip',
    reason: reasonOf(grace),
    policy,
    notes: [note('HookWithdrawn', text)],
    withdrawn: { ...withoutExtended(withoutMeasurement(recorded)), wait: 0, grace, containers: [] },
    released: releasedBy(recorded, () => true),
  };
}

function reasonOf(grace: number): SkipReason {
  return grace === 0 ? 'ZeroGrace' : 'NoRoom';
}
