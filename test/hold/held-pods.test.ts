import { describe, expect, it, onTestFinished } from 'vitest';
import { HeldPods, isStranger } from '../../src/hold/held-pods.ts';
import { followCluster } from '../../src/informers/index.ts';
import { QUICK } from '../cluster/arena.ts';
import { ModelCluster, podObject, sliceObject } from '../cluster/model-cluster.ts';
import { waitUntil } from '../testbed/waiting.ts';
import type { AtEnd } from '../webhook/connection.ts';
import { clock, holdOf } from './arena.ts';

const CONTROLLER = 'endpointslice-controller.k8s.io';
const TOKEN = 'AAAAAAAAAAAAAAAAAAAAAA';
const OWN = '10.0.0.1';

function newPods(): HeldPods {
  return new HeldPods({ clock, wall: Date.now, onChange: () => undefined });
}

describe('the addresses of a pod', () => {
  it.for(['pods', 'endpointslices'] as const)('are known where %s are listed last', async (late) => {
    const model = await ModelCluster.start(onTestFinished as AtEnd);
    const { metadata, ...pod } = podObject('shop', 'web-1');
    const annotations = { 'linger.dev/hold-token': holdOf(TOKEN).hold?.token };
    const creationTimestamp = '2026-11-22T10:00:00Z';
    model.put('pods', { ...pod, metadata: { ...metadata, annotations, creationTimestamp } });
    const { metadata: ofSlice, ...slice } = sliceObject('shop', 'web', 'web-1');
    const labels = { ...(ofSlice.labels as object), 'endpointslice.kubernetes.io/managed-by': CONTROLLER };
    model.put('endpointslices', { ...slice, metadata: { ...ofSlice, labels } });
    let isHeldBack = true;
    model.refuse = (what) => (what === late && isHeldBack ? 503 : undefined);

    const pods = newPods();
    const stopping = new AbortController();
    const { watches, ended } = followCluster(
      { server: model.url, credentials: async () => ({}) },
      {
        onSnapshot: () => undefined,
        onEvent: (event) => pods.observe(event),
        onPod: (event) => pods.apply(event),
        onFailure: () => undefined,
        onCurrent: () => undefined,
        onHandlerError: (_, error) => {
          throw error;
        },
      },
      { signal: stopping.signal, clock, random: Math.random, limits: QUICK },
    );
    onTestFinished(() => {
      stopping.abort();
      return ended;
    });
    const early = late === 'pods' ? 'endpointslices' : 'pods';
    await waitUntil(`${early} to be read`, () => watches[early].current, {
      intervalMs: 5,
      timeoutMs: 30_000,
    });
    isHeldBack = false;
    await waitUntil(`${late} to be read`, () => watches[late].current, { intervalMs: 5, timeoutMs: 30_000 });
    expect(pods.withUid('uid-of-web-1')?.addresses).toEqual([OWN]);
  });

  const put = (pods: HeldPods, namespace = 'shop') => {
    const identity = { namespace, name: 'web-1', uid: 'web-1' };
    const object = {
      ...identity,
      ...holdOf(TOKEN),
      labels: {},
      heartbeat: undefined,
      deletionTimestamp: undefined,
      deletionGracePeriodSeconds: undefined,
    };
    pods.apply({ type: 'modified', listed: true, at: clock(), identity, object });
  };
  const list = (pods: HeldPods, namespace = 'shop', managedBy = CONTROLLER) => {
    const endpoints = [{ targetUid: 'web-1', addresses: [OWN], ready: true }];
    const slice = { namespace, name: 'web-x', addressType: 'IPv4', endpoints, managedBy };
    pods.observe({ type: 'Slice', at: clock(), slice });
  };
  const stream = (pods: HeldPods, type: 'ListEnds' | 'StreamBroken' | 'StreamRotated' | 'StreamCurrent') =>
    pods.observe({ type, at: clock(), stream: 'pods' });

  it.each(['StreamBroken', 'StreamRotated'] as const)(
    'are known where a slice comes first, after %s',
    (interruption) => {
      const pods = newPods();
      stream(pods, 'StreamCurrent');
      stream(pods, interruption);
      list(pods);
      put(pods);
      stream(pods, 'StreamCurrent');
      expect(pods.hasAddress(OWN)).toBe(true);
      const pod = pods.withUid('web-1');
      expect(pod && [OWN, '10.0.0.9'].map((source) => isStranger(pod, source))).toEqual([false, true]);
    },
  );

  it('are known as soon as the list has ended, before the watch is current', () => {
    const pods = newPods();
    list(pods);
    put(pods);
    stream(pods, 'ListEnds');
    expect(pods.hasAddress(OWN)).toBe(true);
  });

  it.each<[string, (pods: HeldPods) => void]>([
    ['of another namespace', (pods) => list(pods, 'other')],
    ['of another writer', (pods) => list(pods, 'shop', 'tenant')],
    [
      'that was deleted meanwhile',
      (pods) => {
        list(pods);
        pods.observe({ type: 'SliceDeleted', at: clock(), namespace: 'shop', name: 'web-x' });
      },
    ],
    [
      'that came while the pods’ stream was current: slices do not pile up',
      (pods) => {
        stream(pods, 'StreamCurrent');
        list(pods);
        stream(pods, 'StreamBroken');
      },
    ],
    [
      'that the pods’ stream has passed since',
      (pods) => {
        list(pods);
        stream(pods, 'StreamCurrent');
        stream(pods, 'StreamBroken');
      },
    ],
  ])('are not taken from a slice %s', (_, listed) => {
    const pods = newPods();
    listed(pods);
    put(pods);
    stream(pods, 'StreamCurrent');
    expect(pods.withUid('web-1')?.addresses).toEqual([]);
  });
});
