import {
  HOOK_NAMES,
  HOOKS,
  type HookChoice,
  type HookName,
  labelOf,
  MIRROR_POD_ANNOTATION,
  type NamespaceRecord,
  selectsNamespace,
  servicesSelecting,
  unseenNamespace,
} from '../api/index.ts';
import { type Consumer, findsByItself, type PlannedLag, sendsTo } from '../lag/index.ts';
import {
  type Carriers,
  changedBy,
  changeNotes,
  isAllKept,
  partialWaitNotes,
  type Target,
  targetNotes,
  targetsOf,
} from './containers.ts';
import { type Fleet, supportsNativeSleep } from './fleet.ts';
import {
  type Decision,
  type EarlierPass,
  earlierPass,
  fitGrace,
  isAudit,
  type Plan,
  type Skip,
} from './plan.ts';
import {
  annotationsOf,
  controllerOf,
  graceOf,
  isTooLarge,
  isWindows,
  labelsOf,
  type Pod,
  problemOf,
  servingContainers,
} from './pod.ts';
import { type EffectivePolicy, effectivePolicy } from './policy.ts';
import { type Note, note, type SkipReason } from './reasons.ts';
import { chooseWait, enoughOf, estimateOfWait, type WaitChoice } from './wait.ts';
import type { World } from './world.ts';

/** What is asked: shall this pod, about to be created, wait, and how long? */
export interface PodRequest {
  /** `CREATE` and so on, as in an AdmissionReview. */
  readonly operation: string;
  readonly resource: { readonly group: string; readonly resource: string };
  readonly subResource: string | undefined;
  /** The request's namespace: a controller's pod may not name its own. */
  readonly namespace: string;
  /** The request's object, unchecked. */
  readonly object: unknown;
  /** The kind that will own the pod, where the object cannot say so itself (a template in a manifest). */
  readonly ownerKind?: string;
}

/**
 * The decision for one pod: a plan, or the first reason in the catalogue's order why there is none. In mode Audit it is
 * that of Enforce, and the caller leaves the pod unchanged.
 */
export function decide(request: PodRequest, world: World): Decision {
  const screened = screen(request);
  if (screened !== undefined) return screened;
  const pod = request.object as Pod;
  const namespace = world.namespaces.get(request.namespace) ?? unseenNamespace(request.namespace);
  const subject = { namespace, labels: labelsOf(pod), annotations: annotationsOf(pod) };
  const { policy, notes } = effectivePolicy(world.policies, subject, world.modeLimit);
  const decision = decideUnder(policy, pod, namespace, request.ownerKind, world);
  return notes.length === 0 ? decision : { ...decision, notes: [...notes, ...decision.notes] };
}

/** What is known of a pod's traffic, and the wait that its policy comes to, whatever hooks the pod has. */
export interface Exposure {
  readonly policy: EffectivePolicy;
  readonly choice: WaitChoice;
  readonly lag: PlannedLag;
  /** The Services that select it. */
  readonly services: SelectingServices;
  /** The consumers that send it traffic, or may. */
  readonly consumers: readonly Consumer[];
}

/** For audits: {@link decide} says what is done, this what it is held against. Undefined for what is no Pod to decide on. */
export function exposureOf(request: PodRequest, world: World): Exposure | undefined {
  if (screen(request) !== undefined) return undefined;
  const pod = request.object as Pod;
  const namespace = world.namespaces.get(request.namespace) ?? unseenNamespace(request.namespace);
  const subject = { namespace, labels: labelsOf(pod), annotations: annotationsOf(pod) };
  const { policy } = effectivePolicy(world.policies, subject, world.modeLimit);
  const services = servicesSelecting(world.services, namespace.name, labelsOf(pod));
  const { consumers } = sendersTo(pod, namespace, services, world.consumers);
  const lag = world.lags.planned(namespace.name, consumers, enoughOf(policy));
  return { policy, choice: chooseWait(policy, lag), lag, services, consumers };
}

