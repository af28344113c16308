import { type HookName, isHookName, isRecord, isString, jsonIn } from '../api/index.ts';
import { type HoldPlan, type Plan, riseOf } from './plan.ts';
import { POD_LIMITS } from './pod.ts';
import type { SkipReason } from './reasons.ts';
import { WAIT_REASONS, type WaitReason } from './wait.ts';

/** The version in the plan annotation. Hold has its own, because an older reader must not apply a Hold plan. */
function versionFor(hook: HookName): number {
  return hook === 'Hold' ? 2 : 1;
}

/**
 * Renders the linger.dev/plan annotation: compact JSON with a fixed order of members and no time stamp, so that
 * the pods of one ReplicaSet carry the same text.
 */
export function renderPlan(plan: Plan): string {
  const { wait, grace, baseGrace, hook, containers, policy, why } = plan;
  const { by, coverage, samples, extended, least, hold, digest } = plan;
  return JSON.stringify({
    v: versionFor(hook),
    by,
    wait,
    grace,
    baseGrace,
    hook,
    containers,
    policy,
    why,
    // Four digits are enough (a hundredth of a per cent); more would only make replicas' texts differ. 1 is kept for full
    // coverage, so a lower value is never rounded up to it.
    coverage: coverage && Math.min(Math.round(coverage * 10_000), coverage < 1 ? 9_999 : 10_000) / 10_000,
    samples,
    extended,
    least,
    hold,
    digest,
  });
}

const MARKER = '{"v":1,"by":"webhook","skip":';

/**
 * The annotation for a skipped pod from which the floor's stamp was removed: it keeps the floor from stamping the pod again.
 */
export function renderMarker(reason: SkipReason | 'Audit'): string {
  return `${MARKER}"${reason}"}`;
}

export function isMarker(text: string): boolean {
  return text.startsWith(MARKER);
}

/** Fits a plan for as many containers as a pod may have, with names of 63 characters. */
const PLAN_MAX_LENGTH = 72 * 1024;

/**
 * V8 hashes strings of digits by their value, so an attacker can choose keys that collide and make parsing quadratic. No
 * real pod has so many containers whose names begin with a digit.
 */
const MOST_TEXTS_OF_DIGITS = 250;

const WAIT_NAMES = Object.keys(WAIT_REASONS) as readonly WaitReason[];

const DIGEST = /^[0-9a-f]{8}$/;

/** Reads a plan annotation; undefined for any text that neither {@link renderPlan} nor the floor would have written. */
export function parsePlan(text: string): Plan | undefined {
  if (text.length > PLAN_MAX_LENGTH) return undefined;
  // With escapes, digits would go unnoticed; container names never need any.
  if (text.includes('\\u')) return undefined;
  if ((text.match(/"\d/g)?.length ?? 0) > MOST_TEXTS_OF_DIGITS) return undefined;
  const value = jsonIn(text);
  if (!isRecord(value)) return undefined;
  const { v, wait, grace, baseGrace, hook, containers, policy, why } = value;
  const { coverage, samples, extended, least, hold, digest } = value;
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
  if (least !== undefined && !(isSeconds(least) && least < wait)) return undefined;
  const plan = { wait, grace, baseGrace, hook, containers } as const;
  if (value.by !== undefined) {
    const isStamp = value.by === 'floor' && wait > 0 && held === undefined && extended === undefined;
    return isStamp ? { ...plan, policy: 'floor', why: 'floor', by: 'floor' } : undefined;
  }
  const reason = WAIT_NAMES.find((each) => each === why);
  if (typeof policy !== 'string' || reason === undefined) return undefined;
  return {
    ...plan,
    policy,
    why: reason,
    ...(typeof coverage === 'number' && { coverage }),
    ...(typeof samples === 'number' && { samples }),
    ...(extended !== undefined && { extended }),
    ...(least !== undefined && { least }),
    ...(held && { hold: held }),
    ...(isString(digest) && DIGEST.test(digest) && { digest }),
  };
}

function holdPlanIn(value: unknown, wait: number, grace: number): HoldPlan | undefined {
  if (!isRecord(value)) return undefined;
  const { min, max, percentile, initial, probes, observe, hostNetwork, address } = value;
  if (!isSeconds(min) || !isSeconds(max) || !isSeconds(initial)) return undefined;
  if (min > max || wait > max || max > grace) return undefined;
  if (!isBetween(percentile, 0, 100) || !isBetween(probes, 0, MOST_PROBES)) return undefined;
  return {
    min,
    max,
    percentile,
    initial,
    probes,
    ...(observe === true && { observe }),
    ...(hostNetwork === true && { hostNetwork }),
    ...(isString(address) && ADDRESS.test(address) && { address }),
  };
}

/** `10.201.0.7:8445` or `[fd00::7]:8445` */
const ADDRESS = /^[\d.:[\]a-f]{3,60}$/;

/** Each container has at most one readiness probe, and one per second. */
const MOST_PROBES = POD_LIMITS.containers;

function isBetween(value: unknown, least: number, most: number): value is number {
  return typeof value === 'number' && value >= least && value <= most;
}

function isSeconds(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}

/** Whether this is a valid `extended`: seconds by container; all have risen by the same number and fit into the grace. */
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
  const rise = riseOf({ wait, containers, extended: value as Record<string, number> });
  return seconds.length > 0 && rise > 0 && Math.max(...seconds) + rise <= grace;
}

function isNameList(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.length <= POD_LIMITS.containers && value.every(isString);
}
