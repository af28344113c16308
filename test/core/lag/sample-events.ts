import type {
  ClusterEvent,
  EndpointsState,
  ServiceState,
  SliceState,
  StageSample,
  Stream,
} from '../../../src/core/lag/events.ts';
import { LagRecorder } from '../../../src/core/lag/recorder.ts';

export const NAMESPACE = 'shop';

/** How a slice can list a pod. */
type Listed = 'ready' | 'notReady' | 'terminating';

const CONDITIONS = {
  ready: { ready: true, terminating: false },
  notReady: { ready: false, terminating: false },
  terminating: { ready: false, terminating: true },
} as const;

/** A slice of the Service `web`: `slice(100, { a: 'ready' })`. */
export function slice(
  at: number,
  pods: Record<string, Listed>,
  more: Partial<SliceState> = {},
): ClusterEvent {
  const endpoints = Object.entries(pods).map(([targetUid, listed]) => ({
    targetUid,
    ...CONDITIONS[listed],
  }));
  const plain = { namespace: NAMESPACE, name: 'web-1', serviceName: 'web', addressType: 'IPv4', endpoints };
  return { type: 'Slice', at, slice: { ...plain, ...more } };
}

export const sliceDeleted = (at: number, name = 'web-1'): ClusterEvent => ({
  type: 'SliceDeleted',
  at,
  namespace: NAMESPACE,
  name,
});

/** The Endpoints object `web`. */
export function endpoints(
  at: number,
  ready: string[],
  notReady: string[] = [],
  more: Partial<EndpointsState> = {},
): ClusterEvent {
  const addresses = (uids: string[]) => uids.map((targetUid) => ({ targetUid }));
  const state = { ready: addresses(ready), notReady: addresses(notReady), overCapacity: false };
  return { type: 'Endpoints', at, endpoints: { namespace: NAMESPACE, name: 'web', ...state, ...more } };
}

export function service(more: Partial<ServiceState> = {}, at = 0): ClusterEvent {
  const plain = {
    namespace: NAMESPACE,
    name: 'web',
    selector: { app: 'web' },
    publishNotReadyAddresses: false,
  };
  return { type: 'Service', at, service: { ...plain, ...more } };
}

export const serviceDeleted = (at: number): ClusterEvent => ({
  type: 'ServiceDeleted',
  at,
  namespace: NAMESPACE,
  name: 'web',
});

const podOf = (uid: string, labels?: Record<string, string>) => ({
  uid,
  namespace: NAMESPACE,
  name: `pod-${uid}`,
  labels,
});

export const terminating = (at: number, uid: string, labels?: Record<string, string>): ClusterEvent => ({
  type: 'PodTerminating',
  at,
  pod: podOf(uid, labels),
});

export const deleted = (at: number, uid: string): ClusterEvent => ({
  type: 'PodDeleted',
  at,
  pod: podOf(uid),
});

type Marker = 'ListBegins' | 'ListEnds' | 'StreamBroken' | 'StreamRotated' | 'StreamCurrent';

export const marker = (at: number, type: Marker, stream: Stream): ClusterEvent => ({ type, at, stream });

export const ALL_CURRENT: readonly ClusterEvent[] = (
  ['pods', 'services', 'EndpointSlice', 'Endpoints'] as const
).map((stream) => marker(0, 'StreamCurrent', stream));

/** A recorder whose streams are current and that knows the Service `web`, after these events. */
export function recorded(...events: readonly ClusterEvent[]) {
  return recordedFrom([...ALL_CURRENT, service()], events);
}

export function recordedFrom(before: readonly ClusterEvent[], events: readonly ClusterEvent[]) {
  const recorder = new LagRecorder();
  for (const event of before) recorder.apply(event);
  const outcomes = events.map((event) => recorder.apply(event));
  const samples = outcomes.flatMap(({ stages }) => stages);
  const removals = outcomes.flatMap((outcome) => outcome.removals);
  const discarded = Object.fromEntries(Object.entries(recorder.discarded).filter(([, count]) => count > 0));
  const unresolved = [...recorder.unresolved()];
  return { recorder, samples, removals, lags: samples.map(short), discarded, unresolved };
}

/** `slice 0.4` reads better in a table than a sample. */
export function short({ stage, name, lag }: StageSample): string {
  return `${stage === 'Endpoints' ? 'endpoints' : 'slice'} ${name} ${lag}`;
}
