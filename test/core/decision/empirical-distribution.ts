import type { LagScope } from '../../../src/core/lag/distribution.ts';
import { CONTROL_PLANE, type Enough, type Lags, type PlannedLag } from '../../../src/core/lag/index.ts';
import { isEnough } from '../../../src/core/lag/lag-history.ts';

/** A control plane's lag, from a list of lags; exact, for small lists. */
export interface EmpiricalLag extends Lags {
  readonly scope: LagScope;
  planned(enough: Enough): PlannedLag;
}

export function empiricalDistribution(
  list: readonly number[],
  historySeconds: number,
  scope: LagScope = 'cluster',
): EmpiricalLag {
  const sorted = list.toSorted((a, b) => a - b);
  const samples = sorted.length;
  const lags: Lags = {
    quantile: (percentile) => sorted[Math.max(0, Math.ceil((percentile / 100) * sorted.length) - 1)] ?? 0,
    coverage: (seconds) => (sorted.length === 0 ? 0 : countAtMost(sorted, seconds) / sorted.length),
  };
  const planned = (asked: Enough): PlannedLag => {
    const enough = isEnough({ samples, seconds: historySeconds }, asked);
    const part = { name: CONTROL_PLANE, builtIn: true, source: 'measured', enough, samples } as const;
    return {
      scope,
      samples,
      historySeconds,
      parts: [{ ...part, historySeconds, lags }],
      known: enough ? lags : undefined,
      seen: lags,
      coverage: enough ? lags.coverage : undefined,
      episode: undefined,
    };
  };
  return { scope, ...lags, planned };
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
