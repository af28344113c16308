import type { V1Lease, V1MicroTime } from '@kubernetes/client-node';
import { type ApiCall, callApi, type KubeConnection, unlessNotFound } from '../cluster/index.ts';

/**
 * Microseconds since the Unix epoch as metav1.MicroTime, which the API server reads only with exactly six fractional
 * digits. Source: k8s.io/apimachinery meta/v1 RFC3339Micro, `2006-01-02T15:04:05.000000Z07:00`.
 */
export function microTimeText(microseconds: number): string {
  const whole = Math.floor(microseconds / 1_000_000);
  const fraction = String(microseconds - whole * 1_000_000).padStart(6, '0');
  return new Date(whole * 1000).toISOString().replace(/\.000Z$/, `.${fraction}Z`);
}

const MICRO_TIME = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{6})Z$/;

/** @returns undefined for text in any other form than the API server's */
export function microTimeOf(text: unknown): number | undefined {
  const [, seconds, fraction] = typeof text === 'string' ? (MICRO_TIME.exec(text) ?? []) : [];
  const milliseconds = Date.parse(`${seconds}Z`);
  return Number.isNaN(milliseconds) ? undefined : milliseconds * 1000 + Number(fraction);
}

/** The leader, as recorded in a coordination.k8s.io/v1 Lease. */
export interface LeaseRecord {
  /** Empty: the lease has been released. */
  readonly holder: string;
  readonly durationSeconds: number;
  /**
   * Incremented with every change of the holder. It numbers the terms, so that writes of a deposed leader can be refused.
   */
  readonly transitions: number;
  /** Microseconds since the epoch, by the holder's clock. For information, and to tell renewals apart. */
  readonly acquiredAt: number | undefined;
  readonly renewedAt: number | undefined;
  /** The address on which the holder accepts relayed connections. */
  readonly address?: string | undefined;
}

const ADDRESS_ANNOTATION = 'linger.dev/hold-address';

/** `spec.leaseTransitions` is an int32. A number beyond half of its range was forged, and is ignored. */
const MOST_TRANSITIONS = 2 ** 30;

export function leaseRecordOf({ metadata, spec = {} }: V1Lease): LeaseRecord {
  const { holderIdentity, leaseDurationSeconds, leaseTransitions = 0, acquireTime, renewTime } = spec;
  return {
    holder: holderIdentity ?? '',
    durationSeconds: leaseDurationSeconds ?? 0,
    transitions: leaseTransitions > MOST_TRANSITIONS ? 0 : leaseTransitions,
    acquiredAt: microTimeOf(acquireTime),
    renewedAt: microTimeOf(renewTime),
    address: metadata?.annotations?.[ADDRESS_ANNOTATION],
  };
}

/** @param over the Lease to replace, whose other members are kept */
export function leaseObject(name: string, record: LeaseRecord, over: V1Lease | undefined): V1Lease {
  return {
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata: { name, ...over?.metadata, ...annotationsOf(record, over) },
    spec: {
      ...over?.spec,
      holderIdentity: record.holder,
      leaseDurationSeconds: record.durationSeconds,
      leaseTransitions: record.transitions,
      ...timeOf('acquireTime', record.acquiredAt),
      ...timeOf('renewTime', record.renewedAt),
    },
  };
}

/** Keeps annotations that others have set. */
function annotationsOf({ address }: LeaseRecord, over: V1Lease | undefined) {
  const { [ADDRESS_ANNOTATION]: before, ...others } = over?.metadata?.annotations ?? {};
  if (address === undefined && before === undefined) return {};
  return { annotations: { ...others, ...(address !== undefined && { [ADDRESS_ANNOTATION]: address }) } };
}

/** client-node passes MicroTimes as text in both directions; Dates would lose the microseconds. */
function timeOf(member: 'acquireTime' | 'renewTime', microseconds: number | undefined) {
  if (microseconds === undefined) return {};
  return { [member]: microTimeText(microseconds) as unknown as V1MicroTime };
}

export interface StoredLease {
  readonly record: LeaseRecord;
  /** The object to overwrite, with its resourceVersion, so that of two concurrent writers one fails. */
  readonly object: V1Lease;
}

/** Both methods throw KubeFailure. */
export interface LeaseStore {
  /** @returns undefined when there is none */
  read(): Promise<StoredLease | undefined>;
  /** @param over the Lease to replace; undefined: there was none */
  write(record: LeaseRecord, over: StoredLease | undefined): Promise<StoredLease>;
}

interface LeaseLocation {
  readonly connection: KubeConnection;
  readonly namespace: string;
  readonly name: string;
}

/** The Lease in an API server. @param call used for each request */
export function leaseStore({ connection, namespace, name }: LeaseLocation, call: ApiCall): LeaseStore {
  const stored = (object: V1Lease) => ({ record: leaseRecordOf(object), object });
  return {
    read: async () => {
      const found = callApi(connection, 'CoordinationV1Api', call, (api) =>
        api.readNamespacedLease({ namespace, name }),
      );
      const object = await unlessNotFound(found);
      return object && stored(object);
    },
    write: async (record, over) => {
      const body = leaseObject(name, record, over?.object);
      const written = await callApi(connection, 'CoordinationV1Api', call, (api) =>
        over === undefined
          ? api.createNamespacedLease({ namespace, body })
          : api.replaceNamespacedLease({ namespace, name, body }),
      );
      return stored(written);
    },
  };
}
