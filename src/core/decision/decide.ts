import {
  HOOK_NAMES,
  HOOKS,
  type HoldToken,
  type HookName,
  type Labels,
  labelOf,
  MIRROR_POD_ANNOTATION,
  type NamespaceRecord,
  selectsNamespace,
  servicesSelecting,
  unseenNamespace,
} from '../api/index.ts';
import { type Consumer, findsByItself, type PlannedLag, sendsTo } from '../lag/index.ts';
import type { ClusterSnapshot } from './cluster-snapshot.ts';
import {
  type Carriers,
  type ContainerWait,
  changedBy,
  containerTable,
  isAllKept,
  leastOf,
  NO_CARRIERS,
  ownDrainOf,
  type Target,
  tableNotes,
  targetNotes,
  targetsOf,
} from './containers.ts';
import { type EarlierPass, earlierPass, type Separated, separated } from './earlier-pass.ts';
import { supportsNativeSleep } from './fleet.ts';
import {
  callOf,
  type DeliveryTerms,
  type HoldSetup,
  hasHelper,
  type NoHold,
  newSetup,
  standingSetup,
} from './hold-delivery.ts';
import { NODE_BUDGET_SHARE } from './node-budget.ts';
import { nodeBudget, runsOnWindows } from './placement.ts';
import {
  type Decision,
  fitExtended,
  fitGrace,
  type HoldPlan,
  isAudit,
  longestWait,
  type Plan,
  riseOf,
  type Skip,
  secondsByContainer,
} from './plan.ts';
import {
  annotationsOf,
  type Container,
  controllerOf,
  endsByItself,
  graceOf,
  isTooLarge,
  labelsOf,
  type Pod,
  podProblemOf,
  probeRateOf,
  servingContainers,
} from './pod.ts';
import { effectivePolicy } from './policy-merge.ts';
import { digestOf, type EffectivePolicy } from './policy-values.ts';
import { type Note, note, type SkipReason } from './reasons.ts';
import { chooseWait, enoughOf, estimateOfWait, holdBounds, type WaitChoice, wholeSeconds } from './wait.ts';
import type { Workload } from './workload.ts';

/** The question: should this pod, which is about to be created, wait, and for how long? */
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
  /** A fresh token, used if the pod gets hook Hold. Absent where there is no Hold Service. */
  readonly holdToken?: HoldToken | undefined;
  /** The object is a pod or pod template in a manifest, which must not get what is unique to one pod, such as a token. */
  readonly isManifest?: boolean;
}

/** The request that admission receives when the workload's controller creates a pod. */
export function requestOf({
  workload: { pod: object, ownerKind },
  namespace,
}: {
  readonly workload: Workload;
  readonly namespace: string;
}): PodRequest {
  return {
    operation: 'CREATE',
    resource: { group: '', resource: 'pods' },
    subResource: undefined,
    namespace,
    object,
    isManifest: true,
    ...(ownerKind === undefined ? {} : { ownerKind }),
  };
}

/**
 * The decision for one pod: a plan, or the first reason in the catalogue's order why there is none. In mode Audit the
 * decision is the same as in Enforce; the caller leaves the pod unchanged.
 */
export function decide(request: PodRequest, snapshot: ClusterSnapshot): Decision {
  const apart = separated(request.object);
  if (apart !== undefined) return decideApart(apart, request, snapshot);
  const screened = screenWhole(request);
  if (screened !== undefined) return screened;
  const pod = request.object as Pod;
  const { namespace, policy, notes } = policyFor(placeOf(request), snapshot);
  const decision = decideUnder(policy, pod, namespace, request, snapshot);
  return notes.length === 0 ? decision : { ...decision, notes: [...notes, ...decision.notes] };
}

function decideApart({ pod, plan }: Separated, request: PodRequest, snapshot: ClusterSnapshot): Decision {
  const decision = decide({ ...request, object: pod }, snapshot);
  const isWritten = decision.outcome === 'inject' || decision.withdrawn !== undefined;
  if (isWritten || decision.reason === 'InvalidPod') return decision;
  return { ...decision, ...withoutHooks(pod, { plan, carriers: NO_CARRIERS }) };
}

