import { isConditionReason } from '../core/consumers/told.ts';
import type { ConsumerView, LagView } from '../core/consumers/view.ts';
import { type ConsumerStatus, discoveryConsumerStatus } from '../core/schema/consumer-status.ts';
import { formatDuration, parseDuration } from '../core/schema/duration.ts';

/** The condition's type. */
const MEASURED = 'Measured';

type Conditions = NonNullable<ConsumerStatus['conditions']>;

/**
 * The status that says what a view says. What it does not say is null, as a merge patch has it.
 * @param present what stands there: conditions of others stay
 */
export function statusOf(view: ConsumerView, generation: number | undefined, present: unknown) {
  const { measure, removals, additions, lastSample, instances, limits } = view;
  return {
    observedGeneration: generation ?? null,
    measure,
    ...lagOf(removals),
    lastSample: lastSample === null ? null : instant(lastSample),
    additions: additions === null ? null : lagOf(additions),
    instances,
    limits,
    conditions: [
      ...conditionsOf(present).filter(({ type }) => type !== MEASURED),
      measuredOf(view, generation),
    ],
  };
}

function measuredOf({ condition }: ConsumerView, generation: number | undefined): Conditions[number] {
  const { status, reason, message, since } = condition;
  const of = generation === undefined ? {} : { observedGeneration: generation };
  return { type: MEASURED, status, reason, message, lastTransitionTime: instant(since), ...of };
}

/** What a status has told, as the view that it was made of. @returns undefined for one that is not ours, or none */
export function toldByStatus(name: string, present: unknown): ConsumerView | undefined {
  const { success, data: status } = discoveryConsumerStatus.safeParse(present);
  if (!success) return undefined;
  const condition = conditionsOf(status).find(({ type }) => type === MEASURED);
  if (condition === undefined || !isConditionReason(condition.reason)) return undefined;
  const { reason, message, lastTransitionTime } = condition;
  return {
    name,
    measure: status.measure as ConsumerView['measure'],
    removals: lagIn(status),
    additions: lagIn(status.additions),
    lastSample: status.lastSample === undefined ? null : Date.parse(status.lastSample) / 1000,
    instances: status.instances ?? null,
    condition: { status: condition.status, reason, message, since: Date.parse(lastTransitionTime) / 1000 },
    limits: status.limits ?? [],
  };
}

/** The generation of which a status was told. */
export function observedIn(present: unknown): number | undefined {
  const { success, data } = discoveryConsumerStatus.safeParse(present);
  return success ? data.observedGeneration : undefined;
}

function conditionsOf(present: unknown): Conditions {
  const { success, data } = discoveryConsumerStatus.safeParse(present);
  return success ? (data.conditions ?? []) : [];
}

function lagOf(lag: LagView | null) {
  if (lag === null) return { samples: 0, p50: null, p99: null };
  return { samples: lag.samples, p50: duration(lag.p50), p99: duration(lag.p99) };
}

function lagIn(lag: ConsumerStatus['additions']): LagView | null {
  if (lag?.p50 === undefined || lag.p99 === undefined) return null;
  const { samples = 0, p50, p99 } = lag;
  return { samples, p50: parseDuration(p50) ?? Number.NaN, p99: parseDuration(p99) ?? Number.NaN };
}

/** Three digits: histograms are no better. */
function duration(seconds: number): string {
  return formatDuration(Number(seconds.toPrecision(3)));
}

/** metav1.Time has whole seconds. */
function instant(epochSeconds: number): string {
  return new Date(Math.floor(epochSeconds) * 1000).toISOString().replace('.000Z', 'Z');
}
