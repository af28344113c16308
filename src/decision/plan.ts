import {
  ANNOTATION,
  HOOKS,
  type HookName,
  isHookName,
  isRecord,
  isString,
  jsonIn,
  labelOf,
  plainSleep,
} from '../api/index.ts';
import { type Carriers, listed, NO_CARRIERS, preStopOf } from './containers.ts';
import type { HoldSetup } from './hold-delivery.ts';
import { annotationsOf, type Container, POD_LIMITS, type Pod } from './pod.ts';
import type { EffectivePolicy, Origin } from './policy.ts';
import { type Note, note, type SkipReason } from './reasons.ts';
import { WAIT_REASONS, type WaitEstimate, type WaitReason } from './wait.ts';

/** What is to be done to one pod. All times are whole seconds. */
export interface Plan {
  readonly wait: number;
  readonly grace: number;
  /** The grace that the author asked for. */
  readonly baseGrace: number;
  readonly hook: HookName;
  /** Names of the containers that carry our wait, in the pod's order. */
  readonly containers: readonly string[];
  /** The layer that decided the wait. */
  readonly policy: Origin;
  readonly why: WaitReason;
  /** The share of measured removals that the wait covers, 0 to 1. */
  readonly coverage?: number;
  readonly samples?: number;
  /** By container: the seconds of its author's own sleep, where that was lengthened. All rise by the same, the shortest to the wait. */
  readonly extended?: Readonly<Record<string, number>>;
  /** With hook Hold and a wait above 0: what the Hold Service needs to know of the pod's policy. */
  readonly hold?: HoldPlan;
  /** Of the effective policy that was in force: {@link digestOf}. Absent in plans of older versions. */
  readonly digest?: string;
}

/** The terms of a hold. Times are whole seconds; the plan's `wait` is how long the pod waits without the Hold Service. */
export interface HoldPlan {
  readonly min: number;
  /** Not shorter than the plan's `wait`, and not longer than its `grace`. */
  readonly max: number;
  /** The percentile of the lag that counts for consumers that do not acknowledge. */
  readonly percentile: number;
  /** The wait for a consumer that has not been measured. */
  readonly initial: number;
  /** Connections per second that the kubelet's probes make to the pod. */
  readonly probes: number;
  /** hold.observe: the pod waits as with Sleep, and its connections are only observed. */
  readonly observe?: true;
  /** The pod uses its node's network, so its connections cannot be distinguished from others'. */
  readonly hostNetwork?: true;
}

export interface Injection {
  readonly outcome: 'inject';
  readonly plan: Plan;
  /** What the wait was taken from; absent where it is fixed, recorded by an earlier pass, or nothing is known. */
  readonly estimate?: WaitEstimate;
  readonly policy: EffectivePolicy;
  readonly notes: readonly Note[];
  /** With hook Hold: what its hooks call, and the volume that they need. */
  readonly setup?: HoldSetup;
  /** Of a manifest whose policy says Hold: what its pods get when they are admitted; the plan is the fallback. Seconds. */
  readonly hold?: { readonly min: number; readonly max: number; readonly grace: number };
  /** Containers that lose Linger's hook: their author's seconds are restored; without any, the hook is removed. */
  readonly released?: Carriers;
}

export interface Skip {
  readonly outcome: 'skip';
  readonly reason: SkipReason;
  /** Absent where the pod was skipped before policies were looked at. */
  readonly policy?: EffectivePolicy;
  readonly notes: readonly Note[];
  /** With `AlreadyInjected`: the plan on the pod. */
  readonly standing?: Plan;
  /** The plan of an earlier pass whose hooks are taken back, because the API server would reject the pod with them. */
  readonly withdrawn?: Plan;
  readonly released?: Carriers;
}

export type Decision = Injection | Skip;