interface PlacedPod {
  readonly namespace: string;
  readonly labels: Labels;
  readonly annotations: Labels;
}

/** @param request already screened */
function placeOf({ namespace, object }: PodRequest): PlacedPod {
  return { namespace, labels: labelsOf(object as Pod), annotations: annotationsOf(object as Pod) };
}

function policyFor({ namespace: name, labels, annotations }: PlacedPod, snapshot: ClusterSnapshot) {
  const namespace = snapshot.namespaces.get(name) ?? unseenNamespace(name);
  const subject = { namespace, labels, annotations };
  const { policy, notes } = effectivePolicy(snapshot.policies, subject, snapshot.modeLimit);
  return { namespace, policy, notes };
}

export interface Traffic {
  readonly policy: EffectivePolicy;
  readonly services: SelectingServices;
  /** The consumers that send it traffic, or may. */
  readonly consumers: readonly Consumer[];
  readonly lag: PlannedLag;
}

export function trafficOf(pod: PlacedPod, snapshot: ClusterSnapshot): Traffic {
  const { namespace, policy } = policyFor(pod, snapshot);
  const services = servicesSelecting(snapshot.services, namespace.name, pod.labels);
  const { consumers, lag } = sendersAndLags(pod.labels, namespace, services, policy, snapshot);
  return { policy, services, consumers, lag };
}

/** The names of the consumers that send traffic to a pod, or may, and are only observed: no wait considers them. */
export function observersOf(
  namespaceName: string,
  labels: Labels,
  snapshot: ClusterSnapshot,
): readonly string[] {
  const { consumers, measured } = snapshot;
  // Those in force come first.
  const observed = measured.slice(consumers.length);
  if (observed.length === 0) return [];
  const namespace = snapshot.namespaces.get(namespaceName) ?? unseenNamespace(namespaceName);
  const services = servicesSelecting(snapshot.services, namespace.name, labels);
  return observed.flatMap((each) =>
    sendsTo(each, namespace, labels, services) === false ? [] : [each.name],
  );
}

/** A pod's traffic, and the wait that its policy comes to, whatever hooks the pod has. */
export interface Exposure extends Traffic {
  readonly choice: WaitChoice;
}

/** For audits: the wait that {@link decide}'s outcome is compared with. Undefined for an object that is not decided on. */
export function exposureOf(request: PodRequest, snapshot: ClusterSnapshot): Exposure | undefined {
  if (screen(request) !== undefined) return undefined;
  const traffic = trafficOf(placeOf(request), snapshot);
  const budget = nodeBudget(request.object as Pod, snapshot.fleet);
  return { ...traffic, choice: withinBudget(chooseWait(traffic.policy, traffic.lag), budget) };
}

/** The skip reasons that do not depend on the snapshot. Undefined: the object is a {@link Pod} to decide on. */
export function screen(request: PodRequest): Skip | undefined {
  const apart = separated(request.object);
  return screenWhole(apart === undefined ? request : { ...request, object: apart.pod });
}

function screenWhole(request: PodRequest): Skip | undefined {
  if (!isPodCreate(request)) return skip('NotPodCreate');
  const problem = podProblemOf(request.object);
  const unreadable = `${problem}; the pod cannot be read and passes unchanged`;
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
  request: PodRequest,
  snapshot: ClusterSnapshot,
): Decision {
  if (policy.inject.value === false) return skip('OptedOut', [], policy);
  if (policy.mode.value === 'Off') return skip('ModeOff', [], policy);

  const delivery = policy['hold.delivery'].value;
  const hold: DeliveryTerms = { namespace: namespace.name, delivery, token: request.holdToken, snapshot };
  const earlier = earlierPass(pod);
  const { plan, carriers } = earlier;
  if (plan === undefined || carriers.size === 0)
    return decideAfresh(policy, pod, namespace, request, snapshot, hold, earlier);
  const again: Again = { ...earlier, plan };
  if (plan.hook !== 'Hold') return decideAgain(pod, again, policy);
  const setup = standingSetup(pod, carriers, hookedOf(targetsOf(pod, policy, NO_CARRIERS)), hold);
  if (setup !== undefined) return decideAgain(pod, { ...again, setup }, policy);
  const text = 'the pod’s hooks of Hold are not its own (a copied manifest?), or cannot stay';
  const notes = [...earlier.notes, note('StalePlan', text)];
  const decision = decideAfresh(policy, pod, namespace, request, snapshot, hold, { ...earlier, notes });
  // Hooks of another pod must not stay, whatever the decision is.
  return decision.outcome === 'inject' ? decision : { ...decision, ...withoutHooks(pod, again) };
}

