import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { CLUSTER_IP, consumerOf } from '../../../src/core/lag/consumer.ts';
import { type Density, quantileOf, uniformUpTo } from '../../../src/core/lag/distribution.ts';
import { BUILT_IN_ENOUGH, type PlannedTable } from '../../../src/core/lag/planned-lag.ts';
import { plannedFromJson, plannedToText, shrunkTable } from '../../../src/core/lag/planned-lag-codec.ts';
import { CONTROL_PLANE, NONE_YET, plannedLags } from '../../../src/core/lag/planned-lag-query.ts';
import { historyOf, historyOfDensity, measuredTable, START, tableOf } from './sample-table.ts';

/** The table that comes of these densities. */
function tableOfDensities(cluster: Density, consumers: Readonly<Record<string, Density>> = {}): PlannedTable {
  const rows = Object.entries(consumers).map(([name, density]) => [name, historyOfDensity(density)] as const);
  return tableOf({ cluster: historyOfDensity(cluster), consumers: new Map(rows) });
}

const reports = (name: string) => consumerOf(name, { measure: { reports: {} } });
const declared = (name: string, lag: number) => consumerOf(name, { measure: { declared: { lag } } });
const polling = (name: string, syncInterval: number) =>
  consumerOf(name, { measure: { declared: { syncInterval } } });

type Consumers = Parameters<typeof NONE_YET.planned>[1];
const lagIn = (table: PlannedTable, consumers: Consumers) =>
  plannedLags(table).planned('shop', consumers, BUILT_IN_ENOUGH);

