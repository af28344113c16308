import { describe, expect, it, test } from 'vitest';
import { decide } from '../../../src/core/decision/decide.ts';
import { defaultWait, estimateInWords } from '../../../src/core/decision/wait.ts';
import type { LagScope } from '../../../src/core/lag/distribution.ts';
import { type EmpiricalLag, empiricalDistribution } from './empirical-distribution.ts';
import { creationOf, type JsonObject, pod } from './sample-pod.ts';
import { clusterPolicy, snapshotOf } from './sample-snapshot.ts';

const DAY = 86_400;

/** A thousand lags: so many of each. */
function lags(
  groups: readonly [count: number, seconds: number][],
  history = 5 * DAY,
  scope: LagScope = 'cluster',
): EmpiricalLag {
  const all = groups.flatMap(([count, seconds]) => Array<number>(count).fill(seconds));
  return empiricalDistribution(all, history, scope);
}

/** The sentence about the wait that is planned for an ordinary pod. */
function sentence(wait: JsonObject, lag: EmpiricalLag): string | undefined {
  const decision = decide(creationOf(pod()), snapshotOf([clusterPolicy({ wait })], { lag }));
  if (decision.outcome === 'skip') throw new Error(`skipped: ${decision.reason}`);
  const seconds = decision.plan.wait;
  return decision.estimate && estimateInWords(decision.estimate, seconds);
}

describe('the sentence about an estimate', () => {
  test.each<[string, JsonObject, EmpiricalLag, string]>([
    [
      'measured',
      {},
      lags([
        [807, 4.2],
        [5, 40],
      ]),
      'p99 4.2s of 812 samples over 5 d, ×1.5 → 10s, covers 99.3 %',
    ],
    [
      'milliseconds',
      {},
      lags([[300, 0.0834]]),
      'p99 83ms of 300 samples over 5 d, ×1.5 → 5s, covers 100.0 %',
    ],
    [
      'with a margin and another percentile',
      { percentile: 50, margin: '2s', safetyFactor: 2 },
      lags([[300, 6]], 3 * 3_600 + 59),
      'p50 6.0s of 300 samples over 3 h, not yet 200 over 1 d: initial → 30s',
    ],
    [
      'with a margin, after enough of history',
      { percentile: 50, margin: '2s', safetyFactor: 2, minHistory: '1h' },
      lags([[300, 6]], 3 * 3_600 + 59),
      'p50 6.0s of 300 samples over 3 h, ×2 + 2s → 15s, covers 100.0 %',
    ],
    [
      'a namespace of its own',
      {},
      lags([[1_000, 3]], 2 * DAY, 'namespace'),
      'p99 3.0s of 1000 samples of this namespace over 2 d, ×1.5 → 5s, covers 100.0 %',
    ],
    [
      'a storm beyond max',
      {},
      lags([
        [970, 1],
        [30, 600],
      ]),
      'p99 600s of 1000 samples over 5 d, ×1.5 = 900s is beyond max 60s → 5s, covers 97.0 %',
    ],
    [
      'too few samples',
      {},
      lags([[80, 0.2]], 720),
      'p99 200ms of 80 samples over 12 min, not yet 200 over 1 d: initial → 30s',
    ],
    [
      'almost all is not all',
      {},
      lags([
        [99_999, 1],
        [1, 600],
      ]),
      'p99 1.0s of 100000 samples over 5 d, ×1.5 → 5s, covers 99.9 %',
    ],
  ])('%s', (_what, wait, lag, expected) => {
    expect(sentence(wait, lag)).toBe(expected);
  });

  it('is none where the wait is fixed', () => {
    expect(sentence({ from: 'Fixed', fixed: '20s' }, lags([[300, 4]]))).toBeUndefined();
  });

  it('is none where nothing has been measured', () => {
    const decision = decide(creationOf(pod()), snapshotOf([]));
    expect(decision).toMatchObject({ outcome: 'inject' });
    expect(decision).not.toHaveProperty('estimate');
  });
});

describe('the wait of the cluster as a whole', () => {
  it('is what a pod gets to which only policies for everything apply', () => {
    const wait = { minSamples: 1 };
    const forShop = clusterPolicy(
      { namespaceSelector: { matchLabels: { team: 'shop' } }, wait: { min: '50s' } },
      'b',
    );
    const snapshot = snapshotOf([clusterPolicy({ wait }, 'a'), forShop], { lag: lags([[20, 4.2]]) });
    expect(defaultWait(snapshot)).toMatchObject({ seconds: 10, why: 'measured' });
  });

  it('is initial while nothing has been measured', () => {
    expect(defaultWait(snapshotOf([]))).toMatchObject({ seconds: 30, why: 'initial' });
  });
});
