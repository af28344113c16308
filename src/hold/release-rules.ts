import type { Explained, Labels } from '../core/api/index.ts';
import { type HoldPlan, NODE_BUDGET_SHARE, nodeBudgetOf, type Plan } from '../core/decision/index.ts';
import type { QuietVerdict } from './connection-monitor.ts';

/** Why a hook was released; in metrics, log lines and Events. */
export const RELEASE_REASONS = {
  Gone: {
    means: 'Everything that listed the pod has withdrawn it, and every consumer that applies has dropped it.',
    more: 'Reporting consumers have acknowledged the withdrawal; for each other, the policy’s percentile of its measured lag has passed, its declared lag, or `initial` if its lag is unknown or its instances are silent. Not before `hold.min`, nor while connections arrive that no consumer explains.',
  },
  NotServing: {
    means: 'Nothing listed the pod when its termination began, nor shortly before.',
    more: 'Shortly: within the longest lag of its consumers. Not before `hold.min`.',
  },
  NotTerminating: {
    means: 'The pod is not being deleted: one of its containers restarts.',
    more: 'The API server shows no deletion, and its node no shutdown, twice within a second: a liveness or startup probe failed, or a resize asks for a restart (`resizePolicy: RestartContainer`, from 1.33 on). An eviction that leaves no deletion and no condition looks the same.',
  },
  NodeShutdown: {
    means: 'The node is shutting down: the application keeps two thirds of the time that the node leaves.',
    more: 'The other third has passed since the hook started. If the time is [not known](operations.md#nodes-that-shut-down), it is 15 s.',
  },
  Max: {
    means: 'hold.max has passed, or the application would lose its own time to shut down.',
    more: 'The application’s own time is the grace minus what it asked for, or half of a grace that was cut. The log and the Event name what was still awaited.',
  },
  Unsure: {
    means: 'Linger cannot tell what still sends traffic to the pod: its static wait applies.',
    more: 'Its watches have been interrupted for 30 s. Not before the static wait has passed.',
  },
  Observed: {
    means: 'hold.observe: the static wait has passed.',
  },
} as const satisfies Readonly<Record<string, Explained>>;

export type ReleaseReason = keyof typeof RELEASE_REASONS;

/** The terms of the hold, from the pod's plan. */
export interface HoldTerms extends HoldPlan, Pick<Plan, 'wait' | 'grace' | 'baseGrace'> {
  /** How many of its containers have the hook. */
  readonly containers: number;
}

/**
 * How Linger knows when a consumer has stopped using a withdrawn pod.
 * - `time`: this many milliseconds after the withdrawal.
 * - `word`: its instances acknowledge it. `still`: those that have not. There may be further, unknown instances until
 *   `completeAt`, or for ever.
 * - `unknown`: no lag is known, so `initial` counts, from `since` at the earliest, because what instances reported to an
 *   earlier leader is lost.
 */
export type LettingGo = { readonly since?: number | undefined } & (
  | { readonly by: 'time'; readonly ms: number }
  | { readonly by: 'word'; readonly still: readonly string[]; readonly completeAt: number }
  | { readonly by: 'unknown' }
);

/** A consumer that sends traffic to the pod. */
export interface Sender {
  readonly name: string;
  readonly lettingGo: LettingGo;
  /**
   * The registry in which the pod has registered itself, and when it no longer contained the pod; undefined: it may still do
   * so.
   */
  readonly registry?: { readonly outAt: number | undefined } | undefined;
}

/** An Endpoints object, or the slices of a Service, that listed the pod as ready. */
export interface ListingFacts {
  /** For display: `EndpointSlice shop/web`. */
  readonly name: string;
  /** undefined: it still lists the pod. */
  readonly withdrawnAt: number | undefined;
  /** The list is truncated, so a pod that is missing from it may still be an endpoint. */
  readonly truncated?: boolean;
}

/** Why the kubelet stops a container of a pod that has not been deleted. */
export type StopCause = 'Restart' | 'Evicted' | 'NodeShutdown';

/** All facts on which the release of a pod's hooks depends. Instants are milliseconds of one monotonic clock. */
export interface HoldFacts {
  readonly now: number;
  readonly terms: HoldTerms;
  /** When the first of its hooks started. */
  readonly calledAt: number;
  /** undefined: as far as is known, the pod has no deletionTimestamp. */
  readonly deletion: { readonly at: number; readonly graceSeconds: number } | undefined;
  /** Why a pod without a deletion is stopped; undefined: the API server has not answered yet. */
  readonly cause: StopCause | undefined;
  /** How many seconds the node leaves the pod; undefined: the node is not shutting down. */
  readonly nodeBudget: number | undefined;
  /** The instant from which a watch has not been current; undefined: all are current. */
  readonly blindSince: number | undefined;
  readonly listings: readonly ListingFacts[];
  /** The consumers that send traffic to the pod. */
  readonly consumers: readonly Sender[];
  readonly quiet: QuietVerdict;
}

