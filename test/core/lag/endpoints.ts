import { ChangeObserver, type ObservedChange } from '../../../src/core/lag/endpoint-changes.ts';
import { type ClusterEvent, STREAMS, type Stream } from '../../../src/core/lag/events.ts';

/** How a slice can list a pod; `published`: ready and terminating, as with publishNotReadyAddresses. */
export type Listed = 'ready' | 'notReady' | 'terminating' | 'published';

const CONDITIONS = {
  ready: { ready: true, terminating: false },
  notReady: { ready: false, terminating: false },
  terminating: { ready: false, terminating: true },
  published: { ready: true, terminating: true },
} as const;

/** The address of a pod: `a` has 10.0.0.97. */
export const ipOf = (pod: string) => `10.0.0.${pod.charCodeAt(0)}`;

/** A slice of the Service `web`: `slice(100, { a: 'ready' })`. */
export function slice(
  at: number,
  pods: Readonly<Record<string, Listed>>,
  name = 'web-1',
  serviceName: string | undefined = 'web',
): ClusterEvent {
  const endpoints = Object.entries(pods).map(([pod, listed]) => ({
    targetUid: `uid-${pod}`,
    targetName: pod,
    addresses: [ipOf(pod)],
    ...CONDITIONS[listed],
  }));
  return {
    type: 'Slice',
    at,
    slice: { namespace: 'shop', name, serviceName, addressType: 'IPv4', endpoints },
  };
}

export const sliceDeleted = (at: number, name = 'web-1'): ClusterEvent => ({
  type: 'SliceDeleted',
  at,
  namespace: 'shop',
  name,
});

/** The Endpoints object `web`. */
export function endpoints(at: number, ready: string, notReady = ''): ClusterEvent {
  const addresses = (pods: string) =>
    [...pods].map((pod) => ({ targetUid: `uid-${pod}`, targetName: pod, ip: ipOf(pod) }));
  const state = { ready: addresses(ready), notReady: addresses(notReady), overCapacity: false };
  return { type: 'Endpoints', at, endpoints: { namespace: 'shop', name: 'web', ...state } };
}

export const terminating = (at: number, pod: string): ClusterEvent => ({
  type: 'PodTerminating',
  at,
  pod: { uid: `uid-${pod}`, namespace: 'shop', name: pod },
});

export const deleted = (at: number, pod: string): ClusterEvent => ({
  type: 'PodDeleted',
  at,
  pod: { uid: `uid-${pod}`, namespace: 'shop', name: pod },
});

type Marker = 'ListBegins' | 'ListEnds' | 'StreamBroken' | 'StreamRotated' | 'StreamCurrent';

export const marker = (at: number, type: Marker, stream: Stream): ClusterEvent => ({ type, at, stream });

export const service: ClusterEvent = {
  type: 'Service',
  at: 0,
  service: { namespace: 'shop', name: 'web', selector: { app: 'web' }, publishNotReadyAddresses: false },
};

/** Every stream has listed what there is, which is the Service `web` and these. */
export function synced(...there: readonly ClusterEvent[]): readonly ClusterEvent[] {
  return [
    ...STREAMS.map((stream) => marker(0, 'ListBegins', stream)),
    service,
    ...there,
    ...STREAMS.flatMap((stream) => [marker(0, 'ListEnds', stream), marker(0, 'StreamCurrent', stream)]),
  ];
}

/** What these events result in, to the end. */
export function observed(events: readonly ClusterEvent[], initial = false): readonly ObservedChange[] {
  const observer = new ChangeObserver({ initial });
  for (const event of events) observer.apply(event);
  return observer.takeAll();
}

/** `slice terminating a 0.4`; the lag only where there is one, `late` and `initial` where it is that. */
export function short({ source, change, pod = '-', lag, seen }: ObservedChange): string {
  const words = [source === 'Endpoints' ? 'endpoints' : 'slice', change, pod];
  return [...words, ...(lag === undefined ? [] : [lag]), ...(seen === 'live' ? [] : [seen])].join(' ');
}
