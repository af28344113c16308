import {
  type Curable,
  formatDuration,
  isAbsentOr,
  isRecord,
  isString,
  readEntries,
  textOf,
} from '../api/index.ts';
import type { Consumer, ConsumerLag, MeasureKind } from './consumer.ts';
import { lagsOf } from './distribution.ts';
import { isInstant } from './histogram.ts';

/** The reasons of the condition `Measured`. Status True: the estimate can be relied on; Unknown: too early to say. */
export const CONDITIONS = {
  Declared: {
    status: 'True',
    means: 'Its lag is declared; nothing is measured.',
    cure: 'Measure it if you can.',
  },
  Measured: { status: 'True', means: 'Samples arrive.', cure: 'Nothing.' },
  Invalid: {
    status: 'False',
    means: 'This version of Linger cannot read its spec. The last good one stays in force, if there was one.',
    cure: 'The message names each field. For a newer CRD: upgrade Linger.',
  },
  Waiting: {
    status: 'Unknown',
    means: 'Measuring has begun, and no sample is complete yet.',
    cure: 'Wait some minutes. If it stays so, there is nothing to time.',
  },
  NotMeasuring: {
    status: 'Unknown',
    means: 'No replica measures at the moment: none leads, or the canary is off.',
    cure: 'Check that a replica leads and the canary is on (`--canary-every`). The message says [how flips end](#how-a-flip-ends).',
  },
  NoServices: {
    status: 'False',
    means: 'It applies to no Service of the cluster: no wait considers it.',
    cure: 'Compare `appliesTo` with `kubectl get services -A --show-labels`.',
  },
  NoInstances: {
    status: 'False',
    means: 'No instance reports, all that did have fallen silent, or there is none to ask.',
    cure: 'Check that they [report](../gateways.md#a-gateway-that-reports-when-it-has-synced); with `inspect`, that the selectors select running pods.',
  },
  TooManyInstances: {
    status: 'False',
    means: 'It has more instances than are asked.',
    cure: 'At most 200 (20 istiods): use several DiscoveryConsumers, or declare a lag.',
  },
  Stale: {
    status: 'False',
    means: 'There were samples, and there have been no new ones for too long.',
    cure: 'Check that it still runs.',
  },
  Unreachable: {
    status: 'False',
    means: 'No answer: refused, timed out, or a name that does not resolve.',
    cure: "Call the URL from Linger's network; check NetworkPolicies. A page on a loopback needs [a witness](../gateways.md#pages-on-a-gateways-loopback).",
  },
  BadAnswer: {
    status: 'False',
    means: 'The answer cannot be used: an error status, a redirect, too much data, another format.',
    cure: "Check where the URL leads (a probe's: the Service `linger-canary`, without sticky sessions); the message says what is wrong.",
  },
  ListsNothing: {
    status: 'False',
    means: 'Its pages can be read, and have never listed a pod that they were asked about.',
    cure: 'Check `format`, `port`, `path` and `appliesTo`.',
  },
  StaleUpstream: {
    status: 'False',
    means:
      'An instance still sends to an address that no slice has listed for longer than it takes to follow.',
    cure: 'Restart that instance. [How that is found](../measuring.md#dead-addresses).',
  },
  NotDeregistered: {
    status: 'False',
    means: 'Its registry does not take terminating pods out, so its clients go on sending to them.',
    cure: 'The message says why. 404 for every pod: the [templates](#deregistration).',
  },
  NotLinger: {
    status: 'False',
    means: 'Something answers with success, and it is not Linger.',
    cure: 'Check where the URL leads.',
  },
  Unauthorized: {
    status: 'False',
    means: 'Reports are refused: no token, a wrong audience, or no permission to report.',
    cure: 'The message has the reason; [who may report](../gateways.md#who-may-report).',
  },
  Implausible: {
    status: 'False',
    means: 'What is received contradicts itself and is left out.',
    cure: 'Look at the instance that the message names; for a cache where there is a probe.',
  },
} as const satisfies Readonly<Record<string, Curable & { readonly status: 'True' | 'False' | 'Unknown' }>>;