/** `Hold 5s..120s, fallback Sleep 30s, grace 150s` */
export function promiseOf({ plan, hold }: Pick<Injection, 'plan' | 'hold'>): string {
  const { hook, wait, grace } = plan;
  if (hold === undefined) return `${hook} ${wait}s, grace ${grace}s`;
  return `Hold ${hold.min}s..${hold.max}s, fallback ${hook} ${wait}s, grace ${hold.grace}s`;
}

/** Whether the decision is not applied. */
export function isAudit({ policy }: Pick<Decision, 'policy'>): boolean {
  return policy?.mode.value === 'Audit';
}

/** Wait and grace of one pod, in whole seconds. */
interface Fit {
  readonly wait: number;
  readonly grace: number;
}

/**
 * The share of `grace.max` that the application keeps at least for its own shutdown where its grace is large already: a
 * long shutdown gives up at most a tenth for the wait.
 */
const KEPT_SHARE = 0.9;

/**
 * Raises the grace by the wait, up to `maxGrace`, and shortens the wait where that leaves too little:
 *
 *     grace' = max(grace, min(grace + wait, max))     keep = min(grace, 0.9 × max)     wait' = min(wait, grace' − keep)
 *
 * The author's own time to shut down (grace) is kept up to `keep`, and wait' ≤ grace' always: the API server
 * rejects a pod whose sleep is longer than its grace (KEP-3960). A wait' under 1 means that there is no room.
 * @param grace the author's grace, > 0
 * @param current the grace that the pod has, where an earlier pass has raised it; it is never lowered
 */
export function fitGrace(wait: number, grace: number, maxGrace: number, current = grace): Fit {
  const max = Math.floor(maxGrace);
  const raised = Math.max(current, Math.min(grace + wait, max));
  const keep = Math.min(grace, KEPT_SHARE * max);
  return { wait: Math.max(0, Math.floor(Math.min(wait, raised - keep))), grace: raised };
}

/**
 * The wait to which the shortest of the authors' sleeps may rise: none of them may end beyond the grace, nor leave the
 * application less time than it had, but for the tenth that {@link fitGrace} takes.
 * @param grace as it is in the end
 * @returns not more than the shortest sleep where there is no room
 */
export function fitExtended(
  wait: number,
  sleeps: readonly number[],
  { grace, baseGrace }: { readonly grace: number; readonly baseGrace: number },
): number {
  const longest = Math.max(...sleeps);
  const keep = Math.min(Math.max(0, baseGrace - longest), KEPT_SHARE * grace);
  return Math.min(wait, Math.min(...sleeps) + Math.floor(grace - keep - longest));
}

/** The longest that the plan holds SIGTERM back, in containers without a hook of their author's. */
export function longestWait({ wait, hold }: Plan): number {
  return hold?.max ?? wait;
}

/** By container of the plan: the seconds of its hook. With Hold, without the Hold Service. */
export function secondsByContainer({ wait, containers, extended }: Plan): ReadonlyMap<string, number> {
  const rise = extended === undefined ? 0 : wait - Math.min(...Object.values(extended));
  return new Map(
    containers.map((name) => {
      const authors = extended && Object.hasOwn(extended, name) ? extended[name] : undefined;
      return [name, authors === undefined ? wait : authors + rise];
    }),
  );
}

/** The version in the plan annotation: a reader that predates Hold must not apply a Hold plan. */
function versionFor(hook: HookName): number {
  return hook === 'Hold' ? 2 : 1;
}

/**
 * Renders the linger.dev/plan annotation: compact JSON with a fixed order of members and no time stamp, so that
 * the pods of one ReplicaSet carry the same text.
 */
export function renderPlan(plan: Plan): string {
  const { wait, grace, baseGrace, hook, containers, policy, why } = plan;
  const { coverage, samples, extended, hold, digest } = plan;
  return JSON.stringify({
    v: versionFor(hook),
    ...{ wait, grace, baseGrace, hook, containers, policy, why },
    // Four digits are a hundredth of a per cent; more would only make replicas' texts differ.
    coverage: coverage && Math.round(coverage * 10_000) / 10_000,
    samples,
    extended,
    hold,
    digest,
  });
}

