import type { HookName } from '../api/index.ts';
import type { HoldSetup } from './hold-delivery.ts';
import type { EffectivePolicy, Origin } from './policy-values.ts';
import type { Note, SkipReason } from './reasons.ts';
import type { WaitEstimate, WaitReason } from './wait.ts';

/** All times are whole seconds. */
export interface Plan {
  readonly wait: number;
  readonly grace: number;
  /** The grace that the author asked for. */
  readonly baseGrace: number;
  readonly hook: HookName;
  /** Names of the containers that carry Linger's wait, in the pod's order. */
  readonly containers: readonly string[];
  /** The layer that decided the wait. */
  readonly policy: Origin;
  readonly why: WaitReason;
  /** The share of measured removals that the wait covers, 0 to 1. */
  readonly coverage?: number;
  readonly samples?: number;
  /** By container: the seconds of its author's own sleep, where that was lengthened. All rise by the same: {@link riseOf}. */
  readonly extended?: Readonly<Record<string, number>>;
  /**
   * The shortest guaranteed delay of SIGTERM in a container with traffic that keeps its author's hook; absent: none is below
   * `wait`.
   */
  readonly least?: number | undefined;
  /** With hook Hold and a wait above 0: what the Hold Service needs to know of the pod's policy. */
  readonly hold?: HoldPlan;
  /** The digest of the effective policy at admission: {@link digestOf}. Absent in plans of older versions. */
  readonly digest?: string;
  /** The floor stamped the pod while no webhook answered. Such a plan no longer counts once a webhook sees the pod. */
  readonly by?: 'floor';
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
  /** The address that its hooks call, recorded because watches do not deliver the specs of pods. Absent in older plans. */
  readonly address?: string;
}

export interface Injection {
  readonly outcome: 'inject';
  readonly plan: Plan;
  /** The estimate behind the wait; absent where the wait is fixed, recorded by an earlier pass, or nothing is known. */
  readonly estimate?: WaitEstimate;
  readonly policy: EffectivePolicy;
  readonly notes: readonly Note[];
  /** With hook Hold: what its hooks call, and the volume that they need. */
  readonly setup?: HoldSetup;
  /** For manifests whose policy asks for Hold: what the pods get at admission, in seconds. The plan is the fallback. */
  readonly hold?: { readonly min: number; readonly max: number; readonly grace: number };
}

export interface Skip {
  readonly outcome: 'skip';
  readonly reason: SkipReason;
  /** Absent where the pod was skipped before policies were looked at. */
  readonly policy?: EffectivePolicy;
  readonly notes: readonly Note[];
  /** With `AlreadyInjected`: the plan on the pod. */
  readonly standing?: Plan;
  /** What is recorded where the hooks of an earlier pass are removed: a wait of 0, and the grace that the pod keeps. */
  readonly withdrawn?: Plan;
}

export type Decision = Injection | Skip;

/** `Hold 5s..120s, fallback Sleep 30s, grace 150s` */
export function promiseOf({ plan, hold }: Pick<Injection, 'plan' | 'hold'>): string {
  const { hook, wait, grace } = plan;
  if (hold === undefined) return `${hook} ${wait}s, grace ${grace}s`;
  return `Hold ${hold.min}s..${hold.max}s, fallback ${hook} ${wait}s, grace ${hold.grace}s`;
}

export function isAudit({ policy }: Pick<Decision, 'policy'>): boolean {
  return policy?.mode.value === 'Audit';
}

interface Fit {
  readonly wait: number;
  readonly grace: number;
}

/**
 * The share of `grace.max` up to which an application keeps its own time to shut down: one with a long grace gives up at
 * most a tenth for the wait.
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
 * The wait to which the shortest of the authors' sleeps may rise. None of the sleeps may exceed the grace, nor reduce the
 * application's time to shut down, except for the tenth that {@link fitGrace} takes.
 * @param grace after it has been raised
 * @param shortest of the sleeps; 0 beside a container without a hook
 * @returns not more than `shortest` where there is no room
 */
export function fitExtended(
  wait: number,
  sleeps: readonly number[],
  { grace, baseGrace }: { readonly grace: number; readonly baseGrace: number },
  shortest: number,
): number {
  const longest = Math.max(...sleeps);
  const keep = Math.min(Math.max(0, baseGrace - longest), KEPT_SHARE * grace);
  return Math.min(wait, shortest + Math.floor(grace - keep - longest));
}

/** The longest that the plan delays SIGTERM, in containers without a hook of their author's. */
export function longestWait({ wait, hold }: Plan): number {
  return hold?.max ?? wait;
}

/**
 * How many seconds authors' sleeps rise. All rise by the same, so that their order stays: by the whole wait where a
 * container without a hook gets it too, else so far that the shortest reaches the wait.
 */
export function riseOf({
  wait,
  containers,
  extended,
}: Pick<Plan, 'wait' | 'containers' | 'extended'>): number {
  if (extended === undefined) return wait;
  return (
    wait - Math.min(...containers.map((name) => (Object.hasOwn(extended, name) ? Number(extended[name]) : 0)))
  );
}

/** The seconds of each container's hook. With Hold, those that apply without the Hold Service. */
export function secondsByContainer({ wait, containers, extended }: Plan): ReadonlyMap<string, number> {
  const rise = riseOf({ wait, containers, ...(extended && { extended }) });
  const secondsOf = (name: string) =>
    extended && Object.hasOwn(extended, name) ? Number(extended[name]) + rise : wait;
  return new Map(containers.map((name) => [name, secondsOf(name)]));
}