/** Decides for a pod without hooks of Linger’s, or with hooks that must not stay. */
function decideAfresh(
  policy: EffectivePolicy,
  pod: Pod,
  namespace: NamespaceRecord,
  { ownerKind, isManifest }: PodRequest,
  snapshot: ClusterSnapshot,
  hold: DeliveryTerms,
  earlier: EarlierPass,
): Decision {
  const notes = [...earlier.notes];
  const selecting = servicesSelecting(snapshot.services, namespace.name, labelsOf(pod));
  const selected = isSelected(pod, namespace, selecting, snapshot.consumers);
  const serves =
    policy.pods.value === 'All' || (policy.pods.value === 'Serving' && declaresTraffic(pod)) || selected;
  const exclusion = exclusionOf(pod, policy, ownerKind ?? controllerOf(pod)?.kind, serves);
  if (exclusion === 'DaemonSet' && selected === true) notes.push(note('DaemonSetServing', DAEMON_SET));
  if (exclusion !== undefined) return skip(exclusion, notes, policy);
  const drain = policy.inject.value === true ? undefined : ownDrainOf(pod);
  if (drain !== undefined) return skip('DrainsItself', [...notes, note('OwnDrain', drain)], policy);
  if (serves === 'unknown' && policy.inject.value !== true) {
    const text = `no Service of namespace ${namespace.name} is known, so the pod counts as serving`;
    notes.push(note('ServicesUnknown', text));
  }
  const traffic = sendersAndLags(labelsOf(pod), namespace, selecting, policy, snapshot);
  notes.push(...traffic.notes);
  return planFor(
    pod,
    policy,
    traffic.lag,
    { ...hold, isManifest: isManifest === true },
    { ...earlier, notes },
  );
}

const DAEMON_SET =
  'a Service sends traffic to this pod of a DaemonSet: linger.dev/inject: "true" on the pod template gives it a wait';

