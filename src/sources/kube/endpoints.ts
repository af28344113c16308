import type { EndpointsState } from '../../core/lag/events.ts';
import { isRecord, isString } from '../../core/schema/shape.ts';
import { podOf } from './pod-target.ts';
import type { RawObject, Resource } from './resource.ts';

export interface EndpointsAddress {
  /** Of the pod behind it; undefined: something else, or nothing, is. */
  readonly targetUid: string | undefined;
  readonly targetName: string | undefined;
  readonly ip: string;
}

export interface EndpointsProjection extends EndpointsState {
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
  const { namespace = '', name, annotations } = raw.metadata;
  const { subsets } = raw as { subsets?: unknown };
  const ready: EndpointsAddress[] = [];
  const notReady: EndpointsAddress[] = [];
  for (const subset of Array.isArray(subsets) ? subsets : []) {
    if (!isRecord(subset)) continue;
    addAddresses(ready, subset.addresses);
    addAddresses(notReady, subset.notReadyAddresses);
  }
  return { namespace, name, overCapacity: annotations?.[OVER_CAPACITY] === 'truncated', ready, notReady };
}

function addAddresses(to: EndpointsAddress[], addresses: unknown): void {
  for (const address of Array.isArray(addresses) ? addresses : []) {
    if (!isRecord(address)) continue;
    const { uid, name } = podOf(address.targetRef);
    to.push({ targetUid: uid, targetName: name, ip: isString(address.ip) ? address.ip : '' });
  }
}
