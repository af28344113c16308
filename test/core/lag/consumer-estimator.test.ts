import { describe, expect, it } from 'vitest';
import { ConsumerEstimator, WITNESSED_ENOUGH, witnessName } from '../../../src/core/lag/consumer.ts';

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

  it('knows when one was last timed, also after a week without samples', () => {
    const estimator = estimatorOf('a', 'b');
    estimator.record('a', 'removal', 4, NOW);
    expect(estimator.measured('a', 'removal', NOW + 8 * 86_400)).toBeUndefined();
    expect([estimator.latestRemoval('a'), estimator.latestRemoval('b')]).toEqual([NOW, undefined]);
  });

  it('gives removals for the published lags, once it is known which consumers there are', () => {
    const estimator = new ConsumerEstimator();
    expect(estimator.removals).toBeUndefined();
    estimator.keep(new Set(['a', 'b']));
    estimator.record('a', 'removal', 4, NOW);
    estimator.record('b', 'addition', 4, NOW);
    expect([...estimator.removals!].map(([name, { samples }]) => [name, samples])).toEqual([
      ['a', 1],
      ['b', 0],
    ]);
  });

  const texts = (estimator: ConsumerEstimator) =>
    [...estimator.parts(NOW)].map((part) => JSON.parse(part.text(20_000)) as unknown);

  it('restored in whatever order and however often, never loses samples to older ones', () => {
    const leader = estimatorOf('a');
    for (let each = 0; each < 100; each += 1) leader.record('a', 'removal', 4, NOW + each * 30);
    const stored = texts(leader);
    for (let each = 100; each < 300; each += 1) leader.record('a', 'removal', 4, NOW + each * 30);
    const samples = () => leader.measured('a', 'removal', NOW + 9_000)?.samples;
    const end = NOW + 9_000;
    for (const part of [...stored, ...stored]) expect(leader.restorePart(part, end)).toBe(true);
    expect(samples()).toBe(300);
    const next = estimatorOf('a');
    for (const part of [...stored, ...texts(leader), ...stored]) next.restorePart(part, end);
    expect(next.measured('a', 'removal', NOW + 9_000)?.samples).toBe(300);
  });

  it('a consumer that is known not to exist does not come back', () => {
    const before = estimatorOf('a', 'b');
    before.record('a', 'removal', 4, NOW);
    before.record('b', 'removal', 4, NOW);
    const after = estimatorOf('b');
    for (const part of texts(before)) expect(after.restorePart(part, NOW)).toBe(true);
    expect([p50(after, 'a'), p50(after, 'b')]).toEqual([-1, 4]);
    // Before it is known which there are, it may still exist.
    const starting = new ConsumerEstimator();
    for (const part of texts(before)) starting.restorePart(part, NOW);
    expect(p50(starting, 'a')).toBe(4);
    starting.keep(new Set(['b']));
    expect(p50(starting, 'a')).toBe(-1);
  });

  it.each([
    ['nothing', undefined],
    ['a list', []],
    ['another version', { v: 1, key: 'consumer/a/removal', slots: [], reached: { samples: 0, seconds: 0 } }],
    ['another scope', { v: 2, key: 'namespace/a', slots: [], reached: { samples: 0, seconds: 0 } }],
    ['another direction', { v: 2, key: 'consumer/a/b', slots: [], reached: { samples: 0, seconds: 0 } }],
    [
      'a slot that is none',
      { v: 2, key: 'consumer/a/removal', slots: [3], reached: { samples: 0, seconds: 0 } },
    ],
  ])('takes nothing from %s', (_, json) => {
    const estimator = estimatorOf('a');
    estimator.record('a', 'removal', 4, NOW);
    expect(estimator.restorePart(json, NOW)).toBe(false);
    expect(p50(estimator, 'a')).toBe(4);
  });
});

describe('what pods have seen themselves', () => {
  const WEB = witnessName('shop', 'web');
  const seen = (estimator: ConsumerEstimator, times: number, name = WEB) => {
    for (let each = 0; each < times; each += 1) estimator.record(name, 'removal', 9, NOW + each);
  };

  it('needs no declaration, and is published from 50 terminations on', () => {
    const estimator = estimatorOf('a');
    seen(estimator, WITNESSED_ENOUGH - 1);
    expect(estimator.witnesses.map(({ name }) => name)).toEqual([WEB]);
    expect([...(estimator.removals?.keys() ?? [])]).toEqual(['a']);
    seen(estimator, 1);
    estimator.keep(new Set(['b']));
    expect([...(estimator.removals?.keys() ?? [])]).toEqual([WEB, 'b']);
  });

  it('is restored, also before it is known which consumers there are, and by parts that come twice', () => {
    const before = estimatorOf();
    seen(before, 80);
    const texts = [...before.parts(NOW)].map((part) => JSON.parse(part.text(20_000)) as unknown);
    const after = new ConsumerEstimator();
    for (const part of [...texts, ...texts]) expect(after.restorePart(part, NOW)).toBe(true);
    after.keep(new Set());
    expect(after.removals?.get(WEB)?.samples).toBe(80);
  });

  it('is kept for the busiest 50 Services, as Services come and go', () => {
    const estimator = estimatorOf();
    for (let each = 0; each < 400; each += 1) seen(estimator, 1, witnessName('other', `service-${each}`));
    expect(estimator.witnesses).toHaveLength(50);
    seen(estimator, 60);
    expect(estimator.witnesses.map(({ name }) => name)).toContain(WEB);
    expect(estimator.witnesses).toHaveLength(50);
  });
});
