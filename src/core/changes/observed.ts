import type { ClusterEvent, EndpointsState, SliceState } from '../lag/events.ts';
import { endpointsKey, sliceGroupKey } from '../lag/projection.ts';
import type { EndpointState, ListedEndpoint } from './change.ts';
import type { ListingObject } from './listings.ts';

/** A slice with its addresses and the names of its pods, which measuring alone can do without. */
export interface ObservedSlice extends SliceState {
  readonly endpoints: readonly (SliceState['endpoints'][number] & {
    readonly targetName?: string | undefined;
    readonly addresses: readonly string[];
  })[];
}

interface ObservedAddress {
  readonly targetUid?: string | undefined;
  readonly targetName?: string | undefined;
  readonly ip: string;
}

export interface ObservedEndpoints extends EndpointsState {
  readonly ready: readonly ObservedAddress[];
  readonly notReady: readonly ObservedAddress[];
}

/** What the recorder is told, with more about the endpoints. */
export type ObservedEvent =
  | Exclude<ClusterEvent, { readonly type: 'Slice' | 'Endpoints' }>
  | { readonly type: 'Slice'; readonly at: number; readonly slice: ObservedSlice }
  | { readonly type: 'Endpoints'; readonly at: number; readonly endpoints: ObservedEndpoints };

export function sliceObject(slice: ObservedSlice): ListingObject {
  const { namespace, name, serviceName: service } = slice;
  return { source: 'EndpointSlice', namespace, name, service, group: sliceGroupKey(slice) };
}

export function endpointsObject({ namespace, name }: ObservedEndpoints): ListingObject {
  return { source: 'Endpoints', namespace, name, service: name, group: endpointsKey(namespace, name) };
}

export function endpointsOfSlice({ endpoints }: ObservedSlice): readonly ListedEndpoint[] {
  return endpoints.map(({ targetUid, targetName, addresses, ready, terminating }) => ({
    uid: targetUid,
    pod: targetName,
    // Further ones are not used: discovery/v1 has them all mean the same endpoint, and kube-proxy reads the first.
    ip: addresses[0] ?? '',
    state: ready ? 'ready' : terminating === true ? 'terminating' : 'notReady',
  }));
}

export function endpointsOfEndpoints({ ready, notReady }: ObservedEndpoints): readonly ListedEndpoint[] {
  const listed = (addresses: readonly ObservedAddress[], state: EndpointState) =>
    addresses.map(({ targetUid, targetName, ip }) => ({ uid: targetUid, pod: targetName, ip, state }));
  return [...listed(ready, 'ready'), ...listed(notReady, 'notReady')];
}
