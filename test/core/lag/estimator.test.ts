import { beforeAll, describe, expect, it } from 'vitest';
import { Busiest } from '../../../src/core/lag/busiest.ts';
import { exactly } from '../../../src/core/lag/combine.ts';
import { distributionOf, estimateOf, withConsumers } from '../../../src/core/lag/estimate.ts';
import { LagEstimator, OWN_SAMPLES } from '../../../src/core/lag/estimator.ts';
import type { LagSample, LagStage } from '../../../src/core/lag/sample.ts';
import { randomNumbers, SHAPES } from './shapes.ts';

const NOW = 20_000 * 86_400;

const sample = (namespace: string, lag: number, stage: LagStage = 'EndpointSlice', at = 0): LagSample => ({
  stage,
  name: 'web',
  namespace,
  lag,
  at,
});

function estimatorOf(...samples: [count: number, namespace: string, lag: number, stage?: LagStage][]) {
  const estimator = new LagEstimator();
  for (const [count, namespace, lag, stage] of samples) {
    for (let n = 0; n < count; n += 1) estimator.record(sample(namespace, lag, stage), NOW);
  }
  return estimator;
}

describe('whose samples count', () => {
  it('nothing measured: no estimate', () => {
    expect(new LagEstimator().measured('shop', NOW)).toBeUndefined();
    expect(new LagEstimator().now(undefined, 0, [])).toBeUndefined();
  });

  it('a namespace speaks for itself from 1,000 samples on', () => {
    const short = estimatorOf([OWN_SAMPLES - 1, 'shop', 9], [2_000, 'other', 1]);
    expect(short.measured('shop', NOW)).toMatchObject({ scope: 'cluster', samples: 2_999 });
    short.record(sample('shop', 9), NOW);
    expect(short.measured('shop', NOW)).toMatchObject({ scope: 'namespace', samples: 1_000 });
    expect(short.measured('unheard-of', NOW)).toMatchObject({ scope: 'cluster', samples: 3_000 });
  });

  it('one termination is one removal, though both stages saw it', () => {
    const both = estimatorOf([1_200, 'shop', 1], [1_100, 'shop', 3, 'Endpoints']);
    expect(both.measured('shop', NOW)).toMatchObject({ samples: 1_200 });
  });
});

describe('an estimate', () => {
  const lag = estimatorOf([990, 'shop', 1], [10, 'shop', 20], [1_000, 'shop', 2, 'Endpoints']).measured(
    'shop',
    NOW,
  )!;

  it('names its percentile, samples, scope and stages; the slowest stage decides', () => {
    const estimate = estimateOf(lag, 98);
    expect(estimate).toMatchObject({ percentile: 98, samples: 1_000, scope: 'namespace' });
    expect(estimate.value).toBeCloseTo(2, 1);
    expect(estimate.coverage).toBeCloseTo(0.99, 6);
    expect(estimate.stages).toMatchObject([
      { stage: 'EndpointSlice', samples: 1_000 },
      { stage: 'Endpoints', samples: 1_000 },
    ]);
    expect(estimate.stages[0]!.value).toBeCloseTo(1, 1);
  });

  it('tells what a wait covers', () => {
    expect(estimateOf(lag, 98, 30).coverage).toBe(1);
    expect(estimateOf(lag, 98, 1.5).coverage).toBe(0);
  });

  it('a consumer’s own lag comes on top, the slowest of several', () => {
    const followed = withConsumers(lag, [exactly(10), exactly(3)]);
    expect(estimateOf(followed, 50).value).toBeCloseTo(12, 0);
    expect(withConsumers(lag, [])).toBe(lag);
  });

  it('is a distribution for the decision', () => {
    const distribution = distributionOf(lag);
    expect(distribution.quantile(98)).toBe(estimateOf(lag, 98).value);
    expect(distribution.coverage(5)).toBeCloseTo(0.99, 6);
  });
});

