import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { coverageOf, quantileOf } from '../../../src/core/lag/distribution.ts';
import { LagHistory } from '../../../src/core/lag/lag-history.ts';
import { historyOf, START } from './sample-table.ts';

const SLICE = 900;
const HOUR = 3_600;
const DAY = 24 * HOUR;

function add(history: LagHistory, seconds: number, count: number, from: number, to: number): void {
  for (let each = 0; each < count; each += 1) {
    history.record(seconds, from + ((to - from) * (each + 0.5)) / count);
  }
}

const samplesIn = (history: LagHistory, now: number, minSamples = 200) =>
  history.window(now, minSamples)?.samples ?? 0;

describe('the window', () => {
  it('is the last 7 days, each lag counted once', () => {
    const history = new LagHistory();
    add(history, 1, 1_000, START - 8 * DAY, START - 7 * DAY);
    add(history, 50, 2_000, START - 2 * DAY, START - 2 * DAY + 60);
    add(history, 1, 7_000, START - 7 * DAY, START);
    const { samples, counts } = history.window(START, 200)!;
    expect(samples).toBe(9_000);
    expect(coverageOf(counts, 5)).toBeCloseTo(7 / 9, 9);
  });

  test.each([
    ['7 days that hold enough', 200, 210],
    ['9 days, if it takes them', 300, 300],
    ['28 days at most', 9_000, 840],
  ])('of a quiet cluster is %s', (_, minSamples, samples) => {
    const history = new LagHistory();
    // 30 a day, on the hour.
    for (let day = 40; day > 0; day -= 1) {
      for (let each = 0; each < 30; each += 1) history.record(1, START - day * DAY + each * 2_700);
    }
    const days = samples / 30;
    expect(samplesIn(history, START, minSamples)).toBe(samples === 300 ? 10 * 30 : days * 30);
  });

  it('of nine quiet days and then one removal reaches back over them', () => {
    const history = historyOf([1], 1_000);
    history.record(1, START + 9 * DAY);
    expect(samplesIn(history, START + 9 * DAY)).toBeGreaterThan(200);
  });

  it('is nothing without lags', () => {
    expect(new LagHistory().window(START, 200)).toBeUndefined();
    expect([...new LagHistory().windows(START, 200)]).toEqual([]);
  });

  it('as of each of the last 24 hours is what a window then was', () => {
    const lag = fc.tuple(fc.integer({ min: 0, max: 9 * DAY - 1 }), fc.constantFrom(0.1, 1, 20));
    fc.assert(
      fc.property(fc.array(lag, { minLength: 1, maxLength: 80 }), (lags) => {
        const history = new LagHistory();
        for (const [at, seconds] of lags) history.record(seconds, START + at);
        for (const { at, samples, counts } of history.windows(START + 9 * DAY, 5)) {
          const then = new LagHistory();
          for (const [ended, seconds] of lags) if (START + ended < at) then.record(seconds, START + ended);
          const expected = then.window(at, 5);
          expect([samples, quantileOf(counts, 99)]).toEqual([
            expected?.samples,
            expected && quantileOf(expected.counts, 99),
          ]);
        }
      }),
      { numRuns: 60 },
    );
  });
});

describe('how much history has been reached', () => {
  it('only grows', () => {
    const history = historyOf([1], 500, START, 2 * DAY);
    expect(history.reached(START)).toEqual({ samples: 500, seconds: 2 * DAY });
    expect(history.reached(START - DAY)).toEqual({ samples: 500, seconds: 2 * DAY });
    history.forget(0, START);
    expect(history.samples).toBe(0);
    expect(history.reached(START)).toMatchObject({ samples: 500 });
  });

  it('survives a restart', () => {
    const text = historyOf([1], 500, START, 2 * DAY)
      .parts('cluster', START)[0]!
      .text(1e6);
    const { history } = LagHistory.readPart(JSON.parse(text))!;
    expect(history.reached(START)).toEqual({ samples: 500, seconds: 2 * DAY });
  });
});