describe('the planned lag of a pod with consumers', () => {
  test('is the control plane’s followed by the consumer’s', () => {
    expect(lagIn(measuredTable(2, { edge: 7 }), [reports('edge')]).known!.quantile(50)).toBeCloseTo(9, 0);
  });

  test('waits for the slowest of several, which start together', () => {
    const applying = [reports('edge'), declared('copy', 20), declared('near', 1)];
    const lag = lagIn(measuredTable(2, { edge: 7 }), applying);
    expect(Math.abs(lag.known!.quantile(99) - 22)).toBeLessThan(0.5);
    expect(lag.parts.map(({ name, source }) => [name, source])).toEqual([
      [CONTROL_PLANE, 'measured'],
      ['edge', 'measured'],
      ['copy', 'declared'],
      ['near', 'declared'],
    ]);
  });

  test('stays at hand for those that ask often, however many others ask', () => {
    const lags = plannedLags(measuredTable(2, { edge: 7 }));
    const often = () => lags.planned('shop', [reports('edge')], BUILT_IN_ENOUGH);
    const first = often();
    for (let seconds = 1; seconds <= 600; seconds += 1) {
      lags.planned('shop', [declared('copy', seconds)], BUILT_IN_ENOUGH);
      expect(often()).toBe(first);
    }
  });

  test('is the control plane’s alone where no consumer applies', () => {
    const lag = lagIn(measuredTable(2, { edge: 7 }), []);
    expect(lag.known!.quantile(50)).toBeCloseTo(2, 1);
    expect(lag.parts).toHaveLength(1);
  });

  test('percentiles are not added: two polls one after the other are rarely both late', () => {
    const p99 = lagIn(tableOfDensities(uniformUpTo(10)), [polling('edge', 10)]).known!.quantile(99);
    // The p99 of the sum of two uniform lags from 0 to 10 s is 20 − √2 s.
    expect(Math.abs(p99 - (20 - Math.SQRT2))).toBeLessThan(0.4);
  });

  test('counts the samples and the history of the measured part that is known least', () => {
    const consumers = new Map([['edge', historyOf([7], 300, START, 4_000)]]);
    const table = tableOf({ cluster: historyOf([2]), consumers });
    const lag = lagIn(table, [reports('edge')]);
    expect(lag).toMatchObject({ samples: 300 });
    expect(Math.abs(lag.historySeconds - 4_000)).toBeLessThan(900);
    // What is declared has no samples, and needs none.
    expect(lagIn(table, [declared('copy', 20)])).toMatchObject({ samples: 5_000 });
  });

  test('a consumer that has not been measured leaves the known parts as they are, and coverage open', () => {
    const lag = lagIn(measuredTable(2), [reports('edge'), declared('copy', 9)]);
    expect(lag.parts.filter(({ enough }) => !enough).map(({ name }) => name)).toEqual(['edge']);
    expect(lag.known!.quantile(99)).toBeCloseTo(11, 0);
    expect(lag.coverage).toBeUndefined();
  });

  test('before anything is measured, only what is declared is known', () => {
    expect(NONE_YET.planned('shop', [reports('edge')], BUILT_IN_ENOUGH).known).toBeUndefined();
    const lag = NONE_YET.planned('shop', [declared('copy', 20)], BUILT_IN_ENOUGH);
    expect(lag).toMatchObject({ samples: 0, historySeconds: 0, coverage: undefined });
    expect(lag.known!.quantile(99) / 20).toBeCloseTo(1, 1);
  });

  test.each([
    [0, false],
    [99, false],
    [100, true],
  ])('the built-in consumer with %d samples is known: %s', (samples, known) => {
    const consumers = new Map([['cluster-ip', historyOf([1], samples, START, 6_000)]]);
    const lag = lagIn(tableOf({ cluster: historyOf([2]), consumers }), [CLUSTER_IP]);
    expect(lag.known!.quantile(99)).toBeCloseTo(known ? 3 : 2, 0);
    expect(lag.coverage !== undefined).toBe(known);
  });

  test('a declaration that is changed counts at once, while the table stays', () => {
    const table = measuredTable(2);
    const p99 = (seconds: number) => lagIn(table, [declared('edge', seconds)]).known!.quantile(99);
    expect(p99(30) - p99(10)).toBeGreaterThan(18);
    expect(p99(10)).toBeLessThan(13);
  });

  test('of a consumer that replaces a built-in one counts by the policy’s thresholds at once, while the table stays', () => {
    const consumers = new Map([['cluster-ip', historyOf([1], 150, START, 6_000)]]);
    const lags = plannedLags(tableOf({ cluster: historyOf([2]), consumers }));
    const isKnown = (consumer: Consumers[number]) =>
      lags.planned('shop', [consumer], BUILT_IN_ENOUGH).coverage !== undefined;
    expect([CLUSTER_IP, reports('cluster-ip'), CLUSTER_IP].map(isKnown)).toEqual([true, false, true]);
  });

  test('is worked out once for all pods alike', () => {
    const lags = plannedLags(measuredTable(2, { edge: 7 }));
    const consumers = [reports('edge')];
    const first = lags.planned('shop', consumers, BUILT_IN_ENOUGH);
    expect(lags.planned('other', consumers, { ...BUILT_IN_ENOUGH })).toBe(first);
    expect(lags.planned('shop', consumers, { ...BUILT_IN_ENOUGH, minSamples: 9_000 })).not.toBe(first);
  });

  it('is never longer than the longest of each, and never shorter than either', () => {
    const seconds = fc.double({ min: 0.01, max: 300, noNaN: true });
    fc.assert(
      fc.property(seconds, seconds, seconds, (plane, edge, copy) => {
        const table = tableOfDensities(uniformUpTo(plane), { edge: uniformUpTo(edge) });
        const lag = lagIn(table, [reports('edge'), declared('copy', copy)]).known!;
        const longest = plane + Math.max(edge, copy);
        for (const percentile of [50, 90, 99, 100]) {
          const value = lag.quantile(percentile);
          expect(value).toBeLessThanOrEqual(longest * 1.04 + 0.002);
          expect(value).toBeGreaterThanOrEqual(copy * 0.98);
          expect(value).toBeGreaterThanOrEqual(quantileOf(uniformUpTo(plane), percentile) * 0.96);
        }
      }),
      { numRuns: 30 },
    );
  });
});