/** @param earlier what an earlier pass left; none of its hooks may stay */
function planFor(
  pod: Pod,
  policy: EffectivePolicy,
  lag: PlannedLag,
  hold: HookTerms,
  { plan: earlier, carriers, notes }: EarlierPass,
): Decision {
  const choice = withinBudget(chooseWait(policy, lag), nodeBudget(pod, hold.snapshot.fleet));
  const { baseGrace, maxGrace, cutFrom } = roomIn(pod, policy, earlier);
  const grace = graceOf(pod);
  const all = targetsOf(pod, policy, NO_CARRIERS, carriers);
  const said = [...notes, ...choice.notes, ...targetNotes(pod, policy)];
  const left = (reason: SkipReason, ...more: readonly Note[]) => {
    const table = containerTable(pod, grace, new Map(), carriers);
    return skip(reason, [...said, ...more, ...tableNotes(table, undefined, 0)], policy);
  };

  if (all.length === 0) return left('NoContainer');
  if (isAllKept(all, choice.seconds)) return left('ExistingHook');
  const { hook, setup, ...chosen } = chooseHook(policy, pod, () => changedBy(all, choice.seconds), hold);
  said.push(...chosen.notes);
  if (hook === undefined) {
    const text = `hook ${policy.hook.value} (${policy.hook.origin}) does not work on every node that this pod can run on`;
    return left('NoHook', note('HookUnsupported', text));
  }
  if (choice.seconds < 1) return left('NoWait');
  const wanted = setup === undefined ? choice.seconds : longestHold(policy, choice.seconds);
  const fit = fitGrace(wanted, Math.min(baseGrace, grace), maxGrace, grace);
  const { wait, targets } = extendable(all, Math.min(choice.seconds, fit.wait), {
    grace: fit.grace,
    baseGrace: Math.min(baseGrace, grace),
  });
  if (wait < 1) return left('NoRoom');
  if (isAllKept(targets, wait)) return left('ExistingHook');

  const changed = changedBy(targets, wait);
  const estimate = estimateOfWait(policy, lag, wait);
  const planned: Plan = {
    wait,
    grace: fit.grace,
    baseGrace,
    hook,
    containers: changed.map(({ container }) => container.name),
    policy: choice.origin,
    why: choice.why,
    ...(typeof estimate?.coverage === 'number' && { coverage: estimate.coverage, samples: estimate.samples }),
    ...extendedIn(NO_CARRIERS, changed),
    ...(setup && { hold: holdPlanOf(policy, pod, Math.max(wait, fit.wait)) }),
    digest: digestOf(policy),
  };
  const table = containerTable(pod, fit.grace, secondsByContainer(planned), carriers);
  const plan = { ...planned, least: leastOf(table, wait, policy.containers.value) };
  const stale = 'the pod’s linger.dev/plan says that there is no room for a wait, and there is';
  if (earlier?.wait === 0) said.push(note('StalePlan', stale));
  said.push(...planNotes(plan, table));
  const longest = longestWait(plan);
  if (longest < wanted) {
    const { value, origin } = policy['grace.max'];
    const limit = `grace.max is ${value}s (${origin}) and the pod's own grace is ${baseGrace}s`;
    const why = cutFrom === undefined ? limit : cutInWords(cutFrom, grace);
    said.push(waitShrunk(longest, wanted, why));
  }
  const later =
    chosen.isLater &&
    fitGrace(longestHold(policy, choice.seconds), Math.min(baseGrace, grace), maxGrace, grace);
  const decision: Decision = {
    ...{ outcome: 'inject', plan, policy, notes: said },
    ...(estimate && { estimate }),
    ...(later && {
      hold: {
        min: Math.min(wholeSeconds(policy['hold.min'].value), later.wait),
        ...{ max: later.wait, grace: later.grace },
      },
    }),
  };
  if (setup === undefined && carriers.size === 0) return decision;
  // A container that the policy no longer names (it was renamed) must not keep a hook whose helper is removed.
  const released = new Map([...carriers].filter(([name]) => !plan.containers.includes(name)));
  return { ...decision, ...(setup && { setup }), ...(released.size > 0 && { released }) };
}

/**
 * The wait, and the targets that it can change: without the sleeps of authors where the grace has no room for longer
 * ones.
 */
function extendable(
  targets: readonly Target[],
  wait: number,
  room: Parameters<typeof fitExtended>[2],
): { readonly wait: number; readonly targets: readonly Target[] } {
  if (!targets.some(({ sleeps: own }) => own > 0)) return { wait, targets };
  const changed = changedBy(targets, wait);
  const sleeps = changed.flatMap(({ sleeps: own }) => (own > 0 ? own : []));
  if (sleeps.length === 0) return { wait, targets };
  const shortest = targets.some(({ sleeps: own }) => own === 0) ? 0 : Math.min(...sleeps);
  const extended = fitExtended(wait, sleeps, room, shortest);
  // A sleep that would stay as it is must not shorten the wait.
  const isForAll = changedBy(targets, extended).length === changed.length;
  if (extended > shortest && isForAll) return { wait: extended, targets };
  const kept = Number.POSITIVE_INFINITY;
  return { wait, targets: targets.map((each) => (each.sleeps > 0 ? { ...each, sleeps: kept } : each)) };
}

/**
 * The table of a decision on a pod, one row for each container that runs as long as the pod: what audits, explanations
 * and notes say of hooks and graces comes from it.
 */
export function containerWaits(pod: Pod, decision: Decision): readonly ContainerWait[] {
  const plan = decision.outcome === 'inject' ? decision.plan : decision.standing;
  const { carriers } = earlierPass(pod);
  return containerTable(
    pod,
    plan?.grace ?? graceOf(pod),
    plan ? secondsByContainer(plan) : new Map(),
    carriers,
  );
}