/** The reasons that do not depend on the world. Undefined: the object is a {@link Pod} to decide on. */
export function screen(request: PodRequest): Skip | undefined {
  if (!isPodCreate(request)) return skip('NotPodCreate');
  const problem = problemOf(request.object);
  const unreadable = `the pod passes unchanged: it cannot be read: ${problem}`;
  if (problem !== undefined) return skip('InvalidPod', [note('UnreadablePod', unreadable)]);
  const pod = request.object as Pod;
  if (isTooLarge(pod)) return skip('TooLarge');
  if (labelOf(annotationsOf(pod), MIRROR_POD_ANNOTATION) !== undefined) return skip('MirrorPod');
  return undefined;
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

  const earlier = earlierPass(pod, policy['ceiling.wait'].value);
  if (earlier.plan !== undefined && earlier.carriers.size > 0) {
    return decideAgain(pod, { ...earlier, plan: earlier.plan }, policy);
  }
  const notes = [...earlier.notes];
  const selecting = servicesSelecting(world.services, namespace.name, labelsOf(pod));
  const selected = isSelected(pod, namespace, selecting, world.consumers);
  const serves =
    policy.pods.value === 'All' || (policy.pods.value === 'Serving' && declaresTraffic(pod)) || selected;
  const exclusion = exclusionOf(pod, policy, ownerKind ?? controllerOf(pod)?.kind, serves);
  if (exclusion === 'DaemonSet' && selected === true) notes.push(note('DaemonSetServing', DAEMON_SET));
  if (exclusion !== undefined) return skip(exclusion, notes, policy);
  if (serves === 'unknown' && policy.inject.value !== true) {
    const text = `no Service of namespace ${namespace.name} is known, so the pod counts as serving`;
    notes.push(note('ServicesUnknown', text));
  }
  const sending = sendersTo(pod, namespace, selecting, world.consumers);
  notes.push(...sending.notes);
  const lag = world.lags.planned(namespace.name, sending.consumers, enoughOf(policy));
  return planFor(pod, policy, lag, world.fleet, { ...earlier, notes });
}

const DAEMON_SET =
  'a Service sends traffic to this pod of a DaemonSet: linger.dev/inject: "true" on the pod template gives it a wait';

/**
 * Decides for a pod that carries no hook of Linger's.
 * @param earlier of an earlier pass of which no hook is left
 */
function planFor(
  pod: Pod,
  policy: EffectivePolicy,
  lag: PlannedLag,
  fleet: Fleet | undefined,
  { plan: earlier, notes }: Pick<EarlierPass, 'plan' | 'notes'>,
): Decision {
  const choice = chooseWait(policy, lag);
  const { baseGrace, maxGrace, cutFrom } = roomIn(pod, policy, earlier);
  const grace = graceOf(pod);
  const fit = fitGrace(choice.seconds, Math.min(baseGrace, grace), maxGrace, grace);
  const targets = targetsOf(pod, policy, new Map());
  const said = [...notes, ...choice.notes, ...targetNotes(pod, policy, targets)];

  if (targets.length === 0) return skip('NoContainer', said, policy);
  if (isAllKept(targets, choice.seconds)) return skip('ExistingHook', said, policy);
  const hook = chooseHook(policy.hook.value, fleet, pod);
  if (hook === undefined) {
    const text = `hook ${policy.hook.value} (${policy.hook.origin}) does not work on every node that this pod can run on`;
    return skip('NoHook', [...said, note('HookUnsupported', text)], policy);
  }
  if (choice.seconds < 1) return skip('NoWait', said, policy);
  if (fit.wait < 1) return skip('NoRoom', said, policy);
  if (isAllKept(targets, fit.wait)) return skip('ExistingHook', said, policy);

  const changed = changedBy(targets, fit.wait);
  const estimate = estimateOfWait(policy, lag, fit.wait);
  const plan: Plan = {
    ...fit,
    baseGrace,
    hook,
    containers: changed.map(({ container }) => container.name),
    policy: choice.origin,
    why: choice.why,
    ...(typeof estimate?.coverage === 'number' && { coverage: estimate.coverage, samples: estimate.samples }),
    ...extendedIn(new Map(), changed),
  };
  const stale = 'the pod’s linger.dev/plan says that there is no room for a wait, and there is';
  if (earlier?.wait === 0) said.push(note('StalePlan', stale));
  said.push(...planNotes(pod, plan, changed));
  if (fit.wait < choice.seconds) {
    const { value, origin } = policy['grace.max'];
    const limit = `grace.max is ${value}s (${origin}) and the pod's own grace is ${baseGrace}s`;
    const why = cutFrom === undefined ? limit : cutInWords(cutFrom, grace);
    said.push(waitShrunk(plan.wait, choice.seconds, why));
  }
  return { outcome: 'inject', plan, policy, notes: said, ...(estimate && { estimate }) };
}

/**
 * A grace that an earlier pass has raised must not be raised again, or each pass would add a wait. A larger grace than
 * the recorded one is a new wish of its author's; a smaller one has been cut, unless it is the recorded base: then the
 * annotation has been copied, or the pod's spec put back to what it was.
 * @returns the grace that the author asked for, what it is raised to at most, and the pass after which it was cut
 */
