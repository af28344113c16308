import { BUCKETS, bucketOf, lastBucketWithin, secondsOf, sumCell } from './buckets.ts';
import type { EndpointSource } from './events.ts';

/**
 * A distribution of lags: weights ≥ 0 by bucket, with any total. Percentiles cannot be added; distributions can
 * be summed, maximised and mixed, and then asked for percentiles.
 */
export type Density = Float64Array;

export function totalOf(density: Density): number {
  let total = 0;
  for (let bucket = 0; bucket < density.length; bucket += 1) total += density[bucket] as number;
  return total;
}

/** Adds to `sum` in place. */
export function addTo(sum: Density, addend: Density): void {
  for (let bucket = 0; bucket < BUCKETS; bucket += 1)
    sum[bucket] = (sum[bucket] ?? 0) + (addend[bucket] ?? 0);
}

/**
 * The lag of two steps one after the other: the convolution, with total 1. Assumes that they are independent.
 * @throws RangeError when one of them is empty
 */
export function sumOf(a: Density, b: Density): Density {
  const scale = 1 / (someTotal(a) * someTotal(b));
  const sum = new Float64Array(BUCKETS);
  const addends = occupiedCells(b);
  for (const bucket of occupiedCells(a)) {
    const weight = (a[bucket] ?? 0) * scale;
    for (const other of addends) {
      const at = sumCell(bucket, other);
      sum[at] = (sum[at] ?? 0) + weight * (b[other] ?? 0);
    }
  }
  return sum;
}

/**
 * The lag of the slowest of several things that start together: the product of their cumulative shares, with total 1.
 * Exact where they are independent; where they tend to be slow together, as with a throttled controller-manager, it errs
 * towards longer lags, because then P(A ≤ x and B ≤ x) ≥ P(A ≤ x) × P(B ≤ x).
 * @throws RangeError if there are none, or one of them is empty
 */
export function maxOf(densities: readonly Density[]): Density {
  if (densities.length === 0) throw new RangeError('expected at least one distribution');
  const shares = densities.map((density) => ({ density, total: someTotal(density), upTo: 0 }));
  const slowest = new Float64Array(BUCKETS);
  let before = 0;
  for (let bucket = 0; bucket < BUCKETS; bucket += 1) {
    let product = 1;
    for (const share of shares) {
      share.upTo += share.density[bucket] ?? 0;
      product *= share.upTo / share.total;
    }
    slowest[bucket] = Math.max(0, product - before);
    before = Math.max(product, before);
  }
  return slowest;
}

/** The lag of the control plane, followed by the slowest of these consumers; undefined: nothing is known. */
export function wholeOf(plane: Density | undefined, consumers: readonly Density[]): Density | undefined {
  if (consumers.length === 0) return plane;
  const slowest = maxOf(consumers);
  return plane === undefined ? slowest : sumOf(plane, slowest);
}

/** The distribution of a constant lag, with total 1. */
export function exactly(seconds: number): Density {
  const density = new Float64Array(BUCKETS);
  density[bucketOf(seconds)] = 1;
  return density;
}

/** Uniform from 0 to this many seconds, with total 1: the lag of a consumer that polls at this interval. */
export function uniformUpTo(seconds: number): Density {
  if (seconds === 0) return exactly(0);
  const density = new Float64Array(BUCKETS);
  let before = 0;
  for (let bucket = 1; bucket <= bucketOf(seconds); bucket += 1) {
    // Each lag goes to the bucket whose value is nearest, so a bucket ends halfway between its value and the next.
    const end = Math.min(seconds, (secondsOf(bucket) + secondsOf(bucket + 1)) / 2);
    density[bucket] = (end - before) / seconds;
    before = end;
  }
  const last = bucketOf(seconds);
  density[last] = (density[last] ?? 0) + (seconds - before) / seconds;
  return density;
}

/** A share of the total below which a weight is taken for a rounding error rather than a lag. */
const DUST = 1e-9;

/**
 * The shortest lag, in seconds, that `percentile` per cent (0 to 100) do not exceed.
 * @throws RangeError when the distribution is empty
 */
export function quantileOf(density: Density, percentile: number): number {
  const [quantile] = quantilesOf(density, [percentile]) as [number];
  return quantile;
}

/** Several percentiles in one pass; they must be in ascending order. */
export function quantilesOf(density: Density, percentiles: readonly number[]): number[] {
  const total = someTotal(density);
  let [upTo, last, bucket] = [0, -1, 0];
  return percentiles.map((percentile) => {
    const enough = (percentile / 100 - DUST) * total;
    for (; bucket < BUCKETS && (last < 0 || upTo < enough); bucket += 1) {
      const weight = density[bucket] as number;
      if (weight === 0) continue;
      upTo += weight;
      last = bucket;
    }
    return secondsOf(last);
  });
}

/**
 * The share (0 to 1) of lags that are at most this long.
 * @throws RangeError when the distribution is empty
 */
export function coverageOf(density: Density, seconds: number): number {
  const total = someTotal(density);
  let beyond = 0;
  // Summed from the far end: shares of interest are close to 1, and adding up the small remainder loses no precision.
  for (let bucket = BUCKETS - 1; bucket > lastBucketWithin(seconds); bucket -= 1)
    beyond += density[bucket] ?? 0;
  return Math.max(0, 1 - beyond / total);
}

/** The share (0 to 1) of lags that are at most this long, for each lag (seconds) that occurs, in ascending order. */
export function stepsOf(density: Density): readonly (readonly [seconds: number, share: number])[] {
  const total = totalOf(density);
  let upTo = 0;
  return occupiedCells(density).map((bucket) => {
    upTo += density[bucket] ?? 0;
    return [secondsOf(bucket), upTo / total];
  });
}

function someTotal(density: Density): number {
  const total = totalOf(density);
  if (!(total > 0)) throw new RangeError('expected a distribution with some weight, got an empty one');
  return total;
}

function occupiedCells(density: Density): number[] {
  const buckets: number[] = [];
  density.forEach((weight, bucket) => {
    if (weight > 0) buckets.push(bucket);
  });
  return buckets;
}

/** The questions that a distribution answers. Lags are in seconds; a coverage is a share of removals, from 0 to 1. */
export interface Lags {
  /** The lag that `percentile` per cent of the removals do not exceed, e.g. 99. */
  quantile(percentile: number): number;
  /** The share of removals whose lag is at most this long. */
  coverage(seconds: number): number;
}

export function lagsOf(density: Density): Lags {
  return {
    quantile: (percentile) => quantileOf(density, percentile),
    coverage: (seconds) => coverageOf(density, seconds),
  };
}

/** Which removals a lag is based on. */
export type LagScope = 'cluster' | 'namespace';

/** A measured lag, from which any percentile can be taken. */
export interface MeasuredLag {
  readonly scope: LagScope;
  readonly samples: number;
  /** How many seconds back they reach. */
  readonly historySeconds: number;
  readonly density: Density;
  /** The stages separately, for diagnosis; empty where only the whole is known. */
  readonly stages: readonly {
    readonly stage: EndpointSource;
    readonly samples: number;
    readonly density: Density;
  }[];
}
