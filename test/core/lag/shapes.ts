import type { Density } from '../../../src/core/lag/distribution.ts';

/** Lags in seconds as clusters have them: the i-th of n. */
export type Shape = (random: () => number, share: number) => number;

const lognormal = (random: () => number, median: number, sigma: number) => {
  const normal = Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  return Math.min(7_000, Math.max(0.001, median * Math.exp(sigma * normal)));
};

export const SHAPES: Readonly<Record<string, Shape>> = {
  bimodal: (random) => (random() < 0.9 ? lognormal(random, 0.03, 0.4) : lognormal(random, 12, 0.3)),
  'heavy-tailed': (random) => Math.min(7_000, 0.02 * (1 - random()) ** -0.9),
  drifting: (random, share) => lognormal(random, 0.02 * (1 + 200 * share), 0.5),
  // Once in 25 of a thousand parts all wait for a queue that drains at a constant rate.
  storms: (random, share) =>
    Math.floor(share * 1_000) % 40 === 7 ? 650 * random() + 0.001 : lognormal(random, 0.05, 0.6),
  'mostly zero': (random) => (random() < 0.6 ? 0 : lognormal(random, 0.4, 1)),
};

/** The exact percentile: the smallest lag that so many per cent do not exceed. */
export function exactPercentile(sorted: ArrayLike<number>, percentile: number): number {
  const rank = Math.ceil((percentile / 100) * sorted.length - 1e-9);
  return sorted[Math.max(0, rank - 1)]!;
}

export const PERCENTILES = [0.1, 1, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.99] as const;

/** Adds `factor` × the one to the other, in place. */
export function addScaled(target: Density, density: Density, factor: number): void {
  density.forEach((weight, bucket) => {
    target[bucket] = (target[bucket] ?? 0) + factor * weight;
  });
}
