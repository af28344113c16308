import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import {
  BUCKET_ERROR,
  BUCKETS,
  bucketOf,
  LONGEST_SECONDS,
  secondsOf,
} from '../../../src/core/lag/buckets.ts';
import { addTo, coverageOf, type Density, quantileOf, totalOf } from '../../../src/core/lag/distribution.ts';
import { bucketsToText, Histogram, readBuckets } from '../../../src/core/lag/histogram.ts';
import { randomOf } from '../../property/random.ts';
import { exactPercentile, PERCENTILES, SHAPES } from './shapes.ts';

const MILLION = 1_000_000;
const lag = fc.oneof(
  fc.constant(0),
  fc.double({ min: 0, max: 0.002, noNaN: true }),
  fc.double({ min: 0.001, max: LONGEST_SECONDS, noNaN: true }),
  fc.double({ min: -7, max: 8.8, noNaN: true }).map(Math.exp),
);
const lags = fc.array(lag, { maxLength: 60 });

function histogramOf(values: Iterable<number>): Histogram {
  const histogram = new Histogram();
  for (const value of values) histogram.record(value);
  return histogram;
}

function mergedOf(...all: Density[]): Density {
  const merged = new Float64Array(BUCKETS);
  for (const counts of all) addTo(merged, counts);
  return merged;
}

describe('the grid', () => {
  it('stands for every lag from 1 ms to 2 h within its error', () => {
    fc.assert(
      fc.property(fc.double({ min: Math.log(0.001), max: Math.log(7_200), noNaN: true }), (log) => {
        const seconds = Math.max(0.001, Math.exp(log));
        expect(Math.abs(secondsOf(bucketOf(seconds)) - seconds)).toBeLessThanOrEqual(
          seconds * (BUCKET_ERROR + 1e-9),
        );
      }),
    );
  });

  it('is a millisecond off at most below that, and exact for 0', () => {
    expect(secondsOf(bucketOf(0))).toBe(0);
    expect([1e-9, 0.0004, 0.001].map(bucketOf)).toEqual([1, 1, 1]);
    expect(secondsOf(1)).toBe(0.001);
  });

  it('has each value in its own bucket, and whatever is longer in the last', () => {
    for (let bucket = 0; bucket < BUCKETS; bucket += 1) expect(bucketOf(secondsOf(bucket))).toBe(bucket);
    expect(bucketOf(1e9)).toBe(BUCKETS - 1);
    expect(bucketOf(Number.POSITIVE_INFINITY)).toBe(BUCKETS - 1);
  });

  it.each([-1, Number.NaN])('refuses a lag of %s', (seconds) => {
    expect(() => bucketOf(seconds)).toThrow(RangeError);
  });
});

describe('a million lags', () => {
  test.each(Object.entries(SHAPES))('$0: percentiles within two per cent, memory constant', (_, shape) => {
    const random = randomOf(1);
    const exact = Float64Array.from({ length: MILLION }, (__, index) => shape(random, index / MILLION));
    const histogram = new Histogram();
    const bytes = histogram.counts.byteLength;
    for (const value of exact) histogram.record(value);
    exact.sort();
    const errors = PERCENTILES.map((percentile) => {
      const expected = exactPercentile(exact, percentile);
      const found = quantileOf(histogram.counts, percentile);
      return expected === 0 ? found : Math.abs(found / expected - 1);
    });
    expect(Math.max(...errors)).toBeLessThanOrEqual(0.02);
    // In fact one bucket's error.
    expect(Math.max(...errors)).toBeLessThanOrEqual(BUCKET_ERROR + 1e-9);
    expect(histogram.total).toBe(MILLION);
    expect(histogram.counts.byteLength).toBe(bytes);
    expect(bytes).toBe(6_400);
  });
});

describe('merging', () => {
  it('is the histogram of all, in whatever order and grouping', () => {
    fc.assert(
      fc.property(lags, lags, lags, (a, b, c) => {
        const [ha, hb, hc] = [histogramOf(a).counts, histogramOf(b).counts, histogramOf(c).counts];
        const all = histogramOf([...a, ...b, ...c]);
        expect(mergedOf(mergedOf(ha, hb), hc)).toEqual(all.counts);
        expect(mergedOf(ha, mergedOf(hc, hb))).toEqual(all.counts);
        expect(totalOf(mergedOf(ha, hb, hc))).toBe(all.total);
      }),
    );
  });
});

describe('as text', () => {
  it('occupied buckets are written shortly', () => {
    const buckets = new Float64Array(BUCKETS);
    buckets.set([0, 0, 0, 35, 36, 1, 0, 0, 1]);
    expect(bucketsToText(buckets.entries())).toBe('3.z,10,1,3.');
    expect(bucketsToText([])).toBe('');
  });

  it('any histogram is read back', () => {
    fc.assert(
      fc.property(lags, (values) => {
        const { counts } = histogramOf(values);
        const occupied = [...counts.entries()].filter(([, times]) => times > 0);
        expect(readBuckets(bucketsToText(counts.entries()))).toEqual(occupied);
      }),
    );
  });

  test.each<[string, unknown]>([
    ['nothing', undefined],
    ['a number', 3],
    ['no distance', '3,,2'],
    ['a negative number', '-1'],
    ['more buckets than there are', 'm8.'],
    ['a value that is too long', `2.${'z'.repeat(11)}`],
  ])('%s is not read', (_, text) => {
    expect(readBuckets(text)).toBeUndefined();
  });
});

describe('percentiles and coverage are two sides of one step function', () => {
  const some = fc.array(lag, { minLength: 1, maxLength: 60 });
  const percentile = fc.double({ min: 0, max: 100, noNaN: true });

  it('a percentile’s lag covers at least that many, and no shorter lag does', () => {
    fc.assert(
      fc.property(some, percentile, (values, p) => {
        const { counts } = histogramOf(values);
        const seconds = quantileOf(counts, p);
        expect(coverageOf(counts, seconds)).toBeGreaterThanOrEqual(p / 100 - 1e-8);
        if (seconds > 0 && p > 0) {
          expect(coverageOf(counts, seconds * (1 - 1e-9))).toBeLessThan(p / 100 + 1e-8);
        }
      }),
    );
  });

  it('the percentile of what a lag covers is not longer than it', () => {
    fc.assert(
      fc.property(some, lag, (values, seconds) => {
        const { counts } = histogramOf(values);
        const covered = coverageOf(counts, seconds);
        if (covered > 0) expect(quantileOf(counts, covered * 100)).toBeLessThanOrEqual(seconds);
      }),
    );
  });

  it('an empty one has neither', () => {
    expect(() => quantileOf(new Histogram().counts, 50)).toThrow(RangeError);
    expect(() => coverageOf(new Histogram().counts, 1)).toThrow(RangeError);
  });
});
