import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { coverageOf, quantileOf } from '../../../src/core/lag/combine.ts';
import { CELL_ERROR } from '../../../src/core/lag/grid.ts';
import { BLOCK_WIDTHS, CAP, capOf, LagHistory, SLICE_SECONDS, SLICES } from '../../../src/core/lag/slices.ts';
import { runs } from '../../property/runs.ts';
import { exactPercentile, PERCENTILES, randomNumbers, SHAPES } from './shapes.ts';

/** The first instant of a day. */
const START = 20_000 * 86_400;
const WEEK = SLICES * SLICE_SECONDS;
const at = (slice: number, within = 1) => START + slice * SLICE_SECONDS + within;

/** `lags(slice)` gives the lags of each slice. */
function historyOf(slices: number, lags: (slice: number) => Iterable<number>): LagHistory {
  const history = new LagHistory();
  for (let slice = 0; slice < slices; slice += 1) {
    for (const lag of lags(slice)) history.record(lag, at(slice));
  }
  return history;
}

const times = (count: number, lag: number) => Array<number>(count).fill(lag);
const p = (history: LagHistory, percentile: number, now = at(SLICES - 1)) =>
  quantileOf(history.weighed(now)!.density, percentile);

describe('the cap is a multiple of the median of the slices that have lags', () => {
  const among = (count: number) => times(count, 10);
  test.each<[string, number[], number]>([
    ['four in a week', among(SLICES), 40],
    ['two in half a week', among(SLICES / 2), 20],
    ['one in a quarter', among(SLICES / 4), 10],
    ['one in less', [10, 10, 10], 10],
    ['empty slices do not count', [0, 0, 0, 0, 10, 0, 10, 10], 10],
    ['of an even number the lower', [1, 2, 3, 100], 2],
    ['a storm does not lift it', [...among(SLICES - 1), 100_000], 40],
    ['nothing at all', [], 0],
  ])('%s', (_, totals, cap) => {
    expect(capOf(totals)).toBe(cap);
  });

  it('a cluster that is quiet for most of the week keeps what it measured', () => {
    const officeHours = historyOf(SLICES, (slice) => (slice % 96 < 32 ? times(20, 0.1) : []));
    expect(officeHours.weighed(at(SLICES - 1))).toMatchObject({ samples: 7 * 32 * 20 });
    expect(p(officeHours, 50)).toBeCloseTo(0.1, 2);
  });
});

describe('one storm cannot outvote a week', () => {
  const calmLag = (random: () => number) => 0.02 + 0.08 * random();

  it('a storm of 13,000 in one slice of a steady week stays beyond p99', () => {
    const random = randomNumbers(11);
    const history = historyOf(SLICES, (slice) =>
      slice === 300
        ? Array.from({ length: 13_000 }, () => 650 * random())
        : Array.from({ length: 40 }, () => calmLag(random)),
    );
    const { density, samples } = history.weighed(at(SLICES - 1))!;
    expect(samples).toBe(671 * 40 + 13_000);
    // 4 ÷ (4 + 671) of the weight; uncapped it were a third.
    expect(1 - coverageOf(density, 0.11)).toBeCloseTo(CAP / (CAP + 671), 3);
    expect(quantileOf(density, 99)).toBeLessThan(0.11);
    expect(quantileOf(density, 99.9)).toBeGreaterThan(400);
  });

  it.each([
    ['two days', (slice: number) => slice < 192],
    ['a day and a half', (slice: number) => slice < 144],
    ['a week of office hours', (slice: number) => slice % 96 < 32],
  ])('nor %s', (_, busy) => {
    const random = randomNumbers(13);
    const history = historyOf(SLICES, (slice) => {
      if (slice === 100) return Array.from({ length: 2_000 }, () => 98 * random());
      return busy(slice) ? Array.from({ length: 15 }, () => calmLag(random)) : [];
    });
    expect(quantileOf(history.weighed(at(SLICES - 1))!.density, 99)).toBeLessThan(0.11);
  });

  it('k storm slices never hold more than the bound: ck ÷ (ck + ⌈(N + 1) ÷ 2⌉ − k)', () => {
    const sizes = fc.array(fc.nat({ max: 60 }), { minLength: 20, maxLength: 80 });
    fc.assert(
      fc.property(sizes, fc.integer({ min: 1, max: 4 }), (calm, k) => {
        const totals = [...calm, ...times(k, 5_000)];
        const history = historyOf(totals.length, (slice) =>
          times(totals[slice]!, slice < calm.length ? 0.1 : 600),
        );
        const n = totals.filter((total) => total > 0).length;
        const half = Math.ceil((n + 1) / 2);
        const multiple = Math.max(1, (CAP * n) / SLICES);
        fc.pre(half > k);
        const { density } = history.weighed(at(totals.length))!;
        const share = 1 - coverageOf(density, 1);
        expect(share).toBeLessThanOrEqual((multiple * k) / (multiple * k + half - k) + 1e-9);
      }),
      runs(60),
    );
  });

  it('with a storm share s, p99 lies between the calm p99 and the calm p(99 ÷ (1 − s))', () => {
    const random = randomNumbers(12);
    const calm: number[] = [];
    const history = historyOf(SLICES, (slice) => {
      if (slice === 300) return times(5_000, 600);
      const lags = Array.from({ length: 20 }, () => calmLag(random));
      calm.push(...lags);
      return lags;
    });
    calm.sort((a, b) => a - b);
    const storm = CAP / (CAP + 671);
    const high = exactPercentile(calm, 99 / (1 - storm));
    expect(p(history, 99)).toBeGreaterThanOrEqual(exactPercentile(calm, 99) * (1 - CELL_ERROR));
    expect(p(history, 99)).toBeLessThanOrEqual(high * (1 + CELL_ERROR));
  });
});

