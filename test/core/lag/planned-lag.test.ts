import { describe, expect, it, test } from 'vitest';
import { taken } from '../../../src/core/api/index.ts';
import { LagHistory } from '../../../src/core/lag/lag-history.ts';
import {
  BUILT_IN_ENOUGH,
  type MeasuredHistories,
  NOTHING_PLANNED,
  nextPlanned,
  type PlannedTable,
} from '../../../src/core/lag/planned-lag.ts';
import { plannedFromJson, plannedToText } from '../../../src/core/lag/planned-lag-codec.ts';
import { plannedLags } from '../../../src/core/lag/planned-lag-query.ts';
import { randomOf } from '../../property/random.ts';
import { historyOf, START, tableOf } from './sample-table.ts';

const HOUR = 3_600;
const DAY = 24 * HOUR;

const only = (cluster: LagHistory): MeasuredHistories => ({
  cluster,
  namespaces: new Map(),
  consumers: undefined,
});
const next = (table: PlannedTable, measured: MeasuredHistories, now: number) =>
  taken(nextPlanned(table, measured, now));
const p99 = (table: PlannedTable, namespace = 'nobody') =>
  Math.round(plannedLags(table).planned(namespace, [], BUILT_IN_ENOUGH).seen?.quantile(99) ?? -1);

/** So many lags of this length, evenly over the time until an instant. */
function add(history: LagHistory, seconds: number, count: number, from: number, to: number): void {
  for (let each = 0; each < count; each += 1) {
    history.record(seconds, from + ((to - from) * (each + 0.5)) / count);
  }
}

describe('a table is published', () => {
  it('with the first sample, and then at most every ten minutes', () => {
    const cluster = new LagHistory();
    cluster.record(1, START);
    const first = next(NOTHING_PLANNED, only(cluster), START);
    expect(first).toMatchObject({ at: START, cluster: { samples: 1 } });
    add(cluster, 9, 100, START, START + 60);
    expect(next(first, only(cluster), START + 599)).toBe(first);
    expect(p99(next(first, only(cluster), START + 600))).toBe(9);
  });

  it('at once when there is enough history for a wait', () => {
    const cluster = historyOf([1], 199, START + DAY, DAY);
    const table = next(NOTHING_PLANNED, only(cluster), START + DAY);
    cluster.record(1, START + DAY + 1);
    const enough = next(table, only(cluster), START + DAY + 1);
    expect(enough).not.toBe(table);
    expect(plannedLags(enough).planned('x', [], BUILT_IN_ENOUGH).known).toBeDefined();
    // Another policy asks for more.
    const asked = [BUILT_IN_ENOUGH, { minSamples: 201, minHistory: 0 }];
    cluster.record(1, START + DAY + 2);
    expect(next(enough, only(cluster), START + DAY + 2)).toBe(enough);
    expect(taken(nextPlanned(enough, only(cluster), START + DAY + 2, asked))).not.toBe(enough);
  });

  describe('of a history that was lost: as it was', () => {
    const table = next(NOTHING_PLANNED, only(historyOf([5], 5_000)), START);
    const after = (seconds: number, samples: number, hours: number) => {
      const cluster = new LagHistory();
      add(cluster, seconds, samples, START + HOUR, START + hours * HOUR);
      return next(table, only(cluster), START + hours * HOUR);
    };

    test.each<[string, number, number, number, number, true | undefined]>([
      ['until there is enough again', 1, 300, 24, 5, true],
      ['whatever a few samples say', 30, 99, 2, 5, true],
      ['but longer from 100 samples on', 30, 100, 2, 30, true],
      ['and no more once there is enough', 1, 300, 26, 1, undefined],
    ])('%s', (_, seconds, samples, hours, expected, kept) => {
      const row = after(seconds, samples, hours);
      expect([p99(row), row.cluster?.kept]).toEqual([expected, kept]);
      expect(plannedFromJson(JSON.parse(plannedToText(row)))).toEqual(row);
    });

    it('and is not published again without a reason', () => {
      const cluster = new LagHistory();
      add(cluster, 30, 100, START, START + HOUR);
      const kept = next(table, only(cluster), START + HOUR);
      expect(next(kept, only(cluster), START + 2 * HOUR)).toBe(kept);
    });

    it('that of a namespace, too', () => {
      const lost = { cluster: new LagHistory(), namespaces: new Map(), consumers: undefined };
      const namespaces = new Map([['shop', historyOf([9], 2_000)]]);
      const before = tableOf({ cluster: historyOf([1]), namespaces });
      expect(p99(next(before, lost, START + HOUR), 'shop')).toBe(9);
    });
  });

  it('by a clock that was set back, too', () => {
    const cluster = historyOf([1]);
    const table = next(NOTHING_PLANNED, only(cluster), START);
    add(cluster, 20, 5_000, START - 10 * DAY, START - 9 * DAY);
    expect(p99(next(table, only(cluster), START - 9 * DAY))).toBe(20);
  });

  it('not while nothing changes but chance: three hours of the same', () => {
    const random = randomOf(7);
    const cluster = new LagHistory();
    const lag = () => 0.05 + 0.3 * random();
    let at = START - 2 * DAY;
    for (; at < START; at += 30) cluster.record(lag(), at);
    let table = next(NOTHING_PLANNED, only(cluster), START);
    let writes = 0;
    for (; at < START + 3 * HOUR; at += 30) {
      cluster.record(lag(), at);
      const after = next(table, only(cluster), at);
      if (after !== table) writes += 1;
      table = after;
    }
    expect(writes).toBeLessThanOrEqual(2);
  });

  it('when the stated coverage would be wrong, though no percentile has moved', () => {
    const cluster = historyOf([0.2], 9_985);
    add(cluster, 40, 15, START - DAY, START);
    const table = next(NOTHING_PLANNED, only(cluster), START);
    // 0.15 % → 0.85 % of 40 s: p99 is 0.2 s and p99.9 40 s as before.
    add(cluster, 40, 70, START, START + HOUR);
    const after = next(table, only(cluster), START + HOUR);
    const { coverage } = plannedLags(after).planned('x', [], BUILT_IN_ENOUGH);
    expect(coverage!(5)).toBeCloseTo(1 - 85 / 10_070, 3);
  });
});

