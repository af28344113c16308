import { type Note, note } from '../catalog/notes.ts';
import type { SkipReason } from '../catalog/reasons.ts';
import { MIRROR_POD_ANNOTATION } from '../catalog/vocabulary.ts';
import { type NamespaceRecord, unseenNamespace } from '../cluster/namespaces.ts';
import { labelOf } from '../cluster/selector.ts';
import { servicesSelecting } from '../cluster/services.ts';
import type { LagDistribution } from '../lag/distribution.ts';
import { effectivePolicy } from '../policy/effective.ts';
import type { EffectivePolicy } from '../policy/values.ts';
import { decideAgain, recordedPlan } from './again.ts';
import { exclusionOf, servesByDefault } from './exclusion.ts';
import { fitGrace } from './grace.ts';
import { chooseHook } from './hook.ts';
import type { Decision, Plan, Skip } from './plan.ts';
import { annotationsOf, graceOf, labelsOf, type Pod, problemOf } from './pod.ts';
import { consumersOf, type SelectingServices, servingOf } from './serving.ts';
import { changedBy, changeNotes, extendedSeconds, type Target, targetNotes, targetsOf } from './targets.ts';
import { chooseWait, type WaitChoice } from './wait.ts';
import type { World } from './world.ts';

/** What is asked: shall this pod, about to be created, wait, and how long? */
export interface PodRequest {
  /** `CREATE` and so on, as in an AdmissionReview. */
  readonly operation: string;
  readonly resource: { readonly group: string; readonly resource: string };
  readonly subResource: string | undefined;
  /** The request's namespace: a controller's pod may not name its own. */
  readonly namespace: string;
  /** Whatever came in; it may be anything. */
  readonly object: unknown;
  /** The kind that will own the pod, where the object cannot say so itself (a template in a manifest). */
  readonly ownerKind?: string;
}

/**
 * The decision for one pod: a plan, or the first reason in the catalogue's order why there is none. A pure
 * function: the same request and world give the same decision. Mode Audit is not looked at here: the answer is
 * worked out as if for Enforce, and whoever answers applies the mode.
 */
export function decide(request: PodRequest, world: World): Decision {
  if (!isPodCreate(request)) return skip('NotPodCreate');
  const problem = problemOf(request.object);
  if (problem !== undefined) {
    return skip('InvalidPod', [
      note('UnreadablePod', `the pod passes unchanged: it cannot be read: ${problem}`),
    ]);
  }
  const pod = request.object as Pod;
  if (labelOf(annotationsOf(pod), MIRROR_POD_ANNOTATION) !== undefined) return skip('MirrorPod');

  const namespace = world.namespaces.get(request.namespace) ?? unseenNamespace(request.namespace);
  const subject = { namespace, labels: labelsOf(pod), annotations: annotationsOf(pod) };
  const { policy, notes } = effectivePolicy(world.policies, subject, world.modeLimit);
  const decision = decideUnder(policy, pod, namespace, request.ownerKind, world);
  return notes.length === 0 ? decision : { ...decision, notes: [...notes, ...decision.notes] };
}

function isPodCreate({ operation, resource, subResource }: PodRequest): boolean {
  return operation === 'CREATE' && resource.group === '' && resource.resource === 'pods' && !subResource;
}

function decideUnder(
  policy: EffectivePolicy,
  pod: Pod,
  namespace: NamespaceRecord,
  ownerKind: string | undefined,
  world: World,
): Decision {
  if (policy.inject.value === false) return skip('OptedOut', [], policy);
  if (policy.mode.value === 'Off') return skip('ModeOff', [], policy);

  const recorded = recordedPlan(pod, policy);
  if (recorded.state === 'valid') return decideAgain(pod, recorded.plan, policy);
  const notes: Note[] = [];
  if (recorded.state === 'stale') {
    notes.push(note('StalePlan', 'the pod’s linger.dev/plan does not match its hooks; it is ignored'));
  }
  const selecting = lazily(() => servicesSelecting(world.services, namespace.name, labelsOf(pod)));
  const serving = lazily(() => servingOf(pod, namespace, selecting(), world.consumers));
  const candidate = { pod, policy, ownerKind, serving };
  const exclusion = exclusionOf(candidate);
  if (exclusion !== undefined) return skip(exclusion, notes, policy);
  if (servesByDefault(candidate)) {
    notes.push(
      note(
        'ServicesUnknown',
        `no Service of namespace ${namespace.name} is known, so the pod counts as serving`,
      ),
    );
  }
  return planFor(pod, policy, lagOf(pod, namespace, selecting(), world), world, notes);
}