/**
 * Where a pod can only run on nodes that go away at short notice, the kubelet gives it the node's budget instead of its
 * grace: a wait beyond a third of that would cost the application its shutdown. The author's own wait stands.
 */
function withinBudget(choice: WaitChoice, budget: number | undefined): WaitChoice {
  if (budget === undefined) return choice;
  const most = Math.floor(budget * NODE_BUDGET_SHARE);
  const isAuthors = choice.origin.startsWith(POD_ORIGIN);
  if (choice.seconds <= most) return choice;
  const given = `the pod can only run on nodes that leave it ${budget}s when they are taken away`;
  const effect = isAuthors
    ? `the wait of ${choice.seconds}s (${choice.origin}) is more than a third of that`
    : `the wait is ${most}s instead of ${choice.seconds}s, a third of that`;
  const seconds = isAuthors ? choice.seconds : most;
  return { ...choice, seconds, notes: [...choice.notes, note('NodeBudgetShort', `${given}: ${effect}`)] };
}

/** How origins of a pod's own annotations begin. */
const POD_ORIGIN = 'Pod ';

/** The longest hold: never shorter than the wait without the Hold Service. */
function longestHold(policy: EffectivePolicy, wait: number): number {
  return holdBounds(policy, wait).max;
}

/** @param max seconds, as the grace allows */
function holdPlanOf(policy: EffectivePolicy, pod: Pod, max: number): HoldPlan {
  return {
    min: Math.min(wholeSeconds(policy['hold.min'].value), max),
    max,
    percentile: policy['wait.percentile'].value,
    initial: wholeSeconds(policy['wait.initial'].value),
    probes: probeRateOf(pod),
    ...(policy['hold.observe'].value && { observe: true }),
    ...(pod.spec.hostNetwork === true && { hostNetwork: true }),
  };
}

/**
 * A grace that an earlier pass has raised must not be raised again, or each pass would add a wait. A grace larger than
 * the recorded one is a new request of its author's. A smaller one has been cut, unless it equals the recorded base: then
 * the annotation was copied, or the spec was restored.
 * @returns the author's grace, the limit to which it may be raised, and the plan after which it was cut, if it was
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
function decideAgain(pod: Pod, { plan, carriers, notes, setup }: Again, policy: EffectivePolicy): Decision {
  const recorded = standingPlan(plan, carriers);
  const grace = graceOf(pod);
  const cut = grace < recorded.grace;
  const base = Math.min(recorded.baseGrace, grace);
  const recordedLongest = longestWait(recorded);
  const ceiling = Math.floor(policy['ceiling.wait'].value);
  const longest = Math.min(cut ? fitGrace(recordedLongest, base, grace).wait : recordedLongest, ceiling);
  const room = { grace, baseGrace: base };
  const targets = targetsOf(pod, policy, carriers);
  const isBare = [...carriers.values()].includes(undefined) || targets.some(({ sleeps }) => sleeps === 0);
  const fits = (sleeps: readonly number[], of: number) =>
    sleeps.length === 0 ? of : fitExtended(of, sleeps, room, isBare ? 0 : Math.min(...sleeps));
  const lengthened = [...carriers.values()].filter((seconds) => seconds !== undefined);
  const bounded = Math.min(recorded.wait, longest);
  const fitting = cut || isBare ? fits(lengthened, bounded) : bounded;
  const keepsLengthened = lengthened.length === 0 || fitting > (isBare ? 0 : Math.min(...lengthened));
  const wait = keepsLengthened ? fitting : bounded;
  const kept = new Map([...carriers].filter(([, authors]) => authors === undefined || keepsLengthened));
  const added = changedBy(targets, wait, isBare);
  const ofAuthors = added.map(({ sleeps }) => sleeps).filter((seconds) => seconds > 0);
  const isTight = fits([...(keepsLengthened ? lengthened : []), ...ofAuthors], wait) < wait;
  const joining = isTight ? added.filter(({ sleeps }) => sleeps === 0) : added;
  const waiting = new Set([...kept.keys(), ...joining.map(({ container }) => container.name)]);
  if (wait < 1 || waiting.size === 0)
    return withdrawal(pod, { plan: recorded, carriers, notes }, policy, ceiling);
  const isWhole = carriers.size === recorded.containers.length && notes.length === 0;
  const isSetUp = setup === undefined || isSetUpIn(pod, waiting, setup);
  const isAsRecorded =
    recorded === plan && longest === recordedLongest && wait === recorded.wait && kept.size === carriers.size;
  if (isAsRecorded && joining.length === 0 && isWhole && isSetUp)
    return { ...skip('AlreadyInjected', notes, policy), standing: recorded };

  const { extended: _, ...unextended } = wait === recorded.wait ? recorded : withoutMeasurement(recorded);
  const planned: Plan = {
    ...unextended,
    wait,
    grace,
    containers: pod.spec.containers.map(({ name }) => name).filter((name) => waiting.has(name)),
    ...extendedIn(kept, joining),
    ...(recorded.hold && {
      hold: { ...recorded.hold, min: Math.min(recorded.hold.min, longest), max: longest },
    }),
  };
  const table = containerTable(pod, grace, secondsByContainer(planned), carriers);
  const next = { ...planned, least: leastOf(table, wait, policy.containers.value) };
  const said = [...notes, ...planNotes(next, table)];
  const decision = { outcome: 'inject', plan: next, policy, notes: said, ...(setup && { setup }) } as const;
  if (isAsRecorded) return decision;
  const released = new Map([...carriers].filter(([name]) => !kept.has(name)));
  const now = longestWait(next);
  if (now < recordedLongest)
    said.push(waitShrunk(now, recordedLongest, shrunkInWords(recorded, grace, ceiling, policy)));
  return { ...decision, released };
}

/** Where only lengthened sleeps are left, the wait to which the shortest of them has risen. */
function standingPlan(plan: Plan, carriers: Carriers): Plan {
  const lengthened = [...carriers.values()].filter((seconds) => seconds !== undefined);
  if (plan.extended === undefined || plan.hook === 'Hold' || lengthened.length < carriers.size) return plan;
  const wait = Math.min(...lengthened) + riseOf(plan);
  return wait === plan.wait ? plan : { ...plan, wait };
}

