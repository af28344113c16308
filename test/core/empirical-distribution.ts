import type { LagDistribution } from '../../src/core/lag/distribution.ts';

/** The distribution of a list of lags; exact, for small lists. */
export function empiricalDistribution(
  lags: readonly number[],
  historySeconds: number,
  scope: LagDistribution['scope'] = 'cluster',
): LagDistribution {
  const sorted = lags.toSorted((a, b) => a - b);
  return {
    scope,
    samples: sorted.length,
    historySeconds,
    quantile: (percentile) => sorted[Math.max(0, Math.ceil((percentile / 100) * sorted.length) - 1)] ?? 0,
    coverage: (seconds) => (sorted.length === 0 ? 0 : countAtMost(sorted, seconds) / sorted.length),
  };
}

function countAtMost(sorted: readonly number[], bound: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((sorted[middle] ?? Number.POSITIVE_INFINITY) <= bound) low = middle + 1;
    else high = middle;
  }
  return low;
}
