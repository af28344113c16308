import { CONDITIONS, type ConditionReason } from '../catalog/conditions.ts';
import { isAbsentOr, isRecord, isString } from '../schema/shape.ts';
import type { ConsumerView, LagView, MeasuredCondition } from './view.ts';

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

const MEASURES: ReadonlySet<unknown> = new Set<ConsumerView['measure']>([
  'declared',
  'reports',
  'probe',
  'clusterIp',
  'unknown',
]);

function isView(json: unknown): json is ConsumerView {
  if (!isRecord(json)) return false;
  const { name, measure, removals, additions, lastSample, instances, condition, limits } = json;
  return (
    isString(name) &&
    MEASURES.has(measure) &&
    isNullOr(isLag, removals) &&
    isNullOr(isLag, additions) &&
    isNullOr(isNumber, lastSample) &&
    isNullOr(isNumber, instances) &&
    isCondition(condition) &&
    Array.isArray(limits) &&
    limits.every(isString)
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
