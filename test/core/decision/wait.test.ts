import { describe, expect, it, test } from 'vitest';
import { decide } from '../../../src/core/decision/decide.ts';
import { type EmpiricalLag, empiricalDistribution } from './empirical-distribution.ts';
import { annotated, codesOf, creationOf, type JsonObject, pod } from './sample-pod.ts';
import { clusterPolicy, policy, snapshotOf } from './sample-snapshot.ts';

const DAY = 86_400;
const HISTORY = 2 * DAY;

/** A distribution of a thousand lags: so many of each. */
function lags(...groups: readonly [count: number, seconds: number][]): EmpiricalLag {
  return empiricalDistribution(
    groups.flatMap(([count, seconds]) => Array<number>(count).fill(seconds)),
    HISTORY,
  );
}

const allAt = (seconds: number) => lags([1000, seconds]);

/** A thousand lags at the middles of a thousand equal shares. */
function quantiles(at: (share: number) => number): EmpiricalLag {
  return empiricalDistribution(
    Array.from({ length: 1000 }, (_, index) => at((index + 0.5) / 1000)),
    HISTORY,
  );
}

function planOf(wait: JsonObject, lag?: EmpiricalLag, more: JsonObject = {}) {
  const circumstances = lag === undefined ? {} : { lag };
  const decision = decide(creationOf(pod()), snapshotOf([clusterPolicy({ wait, ...more })], circumstances));
  if (decision.outcome === 'skip') throw new Error(`skipped: ${decision.reason}`);
  return { ...decision.plan, codes: codesOf(decision), notes: decision.notes };
}

describe('a fixed wait takes no factor, no margin, no step, no min and no max; fractions round up', () => {
  test.each<[string, JsonObject, number]>([
    ['45s', {}, 45],
    ['47s', {}, 47],
    ['1s', { min: '5s' }, 1],
    ['90s', { max: '60s' }, 90],
    ['10s', { safetyFactor: 3, margin: '20s' }, 10],
    ['45.2s', {}, 46],
    ['45.999s', {}, 46],
    ['1ms', {}, 1],
    ['400us', {}, 1],
    ['30.0001s', {}, 31],
    ['1.1m', {}, 66],
    ['300s', {}, 300],
    ['301s', {}, 300],
    ['1h', {}, 300],
  ])('%s with %j is %d s', (fixed, others, seconds) => {
    expect(planOf({ from: 'Fixed', fixed, ...others })).toMatchObject({ wait: seconds, why: 'fixed' });
    const object = annotated({ 'linger.dev/wait': fixed });
    const decision = decide(
      creationOf(object),
      snapshotOf([clusterPolicy({ wait: others })], { lag: allAt(10) }),
    );
    expect(decision).toMatchObject({ plan: { wait: seconds, why: 'fixed', policy: 'Pod linger.dev/wait' } });
  });

  it('carries no coverage: it was not measured', () => {
    const plan = planOf({ from: 'Fixed', fixed: '45s' }, allAt(10));
    expect(plan.coverage).toBeUndefined();
    expect(plan.samples).toBeUndefined();
  });

  it('a later layer may go back to Measured', () => {
    const documents = [
      clusterPolicy({ wait: { from: 'Fixed', fixed: '45s' } }),
      policy({ wait: { from: 'Measured' } }),
    ];
    const decision = decide(creationOf(pod()), snapshotOf(documents));
    expect(decision).toMatchObject({ plan: { wait: 30, why: 'initial' } });
  });
});

describe('an initial wait takes no factor, no margin and no step; min and max bound it', () => {
  test.each<[JsonObject, number]>([
    [{}, 30],
    [{ initial: '7.2s' }, 8],
    [{ initial: '33s', safetyFactor: 2, margin: '9s' }, 33],
    [{ initial: '2s' }, 5],
    [{ initial: '2s', min: '0s' }, 2],
    [{ min: '40s' }, 40],
    [{ max: '20s' }, 20],
    [{ initial: '10m', max: '10m' }, 300],
    [{ max: '20.7s' }, 20],
    [{ initial: '3s', min: '5.5s' }, 6],
  ])('%j: %d s', (wait, seconds) => {
    expect(planOf(wait)).toMatchObject({ wait: seconds, why: 'initial' });
  });

  it('max wins over min', () => {
    const documents = [clusterPolicy({ wait: { min: '50s' } }), policy({ wait: { max: '20s' } })];
    expect(decide(creationOf(pod()), snapshotOf(documents))).toMatchObject({ plan: { wait: 20 } });
  });

  test.each<[string, number, number, string]>([
    ['too few samples', 199, DAY, 'initial'],
    ['too short a history', 200, DAY - 1, 'initial'],
    ['enough of both', 200, DAY, 'measured'],
  ])('counts until minSamples and minHistory are reached: %s', (_, samples, history, why) => {
    expect(planOf({}, empiricalDistribution(Array(samples).fill(10), history))).toMatchObject({ why });
  });

  it('both are the policy’s to say', () => {
    const lag = empiricalDistribution([10, 10], 60);
    expect(planOf({ minSamples: 2, minHistory: '1m' }, lag)).toMatchObject({ wait: 15, why: 'measured' });
  });
});