/** What a process restores, by its clock, of what another has stored. */
function restoredAt(now: number, history: LagHistory, storedAt: number): LagHistory {
  const restored = new LagHistory();
  for (const part of history.parts('cluster', storedAt))
    restored.merge(LagHistory.readPart(JSON.parse(part.text(1e6)))!.history, now);
  return restored;
}

describe('a clock that is set wrong', () => {
  const week = () => historyOf([1], 10_000, START, 7 * DAY);

  it.each([10, -10, 400, -400])('by %d days, and right again an hour later, erases nothing', (days) => {
    const history = week();
    add(history, 1, 60, START + days * DAY, START + days * DAY + HOUR);
    expect(samplesIn(history, START + days * DAY + HOUR)).toBeGreaterThan(0);
    add(history, 1, 60, START + HOUR, START + 2 * HOUR);
    expect(samplesIn(history, START + 2 * HOUR)).toBeGreaterThan(9_800);
  });

  it('set ahead for good: what was measured before counts until there is enough of late', () => {
    const history = week();
    const later = START + 10 * DAY;
    add(history, 1, 199, later, later + HOUR);
    expect(samplesIn(history, later + HOUR)).toBeGreaterThan(1_400);
    add(history, 1, 10, later + HOUR, later + HOUR + 60);
    expect(samplesIn(history, later + HOUR + 60)).toBe(209);
    expect(history.reached(later + 2 * HOUR).samples).toBeGreaterThanOrEqual(10_000);
  });

  it.each([40, 400])('by %d days at a start: the week counts until there is enough by that clock', (days) => {
    const later = START + days * DAY;
    const leader = restoredAt(later, week(), START);
    add(leader, 30, 60, later, later + HOUR);
    expect(samplesIn(leader, later + HOUR)).toBeGreaterThan(1_300);
    const next = restoredAt(START + HOUR, leader, later + HOUR);
    expect(samplesIn(next, START + HOUR)).toBeGreaterThan(9_800);
  });

  it.each([400, -400])('by %d days at a start adds no time to what was reached', (days) => {
    const there = START + days * DAY;
    const leader = restoredAt(there, historyOf([1], 50, START, HOUR), START);
    add(leader, 1, 50, there, there + HOUR);
    const next = restoredAt(START + HOUR, leader, there + HOUR);
    expect(Math.round(next.reached(START + 2 * HOUR).seconds / HOUR)).toBe(3);
  });

  it('far behind at a start: neither the week nor having had it counts', () => {
    const leader = restoredAt(START - 400 * DAY, week(), START);
    expect([leader.samples, leader.reached(START - 400 * DAY).samples]).toEqual([0, 0]);
  });
});

describe('memory', () => {
  it('is bounded, and a busy cluster keeps no more than it needs', () => {
    const history = new LagHistory();
    for (let at = 0; at < 40 * DAY; at += 60) history.record(0.01 * (1 + (at % 97)), START + at);
    // 800 slices of 15 lags each, and the open one.
    expect(history.samples).toBeLessThanOrEqual(801 * 15);
    expect(history.samples).toBeGreaterThan(8 * 1_440);
  });
});

describe('forgetting', () => {
  it('takes out whole slices that the span touches, and says how many lags', () => {
    const history = historyOf([1], 960, START, 10 * DAY);
    add(history, 60, 500, START - 5 * DAY, START - 5 * DAY + 60);
    expect(history.forget(START - 5 * DAY + 10, START - 5 * DAY + 20)).toBe(501);
    expect(history.forget(START - 5 * DAY + 10, START - 5 * DAY + 20)).toBe(0);
    expect(quantileOf(history.window(START, 200)!.counts, 100)).toBeCloseTo(1, 1);
  });
});

