import { beforeAll, describe, expect, it } from 'vitest';
import { type SimulatedEvent, type SimulatedWait, simulate } from '../../../src/core/decision/simulation.ts';
import { tableUnder } from '../../docs/markdown.ts';
import { EMPTY_SNAPSHOT } from './sample-snapshot.ts';
import { BEGIN, changesOf, DAY, STORIES, type Story } from './stories.ts';

/** The removals that an estimate rests on at an instant, counted from scratch: those of 7 days, or of as many as hold 200. */
function removalsAt(events: readonly SimulatedEvent[], now: number): readonly SimulatedEvent[] {
  const within = (days: number) => events.filter(({ at }) => at <= now && at > now - days * DAY);
  for (let days = 7; days < 28; days += 1) if (within(days).length >= 200) return within(days);
  return within(28);
}

const shareWithin = (events: readonly SimulatedEvent[], seconds: number) =>
  events.filter(({ lag }) => lag <= seconds).length / events.length;

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
