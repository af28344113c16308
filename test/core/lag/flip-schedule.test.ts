import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { FlipSchedule, takingPart, troubledEveryMs } from '../../../src/measurement/canary/canary.ts';
import { randomOf } from '../../property/random.ts';

/** A gateway that polls steadily, timed by flips: the phases of its interval at which removals fell, 0 to 1. */
function phases({ intervalMs, everyMs, flips }: { intervalMs: number; everyMs: number; flips: number }) {
  const schedule = new FlipSchedule(randomOf(3));
  const found: number[] = [];
  let next = 0;
  while (found.length < flips) {
    const began = next;
    const phase = (began / intervalMs) % 1;
    found.push(phase);
    const lagMs = intervalMs * (1 - phase);
    schedule.followed(lagMs);
    // It ends just after the gateway has polled, and what makes sure of that.
    next = schedule.next({ began, ended: began + lagMs + 3_000, everyMs });
  }
  return found;
}

describe.each([
  { intervalMs: 10_000, everyMs: 30_000 },
  { intervalMs: 10_000, everyMs: 1_000 },
  { intervalMs: 60_000, everyMs: 30_000 },
  { intervalMs: 2_000, everyMs: 30_000 },
  { intervalMs: 30_000, everyMs: 30_000 },
])('a gateway that polls every $intervalMs ms, flipped every $everyMs', ({ intervalMs, everyMs }) => {
  it('is met evenly: every tenth of its interval gets its share, to a quarter', () => {
    const found = phases({ intervalMs, everyMs, flips: 20_000 });
    for (let tenth = 0; tenth < 10; tenth++) {
      const share = found.filter((phase) => Math.floor(phase * 10) === tenth).length / found.length;
      expect(share).toBeGreaterThan(0.075);
      expect(share).toBeLessThan(0.125);
    }
  });
});

test('flips never overlap, and are as far apart as asked for on average where they are short', () => {
  const schedule = new FlipSchedule(randomOf(4));
  let [began, total] = [0, 0];
  for (let flip = 0; flip < 2_000; flip++) {
    const next = schedule.next({ began, ended: began + 4_000, everyMs: 30_000 });
    expect(next).toBeGreaterThanOrEqual(began + 4_000);
    total += next - began;
    began = next;
  }
  expect(Math.abs(total / 2_000 / 30_000 - 1)).toBeLessThan(0.05);
});

describe('who takes part', () => {
  const turn = (name: string, everyMs: number, triedAt?: number) => ({ name, everyMs, triedAt });

  it.each([
    { what: 'who never has', turns: [turn('a', 30_000)], names: ['a'] },
    { what: 'who has waited for half of its time', turns: [turn('a', 60_000, 70_000)], names: ['a'] },
    { what: 'not who has just had its turn', turns: [turn('a', 60_000, 71_000)], names: [] },
    {
      what: 'the longest waiting first',
      turns: [turn('a', 30_000, 60_000), turn('b', 30_000, 20_000), turn('c', 30_000)],
      names: ['c', 'b', 'a'],
    },
  ])('$what', ({ turns, names }) => {
    expect(takingPart(turns, 100_000, 8).map(({ name }) => name)).toEqual(names);
  });

  it('all get a turn, however many there are', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 40 }), fc.integer({ min: 1, max: 8 }), (count, most) => {
        const turns = Array.from({ length: count }, (_, each) => turn(`c${each}`, 30_000));
        const triedAt = new Map<string, number>();
        for (let now = 0; now < 30_000 * Math.ceil(count / most); now += 30_000) {
          const waiting = turns.map((each) => ({ ...each, triedAt: triedAt.get(each.name) }));
          const part = takingPart(waiting, now, most);
          expect(part.length).toBeLessThanOrEqual(most);
          for (const { name } of part) triedAt.set(name, now);
        }
        expect(triedAt.size).toBe(count);
      }),
    );
  });
});

it('what cannot be timed is tried ever less often, and at least every ten minutes', () => {
  const minutes = [0, 1, 2, 3, 4, 5, 100].map((times) => troubledEveryMs(times) / 60_000);
  expect(minutes).toEqual([0, 1, 2, 4, 8, 10, 10]);
});