function shrunkInWords(recorded: Plan, grace: number, ceiling: number, policy: EffectivePolicy): string {
  if (grace < recorded.grace || longestWait(recorded) <= ceiling) return cutInWords(recorded, grace);
  return `ceiling.wait is ${ceiling}s (${policy['ceiling.wait'].origin})`;
}

/** Whether each hook of Hold makes this pod’s own call, and finds its helper. */
function isSetUpIn(pod: Pod, waiting: ReadonlySet<string>, { token }: HoldSetup): boolean {
  return pod.spec.containers.every((container) => {
    const call = waiting.has(container.name) ? callOf(container) : undefined;
    return call === undefined || (call.token === token && hasHelper(pod, container));
  });
}

/** Removes every hook of Linger’s, and notes that in an annotation: another pass must not put it back. */
function withdrawal(
  pod: Pod,
  { plan, carriers, notes }: Again,
  policy: EffectivePolicy,
  ceiling: number,
): Decision {
  const grace = graceOf(pod);
  const effect = isAudit({ policy })
    ? 'Enforce would remove the hook (mode Audit: the pod is left unchanged)'
    : 'the hook is removed';
  const text = `${shrunkInWords(plan, grace, ceiling, policy)}, which leaves no room for a wait; ${effect}`;
  const reason = grace === 0 ? 'ZeroGrace' : ceiling < 1 ? 'NoWait' : 'NoRoom';
  return {
    ...skip(reason, [...notes, note('HookWithdrawn', text)], policy),
    ...withoutHooks(pod, { plan, carriers }),
  };
}

function withoutHooks(
  pod: Pod,
  { plan, carriers }: Pick<Again, 'plan' | 'carriers'>,
): Pick<Skip, 'withdrawn' | 'released'> {
  const { hold: _, ...rest } = withoutMeasurement(plan);
  return { withdrawn: { ...rest, wait: 0, grace: graceOf(pod), containers: [] }, released: carriers };
}

