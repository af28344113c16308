import { describe, expect, it } from 'vitest';
import { ConsumerEstimator } from '../../../src/core/consumers/estimator.ts';

const NOW = 20_000 * 86_400;

function estimatorOf(...names: string[]): ConsumerEstimator {
  const estimator = new ConsumerEstimator();
  estimator.keep(new Set(names));
  return estimator;
}

const p50 = (estimator: ConsumerEstimator, name: string, direction: 'removal' | 'addition' = 'removal') =>
  Math.round(estimator.measured(name, direction, NOW)?.quantile(50) ?? -1);

describe('what is measured of consumers', () => {
  it('keeps consumers and directions apart', () => {
    const estimator = estimatorOf('a', 'b');
    estimator.record('a', 'removal', 4, NOW);
    estimator.record('a', 'addition', 40, NOW);
    estimator.record('b', 'removal', 10, NOW);
    expect([p50(estimator, 'a'), p50(estimator, 'a', 'addition'), p50(estimator, 'b')]).toEqual([4, 40, 10]);
    expect(p50(estimator, 'b', 'addition')).toBe(-1);
  });

  it('leaves out samples of a consumer that there is not, and forgets one that is gone', () => {
    const estimator = estimatorOf('a');
    estimator.record('b', 'removal', 4, NOW);
    estimator.record('a', 'removal', 4, NOW);
    estimator.keep(new Set(['b']));
    estimator.keep(new Set(['a', 'b']));
    expect([p50(estimator, 'a'), p50(estimator, 'b')]).toEqual([-1, -1]);
  });

  it('gives candidates for the published lags from removals only, once it is known which consumers there are', () => {
    const estimator = new ConsumerEstimator();
    expect(estimator.candidates(NOW)).toBeUndefined();
    estimator.keep(new Set(['a', 'b']));
    estimator.record('a', 'removal', 4, NOW);
    estimator.record('b', 'addition', 4, NOW);
    expect([...estimator.candidates(NOW)!].map(([name, each]) => [name, each?.lag.samples])).toEqual([
      ['a', 1],
      ['b', undefined],
    ]);
  });

  it('is taken over as a whole, instead of what was here', () => {
    const before = estimatorOf('a');
    for (let index = 0; index < 100; index += 1) before.record('a', 'removal', 4, NOW);
    const after = estimatorOf('a', 'b');
    after.record('a', 'removal', 30, NOW);
    after.record('b', 'removal', 9, NOW);
    expect(after.restore(JSON.parse(JSON.stringify(before.snapshot(NOW))))).toBe(true);
    expect([p50(after, 'a'), p50(after, 'b')]).toEqual([4, 9]);
    expect(after.measured('a', 'removal', NOW)?.samples).toBe(100);
  });

  it.each([
    ['nothing', undefined],
    ['a list', []],
    ['another version', { v: 2, consumers: {} }],
    ['no consumers', { v: 1 }],
    ['a history that is none', { v: 1, consumers: { a: { removal: 4, addition: 4 } } }],
    [
      'a direction that is missing',
      { v: 1, consumers: { a: { removal: { v: 1, slots: [], latest: null } } } },
    ],
  ])('takes nothing from %s', (_, json) => {
    const estimator = estimatorOf('a');
    estimator.record('a', 'removal', 4, NOW);
    expect(estimator.restore(json)).toBe(false);
    expect(p50(estimator, 'a')).toBe(4);
  });
});
