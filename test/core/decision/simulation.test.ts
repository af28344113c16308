import { describe, expect, test } from 'vitest';
import { type SimulatedEvent, type SimulatedWait, simulate } from '../../../src/core/decision/simulation.ts';
import { clusterPolicy, consumer, EMPTY_SNAPSHOT, snapshotOf } from './sample-snapshot.ts';
import { BEGIN, changesOf, DAY, HOUR } from './stories.ts';

describe('consumers', () => {
  const calm = (count: number, lag: number, more: Partial<SimulatedEvent> = {}): SimulatedEvent[] =>
    Array.from({ length: count }, (_, each) => ({ at: BEGIN + each * 60, lag, ...more }));
  const merged = (...lists: SimulatedEvent[][]) => lists.flat().toSorted((a, b) => a.at - b.at);
  const last = (waits: readonly SimulatedWait[]) => waits.at(-1)!;
  const twoDays = 2 * 24 * 60;

  test('a control plane at 38 s with a consumer of which nothing is known keeps its 60 s', () => {
    const alone = last(simulate(calm(twoDays, 38), snapshotOf([clusterPolicy({})]), 'shop'));
    const reporting = snapshotOf([clusterPolicy({}), consumer({}, 'edge', { reports: {} })]);
    const unknown = last(simulate(calm(twoDays, 38), reporting, 'shop'));
    expect([alone.waitSeconds, unknown.waitSeconds]).toEqual([60, 60]);
    expect([alone.coverage, unknown.coverage]).toEqual([1, null]);
  });

  test('the canary switched on in a long-measured cluster: never longer than initial, measured from 100 samples on', () => {
    const canary = calm(300, 0.5, { consumer: 'cluster-ip' }).map((each) => ({
      ...each,
      at: each.at + 3 * DAY,
    }));
    const waits = simulate(merged(calm(4 * 24 * 60, 0.2), canary), EMPTY_SNAPSHOT, 'shop');
    expect(changesOf(waits).map(({ waitSeconds }) => waitSeconds)).toEqual([30, 5]);
    expect(changesOf(waits)[1]!.at - canary[0]!.at).toBeLessThanOrEqual(100 * 60 + 600);
  });

  test('kube-proxy at 20 s behind a calm control plane', () => {
    const proxy = calm(twoDays, 20, { consumer: 'cluster-ip' });
    expect(last(simulate(merged(calm(twoDays, 0.2), proxy), EMPTY_SNAPSHOT, 'shop'))).toMatchObject({
      waitSeconds: 35,
      why: 'measured',
    });
  });
});

describe('a namespace', () => {
  test('with 1,000 removals of its own is decided by them', () => {
    const events = Array.from({ length: 4_000 }, (_, each) => ({
      at: BEGIN + each * 60,
      lag: each % 2 === 0 ? 9 : 0.2,
      namespace: each % 2 === 0 ? 'shop' : 'quiet',
    }));
    const last = (namespace: string) => simulate(events, EMPTY_SNAPSHOT, namespace).at(-1)!.waitSeconds;
    expect([last('shop'), last('quiet'), last('other')]).toEqual([15, 5, 15]);
  });
});

describe('a clock', () => {
  test('that is set ten days ahead for an hour changes no wait', () => {
    const steady = Array.from({ length: 12 * 24 * 12 }, (_, each) => ({ at: BEGIN + each * 300, lag: 4.5 }));
    const ahead = steady.map((event) => {
      const since = event.at - BEGIN - 8 * DAY;
      return since >= 0 && since < HOUR ? { ...event, at: event.at + 10 * DAY } : event;
    });
    const waits = changesOf(simulate(ahead, EMPTY_SNAPSHOT, 'shop'));
    expect(waits.map(({ waitSeconds }) => waitSeconds)).toEqual([30, 10]);
  });
});

test('enough history counts at once, between two ticks', () => {
  const events = Array.from({ length: 24 * 60 + 5 }, (_, each) => ({ at: BEGIN + 30 + each * 60, lag: 0.2 }));
  const [, measured] = changesOf(simulate(events, EMPTY_SNAPSHOT, 'shop'));
  expect(measured).toMatchObject({ at: BEGIN + 30 + DAY, why: 'measured' });
});

test('nothing happens without events', () => {
  expect(simulate([], EMPTY_SNAPSHOT, 'shop')).toEqual([]);
});
