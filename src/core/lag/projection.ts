import type { EndpointsState, SliceState } from './events.ts';
import { type PodStates, READY, TERMINATING } from './listings.ts';
import type { ListingGroup } from './traces.ts';

/** Source: k8s.io/kubernetes pkg/controller/endpointslicemirroring (controllerName). */
const MIRRORING_CONTROLLER = 'endpointslicemirroring-controller.k8s.io';

/**
 * Slices mirrored from hand-made Endpoints copy foreign targetRefs and set only `ready`. Their writer follows the
 * Endpoints and not the pods, so their lag is not the control plane's.
 */
export function isMirrored(slice: SliceState): boolean {
  return slice.managedBy === MIRRORING_CONTROLLER;
}

export function sliceKey(namespace: string, name: string): string {
  return `EndpointSlice/${namespace}/${name}`;
}

export function endpointsKey(namespace: string, name: string): string {
  return `Endpoints/${namespace}/${name}`;
}

/** The slices of one Service and address family belong together; one without a Service stands alone. */
export function sliceGroupKey({ namespace, name, serviceName, addressType }: SliceState): string {
  return serviceName === undefined
    ? `EndpointSlice/${namespace}//${addressType}/${name}`
    : `EndpointSlice/${namespace}/${serviceName}/${addressType}`;
}

/** The groups that a Service can have. FQDN slices list no pods. */
export function groupKeysOf(namespace: string, service: string): readonly string[] {
  const slices = `EndpointSlice/${namespace}/${service}`;
  return [`${slices}/IPv4`, `${slices}/IPv6`, endpointsKey(namespace, service)];
}

export function newSliceGroup({ namespace, serviceName = '' }: SliceState): ListingGroup {
  return {
    stage: 'EndpointSlice',
    namespace,
    service: serviceName,
    objects: [],
    overCapacity: false,
    open: undefined,
  };
}

export function newEndpointsGroup({ namespace, name }: EndpointsState): ListingGroup {
  return { stage: 'Endpoints', namespace, service: name, objects: [], overCapacity: false, open: undefined };
}

/** Endpoints without a pod's uid were written for something else. */
export function podsOfSlice({ endpoints }: SliceState): PodStates {
  const uids: string[] = [];
  const states: number[] = [];
  for (const { targetUid, ready, terminating } of endpoints) {
    if (targetUid === undefined) continue;
    uids.push(targetUid);
    states.push((ready ? READY : 0) | (terminating === true ? TERMINATING : 0));
  }
  return { uids, states };
}

export function podsOfEndpoints({ ready, notReady }: EndpointsState): PodStates {
  const uids: string[] = [];
  const states: number[] = [];
  const list = (addresses: EndpointsState['ready'], state: number) => {
    for (const { targetUid } of addresses) {
      if (targetUid === undefined) continue;
      uids.push(targetUid);
      states.push(state);
    }
  };
  list(ready, READY);
  list(notReady, 0);
  return { uids, states };
}
