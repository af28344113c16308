import { type ClusterEvent, type StampedStream, type Stream, stampOf } from '../lag/index.ts';
import type { EndpointsProjection, SliceProjection } from './endpoints.ts';
import type { PodMetadata } from './pods.ts';
import type { ResourceEvent, StreamChange } from './resource.ts';
import type { ServiceProjection } from './services.ts';

/** Events of list-watches as events of the lag recorder. */

/** One that says nothing about endpoints. */
type PlainEvent = Exclude<ClusterEvent, { readonly type: 'Slice' | 'Endpoints' }>;
type SliceEvent =
  | PlainEvent
  | { readonly type: 'Slice'; readonly at: number; readonly slice: SliceProjection };
type EndpointsEvent =
  | PlainEvent
  | { readonly type: 'Endpoints'; readonly at: number; readonly endpoints: EndpointsProjection };

/** @returns undefined for a pod that does not terminate: nothing that the recorder has to know */
export function podEvent(event: ResourceEvent<PodMetadata>): PlainEvent | undefined {
  const { at, identity } = event;
  if (event.type !== 'deleted') {
    const { object } = event;
    return object.deletionTimestamp === undefined ? undefined : { type: 'PodTerminating', at, pod: object };
  }
  return { type: 'PodDeleted', at, pod: event.relist ? identity : event.object };
}

export function sliceEvent(event: ResourceEvent<SliceProjection>): SliceEvent {
  const { at, identity } = event;
  if (event.type !== 'deleted') return { type: 'Slice', at, slice: event.object };
  const { namespace, name } = identity;
  return {
    type: 'SliceDeleted',
    at,
    namespace,
    name,
    version: event.relist ? undefined : event.object.version,
  };
}

export function endpointsEvent(event: ResourceEvent<EndpointsProjection>): EndpointsEvent {
  const { at, identity } = event;
  if (event.type !== 'deleted') return { type: 'Endpoints', at, endpoints: event.object };
  const { namespace, name } = identity;
  const version = event.relist ? undefined : event.object.version;
  return { type: 'EndpointsDeleted', at, namespace, name, version };
}

export function serviceEvent(event: ResourceEvent<ServiceProjection>): PlainEvent {
  const { at, identity } = event;
  if (event.type !== 'deleted') return { type: 'Service', at, service: event.object };
  return { type: 'ServiceDeleted', at, namespace: identity.namespace, name: identity.name };
}

/** @returns undefined for an object without a stamp */
export function stampEvent(
  event: ResourceEvent<{ readonly stamp: string | undefined }>,
  from: StampedStream,
): PlainEvent | undefined {
  const stamp = event.type === 'deleted' ? undefined : stampOf(event.object.stamp);
  return stamp && { type: 'Stamp', at: event.at, from, stamp };
}

export function streamEvent({ type, at }: StreamChange, stream: Stream): PlainEvent {
  return { type, at, stream };
}
