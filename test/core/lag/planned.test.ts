import { describe, expect, it, test } from 'vitest';
import { exactly } from '../../../src/core/lag/combine.ts';
import { cellOf } from '../../../src/core/lag/grid.ts';
import {
  type Candidates,
  FALL_SECONDS,
  NOTHING_PLANNED,
  nextPlanned,
  type PlannedTable,
  RISE_SECONDS,
} from '../../../src/core/lag/planned.ts';
import { plannedLags } from '../../../src/core/lag/planned-lags.ts';
import { plannedFromJson, plannedToText } from '../../../src/core/lag/published.ts';
import { decide } from '../../../src/core/plan/decide.ts';
import { creationOf, pod } from '../sample-pod.ts';
import { worldOf } from '../sample-world.ts';
import { candidates, lag, type Measured, p99, START } from './sample-candidates.ts';

const MINUTE = 60;

/** Steps every minute from one instant (exclusive) to another, with samples all the time. */
function run(table: PlannedTable, measured: Measured, from: number, to: number): PlannedTable {
  let next = table;
  for (let now = from + MINUTE; now <= to; now += MINUTE)
    next = nextPlanned(next, candidates(measured, now), now);
  return next;
}

const begun = (measured: Measured) => nextPlanned(NOTHING_PLANNED, candidates(measured, START), START);

describe('the planned lag', () => {
  it('begins with the first that is measured', () => {
    expect(plannedLags(NOTHING_PLANNED).planned('shop', [])).toBeUndefined();
    expect(nextPlanned(NOTHING_PLANNED, { cluster: undefined, namespaces: new Map() }, START)).toBe(
      NOTHING_PLANNED,
    );
    expect(p99(begun({ cluster: 4 }))).toBe(4);
  });

  it('follows at once while nobody takes a wait from it yet', () => {
    const few = (seconds: number) => {
      const { lag: of, latest } = lag(seconds, START + seconds);
      return { cluster: { lag: { ...of, samples: 199 }, latest }, namespaces: new Map() };
    };
    const table = nextPlanned(nextPlanned(NOTHING_PLANNED, few(90), START), few(4), START + MINUTE);
    expect(p99(table)).toBe(4);
  });

  it('rises when the higher value has held for 10 minutes', () => {
    const first = START + MINUTE;
    const almost = run(begun({ cluster: 4 }), { cluster: 30 }, START, first + RISE_SECONDS - MINUTE);
    expect(p99(almost)).toBe(4);
    expect(p99(run(almost, { cluster: 30 }, first + RISE_SECONDS - MINUTE, first + RISE_SECONDS))).toBe(30);
  });

  it('rises to what held, not to what peaked', () => {
    let table = run(begun({ cluster: 4 }), { cluster: 12 }, START, START + 5 * MINUTE);
    table = run(table, { cluster: 60 }, START + 5 * MINUTE, START + 11 * MINUTE);
    expect(p99(table)).toBe(12);
    table = run(table, { cluster: 60 }, START + 11 * MINUTE, START + 21 * MINUTE);
    expect(p99(table)).toBe(60);
  });

  it('also where it is only a share of the removals that is slow', () => {
    const slow = (share: number) => {
      const density = exactly(1);
      density[cellOf(1)] = 1 - share;
      density[cellOf(60)] = share;
      return density;
    };
    const measured = (share: number, at: number): Candidates => {
      const { lag: of, latest } = lag(1, at);
      return { cluster: { lag: { ...of, density: slow(share) }, latest }, namespaces: new Map() };
    };
    let table = nextPlanned(NOTHING_PLANNED, measured(0.001, START), START);
    for (let minute = 1; minute <= 11; minute += 1) {
      const now = START + minute * MINUTE;
      table = nextPlanned(table, measured(minute < 9 ? 0.05 : 0.5, now), now);
    }
    const at = (percentile: number) =>
      Math.round(plannedLags(table).planned('nobody', [])!.quantile(percentile));
    expect([at(60), at(94), at(96)]).toEqual([1, 1, 60]);
  });

  it('does not rise when the higher value went away meanwhile', () => {
    let table = begun({ cluster: 4 });
    for (let round = 0; round < 5; round += 1) {
      const from = START + round * 10 * MINUTE;
      table = run(table, { cluster: 60 }, from, from + 9 * MINUTE);
      table = run(table, { cluster: 4 }, from + 9 * MINUTE, from + 10 * MINUTE);
    }
    expect(p99(table)).toBe(4);
  });

  it('falls after a day, to the highest of that day', () => {
    const first = START + MINUTE;
    let table = run(begun({ cluster: 30 }), { cluster: 9 }, START, START + 3_600);
    table = run(table, { cluster: 4 }, START + 3_600, first + FALL_SECONDS - MINUTE);
    expect(p99(table)).toBe(30);
    table = run(table, { cluster: 4 }, first + FALL_SECONDS - MINUTE, first + FALL_SECONDS);
    expect(p99(table)).toBe(9);
    expect(p99(run(table, { cluster: 4 }, first + FALL_SECONDS, START + 2 * FALL_SECONDS + 3_600))).toBe(4);
  });

  it('does not fall when one morning of the day was as slow as before', () => {
    let table = run(begun({ cluster: 30 }), { cluster: 4 }, START, START + FALL_SECONDS / 2);
    table = run(table, { cluster: 30 }, START + FALL_SECONDS / 2, START + FALL_SECONDS / 2 + MINUTE);
    expect(p99(run(table, { cluster: 4 }, START + FALL_SECONDS / 2 + MINUTE, START + FALL_SECONDS))).toBe(30);
  });

  it('stays when there are no new samples, however long', () => {
    const table = run(begun({ cluster: 30 }), { cluster: 4 }, START, START + 3_600);
    const week = START + 7 * FALL_SECONDS;
    const stale = nextPlanned(table, candidates({ cluster: 4 }, START + 3_600), week);
    expect(p99(stale)).toBe(30);
    expect(nextPlanned(stale, { cluster: undefined, namespaces: new Map() }, week)).toBe(stale);
  });
});

