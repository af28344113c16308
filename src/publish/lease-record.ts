import { isRecord, isString } from '../core/schema/shape.ts';
import type { ApiObject } from '../kube/object-request.ts';
import { microTimeOf, microTimeText } from './micro-time.ts';

/** Who leads, as a coordination.k8s.io/v1 Lease says it. */
export interface LeaseRecord {
  /** Empty: nobody; it was released. */
  readonly holder: string;
  readonly durationSeconds: number;
  /** Grows with every change of holder. It numbers the terms, so that what a deposed leader writes can be told. */
  readonly transitions: number;
  /** Microseconds since the epoch, by the holder's clock: for people to read, and to tell one renewal from the next. */
  readonly acquiredAt: number | undefined;
  readonly renewedAt: number | undefined;
}

/** `spec.leaseTransitions` is an int32. A number beyond half of that was forged, and counts as none. */
export const MOST_TRANSITIONS = 2 ** 30;

/** Reads a Lease; what is absent or makes no sense counts as never written. */
export function leaseRecordOf({ spec }: ApiObject): LeaseRecord {
  const { holderIdentity, leaseDurationSeconds, leaseTransitions, acquireTime, renewTime } = isRecord(spec)
    ? spec
    : {};
  return {
    holder: isString(holderIdentity) ? holderIdentity : '',
    durationSeconds: wholeNumber(leaseDurationSeconds),
    transitions: transitionsOf(leaseTransitions),
    acquiredAt: microTimeOf(acquireTime),
    renewedAt: microTimeOf(renewTime),
  };
}

/** The Lease to write; `over`: the one that it changes, whose other members stay. */
export function leaseObject(name: string, record: LeaseRecord, over: ApiObject | undefined): ApiObject {
  const spec = isRecord(over?.spec) ? over.spec : {};
  return {
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata: { name },
    ...over,
    spec: {
      ...spec,
      holderIdentity: record.holder,
      leaseDurationSeconds: record.durationSeconds,
      leaseTransitions: record.transitions,
      acquireTime: timeOf(record.acquiredAt),
      renewTime: timeOf(record.renewedAt),
    },
  };
}

export function sameRecord(a: LeaseRecord | undefined, b: LeaseRecord | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return (
    a.holder === b.holder &&
    a.renewedAt === b.renewedAt &&
    a.transitions === b.transitions &&
    a.acquiredAt === b.acquiredAt &&
    a.durationSeconds === b.durationSeconds
  );
}

function timeOf(microseconds: number | undefined): string | undefined {
  return microseconds === undefined ? undefined : microTimeText(microseconds);
}

function transitionsOf(value: unknown): number {
  const transitions = wholeNumber(value);
  return transitions > MOST_TRANSITIONS ? 0 : transitions;
}

function wholeNumber(value: unknown): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : 0;
}
