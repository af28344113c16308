import { isRecord, isString } from '../api/index.ts';
import { type EndpointsState, type SliceState, STAMP_ANNOTATION } from '../lag/index.ts';
import type { RawObject, Resource } from './resource.ts';

interface PodTarget {
  readonly uid: string | undefined;
  readonly name: string | undefined;
}

const NONE: PodTarget = { uid: undefined, name: undefined };

/** The pod that a targetRef (core/v1 ObjectReference) names; of any other kind, none. */
export function podOf(targetRef: unknown): PodTarget {
  if (!isRecord(targetRef) || targetRef.kind !== 'Pod') return NONE;
  const { uid, name } = targetRef;
  return { uid: isString(uid) ? uid : undefined, name: isString(name) ? name : undefined };
}

export interface EndpointsAddress {
  /** Of the pod behind it; undefined: something else, or nothing, is. */
  readonly targetUid: string | undefined;
  readonly targetName: string | undefined;
  readonly ip: string;
}

export interface EndpointsProjection extends EndpointsState {
  /** Annotation linger.dev/stamp. */
  readonly stamp: string | undefined;
  readonly ready: readonly EndpointsAddress[];
  readonly notReady: readonly EndpointsAddress[];
}

/** Source: k8s.io/api core/v1 (EndpointsOverCapacity). */
const OVER_CAPACITY = 'endpoints.kubernetes.io/over-capacity';

/** Deprecated since 1.33, and still what older ingress controllers read. */
export function endpointsResource(path = '/api/v1/endpoints'): Resource<EndpointsProjection> {
  return { path, afterMetadata: 'subsets', project: projectEndpoints };
}

/** The subsets taken together: each is the addresses that share a set of ports, which is of no concern here. */
export function projectEndpoints(raw: RawObject): EndpointsProjection {
  const { namespace = '', name, resourceVersion: version, annotations } = raw.metadata;
  const { subsets } = raw as { subsets?: unknown };
  const ready: EndpointsAddress[] = [];
  const notReady: EndpointsAddress[] = [];
  for (const subset of Array.isArray(subsets) ? subsets : []) {
    if (!isRecord(subset)) continue;
    addAddresses(ready, subset.addresses);
    addAddresses(notReady, subset.notReadyAddresses);
  }
  const overCapacity = annotations?.[OVER_CAPACITY] === 'truncated';
  const stamp = annotations?.[STAMP_ANNOTATION];
  return { namespace, name, version, stamp, overCapacity, ready, notReady };
}

function addAddresses(to: EndpointsAddress[], addresses: unknown): void {
  for (const address of Array.isArray(addresses) ? addresses : []) {
    if (!isRecord(address)) continue;
    const { uid, name } = podOf(address.targetRef);
    to.push({ targetUid: uid, targetName: name, ip: isString(address.ip) ? address.ip : '' });
  }
}

interface SliceEndpoint {
  /** Of the pod behind it; undefined: something else, or nothing, is. */
  readonly targetUid: string | undefined;
  readonly targetName: string | undefined;
  readonly addresses: readonly string[];
  readonly ready: boolean;
  readonly serving: boolean;
  readonly terminating: boolean;
}

export interface SliceProjection extends SliceState {
  /** Annotation linger.dev/stamp. */
  readonly stamp: string | undefined;
  readonly endpoints: readonly SliceEndpoint[];
}

/** Source: k8s.io/api discovery/v1 (LabelServiceName, LabelManagedBy). */
const SERVICE_NAME = 'kubernetes.io/service-name';
const MANAGED_BY = 'endpointslice.kubernetes.io/managed-by';

export function endpointSlicesResource(
  path = '/apis/discovery.k8s.io/v1/endpointslices',
): Resource<SliceProjection> {
  return { path, afterMetadata: 'addressType', project: projectSlice };
}

export function projectSlice(raw: RawObject): SliceProjection {
  const { namespace = '', name, resourceVersion: version, labels, annotations } = raw.metadata;
  const { addressType, endpoints } = raw as { addressType?: unknown; endpoints?: unknown };
  return {
    namespace,
    name,
    version,
    stamp: annotations?.[STAMP_ANNOTATION],
    serviceName: labels?.[SERVICE_NAME],
    managedBy: labels?.[MANAGED_BY],
    addressType: isString(addressType) ? addressType : '',
    // Null where there is none: the field has no omitempty.
    endpoints: Array.isArray(endpoints) ? endpoints.filter(isRecord).map(endpointOf) : [],
  };
}

/** A condition that is absent is unknown; discovery/v1 says how to read that: ready and serving yes, terminating no. */
function endpointOf({ addresses, conditions, targetRef }: Record<string, unknown>): SliceEndpoint {
  const { ready, serving, terminating } = isRecord(conditions) ? conditions : {};
  const { uid, name } = podOf(targetRef);
  return {
    targetUid: uid,
    targetName: name,
    addresses: Array.isArray(addresses) ? (addresses as readonly string[]) : [],
    ready: ready !== false,
    serving: isAbsent(serving) ? ready !== false : serving === true,
    terminating: terminating === true,
  };
}

function isAbsent(value: unknown): boolean {
  return value === undefined || value === null;
}
