import type { SliceState } from '../../core/lag/events.ts';
import { isRecord, isString } from '../../core/schema/shape.ts';
import { podOf } from './pod-target.ts';
import type { RawObject, Resource } from './resource.ts';

export interface SliceEndpoint {
  /** Of the pod behind it; undefined: something else, or nothing, is. */
  readonly targetUid: string | undefined;
  readonly targetName: string | undefined;
  readonly addresses: readonly string[];
  readonly ready: boolean;
  readonly serving: boolean;
  readonly terminating: boolean;
}

export interface SliceProjection extends SliceState {
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
  const { namespace = '', name, labels } = raw.metadata;
  const { addressType, endpoints } = raw as { addressType?: unknown; endpoints?: unknown };
  return {
    namespace,
    name,
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