describe('a namespace', () => {
  it('that begins to speak for itself rises and falls from the cluster’s', () => {
    const before = begun({ cluster: 10 });
    const slower = run(before, { cluster: 10, shop: 20 }, START, START + MINUTE);
    expect([p99(slower, 'shop'), p99(slower)]).toEqual([10, 10]);
    const held = run(slower, { cluster: 10, shop: 20 }, START + MINUTE, START + 11 * MINUTE);
    expect([p99(held, 'shop'), p99(held)]).toEqual([20, 10]);
    const faster = run(before, { cluster: 10, shop: 3 }, START, START + FALL_SECONDS);
    expect(p99(faster, 'shop')).toBe(10);
    expect(
      p99(run(faster, { cluster: 10, shop: 3 }, START + FALL_SECONDS, START + FALL_SECONDS + MINUTE), 'shop'),
    ).toBe(3);
  });

  it('reaches as far back as the cluster that it grew out of', () => {
    const own = lag(20, START + MINUTE, 'namespace');
    const table = nextPlanned(
      begun({ cluster: 10 }),
      {
        cluster: lag(10, START + MINUTE),
        namespaces: new Map([['shop', { ...own, lag: { ...own.lag, historySeconds: 60 } }]]),
      },
      START + MINUTE,
    );
    expect(plannedLags(table).planned('shop', [])).toMatchObject({
      scope: 'namespace',
      historySeconds: 200_000,
    });
  });

  it('that falls silent follows the cluster, and then has no row of its own', () => {
    const own = run(begun({ cluster: 10, shop: 30 }), { cluster: 10, shop: 30 }, START, START + 3_600);
    expect(p99(own, 'shop')).toBe(30);
    const day = run(own, { cluster: 10 }, START + 3_600, START + FALL_SECONDS + 3_600);
    expect(p99(day, 'shop')).toBe(30);
    const later = run(day, { cluster: 10 }, START + FALL_SECONDS + 3_600, START + 1.5 * FALL_SECONDS);
    expect(later.namespaces.has('shop')).toBe(true);
    const gone = run(day, { cluster: 10 }, START + FALL_SECONDS + 3_600, START + 2 * FALL_SECONDS + 3_660);
    expect(gone.namespaces.has('shop')).toBe(false);
    expect(p99(gone, 'shop')).toBe(10);
  });
});

describe('the published table', () => {
  it('is what the wait is taken from: 1.5 × 8.9 s, in steps of 5 s', () => {
    const measured = (namespace: string) => {
      const lag = plannedLags(begun({ cluster: 4, shop: 8.9 })).planned(namespace, [])!;
      const decision = decide(creationOf(pod()), worldOf([], { lag }));
      return decision.outcome === 'inject' ? [decision.plan.wait, decision.plan.why] : decision.reason;
    };
    expect(measured('shop')).toEqual([15, 'measured']);
    expect(measured('nobody')).toEqual([10, 'measured']);
  });

  it('gives every replica exactly the same lags', () => {
    const table = run(begun({ cluster: 4, shop: 9 }), { cluster: 6, shop: 8 }, START, START + 3_600);
    const read = plannedFromJson(JSON.parse(plannedToText(table, false)))!;
    for (const namespace of ['shop', 'nobody']) {
      for (const percentile of [50, 90, 99, 99.9]) {
        const of = (each: PlannedTable) => plannedLags(each).planned(namespace, [])?.quantile(percentile);
        expect(of(read)).toBe(of(table));
      }
    }
  });

  test.each<[string, unknown]>([
    ['another version', { v: 2, namespaces: {} }],
    ['nothing', null],
    ['no namespaces', { v: 1 }],
    ['a row that is none', { v: 1, cluster: {}, namespaces: {} }],
  ])('%s is not read', (_, json) => {
    expect(plannedFromJson(json)).toBeUndefined();
  });

  it('shares that do not add up to all are not read', () => {
    const json = JSON.parse(plannedToText(begun({ cluster: 4 }), false)) as { cluster: { shares: string } };
    const cluster = { ...json.cluster, shares: `${json.cluster.shares},1` };
    expect(plannedFromJson({ ...json, cluster })).toBeUndefined();
  });
});