describe('a longer lag', () => {
  const cluster = historyOf([1], 5_000);
  const calm = next(NOTHING_PLANNED, only(cluster), START);
  add(cluster, 20, 100, START, START + 600);
  const risen = next(calm, only(cluster), START + 600);
  cluster.forget(START, START + 600);

  it('is believed at once', () => {
    expect([p99(calm), p99(risen)]).toEqual([1, 20]);
  });

  it('that is forgotten is gone at once: no curve of it is kept', () => {
    expect(p99(next(risen, only(cluster), START + 1_200))).toBe(1);
  });

  it('that has left the window stays for a day', () => {
    const history = new LagHistory();
    add(history, 20, 100, START, START + 600);
    add(history, 1, 8_000, START, START + 9 * DAY);
    const at = (seconds: number) => next(NOTHING_PLANNED, only(history), START + seconds);
    const left = 7 * DAY + 900;
    expect(p99(at(left - HOUR))).toBe(20);
    // Coverage is that of today.
    const after = at(left + HOUR);
    const lag = plannedLags(after).planned('x', [], BUILT_IN_ENOUGH);
    expect([Math.round(lag.known!.quantile(99)), lag.coverage!(5)]).toEqual([20, 1]);
    expect(p99(at(left + DAY - HOUR))).toBe(20);
    expect(p99(at(left + DAY + HOUR))).toBe(1);
  });
});

describe('a namespace', () => {
  const cluster = historyOf([1], 5_000);

  it('has a row of its own from 1,000 samples on', () => {
    const table = (samples: number) =>
      tableOf({ cluster, namespaces: new Map([['shop', historyOf([9], samples)]]) });
    expect([table(999), table(1_000)].map((each) => p99(each, 'shop'))).toEqual([1, 9]);
  });

  it('that has just become busy counts as known for as long as the cluster', () => {
    const shop = historyOf([9], 1_200, START, HOUR);
    const table = tableOf({ cluster, namespaces: new Map([['shop', shop]]) });
    const lag = plannedLags(table).planned('shop', [], BUILT_IN_ENOUGH);
    expect(lag.scope).toBe('namespace');
    expect(lag.known?.quantile(99)).toBeCloseTo(9, 0);
  });

  it('that has fallen quiet speaks for itself for four weeks, and the day that waits take to fall', () => {
    const shop = new LagHistory();
    add(shop, 9, 1_100, START, START + 900);
    const busy = historyOf([1], 31_000, START + 31 * DAY, 31 * DAY);
    const at = (seconds: number) =>
      tableOf({ cluster: busy, namespaces: new Map([['shop', shop]]) }, START + seconds);
    expect(p99(at(28 * DAY), 'shop')).toBe(9);
    expect(p99(at(29 * DAY + 2 * HOUR), 'shop')).toBe(1);
  });
});

describe('rows of consumers', () => {
  const cluster = historyOf([2]);
  const began = tableOf({ cluster, consumers: new Map([['edge', historyOf([7])]]) });

  test.each<[string, MeasuredHistories['consumers'], string[]]>([
    ['of a consumer that is gone go', new Map(), []],
    ['of one without a sample stay', new Map([['edge', new LagHistory()]]), ['edge']],
    ['stay while it is not known which consumers there are', undefined, ['edge']],
  ])('%s', (_, consumers, names) => {
    const table = next(began, { cluster, namespaces: new Map(), consumers }, START + 600);
    expect([...table.consumers.keys()]).toEqual(names);
  });
});

test('the leader decides by the very numbers that other replicas read', () => {
  const cluster = new LagHistory();
  // At instants and over a span that are no whole seconds.
  add(cluster, 0.73, 300, START + 0.251, START + 1.5 * DAY + 0.777);
  const consumers = new Map([['edge', historyOf([7], 150, START + DAY + 0.4, DAY - 0.3)]]);
  const measured = { cluster, namespaces: new Map([['shop', cluster]]), consumers };
  const table = next(NOTHING_PLANNED, measured, START + 1.5 * DAY + 0.9);
  expect(plannedFromJson(JSON.parse(plannedToText(table)))).toEqual(table);
});
