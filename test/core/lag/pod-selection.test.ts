import { describe, expect, it } from 'vitest';
import { parseLabelQuery } from '../../../src/core/api/index.ts';

import { ChangeObserver, PodSelection } from '../../../src/core/lag/endpoint-changes.ts';
import type { ClusterEvent } from '../../../src/core/lag/events.ts';
import { deleted, endpoints, marker, service, short, slice, synced, terminating } from './endpoints.ts';

const selection = (query = 'app=web') => new PodSelection(parseLabelQuery(query) ?? {});

describe('a selection of pods', () => {
  it('knows which pods have the labels, which do not, and which are unknown', () => {
    const pods = selection();
    expect(pods.any).toBe(false);
    pods.put('b', { app: 'api' });
    pods.put('c');
    expect(pods.any).toBe(false);
    pods.put('a', { app: 'web', tier: 'front' });
    expect(['a', 'b', 'c', 'd'].map((uid) => pods.has(uid))).toEqual([true, false, false, undefined]);
    expect(pods.any).toBe(true);
  });

  it('takes in a pod that gets the labels, and keeps one that loses them', () => {
    const pods = selection();
    for (const app of ['api', 'web', 'quarantine']) pods.put('a', { app });
    expect(pods.has('a')).toBe(true);
  });

  it('remembers those that are gone, but not for ever', () => {
    const pods = selection();
    pods.delete('never seen');
    for (let index = 0; index < 60_000; index += 1) {
      pods.put(`pod-${index}`, { app: 'web' });
      pods.delete(`pod-${index}`);
    }
    pods.put('there', { app: 'web' });
    expect([pods.has('pod-59999'), pods.has('pod-10000'), pods.has('pod-9999')]).toEqual([
      true,
      true,
      undefined,
    ]);
  });
});

/** An observer of the pods a and b, of which the first is selected. */
function observing(...events: readonly ClusterEvent[]) {
  const pods = selection();
  pods.put('uid-a', { app: 'web' });
  pods.put('uid-b', { app: 'api' });
  const observer = new ChangeObserver({ initial: false, pods });
  const apply = (...more: readonly ClusterEvent[]) => {
    for (const event of more) observer.apply(event);
  };
  apply(...synced(slice(0, { a: 'ready', b: 'ready' }), endpoints(0, 'ab')), ...events);
  return { pods, observer, apply, taken: (now: number) => observer.take(now).map(short) };
}

/** The pods c and d, one after the other. */
const newcomers = [
  slice(1_000, { a: 'ready', b: 'ready', c: 'notReady' }),
  slice(1_100, { a: 'ready', b: 'ready', c: 'notReady', d: 'notReady' }),
];

describe('an observer of selected pods', () => {
  it('tells their changes, with their lags, and none of others', () => {
    const { taken } = observing(
      terminating(1_000, 'b'),
      terminating(1_000, 'a'),
      slice(1_040, { a: 'terminating', b: 'terminating' }),
      endpoints(1_300, ''),
    );
    expect(taken(2_000)).toEqual(['slice terminating a 0.04', 'endpoints removed a 0.3']);
  });

  it('tells what waits of them alone', () => {
    const { observer } = observing(terminating(1_000, 'b'), terminating(1_500, 'a'));
    expect([...observer.unresolved()].map(({ stage, pod, since }) => `${stage} ${pod} ${since}`)).toEqual([
      'EndpointSlice a 1500',
      'Endpoints a 1500',
    ]);
  });

  it('tells the withdrawal of one that is gone', () => {
    const { pods, apply, taken } = observing(terminating(1_000, 'a'), deleted(2_000, 'a'));
    pods.delete('uid-a');
    apply(slice(31_000, { b: 'ready' }));
    expect(taken(31_000)).toEqual(['slice removed a 30']);
  });

  it('tells nothing of addresses that are no pod’s', () => {
    const { taken } = observing({
      type: 'Endpoints',
      at: 1_000,
      endpoints: {
        namespace: 'shop',
        name: 'legacy',
        ready: [{ ip: '192.0.2.1' }],
        notReady: [],
        overCapacity: false,
      } as never,
    });
    expect(taken(1_000)).toEqual([]);
  });

  it('waits a moment for a pod that is not known yet, and what comes behind it does, too', () => {
    const { pods, taken } = observing(...newcomers);
    pods.put('uid-d', { app: 'web' });
    expect(taken(1_250)).toEqual([]);
    pods.put('uid-c', { app: 'web' });
    expect(taken(1_250)).toEqual(['slice added c', 'slice added d']);
  });

  it('does not wait for a pod that never shows', () => {
    const { pods, taken } = observing(...newcomers);
    pods.put('uid-d', { app: 'web' });
    expect(taken(1_250)).toEqual([]);
    expect(taken(1_251)).toEqual(['slice added d']);
    pods.put('uid-c', { app: 'web' });
    expect(taken(9_000)).toEqual([]);
  });

  it('waits longer while the pods’ stream is interrupted, though not for ever', () => {
    const { pods, apply, taken } = observing(
      marker(500, 'StreamBroken', 'pods'),
      slice(1_000, { a: 'ready', b: 'ready', c: 'notReady' }),
    );
    expect(taken(60_000)).toEqual([]);
    pods.put('uid-c', { app: 'web' });
    apply(marker(60_100, 'StreamCurrent', 'pods'), slice(60_200, { a: 'ready', b: 'ready', c: 'ready' }));
    expect(taken(60_200)).toEqual(['slice added c', 'slice ready c']);
    apply(
      marker(60_300, 'StreamBroken', 'pods'),
      slice(60_400, { a: 'ready', b: 'ready', c: 'ready', d: 'ready' }),
      slice(60_500, { a: 'ready', b: 'ready', c: 'ready', d: 'ready', e: 'notReady' }),
    );
    pods.put('uid-e', { app: 'web' });
    expect(taken(120_400)).toEqual([]);
    expect(taken(120_401)).toEqual(['slice added e']);
  });

  it('tells nothing before the pods are listed, and nothing of unknown ones at the end', () => {
    const pods = selection();
    const observer = new ChangeObserver({ initial: true, pods });
    const early = synced(slice(0, { a: 'ready', b: 'ready' })).filter(
      (event) => !('stream' in event && event.stream === 'pods'),
    );
    for (const event of early) observer.apply(event);
    expect(observer.take(300_000)).toEqual([]);
    pods.put('uid-a', { app: 'web' });
    expect(observer.takeAll().map(short)).toEqual(['slice added a initial', 'slice ready a initial']);
    expect(observer.takeAll()).toEqual([]);
  });

  it('tells everything where nothing is selected', () => {
    const observer = new ChangeObserver({ initial: true });
    for (const event of [service, slice(0, { a: 'ready' })]) observer.apply(event);
    expect(observer.take(0).map(short)).toEqual(['slice added a initial', 'slice ready a initial']);
  });
});