/** Fits a plan for as many containers as a pod may have, with names of 63 characters. */
const PLAN_MAX_LENGTH = 72 * 1024;

/**
 * V8 hashes strings of digits by their values, so an attacker can make them collide, and each then takes longer to parse
 * than the one before. No real pod has so many containers whose names begin with a digit.
 */
const MOST_TEXTS_OF_DIGITS = 250;

const DIGEST = /^[0-9a-f]{8}$/;

/** Reads a plan annotation; undefined for any text that {@link renderPlan} would not have written. */
export function parsePlan(text: string): Plan | undefined {
  if (text.length > PLAN_MAX_LENGTH) return undefined;
  // Escaped, digits would not be seen; names have none.
  if (text.includes('\\u')) return undefined;
  if ((text.match(/"\d/g)?.length ?? 0) > MOST_TEXTS_OF_DIGITS) return undefined;
  const value = jsonIn(text);
  if (!isRecord(value)) return undefined;
  const { v, wait, grace, baseGrace, hook, containers, policy, why } = value;
  const { coverage, samples, extended, hold, digest } = value;
  if (
    !isHookName(hook) ||
    v !== versionFor(hook) ||
    !isSeconds(wait) ||
    !isSeconds(grace) ||
    !isSeconds(baseGrace)
  )
    return undefined;
  if (wait > grace || baseGrace === 0) return undefined;
  const held = hook === 'Hold' && wait > 0 ? holdPlanIn(hold, wait, grace) : undefined;
  if ((hold !== undefined || (hook === 'Hold' && wait > 0)) && held === undefined) return undefined;
  if (!isNameList(containers) || (wait === 0) !== (containers.length === 0)) return undefined;
  if (extended !== undefined && !isExtension(extended, containers, wait, grace)) return undefined;
  const reason = WAIT_REASONS.find((each) => each === why);
  if (typeof policy !== 'string' || reason === undefined) return undefined;
  return {
    ...{ wait, grace, baseGrace, hook, containers, policy, why: reason },
    ...(typeof coverage === 'number' && { coverage }),
    ...(typeof samples === 'number' && { samples }),
    ...(extended !== undefined && { extended }),
    ...(held && { hold: held }),
    ...(isString(digest) && DIGEST.test(digest) && { digest }),
  };
}

function holdPlanIn(value: unknown, wait: number, grace: number): HoldPlan | undefined {
  if (!isRecord(value)) return undefined;
  const { min, max, percentile, initial, probes, observe, hostNetwork } = value;
  if (!isSeconds(min) || !isSeconds(max) || !isSeconds(initial)) return undefined;
  if (min > max || wait > max || max > grace) return undefined;
  if (!isBetween(percentile, 0, 100) || !isBetween(probes, 0, MOST_PROBES)) return undefined;
  return {
    ...{ min, max, percentile, initial, probes },
    ...(observe === true && { observe }),
    ...(hostNetwork === true && { hostNetwork }),
  };
}

/** What an earlier pass has left on a pod. */
export interface EarlierPass {
  /** Absent where there is no annotation, or none that can be read. */
  readonly plan?: Plan;
  /** The containers that still carry the plan's hook. */
  readonly carriers: Carriers;
  readonly notes: readonly Note[];
}

const NO_EARLIER_PASS: EarlierPass = { carriers: NO_CARRIERS, notes: [] };

/**
 * Reads the plan annotation, and judges it container by container: a hook that it claims and that is really there is
 * Linger's; any other hook is its author's. Otherwise a forged annotation could claim an author's hook.
 */
export function earlierPass(pod: Pod): EarlierPass {
  const text = labelOf(annotationsOf(pod), ANNOTATION.plan);
  if (text === undefined) return NO_EARLIER_PASS;
  const plan = parsePlan(text);
  if (plan === undefined) {
    const stale = 'the pod’s linger.dev/plan is not one that Linger has written; it is ignored';
    return { carriers: NO_CARRIERS, notes: [note('StalePlan', stale)] };
  }
  const carriers = carriersOf(plan, pod);
  const missing = plan.containers.filter((name) => !carriers.has(name));
  const stale = `the pod’s linger.dev/plan claims a hook of ${plan.wait}s that is not there: ${listed(missing)}`;
  return { plan, carriers, notes: missing.length === 0 ? [] : [note('StalePlan', stale)] };
}

/**
 * Usually each claim fits the container of its name. Where one does not, another webhook may have renamed containers, or
 * swapped their names: then claims go to whichever hooks they fit, those that fit the fewest first.
 */
function carriersOf(plan: Plan, pod: Pod): Carriers {
  const hooked = pod.spec.containers.filter((each) => preStopOf(each) !== undefined);
  const claims = plan.containers;
  const fits = (container: Container, claim: string) => carries(container, plan, authorsSeconds(plan, claim));
  const byName = new Map(hooked.map((each) => [each.name, each]));
  const isPlain = claims.every((claim) => {
    const container = byName.get(claim);
    return container !== undefined && fits(container, claim);
  });
  if (isPlain) return new Map(claims.map((claim) => [claim, authorsSeconds(plan, claim)]));
  const kindOf = (claim: string) => authorsSeconds(plan, claim) ?? 0;
  const open = Map.groupBy(claims, kindOf);
  const known = new Set(plan.containers);
  const candidates = hooked.map((container) => {
    const kinds = [...open].flatMap(([kind, [claim]]) => (claim && fits(container, claim) ? [kind] : []));
    const named = known.has(container.name) ? kindOf(container.name) : undefined;
    return { container, kinds: kinds.toSorted((a, b) => Number(b === named) - Number(a === named)) };
  });
  const carriers = new Map<string, number | undefined>();
  for (const { container, kinds } of candidates.toSorted((a, b) => a.kinds.length - b.kinds.length)) {
    const claim = kinds
      .map((kind) => open.get(kind))
      .find((each) => each?.length)
      ?.pop();
    if (claim !== undefined) carriers.set(container.name, authorsSeconds(plan, claim));
  }
  return carriers;
}

/** The seconds of the author's own sleep before Linger lengthened it; undefined for a hook of Linger's own. */
function authorsSeconds({ extended = {} }: Plan, name: string): number | undefined {
  return Object.hasOwn(extended, name) ? extended[name] : undefined;
}

function carries(container: Container, plan: Plan, authors: number | undefined): boolean {
  const { hook, wait, hold, extended = {} } = plan;
  const handler = preStopOf(container);
  if (handler === undefined || wait === 0) return false;
  if (authors !== undefined) {
    const rise = wait - Math.min(...Object.values(extended));
    return plainSleep(handler)?.seconds === authors + rise;
  }
  const own = HOOKS[hook].recognise(handler);
  return own?.wait === wait && own.call?.max === hold?.max;
}

/** Each container has at most one readiness probe, and one per second. */
const MOST_PROBES = POD_LIMITS.containers;

function isBetween(value: unknown, least: number, most: number): value is number {
  return typeof value === 'number' && value >= least && value <= most;
}

function isSeconds(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}

/** Whether this is a valid `extended`: seconds by container, which all have risen by the same and fit into the grace. */
function isExtension(
  value: unknown,
  containers: readonly string[],
  wait: number,
  grace: number,
): value is Readonly<Record<string, number>> {
  if (!isRecord(value)) return false;
  const names = new Set(containers);
  const entries = Object.entries(value);
  if (!entries.every(([name, seconds]) => names.has(name) && isSeconds(seconds) && seconds > 0)) return false;
  const seconds = entries.map(([, each]) => Number(each));
  const rise = wait - Math.min(...seconds);
  return seconds.length > 0 && rise > 0 && Math.max(...seconds) + rise <= grace;
}

function isNameList(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.length <= POD_LIMITS.containers && value.every(isString);
}
