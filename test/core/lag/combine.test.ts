import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { BUCKET_ERROR, BUCKETS, bucketOf } from '../../../src/core/lag/buckets.ts';
import {
  coverageOf,
  type Density,
  exactly,
  maxOf,
  quantileOf,
  sumOf,
  totalOf,
  uniformUpTo,
} from '../../../src/core/lag/distribution.ts';
import { withWaiting } from '../../../src/core/lag/estimator.ts';
import { Histogram } from '../../../src/core/lag/histogram.ts';
import { randomOf } from '../../property/random.ts';
import { addScaled, exactPercentile, PERCENTILES, SHAPES, type Shape } from './shapes.ts';

function draw(shape: Shape, count: number, seed: number): Float64Array {
  const random = randomOf(seed);
  return Float64Array.from({ length: count }, (_, index) => shape(random, index / count));
}

function densityOf(lags: Iterable<number>): Density {
  const histogram = new Histogram();
  for (const lag of lags) histogram.record(lag);
  return histogram.counts;
}

const COUNT = 100_000;
const { bimodal, 'heavy-tailed': heavy, 'mostly zero': zeros } = SHAPES as Record<string, Shape>;
const poll: Shape = (random) => 10 * random();

const PAIRS: [string, Shape, Shape][] = [
  ['bimodal and polling', bimodal!, poll],
  ['heavy-tailed and mostly zero', heavy!, zeros!],
  ['two alike', bimodal!, bimodal!],
  ['one far shorter than the other', (random) => 0.01 * random(), (random) => 100 + random()],
];

/** The percentile of a combination of the drawn lags may be off by the draw itself: between neighbouring ranks. */
function expectPercentiles(found: Density, drawn: Float64Array, error: number): void {
  drawn.sort();
  for (const percentile of PERCENTILES) {
    const share = percentile / 100;
    // Five standard deviations of an empirical share.
    const noise = 500 * Math.sqrt((share * (1 - share)) / drawn.length) + 100 / drawn.length;
    const low = exactPercentile(drawn, Math.max(0, percentile - noise));
    const high = exactPercentile(drawn, Math.min(100, percentile + noise));
    const value = quantileOf(found, percentile);
    expect(value, `p${percentile}`).toBeGreaterThanOrEqual(low * (1 - error) - 0.002);
    expect(value, `p${percentile}`).toBeLessThanOrEqual(high * (1 + error) + 0.002);
  }
}

describe('one after the other: the sum', () => {
  const error = (1 + BUCKET_ERROR) ** 2 - 1;

  test.each(PAIRS)('%s, against a draw of each', (_, one, other) => {
    const a = draw(one, COUNT, 2);
    const b = draw(other, COUNT, 3);
    const sums = a.map((lag, index) => lag + b[index]!);
    expect(error).toBeLessThan(0.02);
    expectPercentiles(sumOf(densityOf(a), densityOf(b)), sums, error);
  });

  it('is not the sum of the percentiles', () => {
    const slow = densityOf([...Array<number>(990).fill(0.01), ...Array<number>(10).fill(60)]);
    const both = sumOf(slow, slow);
    expect(quantileOf(both, 99)).toBeCloseTo(60, 0);
    expect(2 * quantileOf(slow, 99.1)).toBeGreaterThan(119);
  });

  const someLag = fc.double({ min: 0.001, max: 3_000, noNaN: true });
  it('of two fixed lags is their sum; 0 adds nothing', () => {
    fc.assert(
      fc.property(someLag, someLag, (a, b) => {
        const sum = quantileOf(sumOf(exactly(a), exactly(b)), 50);
        expect(Math.abs(sum / (a + b) - 1)).toBeLessThanOrEqual(error + 1e-9);
        expect(sumOf(exactly(a), exactly(0))).toEqual(exactly(a));
      }),
    );
  });

  it('is the same either way round, and of total 1', () => {
    const [a, b] = [densityOf(draw(heavy!, 500, 4)), densityOf(draw(zeros!, 500, 5))];
    const [one, other] = [sumOf(a, b), sumOf(b, a)];
    expect(totalOf(one)).toBeCloseTo(1, 12);
    one.forEach((weight, bucket) => {
      expect(weight).toBeCloseTo(other[bucket]!, 12);
    });
  });
});

describe('side by side: the maximum', () => {
  test.each(PAIRS)('%s, against a draw of each', (_, one, other) => {
    const a = draw(one, COUNT, 6);
    const b = draw(other, COUNT, 7);
    const slower = a.map((lag, index) => Math.max(lag, b[index]!));
    expectPercentiles(maxOf([densityOf(a), densityOf(b)]), slower, BUCKET_ERROR);
  });

  it('of n alike is their order statistic: P(max ≤ x) = P(one ≤ x)^n', () => {
    const one = uniformUpTo(10);
    for (const n of [1, 2, 5, 20]) {
      const slowest = maxOf(Array<Density>(n).fill(one));
      expect(totalOf(slowest)).toBeCloseTo(1, 12);
      for (const seconds of [0.5, 2, 5, 9]) {
        expect(coverageOf(slowest, seconds)).toBeCloseTo(coverageOf(one, seconds) ** n, 12);
      }
    }
  });

  it('leaves one alone, whatever its total', () => {
    const one = densityOf([1, 1, 2, 3]);
    expect(quantileOf(maxOf([one]), 50)).toBe(quantileOf(one, 50));
    expect(() => maxOf([])).toThrow(RangeError);
  });
});