/** A pod with hooks of an earlier pass. With hook Hold, `setup` is what they use. */
type Again = EarlierPass & { readonly plan: Plan; readonly setup?: HoldSetup };

/** The recorded coverage does not hold for a shorter wait. */
function withoutMeasurement({ coverage: _c, samples: _s, extended: _e, least: _l, ...plan }: Plan): Plan {
  return plan;
}

function cutInWords(recorded: Plan, grace: number): string {
  return `terminationGracePeriodSeconds was cut from ${recorded.grace} to ${grace} after injection`;
}

function waitShrunk(wait: number, wanted: number, why: string): Note {
  return note('WaitShrunk', `the wait is ${wait}s instead of ${wanted}s: ${why}`);
}

/** The notes on what a plan makes of a pod. */
export function planNotes(plan: Plan, table: readonly ContainerWait[]): readonly Note[] {
  const { wait, grace, baseGrace, hold } = plan;
  const own = Math.min(baseGrace, grace);
  const longest = longestWait(plan);
  const left = grace - longest;
  const notes = [...tableNotes(table, wait, longest)];
  if (left < own) {
    const text = `the application has ${left}s of its ${own}s left after the wait: the grace is ${grace}s`;
    notes.push(note('ShutdownShortened', text));
  }
  if (hold?.hostNetwork) notes.push(note('HoldUnwitnessed', HOST_NETWORK));
  return notes;
}

/** By container: the author's own seconds, where a sleep is lengthened. */
function extendedIn(carriers: Carriers, changed: readonly Target[]): Pick<Plan, 'extended'> {
  const extended: [string, number][] = [];
  for (const [name, seconds = 0] of carriers) if (seconds > 0) extended.push([name, seconds]);
  for (const { container, sleeps } of changed) if (sleeps > 0) extended.push([container.name, sleeps]);
  return extended.length === 0 ? {} : { extended: Object.fromEntries(extended) };
}

const HOST_NETWORK =
  'the pod uses its node’s network, so its connections cannot be distinguished from others, and Hold works without them';

type HookTerms = DeliveryTerms & { readonly isManifest: boolean };

/** @returns no hook where no allowed one works on this fleet */
interface ChosenHook {
  readonly hook: HookName | undefined;
  readonly setup?: HoldSetup;
  readonly notes: readonly Note[];
  /** Its pods get Hold when they are admitted. */
  readonly isLater?: true;
}

const AUTO_HOOKS = HOOK_NAMES.filter((name) => HOOKS[name].auto);

/** @param changed those that get a hook, or a longer sleep */
function chooseHook(
  policy: EffectivePolicy,
  pod: Pod,
  changed: () => readonly Target[],
  terms: HookTerms,
): ChosenHook {
  const { value: choice, origin } = policy.hook;
  const setup = choice === 'Hold' ? setupFor(pod, hookedOf(changed()), terms) : undefined;
  const why = setup && 'why' in setup ? setup.why : undefined;
  const nodes = {
    nativeSleep: supportsNativeSleep(terms.snapshot.fleet),
    // No getter: an accessor in a literal gives each review a hidden class of its own, which halved the throughput.
    windows: runsOnWindows(pod, terms.snapshot.fleet),
    holdHelper: why === undefined,
  };
  const candidates = choice === 'Auto' || why !== undefined ? AUTO_HOOKS : [choice];
  const hook = candidates.find((name) => HOOKS[name].supports(nodes));
  if (setup === undefined) return { hook, notes: [] };
  if (!('why' in setup)) return { hook, setup, notes: [] };
  const instead = `${hook ?? 'no hook'} instead of Hold (${origin})`;
  if (!terms.isManifest || setup.ofPod || setup.why !== OF_MANIFEST)
    return { hook, notes: [note('HoldUnavailable', `${instead}: ${setup.why}`)] };
  const { value: min } = policy['hold.min'];
  const text = `${instead}: a pod gets its token when it is admitted; there, Hold takes ${min}s to ${longestHold(policy, 0)}s`;
  return { hook, notes: [note('HoldNeedsPod', text)], isLater: true };
}