export type ConditionReason = keyof typeof CONDITIONS;

export interface MeasurementState {
  /** Instances that send reports or are inspected; absent where instances cannot be distinguished. */
  readonly instances?: number;
  /** Expected seconds between two samples; default: {@link USUAL_SECONDS}. */
  readonly every?: number;
  /** undefined: all is well. */
  readonly trouble: Judgement | undefined;
  /** What this measurement cannot see, as sentences shown beside its numbers. */
  readonly limits: readonly string[];
}

/**
 * Held pods that got no connection from the instances of a consumer that applies to them, counted since a held pod last got
 * one.
 */
export interface UnseenPods {
  /** When the first was seen. Seconds since the epoch. */
  readonly since: number;
  readonly pods: number;
}

interface Judgement {
  readonly reason: ConditionReason;
  /** Sentences that stay the same while nothing changes, so that the status is not rewritten. */
  readonly message: string;
}

/** The expected interval between samples where the measurement names none, by kind of measurement. */
const USUAL_SECONDS: Readonly<Record<MeasureKind, number>> = {
  clusterIp: 60,
  clusterDns: 60,
  probe: 30,
  reports: 60,
  // They sample real removals only, and there may be none for weeks.
  inspect: Number.POSITIVE_INFINITY,
  endpoints: Number.POSITIVE_INFINITY,
  xds: Number.POSITIVE_INFINITY,
  witness: Number.POSITIVE_INFINITY,
  declared: 0,
};

/** Seconds. A declared lag has no samples. */
export interface LagView {
  readonly samples: number;
  readonly p50: number;
  readonly p99: number;
}

interface MeasuredCondition extends Judgement {
  readonly status: (typeof CONDITIONS)[ConditionReason]['status'];
  /** When the status last changed. Seconds since the epoch. */
  readonly since: number;
}

/** A consumer as shown by `linger consumers`, its status and metrics; null: not known. */
export interface ConsumerView {
  readonly name: string;
  /** `unknown`: its spec could never be read. */
  readonly measure: MeasureKind | 'unknown';
  /** Observe: no wait considers the consumer; absent: Enforce. */
  readonly mode?: 'Observe';
  /** From the withdrawal of an endpoint until the consumer stops sending to it. */
  readonly removals: LagView | null;
  /** From the addition of an endpoint until the consumer starts sending to it. */
  readonly additions: LagView | null;
  /** Seconds since the epoch. */
  readonly lastSample: number | null;
  /** Services that it applies to; null: not known, or it finds pods without Services. */
  readonly services: number | null;
  /** Instances that report or are inspected; null where they cannot be distinguished. */
  readonly instances: number | null;
  /** Absent: its instances are not known, or some held pod got a connection from them. */
  readonly unseen?: UnseenPods;
  readonly condition: MeasuredCondition;
  readonly limits: readonly string[];
}

export interface ConsumerFacts {
  readonly consumer: Consumer;
  readonly removals: ConsumerLag | undefined;
  readonly additions: ConsumerLag | undefined;
  /** When a removal was last measured, even if that is older than the window of {@link removals}; undefined: never. */
  readonly latestRemoval?: number | undefined;
  /** undefined: this replica does not measure it. */
  readonly state: MeasurementState | undefined;
  readonly unseen?: UnseenPods | undefined;
  readonly services?: number | undefined;
  /** Why the consumer's registry does not remove terminating pods; undefined: it does, or has none. */
  readonly notDeregistered?: string | undefined;
  /** Why the current spec cannot be used; undefined: it can. */
  readonly problem?: string | undefined;
}

type Before = Pick<ConsumerView, 'condition'> | undefined;

const DECLARED_LIMIT = 'Nothing is measured: if it is slower than declared, waits are too short.';

const OBSERVED_LIMIT = 'mode is Observe: no wait considers it, and Hold does not wait for it.';

const UNSEEN_LIMIT =
  'It may send to no pod: in 7 days, none of at least 20 held pods that it applies to got a connection from its instances.';
