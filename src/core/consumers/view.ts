import { CONDITIONS, type ConditionReason } from '../catalog/conditions.ts';
import { quantileOf } from '../lag/combine.ts';
import { formatDuration } from '../schema/duration.ts';
import type { Consumer, Measure, MeasureKind } from './consumer.ts';
import type { ConsumerLag } from './estimator.ts';
import type { MeasuringState } from './measuring.ts';

export type ConditionStatus = (typeof CONDITIONS)[ConditionReason]['status'];

/** The condition `Measured` of a consumer. */
export interface MeasuredCondition {
  readonly status: ConditionStatus;
  readonly reason: ConditionReason;
  /** In sentences. The same as long as nothing has changed. */
  readonly message: string;
  /** When the status became what it is. Seconds since the epoch. */
  readonly since: number;
}

/** What is known of a lag, in seconds. */
export interface LagView {
  readonly samples: number;
  readonly p50: number;
  readonly p99: number;
}

/** A consumer as people are shown it: what `linger consumers`, a status and metrics tell. */
export interface ConsumerView {
  readonly name: string;
  /** `unknown`: its spec could never be read. */
  readonly measure: MeasureKind | 'unknown';
  /** Until it has stopped sending to a removed endpoint. null: nothing is known. Declared: without samples. */
  readonly removals: LagView | null;
  /** Until it sends to an added one. */
  readonly additions: LagView | null;
  /** When it was timed last, in seconds since the epoch. */
  readonly lastSample: number | null;
  /** How many instances report; null where they cannot be told apart. */
  readonly instances: number | null;
  readonly condition: MeasuredCondition;
  readonly limits: readonly string[];
}

/** What a view is made from. */
export interface ConsumerFacts {
  readonly consumer: Consumer;
  readonly removals: ConsumerLag | undefined;
  readonly additions: ConsumerLag | undefined;
  /** undefined: nobody measures it. */
  readonly state: MeasuringState | undefined;
  /** Why its spec as it is now cannot be read. */
  readonly problem?: string | undefined;
}

/** How often a consumer is timed where nobody says: the canary's own pace, a probe's, and that of slow pollers. */
const USUAL_SECONDS: Readonly<Record<MeasureKind, number>> = {
  clusterIp: 60,
  probe: 30,
  reports: 60,
  declared: 0,
};

/** So many samples in a row may be missing: one that is would be chance. */
const MISSING_SAMPLES = 5;

/** A rollout of Linger and a restart of an API server are over by then. */
const STALE_SECONDS = 600;

/**
 * @param now seconds since the epoch
 * @param before the same consumer's view, if there was one: its condition tells since when
 */
export function consumerView(
  facts: ConsumerFacts,
  now: number,
  before?: Pick<ConsumerView, 'condition'>,
): ConsumerView {
  const { consumer, removals, additions, state } = facts;
  return {
    name: consumer.name,
    measure: consumer.measure.kind,
    removals: declaredLag(consumer) ?? lagView(removals),
    additions: lagView(additions),
    lastSample: newest(removals, additions),
    instances: state?.instances ?? null,
    condition: conditionOf(judged(facts, now), now, before),
    limits: consumer.declared === undefined ? (state?.limits ?? []) : [DECLARED_LIMIT],
  };
}

/** The view of one whose spec has never been good. */
export function unreadableView(
  name: string,
  problem: string,
  now: number,
  before?: Pick<ConsumerView, 'condition'>,
): ConsumerView {
  return {
    name,
    measure: 'unknown',
    removals: null,
    additions: null,
    lastSample: null,
    instances: null,
    condition: conditionOf(invalid(problem), now, before),
    limits: [],
  };
}

function conditionOf(
  { reason, message }: Judgement,
  now: number,
  before?: Pick<ConsumerView, 'condition'>,
): MeasuredCondition {
  const { status } = CONDITIONS[reason];
  const since = before?.condition.status === status ? before.condition.since : now;
  return { status, reason, message: message.slice(0, LONGEST_MESSAGE), since };
}

/** Of a condition. Some hundreds of them go into one ConfigMap. */
const LONGEST_MESSAGE = 1_000;

const DECLARED_LIMIT = 'Nothing is measured: if it is slower than declared, waits are too short.';

interface Judgement {
  readonly reason: ConditionReason;
  readonly message: string;
}

function judged({ consumer, removals, state, problem }: ConsumerFacts, now: number): Judgement {
  if (problem !== undefined) return invalid(problem);
  if (consumer.declared !== undefined) return plainly('Declared');
  if (state === undefined) return plainly('NotMeasuring');
  if (state.trouble !== undefined) return state.trouble;
  if (removals === undefined) return plainly('Waiting');
  const allowed = staleAfter(consumer.measure, state);
  if (now - removals.latest <= allowed) return plainly('Measured');
  return {
    reason: 'Stale',
    message: `${summaryOf('Stale')} One is expected within ${formatDuration(allowed)}.`,
  };
}

function invalid(problem: string): Judgement {
  return { reason: 'Invalid', message: `${summaryOf('Invalid')} ${problem}` };
}

function plainly(reason: ConditionReason): Judgement {
  return { reason, message: summaryOf(reason) };
}

function summaryOf(reason: ConditionReason): string {
  return CONDITIONS[reason].summary;
}

/** After how many seconds without a sample its numbers are old. */
function staleAfter(measure: Measure, { every }: MeasuringState): number {
  const asked = measure.kind === 'probe' ? measure.every : undefined;
  return Math.max(STALE_SECONDS, MISSING_SAMPLES * (every ?? asked ?? USUAL_SECONDS[measure.kind]));
}

function declaredLag({ declared }: Consumer): LagView | undefined {
  return declared && { samples: 0, p50: quantileOf(declared, 50), p99: quantileOf(declared, 99) };
}

function lagView(lag: ConsumerLag | undefined): LagView | null {
  return lag === undefined ? null : { samples: lag.samples, p50: lag.quantile(50), p99: lag.quantile(99) };
}

function newest(...lags: readonly (ConsumerLag | undefined)[]): number | null {
  const latest = lags.flatMap((lag) => (lag === undefined ? [] : [lag.latest]));
  return latest.length === 0 ? null : Math.max(...latest);
}