/** What a hold waits for: a consumer, or the control plane, or the API server. */
export interface WaitingFor {
  readonly consumer: string;
  readonly instances?: readonly string[];
}

/** The pod's hooks must keep waiting. */
export interface Holding {
  readonly waitingFor: readonly WaitingFor[];
  /** The verdict cannot change before this instant unless the facts do. */
  readonly nextLookAt: number;
  /** When they end at the latest. */
  readonly until: number;
}

export type HoldVerdict = { readonly release: ReleaseReason } | Holding;

/** As long as the helper itself waits after it has lost Linger. Milliseconds. */
export const BLIND_MS = 30_000;
/** The kubelet starts the hook within this time after the deletion. Milliseconds. */
export const HOOK_STARTS_MS = 2_000;
/** The shortest notice that any cloud gives for spot nodes (GKE). Seconds. */
const UNKNOWN_NODE_BUDGET = 15;

/** How many seconds a node with these labels leaves its pods when it shuts down. */
export function shutdownBudgetOf(labels: Labels): number {
  return nodeBudgetOf(labels) ?? UNKNOWN_NODE_BUDGET;
}

/** What a hold may wait for besides consumers. Names of consumers contain no blanks, so they cannot collide. */
export const CONTROL_PLANE_LISTS = 'control plane';
export const UNDELETED = 'API server (no deletion seen)';
export const BLIND = 'API server (watches not current)';
export const UNDECLARED = 'connections that still come';
export const STATIC_WAIT = 'static wait';
export const LEAST_HOLD = 'hold.min';
/** Listed in place of a consumer's instances. */
export const REGISTRY = 'its registry still has the pod';

/** Whether the pod's hooks may end. An unknown fact never leads to an earlier release. */
export function verdictOf(facts: HoldFacts): HoldVerdict {
  const { now, terms, calledAt, cause, blindSince } = facts;
  const deletion = stopOf(facts);
  const staticAt = calledAt + seconds(terms.wait);
  const lastAt = deletion === undefined ? calledAt + seconds(terms.max) : lastInstant(deletion, terms);
  const shutdownAt =
    facts.nodeBudget === undefined
      ? Number.POSITIVE_INFINITY
      : calledAt + seconds(Math.min(facts.nodeBudget, terms.grace) * NODE_BUDGET_SHARE);
  const maxAt = Math.min(lastAt, shutdownAt);
  if (now >= maxAt) return { release: shutdownAt < lastAt ? 'NodeShutdown' : 'Max' };

  const hold = (waitingFor: readonly WaitingFor[], ...instants: readonly number[]): HoldVerdict => {
    const nextLookAt = Math.min(maxAt, ...instants.filter((instant) => instant > now));
    return { waitingFor, nextLookAt, until: maxAt };
  };
  if (terms.observe) {
    if (now >= staticAt) return { release: 'Observed' };
    return hold([{ consumer: STATIC_WAIT }], staticAt);
  }
  if (deletion === undefined && cause === 'Restart') return { release: 'NotTerminating' };
  const minAt = (deletion?.at ?? calledAt) + seconds(terms.min);
  if (blindSince !== undefined) {
    const unsureAt = Math.max(staticAt, minAt, blindSince + BLIND_MS);
    return now >= unsureAt ? { release: 'Unsure' } : hold([{ consumer: BLIND }], unsureAt);
  }
  if (deletion === undefined) return hold([{ consumer: UNDELETED }]);

  const left = outstandingOf(facts, deletion.at);
  if (left === undefined)
    return now >= minAt ? { release: 'NotServing' } : hold([{ consumer: LEAST_HOLD }], minAt);
  if (left.listed) return hold(left.waitingFor);
  const waitingFor = [...left.waitingFor];
  if (now < minAt) waitingFor.push({ consumer: LEAST_HOLD });
  if (waitingFor.length === 0 && facts.quiet === 'Sending') waitingFor.push({ consumer: UNDECLARED });
  return waitingFor.length === 0 ? { release: 'Gone' } : hold(waitingFor, minAt, ...left.instants);
}

/**
 * What still uses a pod that is being deleted: objects that list it or, once all have withdrawn it, consumers.
 * @returns undefined where that is not known
 */
export function usersOf(facts: HoldFacts): Pick<Outstanding, 'listed' | 'waitingFor'> | undefined {
  const deletion = stopOf(facts);
  if (facts.deletion === undefined || deletion === undefined || facts.blindSince !== undefined)
    return undefined;
  return outstandingOf(facts, deletion.at);
}