function planFor(
  pod: Pod,
  policy: EffectivePolicy,
  lag: LagDistribution | undefined,
  world: World,
  notes: readonly Note[],
): Decision {
  const choice = chooseWait(policy, lag);
  const baseGrace = graceOf(pod);
  const fit = fitGrace(choice.seconds, baseGrace, policy['grace.max'].value);
  const targets = targetsOf(pod, policy);
  const said = [...notes, ...choice.notes, ...targetNotes(pod, policy, targets)];

  if (targets.length === 0) return skip('NoContainer', said, policy);
  if (isAllKept(targets, choice.seconds)) return skip('ExistingHook', said, policy);
  const hook = chooseHook(policy.hook.value, world.fleet, pod);
  if (hook === undefined) {
    const text = `hook ${policy.hook.value} (${policy.hook.origin}) does not work on every node that this pod can run on`;
    return skip('NoHook', [...said, note('HookUnsupported', text)], policy);
  }
  if (choice.seconds < 1) return skip('NoWait', said, policy);
  if (fit.wait < 1) return skip('NoRoom', said, policy);
  if (isAllKept(targets, fit.wait)) return skip('ExistingHook', said, policy);

  const changed = changedBy(targets, fit.wait);
  const plan: Plan = {
    ...fit,
    baseGrace,
    hook,
    containers: changed.map(({ container }) => container.name),
    ...originOf(choice, fit.wait, extendedSeconds(changed)),
  };
  said.push(...changeNotes(changed, fit.wait));
  if (fit.wait < choice.seconds) said.push(note('WaitShrunk', shrunk(choice.seconds, plan, policy)));
  return { outcome: 'inject', plan, policy, notes: said };
}

/** The lag that the decision for a pod is made with; undefined while nothing is known. */
export function plannedLagOf(pod: Pod, namespace: string, world: World): LagDistribution | undefined {
  const record = world.namespaces.get(namespace) ?? unseenNamespace(namespace);
  return lagOf(pod, record, servicesSelecting(world.services, namespace, labelsOf(pod)), world);
}

function lagOf(
  pod: Pod,
  namespace: NamespaceRecord,
  selecting: SelectingServices,
  { consumers, lags }: World,
): LagDistribution | undefined {
  return lags.planned(namespace.name, consumersOf(pod, namespace, selecting, consumers));
}

/** Whether each hook is its author's, to be left as it is: not ours to touch, or as long as this wait already. */
function isAllKept(targets: readonly Target[], wait: number): boolean {
  return targets.every(
    ({ state }) => state.kind === 'kept' || (state.kind === 'extendable' && state.seconds >= wait),
  );
}

/** The part of a plan that says where its wait comes from. */
function originOf(
  { why, origin, lag }: WaitChoice,
  wait: number,
  extended: Plan['extended'],
): Pick<Plan, 'policy' | 'why' | 'coverage' | 'samples' | 'extended'> {
  return {
    policy: origin,
    why,
    ...(lag === undefined ? {} : { coverage: lag.coverage(wait), samples: lag.samples }),
    ...(extended === undefined ? {} : { extended }),
  };
}

function shrunk(wanted: number, { wait, baseGrace }: Plan, policy: EffectivePolicy): string {
  const { value, origin } = policy['grace.max'];
  return `the wait is ${wait}s instead of ${wanted}s: grace.max is ${value}s (${origin}) and the pod's own grace is ${baseGrace}s`;
}

function skip(reason: SkipReason, notes: readonly Note[] = [], policy?: EffectivePolicy): Skip {
  return policy === undefined
    ? { outcome: 'skip', reason, notes }
    : { outcome: 'skip', reason, policy, notes };
}

function lazily<T extends object | string>(compute: () => T): () => T {
  let answer: T | undefined;
  return () => {
    answer ??= compute();
    return answer;
  };
}