const UNSEEN_SECONDS = 7 * 86_400;
const UNSEEN_PODS = 20;

/**
 * Whether a week has passed in which none of at least {@link UNSEEN_PODS} held pods got a connection from the consumer's
 * instances.
 * @param now seconds since the epoch
 */
export function sendsToNone({ unseen }: Pick<ConsumerView, 'unseen'>, now: number): boolean {
  return unseen !== undefined && unseen.pods >= UNSEEN_PODS && now - unseen.since >= UNSEEN_SECONDS;
}

/**
 * @param now seconds since the epoch
 * @param before the consumer's last view, from which an unchanged condition takes its `since`
 */
export function consumerView(facts: ConsumerFacts, now: number, before?: Before): ConsumerView {
  const { consumer, removals, additions, state, unseen } = facts;
  const { name, measure, declared, observed } = consumer;
  const latest = [latestRemovalOf(facts), additions?.latest].filter((at) => at !== undefined);
  return {
    name,
    measure: measure.kind,
    ...(observed && { mode: 'Observe' }),
    removals: declared ? lagView({ samples: 0, quantile: lagsOf(declared).quantile }) : lagView(removals),
    additions: lagView(additions),
    lastSample: latest.length === 0 ? null : Math.max(...latest),
    services: (consumer.serviceSelector && facts.services) ?? null,
    instances: state?.instances ?? null,
    ...(unseen && { unseen }),
    condition: conditionOf(judged(facts, now), now, before),
    limits: [
      ...(unseen && sendsToNone({ unseen }, now) ? [UNSEEN_LIMIT] : []),
      ...(observed ? [OBSERVED_LIMIT] : []),
      ...(declared === undefined ? (state?.limits ?? []) : [DECLARED_LIMIT]),
    ],
  };
}

export function unreadableView(name: string, problem: string, now: number, before?: Before): ConsumerView {
  const none = { removals: null, additions: null, lastSample: null, services: null, instances: null };
  const condition = conditionOf(judgement('Invalid', problem), now, before);
  return { name, measure: 'unknown', ...none, condition, limits: [] };
}

/** Characters of a condition's message. Short, because one ConfigMap holds hundreds of them. */
const LONGEST_MESSAGE = 1_000;

function conditionOf({ reason, message }: Judgement, now: number, before: Before): MeasuredCondition {
  const { status } = CONDITIONS[reason];
  const since = before?.condition.status === status ? before.condition.since : now;
  return { status, reason, message: message.slice(0, LONGEST_MESSAGE), since };
}

function judged(facts: ConsumerFacts, now: number): Judgement {
  const { consumer, state, services, problem, notDeregistered } = facts;
  if (problem !== undefined) return judgement('Invalid', problem);
  if (notDeregistered !== undefined) return judgement('NotDeregistered', notDeregistered);
  const needsServices = !consumer.builtIn && consumer.podSelector === undefined;
  if (needsServices && services === 0) return judgement('NoServices');
  if (consumer.declared !== undefined) return judgement('Declared');
  if (state === undefined) return judgement('NotMeasuring');
  if (state.trouble !== undefined) return state.trouble;
  const latest = latestRemovalOf(facts);
  if (latest === undefined) return judgement('Waiting');
  const allowed = staleAfter(consumer, state);
  if (now - latest <= allowed) return judgement('Measured');
  return judgement('Stale', `One is expected within ${formatDuration(allowed)}.`);
}

function latestRemovalOf({ removals, latestRemoval }: ConsumerFacts): number | undefined {
  return removals?.latest ?? latestRemoval;
}

function judgement(reason: ConditionReason, more?: string): Judgement {
  const { means } = CONDITIONS[reason];
  return { reason, message: more === undefined ? means : `${means} ${more}` };
}

/**
 * How many expected samples in a row must be missing before the numbers count as stale; a single one may be missing by
 * chance.
 */
const MISSING_SAMPLES = 5;

/** Allows for a rollout of Linger or a restart of an API server. */
const STALE_SECONDS = 600;

