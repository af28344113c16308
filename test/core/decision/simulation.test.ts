import { beforeAll, describe, expect, it, test } from 'vitest';
import { type SimulatedEvent, type SimulatedWait, simulate } from '../../../src/core/decision/simulation.ts';
import { tableUnder } from '../../docs/markdown.ts';
import { clusterPolicy, consumer, EMPTY_SNAPSHOT, snapshotOf } from './sample-snapshot.ts';
import { BEGIN, DAY, HOUR, STORIES, type Story } from './stories.ts';

/** The removals that an estimate rests on at an instant, counted from scratch: those of 7 days, or of as many as hold 200. */
function removalsAt(events: readonly SimulatedEvent[], now: number): readonly SimulatedEvent[] {
  const within = (days: number) => events.filter(({ at }) => at <= now && at > now - days * DAY);
  for (let days = 7; days < 28; days += 1) if (within(days).length >= 200) return within(days);
  return within(28);
}

const shareWithin = (events: readonly SimulatedEvent[], seconds: number) =>
  events.filter(({ lag }) => lag <= seconds).length / events.length;

const changesOf = (waits: readonly SimulatedWait[]) =>
  waits.filter(({ waitSeconds }, index) => waitSeconds !== waits[index - 1]?.waitSeconds);

const percent = (share: number) => `${(share * 100).toFixed(1)} %`;

/** What bench/results/simulated-weeks.md says of a story. */
function rowOf({ name }: Story, waits: readonly SimulatedWait[], events: readonly SimulatedEvent[]) {
  const inForce = changesOf(waits).map(({ at, waitSeconds }, index) =>
    index === 0 ? `${waitSeconds} s` : `${waitSeconds} s from day ${((at - BEGIN) / DAY).toFixed(1)}`,
  );
  const told = waits.filter(({ coverage }) => coverage !== null);
  const least = told.toSorted((a, b) => (a.coverage ?? 1) - (b.coverage ?? 1))[0];
  const truth = least && shareWithin(removalsAt(events, least.at), least.waitSeconds);
  return {
    story: name,
    waits: inForce.join(', '),
    'least stated coverage': percent(least?.coverage ?? 0),
    'true coverage then': percent(truth ?? 0),
  };
}

describe.each(STORIES)('$name', (story) => {
  let events: readonly SimulatedEvent[] = [];
  let waits: readonly SimulatedWait[] = [];
  beforeAll(() => {
    events = story.events();
    waits = simulate(events, EMPTY_SNAPSHOT, 'shop');
  }, 120_000);

  it('the stated coverage is the true one within half a point', () => {
    const told = waits.filter(({ coverage }) => coverage !== null);
    expect(told.length).toBeGreaterThan(5);
    for (const { at, waitSeconds, coverage } of told) {
      const truth = shareWithin(removalsAt(events, at), waitSeconds);
      expect(Math.abs((coverage ?? 0) - truth)).toBeLessThanOrEqual(0.005);
    }
  });

  it('the wait changes no more often than the story turns', () => {
    // The first is `initial`, the second the first that is measured.
    expect(changesOf(waits).length - 2).toBeLessThanOrEqual(story.turns);
    expect(waits[0]).toMatchObject({ waitSeconds: 30, why: 'initial', coverage: null });
    const measured = waits.findIndex(({ why }) => why !== 'initial');
    expect(waits.slice(measured).every(({ why }) => why !== 'initial')).toBe(true);
  });

  it('is in the docs as it is', () => {
    const table = tableUnder('bench/results/simulated-weeks.md', 'Waits through simulated weeks');
    expect(table.find((row) => row.story === story.name)).toEqual(rowOf(story, waits, events));
  });

  it('there is an entry for each midnight', () => {
    const midnights = waits.filter(({ at }) => at % DAY === 0).map(({ at }) => at);
    const [first, last] = [events[0]!.at, events.at(-1)!.at];
    const expected = Math.floor(last / DAY) - Math.floor(first / DAY);
    expect(midnights).toHaveLength(expected);
  });
});

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