describe('a million lags over a week', () => {
  const perSlice = Math.floor(1_000_000 / SLICES);
  const record = (name: string, history: LagHistory) => {
    const random = randomNumbers(21);
    const exact: number[] = [];
    for (let index = 0; index < perSlice * SLICES; index += 1) {
      const lag = SHAPES[name]!(random, index / (perSlice * SLICES));
      exact.push(lag);
      history.record(lag, at(Math.floor(index / perSlice)));
    }
    return Float64Array.from(exact).sort();
  };

  test.each(Object.keys(SHAPES))('%s: percentiles within two per cent', (name) => {
    const history = new LagHistory();
    const exact = record(name, history);
    for (const percentile of PERCENTILES) {
      const expected = exactPercentile(exact, percentile);
      const found = p(history, percentile);
      expect(Math.abs(found - expected)).toBeLessThanOrEqual(0.02 * expected);
    }
    // A row of at most 4 bytes for each of some hundred occupied cells of each slice.
    expect(history.bytes).toBeLessThan(2_000_000);
  });

  it('ten times as many lags need no more memory once their cells are occupied', () => {
    const [few, many] = [1, 10].map((factor) =>
      historyOf(SLICES, () => Array.from({ length: 200 * factor }, (_, index) => 0.01 * (1 + (index % 200)))),
    );
    expect(many!.bytes).toBe(few!.bytes);
  });
});

describe('time', () => {
  it('what is older than 7 days is forgotten', () => {
    const history = historyOf(1, () => times(10, 5));
    expect(history.weighed(at(SLICES - 1))?.samples).toBe(10);
    expect(history.weighed(at(SLICES))).toBeUndefined();
  });

  it('however long it runs, it holds 7 days', () => {
    const history = historyOf(3 * SLICES, () => [0.1, 0.2]);
    expect(history.weighed(at(3 * SLICES - 1))?.samples).toBe(2 * SLICES);
  });

  it('tells how far back the lags reach, and when the last came', () => {
    const history = new LagHistory();
    history.record(1, START + 100);
    history.record(1, START + 5_000);
    expect(history.weighed(START + 6_000)).toMatchObject({ historySeconds: 5_900, latest: START + 5_000 });
  });

  it('a clock that is set back does no harm', () => {
    const history = historyOf(3, () => [1]);
    history.record(1, at(0));
    expect(history.weighed(at(3))?.samples).toBe(4);
  });
});