function roomIn(
  pod: Pod,
  policy: EffectivePolicy,
  earlier: Plan | undefined,
): { readonly baseGrace: number; readonly maxGrace: number; readonly cutFrom?: Plan } {
  const grace = graceOf(pod);
  const maxGrace = policy['grace.max'].value;
  if (earlier === undefined || grace > earlier.grace) return { baseGrace: grace, maxGrace };
  const { baseGrace } = earlier;
  const cutBefore = earlier.wait === 0 || baseGrace > earlier.grace;
  const cut = grace < earlier.grace ? grace !== baseGrace : cutBefore;
  return cut ? { baseGrace, maxGrace: grace, cutFrom: earlier } : { baseGrace, maxGrace };
}

/**
 * Decides for a pod that carries hooks of Linger's (the API server asks again when a later webhook has changed the
 * pod, and manifests may come out of `linger inject`). The recorded wait is reused, so the answer does not depend on
 * what has been learned meanwhile; a container without a hook gets one; where another webhook has cut the grace, the
 * wait shrinks with it, and goes when nothing is left: the API server would reject the pod otherwise.
 */
function decideAgain(
  pod: Pod,
  { plan: recorded, carriers, notes }: Again,
  policy: EffectivePolicy,
): Decision {
  const grace = graceOf(pod);
  const cut = grace < recorded.grace;
  const base = Math.min(recorded.baseGrace, grace);
  const wait = cut ? fitGrace(recorded.wait, base, grace).wait : recorded.wait;
  const added = changedBy(targetsOf(pod, policy, carriers), wait);
  const kept = new Map([...carriers].filter(([, authors = 0]) => authors < wait));
  const waiting = new Set([...kept.keys(), ...added.map(({ container }) => container.name)]);
  if (wait < 1 || waiting.size === 0) return withdrawal(pod, { plan: recorded, carriers, notes }, policy);
  const isWhole = carriers.size === recorded.containers.length && notes.length === 0;
  if (wait === recorded.wait && added.length === 0 && isWhole)
    return { ...skip('AlreadyInjected', notes, policy), standing: recorded };

  const { extended: _, ...unextended } = wait === recorded.wait ? recorded : withoutMeasurement(recorded);
  const plan: Plan = {
    ...unextended,
    wait,
    grace,
    containers: pod.spec.containers.map(({ name }) => name).filter((name) => waiting.has(name)),
    ...extendedIn(kept, added),
  };
  const said = [...notes, ...planNotes(pod, plan, added)];
  if (wait === recorded.wait) return { outcome: 'inject', plan, policy, notes: said };
  const released = new Map([...carriers].filter(([name]) => !kept.has(name)));
  said.push(waitShrunk(wait, recorded.wait, cutInWords(recorded, grace)));
  return { outcome: 'inject', plan, policy, notes: said, released };
}

/** Every hook of Linger's goes, and an annotation says so: another pass must not put it back. */
function withdrawal(pod: Pod, { plan, carriers, notes }: Again, policy: EffectivePolicy): Decision {
  const grace = graceOf(pod);
  const effect = isAudit({ policy })
    ? 'Enforce would take the hook back (mode Audit: the pod is left as it is)'
    : 'the hook is taken back';
  const text = `${cutInWords(plan, grace)}, which leaves no room for a wait; ${effect}`;
  return {
    ...skip(grace === 0 ? 'ZeroGrace' : 'NoRoom', [...notes, note('HookWithdrawn', text)], policy),
    withdrawn: { ...withoutMeasurement(plan), wait: 0, grace, containers: [] },
    released: carriers,
  };
}

/** A pod with hooks of an earlier pass. */
type Again = EarlierPass & { readonly plan: Plan };

/** What the recorded wait covered says nothing of a shorter one. */
function withoutMeasurement({ coverage: _c, samples: _s, extended: _e, ...plan }: Plan): Plan {
  return plan;
}

function cutInWords(recorded: Plan, grace: number): string {
  return `terminationGracePeriodSeconds was cut from ${recorded.grace} to ${grace} after injection`;
}

function waitShrunk(wait: number, wanted: number, why: string): Note {
  return note('WaitShrunk', `the wait is ${wait}s instead of ${wanted}s: ${why}`);
}

