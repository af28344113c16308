import { isRecord, isString, listOf, recordsAt } from '../api/index.ts';
import { type EndpointsState, type SliceState, STAMP_ANNOTATION } from '../lag/index.ts';
import type { RawObject, Resource } from './resource.ts';

interface Stamped {
  /** Annotation linger.dev/stamp. */
  readonly stamp: string | undefined;
}

export type EndpointsProjection = EndpointsState & Stamped;
export type SliceProjection = SliceState & Stamped;

/** Source: k8s.io/api core/v1 (EndpointsOverCapacity). */
const OVER_CAPACITY = 'endpoints.kubernetes.io/over-capacity';

/** Deprecated since 1.33, and still what older ingress controllers read. */
export function endpointsResource(path = '/api/v1/endpoints'): Resource<EndpointsProjection> {
  return { path, afterMetadata: 'subsets', project: projectEndpoints };
}

/** All subsets merged: each holds the addresses that share a set of ports, and ports do not matter here. */
export function projectEndpoints(raw: RawObject): EndpointsProjection {
  const { namespace = '', name, resourceVersion: version, annotations } = raw.metadata;
  const subsets = recordsAt(raw, 'subsets');
  return {
    namespace,
    name,
    version,
    stamp: annotations?.[STAMP_ANNOTATION],
    overCapacity: annotations?.[OVER_CAPACITY] === 'truncated',
    ready: subsets.flatMap(({ addresses }) => recordsAt(addresses).map(addressOf)),
    notReady: subsets.flatMap(({ notReadyAddresses }) => recordsAt(notReadyAddresses).map(addressOf)),
  };
}

function addressOf({ targetRef, ip }: Record<string, unknown>) {
  return { ...targetOf(targetRef), ip: isString(ip) ? ip : '' };
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
  const { addressType, endpoints, ports } = raw as RawObject & Readonly<Partial<Record<string, unknown>>>;
  return {
    namespace,
    name,
    version,
    stamp: annotations?.[STAMP_ANNOTATION],
    serviceName: labels?.[SERVICE_NAME],
    managedBy: labels?.[MANAGED_BY],
    addressType: isString(addressType) ? addressType : '',
    endpoints: recordsAt(endpoints).map(endpointOf),
    ports: recordsAt(ports).flatMap(({ port }) => (typeof port === 'number' ? [port] : [])),
  };
}

/** Defaults of absent conditions, as discovery/v1 defines them: ready and serving are true, terminating is false. */
function endpointOf({ addresses, conditions, targetRef }: Record<string, unknown>) {
  const { ready, serving, terminating } = isRecord(conditions) ? conditions : {};
  return {
    ...targetOf(targetRef),
    addresses: listOf(addresses) as readonly string[],
    ready: ready !== false,
    serving: (serving ?? ready !== false) === true,
    terminating: terminating === true,
  };
}

/** The pod that a targetRef (core/v1 ObjectReference) names; undefined for any other kind. */
function targetOf(targetRef: unknown) {
  const { uid, name } = isRecord(targetRef) && targetRef.kind === 'Pod' ? targetRef : {};
  return { targetUid: isString(uid) ? uid : undefined, targetName: isString(name) ? name : undefined };
}
