import { beforeAll, describe, expect, it } from 'vitest';
import { quantileOf } from '../../../src/core/lag/distribution.ts';
import { LagEstimator } from '../../../src/core/lag/estimator.ts';
import { HeavyHitters } from '../../../src/core/lag/heavy-hitters.ts';
import { OWN_SAMPLES } from '../../../src/core/lag/planned-lag.ts';
import { randomOf } from '../../property/random.ts';
import { SHAPES } from './shapes.ts';

const NOW = 20_000 * 86_400;

/** So many seconds after {@link NOW}, and after the monotonic clock began. */
const at = (seconds: number) => ({ instant: 1_000 * seconds, epochSeconds: NOW + seconds });

const removal = (namespace: string, lag: number) => ({ namespace, lag });

function estimatorOf(...removals: [count: number, namespace: string, lag: number][]) {
  const estimator = new LagEstimator();
  for (const [count, namespace, lag] of removals) {
    for (let n = 0; n < count; n += 1) estimator.record(removal(namespace, lag), NOW);
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
    short.record(removal('shop', 9), NOW);
    expect(short.measured('shop', NOW)).toMatchObject({ scope: 'namespace', samples: 1_000 });
    expect(short.measured('unheard-of', NOW)).toMatchObject({ scope: 'cluster', samples: 3_000 });
  });

  it('stages are not removals: they only show in the last minutes', () => {
    const estimator = estimatorOf([1, 'shop', 3]);
    for (const [stage, lag] of [
      ['EndpointSlice', 1],
      ['Endpoints', 3],
    ] as const) {
      estimator.recordStage({ stage, namespace: 'shop', lag }, NOW);
    }
    expect(estimator.measured(undefined, NOW)).toMatchObject({ samples: 1, stages: [] });
    const now = estimator.now('shop', at(0), []);
    expect(now).toMatchObject({ samples: 1, stages: [{ stage: 'EndpointSlice' }, { stage: 'Endpoints' }] });
    expect(now!.stages.map(({ density }) => Math.round(quantileOf(density, 99)))).toEqual([1, 3]);
  });
});

describe('a namespace whose history comes in after a removal', () => {
  it('keeps its place, as the busy one that it is', () => {
    const before = estimatorOf([500, 'shop', 1]);
    const after = new LagEstimator(2);
    after.record(removal('shop', 1), NOW + 900);
    for (const part of before.parts(NOW + 900))
      expect(after.restorePart(JSON.parse(part.text(1e6)), NOW + 900)).toBe(true);
    for (const namespace of ['a', 'b', 'b']) after.record(removal(namespace, 1), NOW + 900);
    expect(after.namespaces.get('shop')?.samples).toBe(501);
  });
});

describe('now', () => {
  const endedAt = (estimator: LagEstimator, lag: number, seconds: number) =>
    estimator.record(removal('shop', lag), NOW + seconds);
  const longest = (estimator: LagEstimator, seconds: number) => {
    const lag = estimator.now(undefined, at(seconds), []);
    return lag && Math.round(quantileOf(lag.density, 100));
  };
  const waiting = (count: number, since: number, namespace = 'shop') =>
    Array.from({ length: count }, (_, pod) => {
      return { stage: 'EndpointSlice' as const, namespace, uid: `${namespace}-${pod}`, since };
    });

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
      quantileOf(estimator.now(undefined, at(5 + seconds), waiting(50, 5_000))!.density, 99);
    expect([1, 20, 60].map(p99).map(Math.round)).toEqual([1, 20, 60]);
  });

  it('a pod that both stages still list waits once', () => {
    const both = [
      ...waiting(3, 0),
      ...waiting(3, 0).map((each) => ({ ...each, stage: 'Endpoints' as const })),
    ];
    const now = new LagEstimator().now(undefined, at(9), both);
    expect(now).toMatchObject({ samples: 3, stages: [{ samples: 3 }, { samples: 3 }] });
  });

  it('of a namespace is its own', () => {
    const estimator = estimatorOf([10, 'shop', 0.01], [10, 'other', 7]);
    const of = (namespace: string) =>
      estimator.now(namespace, at(30), [...waiting(5, 0, 'shop'), ...waiting(1, 0, 'third')]);
    expect(quantileOf(of('shop')!.density, 99)).toBeCloseTo(30, 0);
    expect(quantileOf(of('other')!.density, 99)).toBeCloseTo(7, 0);
    expect(of('third')).toMatchObject({ scope: 'namespace', samples: 1 });
  });
});