function staleAfter({ measure }: Consumer, { every }: MeasurementState): number {
  const asked = measure.kind === 'probe' ? measure.every : undefined;
  return Math.max(STALE_SECONDS, MISSING_SAMPLES * (every ?? asked ?? USUAL_SECONDS[measure.kind]));
}

function lagView(lag: Pick<ConsumerLag, 'samples' | 'quantile'> | undefined): LagView | null {
  return lag === undefined ? null : { samples: lag.samples, p50: lag.quantile(50), p99: lag.quantile(99) };
}

/**
 * A percentile must move by more than this share to count as changed; smaller moves are noise, or due to the histogram's
 * precision.
 */
const MOVED = 0.05;

/** Whether a view should be published soon: its condition, instances, limits or lag changed, not just its samples. */
export function hasChanged(view: ConsumerView, published: ConsumerView): boolean {
  const stated = ({ measure, services, instances, limits, condition }: ConsumerView) =>
    JSON.stringify([
      measure,
      services,
      instances,
      limits,
      condition.status,
      condition.reason,
      condition.message,
    ]);
  return (
    stated(view) !== stated(published) ||
    hasMoved(view.removals, published.removals) ||
    hasMoved(view.additions, published.additions)
  );
}

function hasMoved(now: LagView | null, before: LagView | null): boolean {
  if (now === null || before === null) return now !== before;
  const moved = (is: number, was: number) => Math.abs(is - was) > MOVED * Math.max(is, was);
  return moved(now.p50, before.p50) || moved(now.p99, before.p99);
}

const VERSION = 2;

export interface ConsumerTable {
  /** Seconds since the epoch. */
  readonly asOf: number;
  readonly consumers: readonly ConsumerView[];
}

/** Leaves out views that could not be read back, such as one with a number that JSON does not have. */
export function consumersToText({ asOf, consumers }: ConsumerTable): string {
  return JSON.stringify({ v: VERSION, asOf, consumers: readEntries(consumers, viewIn) });
}

/** @returns undefined for anything other than the output of {@link consumersToText} of this version */
export function consumersFromJson(json: unknown): ConsumerTable | undefined {
  if (!isRecord(json) || json.v !== VERSION || !isInstant(json.asOf)) return undefined;
  if (!Array.isArray(json.consumers)) return undefined;
  return { asOf: json.asOf, consumers: readEntries(json.consumers, viewIn) };
}

function viewIn(json: unknown): ConsumerView | undefined {
  return isView(json) ? json : undefined;
}

function isView(json: unknown): json is ConsumerView {
  return (
    isRecord(json) &&
    isString(json.name) &&
    (json.measure === 'unknown' || Object.hasOwn(USUAL_SECONDS, textOf(json.measure))) &&
    isAbsentOr((mode) => mode === 'Observe', json.mode) &&
    isNullOr(isLag, json.removals) &&
    isNullOr(isLag, json.additions) &&
    isNullOr(isInstant, json.lastSample) &&
    isNullOr(isInstant, json.services) &&
    isNullOr(isInstant, json.instances) &&
    isAbsentOr(isUnseen, json.unseen) &&
    isCondition(json.condition) &&
    Array.isArray(json.limits) &&
    json.limits.every(isString)
  );
}

function isUnseen(json: unknown): boolean {
  return isRecord(json) && isInstant(json.since) && isInstant(json.pods);
}

function isLag(json: unknown): boolean {
  return isRecord(json) && isInstant(json.samples) && isInstant(json.p50) && isInstant(json.p99);
}

function isCondition(json: unknown): boolean {
  if (!isRecord(json) || !isString(json.message) || !isInstant(json.since)) return false;
  const { reason, status } = json;
  const isReason = isString(reason) && Object.hasOwn(CONDITIONS, reason);
  return isReason && status === CONDITIONS[reason as ConditionReason].status;
}

function isNullOr(is: (value: unknown) => boolean, value: unknown): boolean {
  return value !== undefined && isAbsentOr(is, value);
}
