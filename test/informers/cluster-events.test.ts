import { describe, expect, it } from 'vitest';
import type { ObjectIdentity, RawObject } from '../../src/cluster/index.ts';
import { type ClusterEvent, LagRecorder, type Stream } from '../../src/core/lag/index.ts';
import {
  endpointsEvent,
  podEvent,
  serviceEvent,
  sliceEvent,
  streamEvent,
} from '../../src/informers/cluster-events.ts';
import { projectEndpoints, projectSlice } from '../../src/informers/endpoints.ts';
import { projectPod } from '../../src/informers/pods.ts';
import { projectService } from '../../src/informers/services.ts';

const identity: ObjectIdentity = { namespace: 'shop', name: 'web', uid: 'u-1' };
const raw = (more: object = {}, meta: object = {}) =>
  ({ metadata: { ...identity, resourceVersion: '7', ...meta }, ...more }) as RawObject;
const TERMINATING = { deletionTimestamp: '2026-01-01T00:00:30Z' };
const gone = { type: 'deleted', relist: true, identity, at: 5 } as const;
const changed = <T>(object: T) => ({ type: 'modified', listed: false, identity, object, at: 5 }) as const;
const deleted = <T>(object: T) => ({ type: 'deleted', relist: false, identity, object, at: 5 }) as const;

describe('what a list-watch tells, in the words of the recorder', () => {
  it.each<{ name: string; event: ClusterEvent | undefined; expected: object | undefined }>([
    { name: 'a pod that runs', event: podEvent(changed(projectPod(raw()))), expected: undefined },
    {
      name: 'a pod that terminates',
      event: podEvent(changed(projectPod(raw({}, TERMINATING)))),
      expected: { type: 'PodTerminating', at: 5, pod: { uid: 'u-1', name: 'web' } },
    },
    {
      name: 'a pod that is gone',
      event: podEvent(deleted(projectPod(raw({}, { labels: { app: 'web' } })))),
      expected: { type: 'PodDeleted', at: 5, pod: { uid: 'u-1', labels: { app: 'web' } } },
    },
    {
      name: 'a pod that a list no longer names',
      event: podEvent(gone),
      expected: { type: 'PodDeleted', at: 5, pod: identity },
    },
    {
      name: 'a slice',
      event: sliceEvent(changed(projectSlice(raw({ addressType: 'IPv4' })))),
      expected: { type: 'Slice', at: 5, slice: { name: 'web', addressType: 'IPv4' } },
    },
    {
      name: 'a slice that is gone',
      event: sliceEvent(gone),
      expected: { type: 'SliceDeleted', namespace: 'shop', name: 'web' },
    },
    {
      name: 'an Endpoints object',
      event: endpointsEvent(changed(projectEndpoints(raw()))),
      expected: { type: 'Endpoints', at: 5, endpoints: { name: 'web', ready: [] } },
    },
    {
      name: 'Endpoints that are gone',
      event: endpointsEvent(gone),
      expected: { type: 'EndpointsDeleted', at: 5, name: 'web' },
    },
    {
      name: 'a Service',
      event: serviceEvent(changed(projectService(raw({ spec: {} })))),
      expected: { type: 'Service', service: { name: 'web', publishNotReadyAddresses: false } },
    },
    {
      name: 'a Service that is gone',
      event: serviceEvent(gone),
      expected: { type: 'ServiceDeleted', at: 5, name: 'web' },
    },
    {
      name: 'a stream that is current',
      event: streamEvent({ type: 'StreamCurrent', at: 6 }, 'pods'),
      expected: { type: 'StreamCurrent', at: 6, stream: 'pods' },
    },
  ])('$name', ({ event, expected }) => {
    if (expected === undefined) expect(event).toBeUndefined();
    else expect(event).toMatchObject(expected);
  });

  it('makes a sample of a termination and its withdrawal', () => {
    const recorder = new LagRecorder();
    const conditions = { ready: true, serving: true, terminating: false };
    const targetRef = { kind: 'Pod', namespace: 'shop', name: 'web-1', uid: 'p-1' };
    const slice = (endpoints: readonly object[]) =>
      projectSlice(
        raw({ addressType: 'IPv4', endpoints }, { labels: { 'kubernetes.io/service-name': 'web' } }),
      );
    const listing = (stream: Stream, event?: ClusterEvent) => [
      streamEvent({ type: 'ListBegins', at: 1 }, stream),
      ...(event === undefined ? [] : [event]),
      streamEvent({ type: 'ListEnds', at: 2 }, stream),
      streamEvent({ type: 'StreamCurrent', at: 2 }, stream),
    ];
    const pod = projectPod(raw({}, { name: 'web-1', uid: 'p-1', labels: { app: 'web' }, ...TERMINATING }));
    const events = [
      ...listing(
        'services',
        serviceEvent(changed(projectService(raw({ spec: { selector: { app: 'web' } } })))),
      ),
      ...listing(
        'EndpointSlice',
        sliceEvent(changed(slice([{ addresses: ['10.1.0.1'], conditions, targetRef }]))),
      ),
      ...listing('pods'),
      { ...podEvent(changed(pod)), at: 1_000 } as ClusterEvent,
      { ...sliceEvent(changed(slice([]))), at: 1_250 } as ClusterEvent,
    ];
    expect(events.flatMap((event) => recorder.apply(event).stages)).toMatchObject([
      { stage: 'EndpointSlice', namespace: 'shop', name: 'web', lag: 0.25, version: '7' },
    ]);
  });
});