describe('episodes', () => {
  const listed = (history: LagHistory) =>
    [...history.episodes(START, 200)].map(({ from, to, removals }) => [from - START, to - START, removals]);

  it('are short times with a large part of the long lags', () => {
    const history = historyOf([0.2], 10_080, START - 1, 7 * DAY);
    add(history, 40, 2_000, START - 3 * DAY, START - 3 * DAY + 60);
    const [episode, ...others] = history.episodes(START, 200);
    expect(others).toEqual([]);
    expect(episode).toMatchObject({ from: START - 3 * DAY, to: START - 3 * DAY + SLICE });
    expect(episode!.removals).toBeGreaterThanOrEqual(2_014);
    expect(episode!.share).toBeCloseTo(2_015 / 12_080, 3);
    expect(episode!.p99Seconds).toBeCloseTo(40, -1);
    expect(episode!.p99WithoutSeconds).toBeCloseTo(0.2, 2);
  });

  it('are none where all is alike, and none where nothing would be left', () => {
    expect(listed(historyOf([0.2, 9], 10_080, START, 7 * DAY))).toEqual([]);
    const monday = new LagHistory();
    add(monday, 9, 300, START - 4 * DAY, START - 4 * DAY + HOUR);
    expect(listed(monday)).toEqual([]);
  });

  it('are neither short times with few of the long lags, nor long times with many', () => {
    const brief = historyOf([0.2], 10_080, START - 1, 7 * DAY);
    add(brief, 40, 2_000, START - 3 * DAY, START - 3 * DAY + 60);
    add(brief, 40, 100, START - 5 * DAY, START - 5 * DAY + 60);
    expect(listed(brief).map(([from]) => from)).toEqual([-3 * DAY]);
    const lasting = historyOf([0.2], 10_080, START - 1, 7 * DAY);
    add(lasting, 40, 2_000, START - 3 * DAY, START - 2 * DAY + HOUR);
    expect(listed(lasting)).toEqual([]);
  });

  it('are listed, the heaviest first, where there are several', () => {
    const history = historyOf([0.2], 10_080, START - 1, 7 * DAY);
    add(history, 40, 300, START - 3 * DAY, START - 3 * DAY + 60);
    add(history, 40, 500, START - 2 * DAY, START - 2 * DAY + 60);
    expect([...history.episodes(START, 200)].map(({ from }) => from - START)).toEqual([-2 * DAY, -3 * DAY]);
  });
});

describe('a part as text', () => {
  const busy = () => {
    const history = new LagHistory();
    for (let n = 0; n < 60_000; n += 1) {
      history.record(0.01 * (1 + ((n * 7_919) % 1_000)), START - 7 * DAY + n * 10);
    }
    return history;
  };

  it.each([500_000, 100_000, 30_000, 12_000])('of at most %d characters loses no lag', (characters) => {
    const history = busy();
    const read = new LagHistory();
    const texts = history.parts('cluster', START).map((part) => part.text(characters));
    expect(texts.join('').length).toBeLessThanOrEqual(characters);
    for (const text of texts) {
      const part = LagHistory.readPart(JSON.parse(text))!;
      expect(part.key).toBe('cluster');
      read.merge(part.history, START);
    }
    expect(read.samples).toBe(history.samples);
    expect(read.latest).toBe(history.latest);
    expect(quantileOf(read.window(START, 200)!.counts, 99)).toBe(
      quantileOf(history.window(START, 200)!.counts, 99),
    );
  });

  it('without a slot, an instant or a count that can be read, keeps the rest', () => {
    const [part] = historyOf([1], 2_000, START, 7_200).parts('cluster', START);
    const json = JSON.parse(part!.text(1e6));
    const samples = LagHistory.readPart(json)!.history.samples;
    const [first, ...slots] = json.slots;
    const spoilt = {
      ...json,
      latest: null,
      reached: { samples: null },
      slots: [[null, 1, '5'], ...slots],
    };
    const { history } = LagHistory.readPart(spoilt)!;
    expect(history.samples).toBeGreaterThan(0);
    expect(history.samples).toBe(samples - LagHistory.readPart({ ...json, slots: [first] })!.history.samples);
    expect(Number.isFinite(history.latest)).toBe(true);
    expect(LagHistory.readPart({ ...json, slots: [null] })).toBeUndefined();
  });

  it('goes on where it was: lags of the same slice are added to it', () => {
    const text = historyOf([1], 10, START + 60, 60)
      .parts('cluster', START + 60)[0]!
      .text(1e6);
    const { history } = LagHistory.readPart(JSON.parse(text))!;
    history.record(1, START + 70);
    history.record(1, START + DAY);
    expect(history.samples).toBe(12);
  });
});
