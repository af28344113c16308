import { formatDuration, isAbsentOr, isRecord, isString } from '../api/index.ts';
import type { Consumer, ConsumerLag, Measure, MeasureKind } from './consumer.ts';
import { quantileOf } from './distribution.ts';

/**
 * How the measuring of a DiscoveryConsumer goes: the reasons of its condition `Measured`. `status` is the condition's:
 * True where the estimate can be relied on, Unknown where it is too early to say.
 */
export const CONDITIONS = {
  Declared: { status: 'True', summary: 'Its lag is what its author has declared; nothing is measured.' },
  Measured: { status: 'True', summary: 'Samples arrive.' },
  Invalid: {
    status: 'False',
    summary:
      'This version of Linger cannot read its spec. The last good one stays in force, if there was one.',
  },
  Waiting: { status: 'Unknown', summary: 'Measuring has begun, and no sample is complete yet.' },
  NotMeasuring: {
    status: 'Unknown',
    summary: 'No replica measures at the moment: none leads, or the canary is off.',
  },
  NoInstances: { status: 'False', summary: 'No instance reports, or all that did have fallen silent.' },
  Stale: { status: 'False', summary: 'There were samples, and there have been no new ones for too long.' },
  Unreachable: {
    status: 'False',
    summary: 'The probe gets no answer: refused, timed out, or a name that does not resolve.',
  },
  BadAnswer: {
    status: 'False',
    summary: 'The probe gets an answer that cannot be used: an error status, a redirect, or too much.',
  },
  SomebodyElse: { status: 'False', summary: 'Something answers with success, and it is not Linger.' },
  Unauthorized: {
    status: 'False',
    summary: 'Reports are refused: no token, a wrong audience, or no right to report.',
  },
  Implausible: { status: 'False', summary: 'What comes in contradicts itself; it is left out.' },
} as const satisfies Record<string, { status: 'True' | 'False' | 'Unknown'; summary: string }>;

export type ConditionReason = keyof typeof CONDITIONS;

/** How the measuring of a consumer goes. */
export interface MeasurementState {
  /** Of those that report; absent where instances cannot be told apart. */
  readonly instances?: number;
  /** Seconds between two samples, when all is well; absent: what is usual for its way of measuring. */
  readonly every?: number;
  /** undefined: all is well. */
  readonly trouble: { readonly reason: ConditionReason; readonly message: string } | undefined;
  /** What it cannot see, in sentences: shown beside its numbers. */
  readonly limits: readonly string[];
}

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

/** A consumer as `linger consumers`, its status and metrics show it. */
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
  /** undefined: this replica does not measure it. */
  readonly state: MeasurementState | undefined;
  /** Why its spec as it is now cannot be read. */
  readonly problem?: string | undefined;
}

/** How often a consumer is timed by default: the canary's own pace, a probe's, and that of slow pollers. */
const USUAL_SECONDS: Readonly<Record<MeasureKind, number>> = {
  clusterIp: 60,
  clusterDns: 60,
  probe: 30,
  reports: 60,
  declared: 0,
};

/** So many samples in a row may be missing: one that is would be chance. */
const MISSING_SAMPLES = 5;

/** A rollout of Linger and a restart of an API server are over by then. */
const STALE_SECONDS = 600;

type Before = Pick<ConsumerView, 'condition'> | undefined;

/**
 * @param now seconds since the epoch
 * @param before the same consumer's view, if there was one: its condition says since when
 */
export function consumerView(facts: ConsumerFacts, now: number, before?: Before): ConsumerView {
  const { consumer, removals, additions, state } = facts;
  return {
    ...blankView(consumer.name, consumer.measure.kind, judged(facts, now), now, before),
    removals: declaredLag(consumer) ?? lagView(removals),
    additions: lagView(additions),
    lastSample: newest(removals, additions),
    instances: state?.instances ?? null,
    limits: consumer.declared === undefined ? (state?.limits ?? []) : [DECLARED_LIMIT],
  };
}