describe('now', () => {
  const waiting = (count: number, since: number, namespace = 'shop') =>
    Array.from({ length: count }, () => ({ stage: 'EndpointSlice' as const, namespace, since }));

  it('is what ended in the last minutes', () => {
    const estimator = new LagEstimator();
    estimator.record(sample('shop', 5, 'EndpointSlice', 0), NOW);
    estimator.record(sample('shop', 1, 'EndpointSlice', 400_000), NOW);
    expect(estimateOf(estimator.now(undefined, 400_000, [])!, 100).value).toBeCloseTo(1, 1);
    expect(estimator.now(undefined, 900_000, [])).toBeUndefined();
  });

  it('follows the age of what waits', () => {
    const estimator = estimatorOf([1_000, 'shop', 0.01]);
    const p99 = (instant: number) => estimateOf(estimator.now(undefined, instant, waiting(50, 0))!, 99).value;
    expect([1_000, 20_000, 60_000].map(p99).map(Math.round)).toEqual([1, 20, 60]);
  });

  it('of a namespace is its own', () => {
    const estimator = estimatorOf([10, 'shop', 0.01], [10, 'other', 7]);
    const of = (namespace: string) =>
      estimator.now(namespace, 30_000, [...waiting(5, 0, 'shop'), ...waiting(1, 0, 'third')]);
    expect(estimateOf(of('shop')!, 99).value).toBeCloseTo(30, 0);
    expect(estimateOf(of('other')!, 99).value).toBeCloseTo(7, 0);
    expect(of('third')).toMatchObject({ scope: 'namespace', samples: 1 });
  });
});

describe('the busiest namespaces', () => {
  it('find a place however many there are, and keep it', () => {
    const busiest = new Busiest(4);
    const random = randomNumbers(3);
    for (let n = 0; n < 40_000; n += 1) {
      // Half of all from four names, the rest from a thousand.
      const name = random() < 0.5 ? `busy-${n % 4}` : `quiet-${Math.floor(1_000 * random())}`;
      busiest.count(name, NOW);
    }
    expect([...busiest.kept].sort()).toEqual(['busy-0', 'busy-1', 'busy-2', 'busy-3']);
  });

  it('make room for who has become busier', () => {
    const busiest = new Busiest(1);
    busiest.count('old', NOW, 1_000);
    expect(busiest.count('new', NOW, 1_200)).toEqual({ kept: false });
    expect(busiest.count('new', NOW, 100)).toEqual({ kept: true, displaced: 'old' });
  });

  it('memory is bounded by places, not by namespaces', () => {
    const estimator = new LagEstimator(4);
    for (let n = 0; n < 500; n += 1) estimator.record(sample(`ns-${n}`, 1), NOW);
    const bytes = estimator.bytes;
    for (let n = 0; n < 5_000; n += 1) estimator.record(sample(`ns-${n}`, 1), NOW);
    expect(estimator.bytes).toBe(bytes);
    expect(bytes).toBeLessThan(5 * 2 * 6_400 * 3);
  });
});

describe('a snapshot', () => {
  const before = new LagEstimator();
  beforeAll(() => {
    const random = randomNumbers(5);
    for (let n = 0; n < 30_000; n += 1) {
      const namespace = `ns-${Math.floor(20 * random() ** 2)}`;
      const stage = n % 2 === 0 ? 'EndpointSlice' : 'Endpoints';
      before.record(sample(namespace, SHAPES.bimodal!(random, 0), stage, n), NOW + n * 20);
    }
  });
  const end = NOW + 600_000;
  const percentiles = (estimator: LagEstimator, namespace: string) => {
    const lag = estimator.measured(namespace, end)!;
    return [lag.scope, lag.samples, ...[50, 99].map((each) => estimateOf(lag, each).value)];
  };

  it('restored, gives the same', () => {
    const after = new LagEstimator();
    expect(after.restore(JSON.parse(before.snapshotWithin(10e6, end)), end)).toBe(true);
    for (const name of ['ns-0', 'ns-3', 'ns-19', 'nobody']) {
      expect(percentiles(after, name)).toEqual(percentiles(before, name));
    }
  });

  it('fits where it has to, and keeps p50 and p99 within two per cent', () => {
    for (const characters of [700_000, 200_000, 60_000]) {
      const text = before.snapshotWithin(characters, end);
      expect(text.length).toBeLessThanOrEqual(characters);
      const after = new LagEstimator();
      after.restore(JSON.parse(text), end);
      const [, samples, p50, p99] = percentiles(after, 'nobody') as [string, number, number, number];
      const [, , was50, was99] = percentiles(before, 'nobody') as [string, number, number, number];
      expect(samples).toBe(15_000);
      expect(Math.abs(p50 / was50 - 1)).toBeLessThan(0.02);
      expect(Math.abs(p99 / was99 - 1)).toBeLessThan(0.02);
    }
  });

  it('that cannot be read changes nothing', () => {
    const estimator = estimatorOf([10, 'shop', 1]);
    const good = JSON.parse(before.snapshotWithin(60_000, end)) as { cluster: object; namespaces: object };
    for (const json of [
      null,
      {},
      { ...good, v: 9 },
      { ...good, cluster: {} },
      { ...good, namespaces: { a: 1 } },
    ]) {
      expect(estimator.restore(json, NOW)).toBe(false);
    }
    expect(estimator.measured('shop', NOW)?.samples).toBe(10);
  });
});