const someLags = fc.array(
  fc.record({ slice: fc.nat({ max: 300 }), lag: fc.double({ min: 0, max: 900, noNaN: true }) }),
  { maxLength: 60 },
);
function historyFrom(lags: readonly { slice: number; lag: number }[]): LagHistory {
  const history = new LagHistory();
  for (const { slice, lag } of lags.toSorted((a, b) => a.slice - b.slice)) history.record(lag, at(slice));
  return history;
}
const copyOf = (history: LagHistory) => LagHistory.parse(JSON.parse(JSON.stringify(history)))!;
const mergedOf = (...histories: LagHistory[]) => {
  const all = new LagHistory();
  for (const history of histories) all.merge(history);
  return JSON.stringify(all);
};

describe('merging and writing down', () => {
  it('merging is the history of all lags, in whatever order and grouping', () => {
    fc.assert(
      fc.property(someLags, someLags, someLags, (a, b, c) => {
        const all = JSON.stringify(historyFrom([...a, ...b, ...c]));
        const [ha, hb, hc] = [a, b, c].map(historyFrom) as [LagHistory, LagHistory, LagHistory];
        expect(mergedOf(ha, hb, hc)).toBe(all);
        expect(mergedOf(hc, ha, hb)).toBe(all);
        ha.merge(hb);
        expect(mergedOf(hc, ha)).toBe(all);
      }),
    );
  });

  it('written and read, nothing is lost, and it goes on', () => {
    fc.assert(
      fc.property(someLags, someLags, (before, after) => {
        const history = historyFrom(before);
        const read = copyOf(history);
        expect(read.weighed(at(300))).toEqual(history.weighed(at(300)));
        for (const { slice, lag } of after) {
          history.record(lag, at(300 + slice));
          read.record(lag, at(300 + slice));
        }
        const now = at(600);
        expect(read.weighed(now)?.samples).toBe(history.weighed(now)?.samples);
      }),
    );
  });

  test.each<[string, unknown]>([
    ['another version', { v: 2, latest: null, slots: [] }],
    ['no rows', { v: 1, latest: null }],
    ['a row of an unknown width', { v: 1, latest: 1, slots: [[0, 0, 3, '1', 1, '1']] }],
    ['a row that does not begin with its block', { v: 1, latest: 1, slots: [[2, 0, 4, '1', 1, '1']] }],
    ['a row without weight', { v: 1, latest: 1, slots: [[0, 0, 1, '1', 1, '']] }],
    ['rows without an end', { v: 1, latest: 1, slots: Array(5_000).fill([0, 0, 1, '1', 1, '1']) }],
    ['nothing', null],
  ])('%s is not read', (_, json) => {
    expect(LagHistory.parse(json)).toBeUndefined();
  });
});

describe('blocks of slices, for a snapshot', () => {
  const random = randomNumbers(31);
  const now = at(SLICES - 1);
  const history = historyOf(SLICES, (slice) => {
    if (slice === 300) return Array.from({ length: 9_000 }, () => 650 * random());
    return Array.from({ length: slice % 7 === 0 ? 200 : 30 }, () => SHAPES.bimodal!(random, 0));
  });

  test.each(BLOCK_WIDTHS)('of %s slices keep p50 and p99 within two per cent', (width) => {
    const read = copyOf(history.coarsened(width, now));
    for (const percentile of [50, 90, 99, 99.5]) {
      expect(Math.abs(p(read, percentile, now) / p(history, percentile, now) - 1)).toBeLessThan(0.02);
    }
    expect(read.weighed(now)).toMatchObject({
      samples: history.weighed(now)!.samples,
      historySeconds: history.weighed(now)!.historySeconds,
    });
  });

  it('are smaller the wider they are', () => {
    const sizes = BLOCK_WIDTHS.map((width) => JSON.stringify(history.coarsened(width, now)).length);
    expect(sizes).toEqual(sizes.toSorted((a, b) => b - a));
    expect(sizes.at(-1)).toBeLessThan(20_000);
  });

  it('expire as a whole, and can be widened further', () => {
    const coarse = history.coarsened(4, now).coarsened(96, now);
    expect(p(coarse, 99, now) / p(history, 99, now)).toBeCloseTo(1, 1.7);
    expect(coarse.weighed(now + WEEK - 86_400)).toBeDefined();
    expect(coarse.weighed(now + WEEK + 1)).toBeUndefined();
  });
});