/** Not an obstacle: its pods get what they need when they are admitted. */
const OF_MANIFEST = 'the pod comes from a manifest';
/** Stands for the token that a pod gets at admission. */
const TOKEN_TO_COME: HoldToken = { text: '', hashOf: () => '' };

function setupFor(pod: Pod, hooked: readonly Container[], terms: HookTerms): HoldSetup | NoHold {
  if (hooked.length === 0) return { why: 'every container that waits has a sleep of its own', ofPod: true };
  if (!terms.isManifest) return newSetup(pod, hooked, terms);
  const setup = newSetup(pod, hooked, { ...terms, token: TOKEN_TO_COME });
  const isOpen = !('why' in setup) || (!setup.ofPod && terms.snapshot.hold === undefined);
  return isOpen ? { why: OF_MANIFEST } : setup;
}

/** Without the containers that have sleeps of their own. */
function hookedOf(targets: readonly Target[]): readonly Container[] {
  return targets.filter(({ sleeps }) => sleeps === 0).map(({ container }) => container);
}

type SelectingServices = ReturnType<typeof servicesSelecting>;

function namesOf(services: SelectingServices): readonly string[] {
  return services === 'unknown' ? [] : services.map(({ name }) => name);
}

/** `unknown` while the namespace’s Services are. */
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

/** Their own ports and probes say nothing of the application, and its manifest does not have them. */
const MESH_PROXIES: ReadonlySet<string> = new Set(['istio-proxy', 'linkerd-proxy']);

/** Ports and readiness probes show that a pod serves, even if its Service is applied a moment later. */
function declaresTraffic(pod: Pod): boolean {
  const all = servingContainers(pod);
  const isGateway = all.every(({ name }) => MESH_PROXIES.has(name));
  return all.some(
    ({ name, ports, readinessProbe }) =>
      (isGateway || !MESH_PROXIES.has(name)) && ((ports?.length ?? 0) > 0 || readinessProbe),
  );
}

/**
 * The reasons that come from what the pod is, in catalogue order. `linger.dev/inject: "true"` overrides DaemonSet,
 * NotServing and DrainsItself only: overriding the others would break the pod or have no effect.
 * @param kind of the pod's owner
 * @param serves unknown: a Service that is not known yet may select the pod, and an unneeded wait is the cheaper mistake
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
  if (pod.spec.containers.every((each) => endsByItself(pod, each))) return 'RestartPolicy';
  if (excluded === 'DaemonSet' && !wanted) return 'DaemonSet';
  if (excluded !== undefined && excluded !== 'DaemonSet') return 'ExcludedKind';
  if (graceOf(pod) === 0) return 'ZeroGrace';
  return wanted || serves !== false ? undefined : 'NotServing';
}

/** The consumers that send traffic to the pod, their planned lag, and a note on consumers that are only assumed to. */
function sendersAndLags(
  labels: Labels,
  namespace: NamespaceRecord,
  selecting: SelectingServices,
  policy: EffectivePolicy,
  snapshot: ClusterSnapshot,
): Pick<Traffic, 'consumers' | 'lag'> & { readonly notes: readonly Note[] } {
  const consumers: Consumer[] = [];
  const assumed: string[] = [];
  for (const consumer of snapshot.consumers) {
    const sends = sendsTo(consumer, namespace, labels, selecting);
    if (sends === false) continue;
    consumers.push(consumer);
    if (sends === 'assumed' && !consumer.builtIn) assumed.push(consumer.name);
  }
  const lag = snapshot.lags.planned(namespace.name, consumers, enoughOf(policy), namesOf(selecting));
  if (assumed.length === 0) return { consumers, lag, notes: [] };
  const text = `the Service of this pod, or its Namespace, has not been seen yet: ${assumed.join(', ')} may send traffic to it and is taken into account`;
  return { consumers, lag, notes: [note('ConsumerAssumed', text)] };
}

function skip(reason: SkipReason, notes: readonly Note[] = [], policy?: EffectivePolicy): Skip {
  return { outcome: 'skip', reason, notes, ...(policy && { policy }) };
}
