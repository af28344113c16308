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
import { type AuthorsPod, authorsPod } from './authors-pod.ts';
import type { ClusterSnapshot } from './cluster-snapshot.ts';
import {
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
import { supportsNativeSleep } from './fleet.ts';
import { type DeliveryTerms, type HoldSetup, type NoHold, newSetup, standingSetup } from './hold-delivery.ts';
import { NODE_BUDGET_SHARE } from './node-budget.ts';
import { operationsFor } from './patch.ts';
import { nodeBudget, runsOnWindows } from './placement.ts';
import {
  type Decision,
  fitExtended,
  fitGrace,
  type HoldPlan,
  isAudit,
  longestWait,
  type Plan,
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
  probeRateOf,
  servingContainers,
} from './pod.ts';
import { podProblemOf } from './pod-members.ts';
import { effectivePolicy } from './policy-merge.ts';
import { digestOf, type EffectivePolicy } from './policy-values.ts';
import { type Note, note, OVERRIDABLE, SKIP_REASONS, type SkipReason } from './reasons.ts';
import { chooseWait, enoughOf, estimateOfWait, holdBounds, type WaitChoice, wholeSeconds } from './wait.ts';
import type { Workload } from './workload.ts';

/** The question: should this pod, which is about to be created, wait, and for how long? */
export interface PodRequest {
  /** `CREATE` and so on, as in an AdmissionReview. */
  readonly operation: string;
  readonly resource: { readonly group: string; readonly resource: string };
  readonly subResource: string | undefined;
  /**
   * The request's namespace. It comes from the request because a pod that a controller creates may have none in its
   * metadata.
   */
  readonly namespace: string;
  /** The request's object, unchecked. */
  readonly object: unknown;
  /** The kind that will own the pod, where the object cannot say so itself (a template in a manifest). */
  readonly ownerKind?: string;
  /** A new token, used if the pod gets hook Hold. Absent where there is no Hold Service. */
  readonly holdToken?: HoldToken | undefined;
  /** The object is a pod or a pod template of a manifest, so it must not get anything unique to one pod, such as a token. */
  readonly isManifest?: boolean;
}

/** Simulates the request that admission gets when the workload's controller creates a pod. */
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
 * decision is the same as in Enforce; {@link patchInForce} then leaves the pod unchanged.
 */
export function decide(request: PodRequest, snapshot: ClusterSnapshot): Decision {
  const found = authorsPod(request.object);
  const screened = screenPod(request, found.pod);
  if (screened !== undefined) return screened;
  const { namespace, policy, notes } = policyFor(placeOf(request), snapshot);
  const decision = decideUnder(policy, found, namespace, request, snapshot);
  return notes.length === 0 ? decision : { ...decision, notes: [...notes, ...decision.notes] };
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
  /** The consumers that send traffic to the pod, or may. */
  readonly consumers: readonly Consumer[];
  readonly lag: PlannedLag;
}

export function trafficOf(pod: PlacedPod, snapshot: ClusterSnapshot): Traffic {
  const { namespace, policy } = policyFor(pod, snapshot);
  const services = servicesSelecting(snapshot.services, namespace.name, pod.labels);
  const { consumers, lag } = sendersAndLags(pod.labels, namespace, services, policy, snapshot);
  return { policy, services, consumers, lag };
}

/** The names of the consumers in mode Observe that send traffic to a pod, or may. No wait considers them. */
export function observersOf(
  namespaceName: string,
  labels: Labels,
  snapshot: ClusterSnapshot,
): readonly string[] {
  const { consumers, measured } = snapshot;
  // `measured` begins with all of `consumers`; the rest are in mode Observe.
  const observed = measured.slice(consumers.length);
  if (observed.length === 0) return [];
  const namespace = snapshot.namespaces.get(namespaceName) ?? unseenNamespace(namespaceName);
  const services = servicesSelecting(snapshot.services, namespace.name, labels);
  return observed.flatMap((each) =>
    sendsTo(each, namespace, labels, services) === false ? [] : [each.name],
  );
}

/** A pod's traffic, and the wait that its policy leads to, whatever hooks the pod has. */
export interface Exposure extends Traffic {
  readonly choice: WaitChoice;
}

/**
 * For audits: the wait that a pod needs, to compare with the one that {@link decide} gives it. Undefined for objects that
 * Linger does not decide on.
 */
export function exposureOf(request: PodRequest, snapshot: ClusterSnapshot): Exposure | undefined {
  if (screen(request) !== undefined) return undefined;
  const traffic = trafficOf(placeOf(request), snapshot);
  const budget = nodeBudget(request.object as Pod, snapshot.fleet);
  return { ...traffic, choice: withinBudget(chooseWait(traffic.policy, traffic.lag), budget) };
}

/** The skip reasons that do not depend on the snapshot. Undefined: the object is a {@link Pod} to decide on. */
export function screen(request: PodRequest): Skip | undefined {
  return screenPod(request, authorsPod(request.object).pod);
}

/** @param object the request's object without Linger's changes, unchecked */
function screenPod(request: PodRequest, object: unknown): Skip | undefined {
  if (!isPodCreate(request)) return skip('NotPodCreate');
  const problem = podProblemOf(object);
  const unreadable = `${problem}; the pod cannot be read and passes unchanged`;
  if (problem !== undefined) return skip('InvalidPod', [note('UnreadablePod', unreadable)]);
  const pod = object as Pod;
  if (isTooLarge(pod)) return skip('TooLarge');
  if (labelOf(annotationsOf(pod), MIRROR_POD_ANNOTATION) !== undefined) return skip('MirrorPod');
  return undefined;
}

function isPodCreate({ operation, resource, subResource }: PodRequest): boolean {
  return operation === 'CREATE' && resource.group === '' && resource.resource === 'pods' && !subResource;
}

function decideUnder(
  policy: EffectivePolicy,
  found: AuthorsPod,
  namespace: NamespaceRecord,
  { holdToken: token, ownerKind, isManifest = false }: PodRequest,
  snapshot: ClusterSnapshot,
): Decision {
  const { pod, merged, carriers } = found;
  // A pod that opts out keeps its hooks. Only a hook with a second handler is repaired, because the API server would reject
  // the pod.
  if (policy.inject.value === false) return leave('OptedOut', found, policy, [], merged);
  if (policy.mode.value === 'Off') return leave('ModeOff', found, policy, [], merged);

  const delivery = policy['hold.delivery'].value;
  const terms: HookTerms = { namespace: namespace.name, delivery, token, snapshot, isManifest };
  const kind = ownerKind ?? controllerOf(pod)?.kind;
  const standing = standingWait(found, policy, terms);
  const isStale = carriers.size > 0 && standing === undefined;
  const notes = isStale ? [...found.notes, note('StalePlan', NOT_ITS_OWN)] : found.notes;
  const question = { found, policy, kind, namespace, terms, notes };
  if (standing === undefined) return decideOn(question);
  const decision = decideOn(question, standing);
  // Without the lengthening, the authors' sleeps already are as long as the recorded wait, so that wait no longer adds
  // anything.
  const isMoot = decision.outcome === 'skip' && decision.reason === 'ExistingHook';
  return isMoot ? decideOn(question) : decision;
}

/** A pod that has not opted out, and what the decision on it depends on. */
interface Question {
  readonly found: AuthorsPod;
  readonly policy: EffectivePolicy;
  /** The kind of the pod's owner. */
  readonly kind: string | undefined;
  readonly namespace: NamespaceRecord;
  readonly terms: HookTerms;
  readonly notes: readonly Note[];
}

function decideOn(question: Question, standing?: StandingWait): Decision {
  const { found, policy, kind, namespace, terms } = question;
  const { pod } = found;
  const { snapshot } = terms;
  const notes = [...question.notes];
  const selecting = servicesSelecting(snapshot.services, namespace.name, labelsOf(pod));
  const selected = isSelected(pod, namespace, selecting, snapshot.consumers);
  const serves =
    policy.pods.value === 'All' || (policy.pods.value === 'Serving' && declaresTraffic(pod)) || selected;
  for (const reason of exclusionsOf(pod, policy, kind, serves)) {
    if (policy.inject.value === true && OVERRIDABLE.has(reason)) continue;
    if (standing !== undefined) {
      if (SKIP_REASONS[reason].standing === 'stays') continue;
      notes.push(withdrawalNote(found, standing.plan, policy));
    }
    if (reason === 'DaemonSet' && selected === true) notes.push(note('DaemonSetServing', DAEMON_SET));
    if (reason === 'DrainsItself') notes.push(note('OwnDrain', ownDrainOf(pod) ?? ''));
    return leave(reason, found, policy, notes);
  }
  if (standing !== undefined) return planFor(found, policy, terms, notes, { standing });
  if (serves === 'unknown' && policy.inject.value !== true) {
    const text = `no Service of namespace ${namespace.name} is known, so the pod counts as serving`;
    notes.push(note('ServicesUnknown', text));
  }
  const traffic = sendersAndLags(labelsOf(pod), namespace, selecting, policy, snapshot);
  return planFor(found, policy, terms, [...notes, ...traffic.notes], { lag: traffic.lag });
}

const NOT_ITS_OWN = 'the pod’s hooks of Hold are not its own (a copied manifest?), or cannot stay';

/**
 * A wait of an earlier pass that counts because its hooks are there. It is kept or removed; a change of policy never makes
 * it longer.
 */
interface StandingWait {
  readonly plan: Plan;
  /** With hook Hold: what its hooks call, and the volume that they need. */
  readonly setup?: HoldSetup;
}

function standingWait(
  found: AuthorsPod,
  policy: EffectivePolicy,
  terms: DeliveryTerms,
): StandingWait | undefined {
  const { pod, plan, carriers, call } = found;
  if (plan === undefined || carriers.size === 0) return undefined;
  if (plan.hook !== 'Hold') return { plan };
  const setup = standingSetup(pod, call, hookedOf(targetsOf(pod, policy, carriers)), terms);
  return setup && { plan, setup };
}

/**
 * The earlier plan, if its grace limits this one. A grace that Linger has raised is not raised a second time, even if it has
 * been changed since: otherwise each pass would add another wait, and two webhooks that overwrite each other would raise it
 * without end.
 * @returns undefined where the pod has neither a hook nor the grace of that plan: its annotation was copied, or its spec
 * restored
 */
function graceRecord({ plan, carriers, pod }: AuthorsPod): Plan | undefined {
  const grace = graceOf(pod);
  const isForeign = carriers.size === 0 && grace === plan?.baseGrace && grace !== plan.grace;
  return isForeign ? undefined : plan;
}

/** @param withdraws whether Linger's hooks are removed; the grace stays on record, or another pass would raise it again */
function leave(
  reason: SkipReason,
  { pod, plan, carriers, merged }: AuthorsPod,
  policy: EffectivePolicy,
  notes: readonly Note[],
  withdraws = merged || carriers.size > 0,
): Skip {
  const left = skip(reason, notes, policy);
  if (!withdraws || plan === undefined) return left;
  const { coverage: _c, samples: _s, extended: _e, least: _l, hold: _h, ...rest } = plan;
  return { ...left, withdrawn: { ...rest, wait: 0, grace: graceOf(pod), containers: [] } };
}

const DAEMON_SET =
  'a Service sends traffic to this pod of a DaemonSet: linger.dev/inject: "true" on the pod template gives it a wait';

/** What the wait is based on: one that the pod already has, or the planned lag for a new one. */
type Basis =
  | { readonly standing: StandingWait; readonly lag?: undefined }
  | { readonly standing?: undefined; readonly lag: PlannedLag };

function planFor(
  found: AuthorsPod,
  policy: EffectivePolicy,
  terms: HookTerms,
  notes: readonly Note[],
  { standing, lag }: Basis,
): Decision {
  const { pod } = found;
  const choice =
    standing === undefined
      ? withinBudget(chooseWait(policy, lag), nodeBudget(pod, terms.snapshot.fleet))
      : recordedChoice(standing.plan, policy);
  const grace = graceOf(pod);
  const record = graceRecord(found);
  const baseGrace = record?.baseGrace ?? grace;
  const own = Math.min(baseGrace, grace);
  const max = policy['grace.max'].value;
  const all = targetsOf(pod, policy, standing ? found.carriers : NO_CARRIERS);
  const said = [...notes, ...choice.notes, ...targetNotes(pod, policy)];
  const left = (reason: SkipReason, ...more: readonly Note[]) => {
    const table = containerTable(pod, grace, new Map());
    if (standing && reason !== 'ExistingHook') said.push(withdrawalNote(found, standing.plan, policy));
    return leave(reason, found, policy, [...said, ...more, ...tableNotes(table, undefined, 0)]);
  };

  if (all.length === 0) return left('NoContainer');
  if (isAllKept(all, choice.seconds)) return left('ExistingHook');
  const { hook, setup, ...chosen } = standing
    ? { hook: standing.plan.hook, setup: standing.setup, notes: [], isLater: undefined }
    : chooseHook(policy, pod, () => changedBy(all, choice.seconds), terms);
  said.push(...chosen.notes);
  if (hook === undefined) {
    const text = `hook ${policy.hook.value} (${policy.hook.origin}) does not work on every node that this pod can run on`;
    return left('NoHook', note('HookUnsupported', text));
  }
  if (choice.seconds < 1) return left('NoWait');
  const promised = standing
    ? longestWait(standing.plan)
    : setup === undefined
      ? choice.seconds
      : longestHold(policy, choice.seconds);
  const wanted = Math.min(promised, Math.floor(policy['ceiling.wait'].value));
  const fitted = (longest: number) => fitGrace(longest, own, record ? Math.min(max, grace) : max, grace);
  // The grace already includes a recorded wait, unless it has been cut since.
  const hasRoom = standing && grace >= standing.plan.grace;
  const fit = hasRoom ? { wait: wanted, grace } : fitted(wanted);
  const room = { grace: fit.grace, baseGrace: own };
  const { wait, targets } = extendable(all, Math.min(choice.seconds, fit.wait), room);
  if (wait < 1) return left('NoRoom');
  if (isAllKept(targets, wait)) return left('ExistingHook');

  const changed = changedBy(targets, wait);
  const estimate = lag && estimateOfWait(policy, lag, wait);
  const digest = standing ? standing.plan.digest : digestOf(policy);
  const planned: Plan = {
    wait,
    grace: fit.grace,
    baseGrace,
    hook,
    containers: changed.map(({ container }) => container.name),
    policy: choice.origin,
    why: choice.why,
    ...coverageOf(standing?.plan.wait === wait ? standing.plan : estimate),
    ...extendedIn(changed),
    ...(setup && { hold: holdPlanOf(policy, pod, Math.max(wait, fit.wait), setup, standing?.plan.hold) }),
    ...(digest !== undefined && { digest }),
  };
  const table = containerTable(pod, fit.grace, secondsByContainer(planned));
  const plan = { ...planned, least: leastOf(table, wait, policy.containers.value) };
  if (standing && hasRoom && isInPlace(found, { standing, plan, policy }))
    return { ...skip('AlreadyInjected', found.notes, policy), standing: standing.plan };

  const stale = 'the pod’s linger.dev/plan says that there is no room for a wait, and there is';
  if (found.plan?.wait === 0) said.push(note('StalePlan', stale));
  said.push(...planNotes(plan, table));
  const longest = longestWait(plan);
  if (longest < promised) {
    const why = shrunkInWords(found, policy, standing?.plan);
    said.push(note('WaitShrunk', `the wait is ${longest}s instead of ${promised}s: ${why}`));
  }
  const later = chosen.isLater && fitted(longestHold(policy, choice.seconds));
  return {
    outcome: 'inject',
    plan,
    policy,
    notes: said,
    ...(estimate && { estimate }),
    ...(later && {
      hold: {
        min: Math.min(wholeSeconds(policy['hold.min'].value), later.wait),
        max: later.wait,
        grace: later.grace,
      },
    }),
    ...(setup && { setup }),
  };
}

function recordedChoice({ wait, why, policy: origin }: Plan, policy: EffectivePolicy): WaitChoice {
  return { seconds: Math.min(wait, Math.floor(policy['ceiling.wait'].value)), why, origin, notes: [] };
}

function coverageOf(
  measured: { readonly coverage?: number | null; readonly samples?: number } | undefined,
): Pick<Plan, 'coverage' | 'samples'> {
  const { coverage, samples } = measured ?? {};
  return typeof coverage === 'number' && samples !== undefined ? { coverage, samples } : {};
}

/**
 * Whether the pod already matches the plan. The recorded plan is kept where only names of policies or a longer grace differ.
 */
function isInPlace(
  found: AuthorsPod,
  { standing, plan, policy }: { standing: StandingWait; plan: Plan; policy: EffectivePolicy },
): boolean {
  const { grace, digest, least } = standing.plan;
  const kept = { ...plan, grace, ...(digest !== digestOf(policy) && { least }) };
  const { setup } = standing;
  const again: Decision = { outcome: 'inject', plan: kept, policy, notes: [], ...(setup && { setup }) };
  return operationsFor(found, again).length === 0;
}

/**
 * The wait that the grace has room for, and the targets that it can change. Where authors' sleeps cannot be made longer,
 * they are kept as they are.
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
  // A sleep that would not change must not limit the wait.
  const isForAll = changedBy(targets, extended).length === changed.length;
  if (extended > shortest && isForAll) return { wait: extended, targets };
  const kept = Number.POSITIVE_INFINITY;
  return { wait, targets: targets.map((each) => (each.sleeps > 0 ? { ...each, sleeps: kept } : each)) };
}

/**
 * The termination table of a decision, one row for each container that runs as long as the pod. Audits, explanations and
 * notes derive all statements on hooks and graces from it.
 */
export function containerWaits(object: Pod, decision: Decision): readonly ContainerWait[] {
  const plan = decision.outcome === 'inject' ? decision.plan : decision.standing;
  const { pod } = authorsPod(object);
  return containerTable(pod, plan?.grace ?? graceOf(pod), plan ? secondsByContainer(plan) : new Map());
}

/**
 * On nodes that go away at short notice, the kubelet grants the node's budget instead of the pod's grace. Where a pod can
 * run only on such nodes, its wait is limited to a third of that budget, to leave the application time to shut down. A wait
 * from the pod's own annotation is not limited, only noted.
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
  const notes = [...choice.notes, note('NodeBudgetShort', `${given}: ${effect}`)];
  return isAuthors ? { ...choice, notes } : { ...choice, seconds: most, onOtherNodes: choice.seconds, notes };
}

/** The prefix of the origins of a pod's own annotations. */
const POD_ORIGIN = 'Pod ';

/** The longest hold. Never shorter than the wait that applies without the Hold Service. */
function longestHold(policy: EffectivePolicy, wait: number): number {
  return holdBounds(policy, wait).max;
}

/**
 * @param max seconds, limited by the grace
 * @param recorded by an earlier pass: the values that it took from the policy are kept
 */
function holdPlanOf(
  policy: EffectivePolicy,
  pod: Pod,
  max: number,
  { address }: Pick<HoldSetup, 'address'>,
  recorded?: HoldPlan,
): HoldPlan {
  const ofPolicy = recorded ?? {
    min: wholeSeconds(policy['hold.min'].value),
    percentile: policy['wait.percentile'].value,
    initial: wholeSeconds(policy['wait.initial'].value),
    observe: policy['hold.observe'].value,
  };
  return {
    min: Math.min(ofPolicy.min, max),
    max,
    percentile: ofPolicy.percentile,
    initial: ofPolicy.initial,
    probes: probeRateOf(pod),
    ...(ofPolicy.observe && { observe: true }),
    ...(pod.spec.hostNetwork === true && { hostNetwork: true }),
    address,
  };
}

function withdrawalNote(found: AuthorsPod, standing: Plan, policy: EffectivePolicy): Note {
  const effect = isAudit({ policy })
    ? 'Enforce would remove the hook (mode Audit: the pod is left unchanged)'
    : 'the hook is removed';
  const why = shrunkInWords(found, policy, standing);
  return note('HookWithdrawn', `${why}, which leaves no room for a wait; ${effect}`);
}

/** Why a wait is shorter than promised. */
function shrunkInWords(found: AuthorsPod, policy: EffectivePolicy, standing: Plan | undefined): string {
  const grace = graceOf(found.pod);
  const record = graceRecord(found);
  if (record && grace < record.grace)
    return `terminationGracePeriodSeconds was cut from ${record.grace} to ${grace} after injection`;
  const { value, origin } = policy['ceiling.wait'];
  const ceiling = Math.floor(value);
  if (standing && ceiling < longestWait(standing)) return `ceiling.wait is ${ceiling}s (${origin})`;
  if (record) return `terminationGracePeriodSeconds is ${grace}, and is not raised a second time`;
  const max = policy['grace.max'];
  return `grace.max is ${max.value}s (${max.origin}) and the pod's own grace is ${grace}s`;
}

/** The notes on the effects of a plan. */
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

/** For each container whose author's sleep is lengthened: how many seconds that sleep had before. */
function extendedIn(changed: readonly Target[]): Pick<Plan, 'extended'> {
  const lengthened = changed.filter(({ sleeps }) => sleeps > 0);
  if (lengthened.length === 0) return {};
  return {
    extended: Object.fromEntries(lengthened.map(({ container, sleeps }) => [container.name, sleeps])),
  };
}

const HOST_NETWORK =
  'the pod uses its node’s network, so its connections cannot be distinguished from others, and Hold works without them';

type HookTerms = DeliveryTerms & { readonly isManifest: boolean; readonly snapshot: ClusterSnapshot };

/** The hook to use; undefined: none of the allowed ones works on this fleet. */
interface ChosenHook {
  readonly hook: HookName | undefined;
  readonly setup?: HoldSetup;
  readonly notes: readonly Note[];
  /** The object is a manifest, and its pods get Hold at admission. */
  readonly isLater?: true;
}

const AUTO_HOOKS = HOOK_NAMES.filter((name) => HOOKS[name].auto);

/** @param changed the containers that get a hook or a longer sleep */
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
    // Not a getter: an accessor in an object literal gives each review its own hidden class, which halved the throughput.
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

/** Not a real obstacle: pods of the manifest get Hold at admission. */
const OF_MANIFEST = 'the pod comes from a manifest';
/** A placeholder for the token that a pod gets at admission. */
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

/** `unknown` until the namespace’s Services have been read. */
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

/**
 * Sidecars of service meshes: their ports and probes do not show that the application serves, and manifests do not contain
 * them.
 */
export const MESH_PROXIES: ReadonlySet<string> = new Set(['istio-proxy', 'linkerd-proxy']);

/**
 * Whether ports or readiness probes show that a pod serves. They count because its Service may be applied only a moment
 * later.
 */
export function declaresTraffic(pod: Pod): boolean {
  const all = servingContainers(pod);
  const isGateway = all.every(({ name }) => MESH_PROXIES.has(name));
  return all.some(
    ({ name, ports, readinessProbe }) =>
      (isGateway || !MESH_PROXIES.has(name)) && ((ports?.length ?? 0) > 0 || readinessProbe),
  );
}

/**
 * The skip reasons that apply to the pod itself, in catalogue order.
 * @param kind of the pod's owner
 * @param serves unknown counts as true: a Service that has not been read yet may select the pod, and an unneeded wait is the
 * cheaper mistake
 */
function* exclusionsOf(
  pod: Pod,
  policy: EffectivePolicy,
  kind: string | undefined,
  serves: boolean | 'unknown',
): Generator<SkipReason> {
  const excluded = policy.exclude.value.find((each) => each === kind);
  if (excluded === 'Job') yield 'Job';
  if (pod.spec.containers.every((each) => endsByItself(pod, each))) yield 'RestartPolicy';
  if (excluded === 'DaemonSet') yield 'DaemonSet';
  if (excluded !== undefined && excluded !== 'Job' && excluded !== 'DaemonSet') yield 'ExcludedKind';
  if (graceOf(pod) === 0) yield 'ZeroGrace';
  if (serves === false) yield 'NotServing';
  if (ownDrainOf(pod) !== undefined) yield 'DrainsItself';
}

/** The consumers that send traffic to the pod, their planned lag, and a note where it is only assumed that they do. */
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