describe('a table as text', () => {
  const namespaces = new Map([['shop', historyOf([0.2, 3], 2_000)]]);
  const cluster = historyOf([0.2, 0.2, 0.2, 3], 20_000);
  for (let each = 0; each < 500; each += 1) cluster.record(30, START - 7_000 + each / 10);
  const table = tableOf({ cluster, namespaces, consumers: new Map([['edge', historyOf([7])]]) });

  test('comes back as it was', () => {
    expect(table.cluster!.episode).toBeDefined();
    const read = plannedFromJson(JSON.parse(plannedToText(table)))!;
    expect(plannedToText(read)).toBe(plannedToText(table));
    for (const percentile of [50, 90, 99, 99.9, 100]) {
      expect(lagIn(read, [reports('edge')]).known!.quantile(percentile)).toBe(
        lagIn(table, [reports('edge')]).known!.quantile(percentile),
      );
    }
  });

  test.each<[string, (json: Record<string, unknown>) => unknown]>([
    ['nothing', () => undefined],
    ['an older version', (json) => ({ ...json, v: 1 })],
    ['no consumers', ({ consumers: _, ...json }) => json],
  ])('%s is not read', (_, spoil) => {
    expect(
      plannedFromJson(spoil(JSON.parse(plannedToText(table)) as Record<string, unknown>)),
    ).toBeUndefined();
  });

  test.each([
    ['a curve that does not add up', { current: '5' }],
    ['no curve', { current: undefined }],
    ['a slower curve that does not add up', { slow: '5' }],
    ['a number that JSON does not have', { samples: null }],
    ['half a sample', { samples: 1.5 }],
    ['a history that is no number', { history: 'a day' }],
    ['an unknown scope', { scope: 'node' }],
    ['nothing reached', { reached: undefined }],
    ['half a sample reached', { reached: [1.5, 60] }],
    ['an unknown time reached', { reached: [1, null] }],
  ])('%s costs its own row only', (_, change) => {
    const json = JSON.parse(plannedToText(table)) as { namespaces: Record<string, object> };
    const read = plannedFromJson({
      ...json,
      namespaces: { ...json.namespaces, odd: { ...json.namespaces.shop, ...change } },
    });
    expect(read).toEqual(plannedFromJson(json));
    expect(
      plannedFromJson({ ...json, cluster: { ...json.namespaces.shop, ...change } })!.namespaces.size,
    ).toBe(1);
  });

  test.each([
    ['that is none', 3],
    ['without a beginning', { from: null }],
    ['without an end', { to: 'later' }],
    ['without a share', { share: undefined }],
    ['without a curve that adds up', { without: '5' }],
  ])('an episode %s costs itself only', (_, change) => {
    const json = JSON.parse(plannedToText(table)) as { cluster: { episode: object } };
    const episode = typeof change === 'number' ? change : { ...json.cluster.episode, ...change };
    const { cluster } = plannedFromJson({ ...json, cluster: { ...json.cluster, episode } })!;
    const { episode: _episode, ...row } = table.cluster!;
    expect(cluster).toEqual(row);
  });

  test('a row with a number that JSON does not have is not written', () => {
    const odd = { ...table.cluster!, samples: Number.NaN };
    const written = plannedFromJson(JSON.parse(plannedToText({ ...table, cluster: odd })))!;
    expect([written.cluster, written.namespaces.size, written.consumers.size]).toEqual([undefined, 1, 1]);
  });

  test('for 200 consumers and 50 namespaces fits a ConfigMap, with room to spare', () => {
    const random = fc.sample(fc.double({ min: 0.01, max: 60, noNaN: true }), { numRuns: 2_000, seed: 1 });
    const row = historyOf(random, 5_000);
    const names = (prefix: string, count: number) =>
      new Map(Array.from({ length: count }, (_, index) => [`${prefix}-${index}`, row]));
    const large = tableOf({ cluster: row, namespaces: names('ns', 50), consumers: names('edge', 200) });
    expect([large.namespaces.size, large.consumers.size]).toEqual([50, 200]);
    const text = plannedToText(large);
    expect(text.length).toBeLessThan(700_000);
    // A run of digits that long would be slow to parse.
    expect(text).not.toMatch(/\d{40}/);
    const shrunk = shrunkTable(large, text.length / 1.1);
    expect(shrunk.namespaces.size).toBe(25);
    expect(shrunk.consumers.size).toBe(200);
  });
});