describe('a measured wait is the 5 s step at or above safetyFactor × percentile + margin', () => {
  test.each<[string, JsonObject, EmpiricalLag, number]>([
    ['a fast cluster gets min', {}, allAt(0.05), 5],
    ['3 s', {}, allAt(2), 5],
    ['6 s', {}, allAt(4), 10],
    ['15 s exactly: no step up', {}, allAt(10), 15],
    ['15.015 s', {}, allAt(10.01), 20],
    ['60 s exactly is not beyond max', {}, allAt(40), 60],
    ['a margin', { margin: '1s' }, allAt(10), 20],
    ['a margin that just fits', { margin: '5s' }, allAt(10), 20],
    ['another factor', { safetyFactor: 1 }, allAt(10), 10],
    ['a factor that binary fractions cannot hold', { safetyFactor: 1.1 }, allAt(50), 55],
    ['the median', { percentile: 50 }, lags([500, 2], [500, 20]), 5],
    ['the 99th', {}, lags([500, 2], [500, 20]), 30],
    ['the 99th, which one in a hundred may exceed', {}, lags([990, 2], [10, 20]), 5],
    ['min', { min: '12s' }, allAt(1), 12],
    ['max', { max: '48s' }, allAt(31), 48],
    ['a margin that lies beyond max', { margin: '10s' }, allAt(38), 60],
    ['a larger max', { max: '2m' }, allAt(50), 75],
  ])('%s', (_, wait, lag, seconds) => {
    expect(planOf(wait, lag)).toMatchObject({ wait: seconds, why: 'measured', codes: [], samples: 1000 });
  });

  it('tells how many of the removals it covers', () => {
    expect(planOf({}, lags([990, 2], [10, 20])).coverage).toBeCloseTo(0.99, 9);
  });
});

describe('ceiling bounds every wait, and rounds down', () => {
  it('a ceiling above the built-in 300 s allows the waits of a storm that lasts longer', () => {
    const fixed = { from: 'Fixed', fixed: '720s', max: '15m' };
    expect(planOf(fixed).wait).toBe(300);
    expect(planOf(fixed, undefined, { ceiling: { wait: '15m' }, grace: { max: '20m' } })).toMatchObject({
      wait: 720,
      grace: 750,
    });
  });

  test.each<[string, JsonObject, EmpiricalLag | undefined]>([
    ['fixed', { from: 'Fixed', fixed: '45s' }, undefined],
    ['initial', {}, undefined],
    ['measured', {}, allAt(20)],
    ['min', { min: '40s', initial: '1s' }, undefined],
    ['storm', {}, allAt(100)],
  ])('%s', (_, wait, lag) => {
    const plan = planOf(wait, lag, { ceiling: { wait: '20.9s' } });
    expect(plan.wait).toBe(20);
    expect(plan.codes).toContain('CeilingApplied');
  });

  it('the coverage is that of the wait that remains', () => {
    const lag = quantiles((share) => share * 30);
    const plan = planOf({}, lag, { ceiling: { wait: '15s' } });
    expect(plan.wait).toBe(15);
    expect(plan.coverage).toBeCloseTo(lag.coverage(15), 4);
  });
});

it('where the grace leaves less room, the coverage is that of the wait that remains', () => {
  const lag = quantiles((share) => share * 30);
  const plan = planOf({}, lag, { grace: { max: '40s' } });
  expect(plan.wait).toBe(10);
  expect(plan.coverage).toBeCloseTo(lag.coverage(10), 4);
});

describe('where safetyFactor × percentile lies beyond max, the wait is the shortest that covers about what max does', () => {
  test.each<[string, JsonObject, EmpiricalLag, number]>([
    ['uniformly slow: max', {}, quantiles((share) => share * 200), 60],
    ['everything at 45 s: max', {}, allAt(45), 60],
    ['everything beyond max: max', {}, allAt(100), 60],
    ['slow, with a max that is no step', { max: '52s' }, allAt(45), 52],
    ['bimodal: short', {}, lags([980, 2], [20, 300]), 5],
    ['bimodal, but not under min', { min: '20s' }, lags([980, 2], [20, 300]), 20],
    ['another mode worth 0.4 points: given away', {}, lags([976, 2], [4, 6], [20, 300]), 5],
    ['another mode worth half a point: given away', {}, lags([975, 2], [5, 6], [20, 300]), 5],
    ['another mode worth 0.6 points: covered', {}, lags([974, 2], [6, 6], [20, 300]), 10],
    ['heavy tail, P(lag > x) = 2/x', {}, quantiles((share) => 2 / (1 - share)), 55],
  ])('%s', (_, wait, lag, seconds) => {
    const plan = planOf(wait, lag);
    expect(plan).toMatchObject({ wait: seconds, why: 'storm', codes: ['StormNotCovered'], samples: 1000 });
    expect(plan.coverage).toBeCloseTo(lag.coverage(seconds), 9);
  });

  it('a wait that covers every removal measured does not say that something is left uncovered', () => {
    const { notes } = planOf({}, allAt(45));
    expect(notes.find(({ code }) => code === 'StormNotCovered')?.text ?? '').not.toContain('100.0 %');
  });

  it('one that leaves a single removal uncovered says so', () => {
    const { notes } = planOf({}, lags([2_999, 45], [1, 300]));
    const { text = '' } = notes.find(({ code }) => code === 'StormNotCovered') ?? {};
    expect(text).toContain('60s covers 99.9 % of the removals measured, and the rest is not covered');
  });
});