/** What to say about a plan, whatever it comes from. */
function planNotes(pod: Pod, plan: Plan, changed: readonly Target[]): readonly Note[] {
  const { wait, grace, baseGrace, containers } = plan;
  const own = Math.min(baseGrace, grace);
  const left = grace - wait;
  const text = `the application has ${left}s of its ${own}s left after the wait: the grace is ${grace}s`;
  return [
    ...changeNotes(changed, wait),
    ...partialWaitNotes(pod, new Set(containers), wait),
    ...(left < own ? [note('ShutdownShortened', text)] : []),
  ];
}

/** By container: the author's own seconds, where a sleep is lengthened. */
function extendedIn(carriers: Carriers, changed: readonly Target[]): Pick<Plan, 'extended'> {
  const now = changed.map(({ container, sleeps }) => [container.name, sleeps] as const);
  const entries = [...carriers, ...now].filter(([, seconds = 0]) => seconds > 0);
  return entries.length === 0 ? {} : { extended: Object.fromEntries(entries) as Record<string, number> };
}

/** The hook that a policy's choice comes to on this fleet, or undefined when none of those allowed works. */
function chooseHook(choice: HookChoice, fleet: Fleet | undefined, pod: Pod): HookName | undefined {
  const nodes = { nativeSleep: supportsNativeSleep(fleet), windows: isWindows(pod) };
  const candidates = choice === 'Auto' ? HOOK_NAMES.filter((name) => HOOKS[name].auto) : [choice];
  return candidates.find((name) => HOOKS[name].supports(nodes));
}

/** The Services that select the pod; unknown while the namespace's are. */
type SelectingServices = ReturnType<typeof servicesSelecting>;

/** Whether a Service or a consumer selects the pod; unknown while the namespace's Services are. */
function isSelected(
  pod: Pod,
  namespace: NamespaceRecord,
  selecting: SelectingServices,
  consumers: readonly Consumer[],
): boolean | 'unknown' {
  const labels = labelsOf(pod);
  const found = consumers.some(
    (consumer) =>
      findsByItself(consumer, labels) && selectsNamespace(consumer.namespaceSelector, namespace) !== false,
  );
  return found || (selecting === 'unknown' ? selecting : selecting.length > 0);
}

/** A port or a readiness probe says the same of a pod whose Service is applied a moment later. */
function declaresTraffic(pod: Pod): boolean {
  return servingContainers(pod).some(
    ({ ports, readinessProbe }) => (ports?.length ?? 0) > 0 || readinessProbe,
  );
}

/**
 * The reasons that come from what the pod is, in catalogue order. `linger.dev/inject: "true"` overrides DaemonSet
 * and NotServing and nothing else: the others would break the pod or do nothing at all.
 * @param kind of the pod's owner
 * @param serves unknown: a Service that is not known yet may select it, and an unneeded wait is the cheaper mistake
 */
function exclusionOf(
  pod: Pod,
  policy: EffectivePolicy,
  kind: string | undefined,
  serves: boolean | 'unknown',
): SkipReason | undefined {
  const wanted = policy.inject.value === true;
  const excluded = policy.exclude.value.find((each) => each === kind);
  if (excluded === 'Job') return 'Job';
  if ((pod.spec.restartPolicy ?? 'Always') !== 'Always') return 'RestartPolicy';
  if (excluded === 'DaemonSet' && !wanted) return 'DaemonSet';
  if (excluded !== undefined && excluded !== 'DaemonSet') return 'ExcludedKind';
  if (graceOf(pod) === 0) return 'ZeroGrace';
  return wanted || serves !== false ? undefined : 'NotServing';
}

/** The consumers that send traffic to the pod, and a note on those that are only taken to. */
function sendersTo(
  pod: Pod,
  namespace: NamespaceRecord,
  selecting: SelectingServices,
  all: readonly Consumer[],
): { readonly consumers: readonly Consumer[]; readonly notes: readonly Note[] } {
  const labels = labelsOf(pod);
  const assumed: string[] = [];
  const consumers = all.filter((consumer) => {
    const sends = sendsTo(consumer, namespace, labels, selecting);
    if (sends === 'assumed' && !consumer.builtIn) assumed.push(consumer.name);
    return sends !== false;
  });
  if (assumed.length === 0) return { consumers, notes: [] };
  const text = `the Service of this pod, or its Namespace, has not been seen yet: ${assumed.join(', ')} may send traffic to it and is taken into account`;
  return { consumers, notes: [note('ConsumerAssumed', text)] };
}

function skip(reason: SkipReason, notes: readonly Note[] = [], policy?: EffectivePolicy): Skip {
  return { outcome: 'skip', reason, notes, ...(policy && { policy }) };
}