describe('the busiest namespaces', () => {
  it('find a place however many there are, and keep it', () => {
    const busiest = new HeavyHitters(4, () => undefined);
    const random = randomOf(3);
    for (let n = 0; n < 40_000; n += 1) {
      // Half of all from four names, the rest from a thousand.
      const name = random() < 0.5 ? `busy-${n % 4}` : `quiet-${Math.floor(1_000 * random())}`;
      busiest.count(name, NOW);
    }
    expect([...busiest.kept.keys()].sort()).toEqual(['busy-0', 'busy-1', 'busy-2', 'busy-3']);
  });

  it('make room for who has become busier', () => {
    const busiest = new HeavyHitters(1, () => 'value');
    busiest.count('old', NOW, 1_000);
    expect(busiest.count('new', NOW, 1_200)).toBeUndefined();
    expect(busiest.count('new', NOW, 100)).toBe('value');
    expect([...busiest.kept.keys()]).toEqual(['new']);
  });

  it('memory is bounded by places, not by namespaces', () => {
    const estimator = new LagEstimator(4);
    for (let n = 0; n < 500; n += 1) estimator.record(removal(`ns-${n}`, 1), NOW);
    for (let n = 0; n < 5_000; n += 1) estimator.record(removal(`ns-${n}`, 1), NOW);
    expect(estimator.namespaces.size).toBe(4);
  });
});

describe('stored parts', () => {
  const before = new LagEstimator();
  beforeAll(() => {
    const random = randomOf(5);
    for (let n = 0; n < 30_000; n += 1) {
      const namespace = `ns-${Math.floor(20 * random() ** 2)}`;
      before.record(removal(namespace, SHAPES.bimodal!(random, 0)), NOW + n * 20);
    }
  });
  const end = NOW + 600_000;
  const percentiles = (estimator: LagEstimator, namespace: string) => {
    const lag = estimator.measured(namespace, end)!;
    return [lag.scope, lag.samples, ...[50, 99].map((each) => quantileOf(lag.density, each))];
  };
  const restored = (characters: number, estimator = new LagEstimator()) => {
    for (const part of before.parts(end)) {
      const text = part.text(characters);
      expect(text.length).toBeLessThanOrEqual(characters);
      expect(text).not.toMatch(/\n|\d{40}/);
      expect(estimator.restorePart(JSON.parse(text), end)).toBe(true);
    }
    return estimator;
  };

  it('are the cluster, then the busiest namespaces', () => {
    const keys = [...before.parts(end)].map(({ key }) => key);
    const scopes = [...new Set(keys.map((key) => key.replace(/\/\d+$/, '')))];
    expect(scopes).toHaveLength(21);
    expect(scopes.slice(0, 2)).toEqual(['cluster', 'namespace/ns-0']);
  });

  it.each([400_000, 60_000, 24_000])(
    'of at most %d characters give the same, in coarser slots',
    (characters) => {
      const after = restored(characters);
      for (const name of ['ns-0', 'ns-3', 'ns-19', 'nobody']) {
        expect(percentiles(after, name)).toEqual(percentiles(before, name));
      }
    },
  );

  it('are merged: doing so again, or with coarser ones, changes nothing', () => {
    const after = restored(400_000, restored(20_000, restored(400_000)));
    expect(percentiles(after, 'nobody')).toEqual(percentiles(before, 'nobody'));
    // And into the very estimator that they came from.
    const own = percentiles(before, 'ns-0');
    restored(400_000, before);
    expect(percentiles(before, 'ns-0')).toEqual(own);
  });

  it('that cannot be read change nothing', () => {
    const estimator = estimatorOf([10, 'shop', 1]);
    const good = JSON.parse([...before.parts(end)][0]!.text(400_000)) as object;
    for (const json of [null, {}, { ...good, v: 9 }, { ...good, key: 'x' }, { ...good, slots: [1] }]) {
      expect(estimator.restorePart(json, NOW)).toBe(false);
    }
    expect(estimator.measured('shop', NOW)?.samples).toBe(10);
  });
});