describe('mixtures and given distributions', () => {
  it('weights count: 1 part to 9', () => {
    const mixed = new Float64Array(BUCKETS);
    addScaled(mixed, exactly(5), 0.1);
    addScaled(mixed, exactly(1), 0.9);
    expect(coverageOf(mixed, 2)).toBeCloseTo(0.9, 12);
  });

  it('polling every 10 s is uniform', () => {
    const polling = uniformUpTo(10);
    expect(totalOf(polling)).toBeCloseTo(1, 12);
    for (const percentile of [5, 25, 50, 75, 95]) {
      expect(Math.abs(quantileOf(polling, percentile) / (percentile / 10) - 1)).toBeLessThan(0.02);
    }
    expect(uniformUpTo(0)).toEqual(exactly(0));
  });
});

describe('with what still waits', () => {
  const none = new Float64Array(BUCKETS);

  it('nothing waiting: what ended', () => {
    const ended = densityOf([1, 2, 2, 9]);
    const density = withWaiting(ended, none)!;
    for (const seconds of [1.01, 2.02, 9.1]) {
      expect(coverageOf(density, seconds)).toBeCloseTo(coverageOf(ended, seconds), 12);
    }
  });

  it('nothing at all: nothing', () => {
    expect(withWaiting(none, none)).toBeUndefined();
  });

  it('only waiting: as long as the oldest, at least', () => {
    expect(quantileOf(withWaiting(none, densityOf([1, 5, 40]))!, 1)).toBeCloseTo(40, 0);
  });

  it('a backlog older than all that ended raises the tail to its age', () => {
    const calm = Array<number>(1_000).fill(0.01);
    const density = withWaiting(densityOf(calm), densityOf(Array<number>(50).fill(20)))!;
    expect(quantileOf(density, 50)).toBeCloseTo(0.01, 3);
    expect(coverageOf(density, 1)).toBeCloseTo(1_000 / 1_050, 12);
    expect(quantileOf(density, 99)).toBeCloseTo(20, 0);
  });

  it('one that has only begun is expected to take as long as the others', () => {
    const density = withWaiting(densityOf([1, 1, 1, 9]), densityOf([0.01]))!;
    expect(coverageOf(density, 2)).toBeCloseTo(0.75, 12);
  });

  it('one that waits takes what those took that were as old: the textbook’s product', () => {
    // At 1 s: 1 of 4 ends. Then one is at 2 s and waits. At 3 s: 1 of 2. At 5 s: the last.
    const density = withWaiting(densityOf([1, 3, 5]), densityOf([2]))!;
    expect(density[bucketOf(1)]).toBeCloseTo(1 / 4, 12);
    expect(density[bucketOf(3)]).toBeCloseTo((3 / 4) * (1 / 2), 12);
    expect(density[bucketOf(5)]).toBeCloseTo(3 / 8, 12);
    expect(density[bucketOf(2)]).toBe(0);
  });

  it('is of total 1, and waiting never makes it shorter', () => {
    const some = fc.array(fc.double({ min: 0, max: 500, noNaN: true }), { minLength: 1, maxLength: 40 });
    fc.assert(
      fc.property(some, some, (ended, ages) => {
        const density = withWaiting(densityOf(ended), densityOf(ages))!;
        expect(totalOf(density)).toBeCloseTo(1, 9);
        const taken = densityOf([...ended, ...ages]);
        for (const p of [10, 50, 90, 99]) {
          expect(quantileOf(density, p)).toBeGreaterThanOrEqual(quantileOf(taken, p));
        }
      }),
    );
  });

  it('recovers the lags of which some were cut off', () => {
    const random = randomOf(9);
    const lags = Array.from({ length: 20_000 }, () => -2 * Math.log(1 - random()));
    const seen = lags.map((lag) => ({ lag, age: 10 * random() }));
    const ended = densityOf(seen.filter(({ lag, age }) => lag <= age).map(({ lag }) => lag));
    const waiting = densityOf(seen.filter(({ lag, age }) => lag > age).map(({ age }) => age));
    const density = withWaiting(ended, waiting)!;
    for (const seconds of [0.5, 2, 5]) {
      expect(coverageOf(density, seconds)).toBeCloseTo(1 - Math.exp(-seconds / 2), 1.6);
    }
  });
});