/**
 * When the pod's termination began. The instant of a deletion comes from comparing clocks, which may be wrong. But the
 * kubelet starts the hook within {@link HOOK_STARTS_MS} of the deletion, so that bounds how early it can be.
 */
function stopOf({ deletion, cause, calledAt, terms }: HoldFacts): HoldFacts['deletion'] {
  if (deletion !== undefined) return { ...deletion, at: Math.max(deletion.at, calledAt - HOOK_STARTS_MS) };
  // The kubelet evicts pods without deleting them, and also stops the pods of a node that shuts down.
  const isStopped = cause === 'Evicted' || cause === 'NodeShutdown';
  return isStopped ? { at: calledAt, graceSeconds: terms.grace } : undefined;
}

/** What still uses a terminating pod, and the known instants at which that will change. */
interface Outstanding {
  /** Some object still lists the pod as ready, so no consumer can have stopped using it. */
  readonly listed: boolean;
  readonly waitingFor: readonly WaitingFor[];
  readonly instants: readonly number[];
}

/** @returns undefined for a pod that no object listed */
function outstandingOf(facts: HoldFacts, deletedAt: number): Outstanding | undefined {
  const { now, terms } = facts;
  // The earlier instant, so that no withdrawal is missed.
  const since = Math.min(deletedAt, facts.deletion?.at ?? deletedAt);
  const listings = facts.listings.filter((listing) => isRelevant(listing, facts, since));
  if (listings.length === 0) return undefined;
  const open = listings.filter(({ withdrawnAt }) => withdrawnAt === undefined);
  if (open.length > 0) {
    const waitingFor = [{ consumer: CONTROL_PLANE_LISTS, instances: open.map(({ name }) => name) }];
    return { listed: true, waitingFor, instants: [] };
  }

  // A pod that is missing from a truncated list may still be an endpoint, so treat the list like an unknown consumer.
  const unclearAt = deletedAt + seconds(terms.initial);
  const withdrawnAt = Math.max(
    ...listings.map((each) =>
      each.truncated ? Math.max(unclearAt, each.withdrawnAt ?? 0) : (each.withdrawnAt ?? 0),
    ),
  );
  const waitingFor: WaitingFor[] = [];
  const instants: number[] = [];
  for (const { name, lettingGo, registry } of facts.consumers) {
    if (registry !== undefined && registry.outAt === undefined) {
      waitingFor.push({ consumer: name, instances: [REGISTRY] });
      continue;
    }
    if (lettingGo.by === 'word' && lettingGo.still.length > 0) {
      waitingFor.push({ consumer: name, instances: lettingGo.still });
      continue;
    }
    const outAt = Math.max(withdrawnAt, registry?.outAt ?? 0);
    const letGoAt = letGoInstant(lettingGo, outAt, seconds(terms.initial));
    if (now < letGoAt) {
      waitingFor.push({ consumer: name });
      instants.push(letGoAt);
    }
  }
  if (now < withdrawnAt) {
    waitingFor.push({ consumer: CONTROL_PLANE_LISTS });
    instants.push(withdrawnAt);
  }
  return { listed: false, waitingFor, instants };
}

/** When the consumer will have stopped using the pod, as far as that can be predicted. */
function letGoInstant(lettingGo: LettingGo, withdrawnAt: number, initial: number): number {
  if (lettingGo.by === 'time') return withdrawnAt + lettingGo.ms;
  const initialAt = Math.max(withdrawnAt, lettingGo.since ?? withdrawnAt) + initial;
  return lettingGo.by === 'word' ? Math.min(initialAt, lettingGo.completeAt) : initialAt;
}

/** Whether the object lists the pod, or withdrew it so shortly before the deletion that a consumer may not have followed. */
function isRelevant(
  { withdrawnAt, truncated }: ListingFacts,
  { consumers, terms }: HoldFacts,
  deletedAt: number,
): boolean {
  if (withdrawnAt === undefined || truncated) return true;
  const initial = seconds(terms.initial);
  const lags = consumers.map(({ lettingGo }) => (lettingGo.by === 'time' ? lettingGo.ms : initial));
  return withdrawnAt >= deletedAt - Math.max(0, ...lags);
}

/**
 * The latest instant for a release: it leaves the application its own time to shut down, or half of a grace that was cut.
 */
function lastInstant(
  { at, graceSeconds }: NonNullable<HoldFacts['deletion']>,
  { max, baseGrace }: HoldTerms,
): number {
  return at + seconds(Math.min(max, Math.max(graceSeconds - baseGrace, graceSeconds / 2)));
}

function seconds(whole: number): number {
  return whole * 1000;
}
