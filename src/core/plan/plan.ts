import type { Note } from '../catalog/notes.ts';
import type { SkipReason } from '../catalog/reasons.ts';
import type { EffectivePolicy, Origin } from '../policy/values.ts';
import { isRecord } from '../schema/shape.ts';
import { type HookName, sleepForm } from './hook.ts';
import type { Pod } from './pod.ts';
import type { WaitReason } from './wait.ts';

/** What is to be done to one pod. All times are whole seconds. */
export interface Plan {
  readonly wait: number;
  readonly grace: number;
  /** The grace that the author asked for. */
  readonly baseGrace: number;
  readonly hook: HookName;
  /** Names of the containers that carry our wait, in the pod's order. */
  readonly containers: readonly string[];
  /** Who decided the wait. */
  readonly policy: Origin;
  readonly why: WaitReason;
  /** Share of measured removals covered, 0 to 1. */
  readonly coverage?: number;
  readonly samples?: number;
  /** By container: the seconds of its author's own sleep, where that was lengthened. */
  readonly extended?: Readonly<Record<string, number>>;
}

/** Containers whose hook is no longer ours: their author's seconds are put back, or, where it was ours alone, it goes. */
export type Released = ReadonlyMap<string, number | undefined>;

export interface Injection {
  readonly outcome: 'inject';
  readonly plan: Plan;
  readonly policy: EffectivePolicy;
  readonly notes: readonly Note[];
  readonly released?: Released;
}

export interface Skip {
  readonly outcome: 'skip';
  readonly reason: SkipReason;
  /** Absent where the pod was turned away before any policy was asked. */
  readonly policy?: EffectivePolicy;
  readonly notes: readonly Note[];
  /** What an earlier pass did and must not stand, since the API server would reject the pod: the plan without it. */
  readonly withdrawn?: Plan;
  readonly released?: Released;
}

export type Decision = Injection | Skip;

/** The version of the plan annotation's text. */
const PLAN_VERSION = 1;

/**
 * Renders the linger.dev/plan annotation: compact JSON with a fixed order of members and no time stamp, so that
 * the pods of one ReplicaSet carry the same text.
 */
export function renderPlan(plan: Plan): string {
  const { wait, grace, baseGrace, hook, containers, policy, why, coverage, samples, extended } = plan;
  return JSON.stringify({
    v: PLAN_VERSION,
    wait,
    grace,
    baseGrace,
    hook,
    containers,
    policy,
    why,
    // Four digits are a hundredth of a per cent; more would differ between replicas for no reader's benefit.
    ...(coverage === undefined ? {} : { coverage: Math.round(coverage * 10_000) / 10_000 }),
    ...(samples === undefined ? {} : { samples }),
    ...(extended === undefined ? {} : { extended }),
  });
}

/** The annotation's own limit is 256 KiB for all annotations together; a plan needs far less. */
const PLAN_MAX_LENGTH = 128 * 1024;

const REASONS: ReadonlySet<string> = new Set<WaitReason>([
  'fixed',
  'initial',
  'declared',
  'measured',
  'storm',
]);

/** Reads a plan annotation; undefined for any text that {@link renderPlan} would not have written. */
export function parsePlan(text: string): Plan | undefined {
  if (text.length > PLAN_MAX_LENGTH) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return undefined;
  const { v, wait, grace, baseGrace, hook, containers, policy, why, coverage, samples, extended } =
    value as Record<string, unknown>;
  if (v !== PLAN_VERSION || !isSeconds(wait) || !isSeconds(grace) || !isSeconds(baseGrace)) return undefined;
  if (wait > grace) return undefined;
  if (hook !== 'Sleep' && hook !== 'Exec') return undefined;
  if (!isNameList(containers) || (wait === 0) !== (containers.length === 0)) return undefined;
  if (extended !== undefined && !isExtension(extended, containers, wait)) return undefined;
  if (typeof policy !== 'string' || typeof why !== 'string' || !REASONS.has(why)) return undefined;
  return {
    wait,
    grace,
    baseGrace,
    hook,
    containers,
    policy,
    why: why as WaitReason,
    ...(typeof coverage === 'number' ? { coverage } : {}),
    ...(typeof samples === 'number' ? { samples } : {}),
    ...(extended === undefined ? {} : { extended }),
  };
}

/** Whether a plan says that its hooks were taken back. */
export function isWithdrawn(plan: Plan): boolean {
  return plan.wait === 0;
}

/** Whether every hook that the plan claims is really there: a copied, forged or stale annotation fails this. */
export function matchesHooks(plan: Plan, pod: Pod): boolean {
  const claimed = new Set(plan.containers);
  const carried = pod.spec.containers.filter(({ name, lifecycle }) => {
    const handler = lifecycle?.preStop ?? undefined;
    return claimed.has(name) && handler !== undefined && sleepForm(handler)?.seconds === plan.wait;
  });
  return claimed.size > 0 && new Set(carried.map(({ name }) => name)).size === claimed.size;
}

function isSeconds(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}

/** Seconds by container, each of a sleep that this wait lengthens: no other could have been written down. */
function isExtension(
  value: unknown,
  containers: readonly string[],
  wait: number,
): value is Readonly<Record<string, number>> {
  if (!isRecord(value)) return false;
  return Object.entries(value).every(
    ([name, seconds]) => containers.includes(name) && isSeconds(seconds) && seconds > 0 && seconds < wait,
  );
}

function isNameList(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((name) => typeof name === 'string');
}