/** The view of a consumer whose spec has never been good. */
export function unreadableView(name: string, problem: string, now: number, before?: Before): ConsumerView {
  return blankView(name, 'unknown', invalid(problem), now, before);
}

function blankView(
  name: string,
  measure: ConsumerView['measure'],
  { reason, message }: Judgement,
  now: number,
  before: Before,
): ConsumerView {
  const { status } = CONDITIONS[reason];
  const since = before?.condition.status === status ? before.condition.since : now;
  return {
    name,
    measure,
    removals: null,
    additions: null,
    lastSample: null,
    instances: null,
    condition: { status, reason, message: message.slice(0, LONGEST_MESSAGE), since },
    limits: [],
  };
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
function staleAfter(measure: Measure, { every }: MeasurementState): number {
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

/** A percentile that has moved by less than this share has not changed: histograms are that coarse, and samples chance. */
const MOVED = 0.05;

/**
 * Whether a view says something that people should not have to wait for: another condition, other instances, another
 * lag. That there are more samples of the same is none.
 * @param told what was said before
 */
export function isNews(view: ConsumerView, told: ConsumerView): boolean {
  const { condition } = view;
  const judged = told.condition;
  return (
    view.measure !== told.measure ||
    view.instances !== told.instances ||
    condition.status !== judged.status ||
    condition.reason !== judged.reason ||
    condition.message !== judged.message ||
    view.limits.join('\n') !== told.limits.join('\n') ||
    hasMoved(view.removals, told.removals) ||
    hasMoved(view.additions, told.additions)
  );
}

function hasMoved(lag: LagView | null, told: LagView | null): boolean {
  if (lag === null || told === null) return lag !== told;
  return isOther(lag.p50, told.p50) || isOther(lag.p99, told.p99);
}

function isOther(value: number, told: number): boolean {
  return Math.abs(value - told) > MOVED * Math.max(value, told);
}

const VERSION = 1;

/** What the leader tells of all consumers, at one moment. */
export interface ToldConsumers {
  /** Seconds since the epoch. */
  readonly asOf: number;
  readonly consumers: readonly ConsumerView[];
}

export function toldToText({ asOf, consumers }: ToldConsumers): string {
  return JSON.stringify({ v: VERSION, asOf, consumers });
}

/** Reads what {@link toldToText} wrote, parsed. @returns undefined when it is none, or of another version */
export function toldFromJson(json: unknown): ToldConsumers | undefined {
  if (!isRecord(json) || json.v !== VERSION || !isNumber(json.asOf)) return undefined;
  const { asOf, consumers } = json;
  return Array.isArray(consumers) && consumers.every(isView) ? { asOf, consumers } : undefined;
}

function isView(json: unknown): json is ConsumerView {
  return (
    isRecord(json) &&
    isString(json.name) &&
    (json.measure === 'unknown' || Object.hasOwn(USUAL_SECONDS, String(json.measure))) &&
    isNullOr(isLag, json.removals) &&
    isNullOr(isLag, json.additions) &&
    isNullOr(isNumber, json.lastSample) &&
    isNullOr(isNumber, json.instances) &&
    isCondition(json.condition) &&
    Array.isArray(json.limits) &&
    json.limits.every(isString)
  );
}

function isLag(json: unknown): json is LagView {
  return isRecord(json) && isNumber(json.samples) && isNumber(json.p50) && isNumber(json.p99);
}

function isCondition(json: unknown): json is MeasuredCondition {
  return (
    isRecord(json) &&
    isConditionReason(json.reason) &&
    json.status === CONDITIONS[json.reason].status &&
    isString(json.message) &&
    isNumber(json.since)
  );
}

export function isConditionReason(reason: unknown): reason is ConditionReason {
  return isString(reason) && Object.hasOwn(CONDITIONS, reason);
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}

function isNullOr(is: (value: unknown) => boolean, value: unknown): boolean {
  return value !== undefined && isAbsentOr(is, value);
}
