import { beforeAll, describe, expect, it } from 'vitest';
import { Busiest } from '../../../src/core/lag/busiest.ts';
import { exactly } from '../../../src/core/lag/combine.ts';
import { distributionOf, estimateOf, withConsumers } from '../../../src/core/lag/estimate.ts';
import { LagEstimator, OWN_SAMPLES } from '../../../src/core/lag/estimator.ts';
import type { LagSample, LagStage } from '../../../src/core/lag/sample.ts';
import { randomNumbers, SHAPES } from './shapes.ts';
import { taken } from './steps.ts';

const NOW = 20_000 * 86_400;

/** So many seconds after {@link NOW}, and after the monotonic clock began. */
const at = (seconds: number) => ({ instant: 1_000 * seconds, epochSeconds: NOW + seconds });

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
    expect(new LagEstimator().now(undefined, at(0), [])).toBeUndefined();
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
  const endedAt = (estimator: LagEstimator, lag: number, seconds: number) =>
    estimator.record(sample('shop', lag), NOW + seconds);
  const longest = (estimator: LagEstimator, seconds: number) => {
    const lag = estimator.now(undefined, at(seconds), []);
    return lag && Math.round(estimateOf(lag, 100).value);
  };
  const waiting = (count: number, since: number, namespace = 'shop') =>
    Array.from({ length: count }, () => ({ stage: 'EndpointSlice' as const, namespace, since }));

  it('is what ended in the last minutes', () => {
    const estimator = new LagEstimator();
    endedAt(estimator, 5, 0);
    endedAt(estimator, 1, 400);
    expect(longest(estimator, 400)).toBe(1);
    expect(longest(estimator, 900)).toBeUndefined();
  });

  it('forgets by the wall clock, whatever the replica’s own clock says', () => {
    const estimators = [new LagEstimator(), new LagEstimator()];
    // Their processes were started half a minute apart.
    const [first, second] = estimators.map((estimator, replica) => {
      endedAt(estimator, 5, 30);
      const longestAt = (seconds: number) => {
        const now = { instant: 1_000 * (seconds + 30 * replica), epochSeconds: NOW + seconds };
        return estimator.now(undefined, now, [])?.samples;
      };
      return Array.from({ length: 120 }, (_, step) => longestAt(240 + step));
    });
    expect(first).toEqual(second);
    expect(new Set(first)).toEqual(new Set([1, undefined]));
  });

  it('bears a clock that is set back', () => {
    const estimator = new LagEstimator();
    endedAt(estimator, 5, 60);
    expect(longest(estimator, 59)).toBe(5);
    expect(longest(estimator, -3_600)).toBeUndefined();
    endedAt(estimator, 1, -3_600);
    expect(longest(estimator, -3_600)).toBe(1);
    expect(longest(estimator, 60)).toBeUndefined();
  });

  it('follows the age of what waits', () => {
    const estimator = estimatorOf([1_000, 'shop', 0.01]);
    const p99 = (seconds: number) =>
      estimateOf(estimator.now(undefined, at(seconds), waiting(50, 0))!, 99).value;
    expect([1, 20, 60].map(p99).map(Math.round)).toEqual([1, 20, 60]);
  });

  it('of a namespace is its own', () => {
    const estimator = estimatorOf([10, 'shop', 0.01], [10, 'other', 7]);
    const of = (namespace: string) =>
      estimator.now(namespace, at(30), [...waiting(5, 0, 'shop'), ...waiting(1, 0, 'third')]);
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
    expect(after.restore(JSON.parse(taken(before.snapshotWithin(10e6, end))), end)).toBe(true);
    for (const name of ['ns-0', 'ns-3', 'ns-19', 'nobody']) {
      expect(percentiles(after, name)).toEqual(percentiles(before, name));
    }
  });

  it('is of the moment in which it was begun', () => {
    const estimator = estimatorOf([300, 'shop', 1], [200, 'other', 2, 'Endpoints']);
    const atOnce = taken(estimator.snapshotWithin(10e6, NOW));
    const steps = estimator.snapshotWithin(10e6, NOW);
    let text: string | undefined;
    for (let number = 0; text === undefined; number += 1) {
      const step = steps.next();
      if (step.done === true) text = step.value;
      estimator.record(sample(`shop-${number}`, 9), NOW + 2_000 * number);
      estimator.record(sample('shop', 9), NOW + 2_000 * number);
    }
    expect(text).toBe(atOnce);
  });

  it('fits where it has to, and keeps p50 and p99 within two per cent', () => {
    for (const characters of [700_000, 200_000, 60_000]) {
      const text = taken(before.snapshotWithin(characters, end));
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
    const good = JSON.parse(taken(before.snapshotWithin(60_000, end))) as {
      cluster: object;
      namespaces: object;
    };
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
