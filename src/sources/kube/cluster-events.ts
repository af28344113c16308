import type { ClusterEvent, Stream } from '../../core/lag/events.ts';
import type { SliceProjection } from './endpoint-slices.ts';
import type { EndpointsProjection } from './endpoints.ts';
import type { StreamChange } from './handlers.ts';
import type { PodMetadata } from './pods.ts';
import type { ResourceEvent } from './resource.ts';
import type { ServiceProjection } from './services.ts';

/** What list-watches tell, in the words of the lag recorder. */

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
  return { type: 'SliceDeleted', at, namespace: identity.namespace, name: identity.name };
}

export function endpointsEvent(event: ResourceEvent<EndpointsProjection>): EndpointsEvent {
  const { at, identity } = event;
  if (event.type !== 'deleted') return { type: 'Endpoints', at, endpoints: event.object };
  return { type: 'EndpointsDeleted', at, namespace: identity.namespace, name: identity.name };
}

export function serviceEvent(event: ResourceEvent<ServiceProjection>): PlainEvent {
  const { at, identity } = event;
  if (event.type !== 'deleted') return { type: 'Service', at, service: event.object };
  return { type: 'ServiceDeleted', at, namespace: identity.namespace, name: identity.name };
}

export function streamEvent({ type, at }: StreamChange, stream: Stream): PlainEvent {
  return { type, at, stream };
}
