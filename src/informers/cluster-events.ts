import type { ResourceEvent, StreamChange } from '../cluster/index.ts';
import type { PodMetadata } from '../core/lag/index.ts';
import { type ClusterEvent, type HeartbeatStream, heartbeatOf, type Stream } from '../core/lag/index.ts';
import type { EndpointsProjection, SliceProjection } from './endpoints.ts';
import type { ServiceProjection } from './services.ts';

/** @returns undefined for a pod that is not terminating, which the recorder does not need */
export function podEvent(event: ResourceEvent<PodMetadata>): ClusterEvent | undefined {
  const { at, identity } = event;
  if (event.type === 'deleted')
    return { type: 'PodDeleted', at, pod: event.relist ? identity : event.object };
  const { object } = event;
  return object.deletionTimestamp === undefined ? undefined : { type: 'PodTerminating', at, pod: object };
}

export function sliceEvent(event: ResourceEvent<SliceProjection>): ClusterEvent {
  if (event.type === 'deleted') return { type: 'SliceDeleted', ...deleted(event) };
  return { type: 'Slice', at: event.at, slice: event.object };
}

export function endpointsEvent(event: ResourceEvent<EndpointsProjection>): ClusterEvent {
  if (event.type === 'deleted') return { type: 'EndpointsDeleted', ...deleted(event) };
  return { type: 'Endpoints', at: event.at, endpoints: event.object };
}

function deleted<T extends { readonly version?: string | undefined }>(
  event: ResourceEvent<T> & { readonly type: 'deleted' },
) {
  const { namespace, name } = event.identity;
  return { at: event.at, namespace, name, version: event.relist ? undefined : event.object.version };
}

export function serviceEvent(event: ResourceEvent<ServiceProjection>): ClusterEvent {
  const { at, identity } = event;
  if (event.type !== 'deleted') return { type: 'Service', at, service: event.object };
  return { type: 'ServiceDeleted', at, namespace: identity.namespace, name: identity.name };
}

/** @returns undefined for an object without a heartbeat */
export function heartbeatEvent(
  event: ResourceEvent<{ readonly heartbeat: string | undefined }>,
  from: HeartbeatStream,
): ClusterEvent | undefined {
  const heartbeat = event.type === 'deleted' ? undefined : heartbeatOf(event.object.heartbeat);
  return heartbeat && { type: 'Heartbeat', at: event.at, from, heartbeat };
}

export function streamEvent({ type, at }: StreamChange, stream: Stream): ClusterEvent {
  return { type, at, stream };
}
