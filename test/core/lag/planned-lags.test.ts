import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { CLUSTER_IP, consumerOf } from '../../../src/core/consumers/consumer.ts';
import { type Density, exactly, quantileOf, uniformUpTo } from '../../../src/core/lag/combine.ts';
import { NOTHING_PLANNED, nextPlanned, type PlannedTable } from '../../../src/core/lag/planned.ts';
import { NONE_YET, plannedLags } from '../../../src/core/lag/planned-lags.ts';
import { plannedFromJson, plannedToText } from '../../../src/core/lag/published.ts';

const NOW = 20_000 * 86_400;
const DAY = 86_400;

interface Known {
  readonly density: Density;
  readonly samples?: number;
  readonly historySeconds?: number;
}

const candidate = ({ density, samples = 5_000, historySeconds = 2 * DAY }: Known) => ({
  lag: { scope: 'cluster' as const, samples, historySeconds, density, stages: [] },
  latest: NOW,
});

/** The table that comes of these lags. */
function tableOf(cluster: Known | undefined, consumers: Readonly<Record<string, Known>> = {}): PlannedTable {
  const rows = Object.entries(consumers).map(([name, known]) => [name, candidate(known)] as const);
  return nextPlanned(
    NOTHING_PLANNED,
    { cluster: cluster && candidate(cluster), namespaces: new Map(), consumers: new Map(rows) },
    NOW,
  );
}

const reports = (name: string) => consumerOf(name, { measure: { reports: {} } });
const declared = (name: string, lag: number) => consumerOf(name, { measure: { declared: { lag } } });
const polling = (name: string, syncInterval: number) =>
  consumerOf(name, { measure: { declared: { syncInterval } } });

describe('the planned lag of a pod with consumers', () => {
  test('is the control plane’s followed by the consumer’s', () => {
    const lags = plannedLags(tableOf({ density: exactly(2) }, { edge: { density: exactly(7) } }));
    expect(lags.planned('shop', [reports('edge')])!.quantile(50)).toBeCloseTo(9, 0);
  });

  test('waits for the slowest of several, which start together', () => {
    const lags = plannedLags(tableOf({ density: exactly(2) }, { edge: { density: exactly(7) } }));
    const lag = lags.planned('shop', [reports('edge'), declared('copy', 20), declared('near', 1)])!;
    expect(Math.abs(lag.quantile(99) - 22)).toBeLessThan(0.5);
    expect(lag.combined!.consumers.map(({ name, source }) => [name, source])).toEqual([
      ['edge', 'measured'],
      ['copy', 'declared'],
      ['near', 'declared'],
    ]);
  });

  test('is the control plane’s alone where no consumer applies', () => {
    const lag = plannedLags(tableOf({ density: exactly(2) }, { edge: { density: exactly(7) } })).planned(
      'shop',
      [],
    )!;
    expect(lag.quantile(50)).toBeCloseTo(2, 1);
    expect(lag.combined).toBeUndefined();
  });

  test('percentiles are not added: two polls one after the other are rarely both late', () => {
    const lags = plannedLags(tableOf({ density: uniformUpTo(10) }));
    const p99 = lags.planned('shop', [polling('edge', 10)])!.quantile(99);
    // Of the sum of two uniform [0, 10] s: 20 − √2 s.
    expect(Math.abs(p99 - (20 - Math.SQRT2))).toBeLessThan(0.4);
  });

  test('counts the samples and the history of the part that is known least', () => {
    const edge = { density: exactly(7), samples: 300, historySeconds: 4_000 };
    const lags = plannedLags(tableOf({ density: exactly(2) }, { edge }));
    expect(lags.planned('shop', [reports('edge')])).toMatchObject({ samples: 300, historySeconds: 4_000 });
    // What is declared has no samples, and needs none.
    expect(lags.planned('shop', [declared('copy', 20)])).toMatchObject({ samples: 5_000 });
  });

  test('names the consumers that nobody has measured yet', () => {
    const lag = plannedLags(tableOf({ density: exactly(2) })).planned('shop', [
      reports('edge'),
      declared('copy', 9),
    ])!;
    expect(lag.combined!.unmeasured).toEqual(['edge']);
  });

  test('before anything is measured, only what is declared is known', () => {
    expect(NONE_YET.planned('shop', [reports('edge')])).toBeUndefined();
    const lag = NONE_YET.planned('shop', [declared('copy', 20)])!;
    expect(lag).toMatchObject({ samples: 0, historySeconds: 0 });
    expect(lag.combined!.controlPlane).toBeUndefined();
    expect(lag.combined!.declared!.quantile(99) / 20).toBeCloseTo(1, 1);
  });

  test.each([
    [0, 2],
    [99, 2],
    [100, 3],
  ])('the built-in consumer with %d samples: %d s', (samples, seconds) => {
    const known = { density: exactly(1), samples };
    const lags = plannedLags(tableOf({ density: exactly(2) }, samples === 0 ? {} : { 'cluster-ip': known }));
    const lag = lags.planned('shop', [CLUSTER_IP])!;
    expect(lag.quantile(99)).toBeCloseTo(seconds, 0);
    expect(lag.combined?.unmeasured ?? []).toEqual([]);
  });

  test('a declaration that is changed counts at once, while the table stays', () => {
    const lags = plannedLags(tableOf({ density: exactly(2) }));
    const p99 = (seconds: number) => lags.planned('shop', [declared('edge', seconds)])!.quantile(99);
    expect(p99(30) - p99(10)).toBeGreaterThan(18);
    expect(p99(10)).toBeLessThan(13);
  });

  it('is never longer than the longest of each, and never shorter than either', () => {
    const seconds = fc.double({ min: 0.01, max: 300, noNaN: true });
    fc.assert(
      fc.property(seconds, seconds, seconds, (plane, edge, copy) => {
        const lags = plannedLags(
          tableOf({ density: uniformUpTo(plane) }, { edge: { density: uniformUpTo(edge) } }),
        );
        const lag = lags.planned('shop', [reports('edge'), declared('copy', copy)])!;
        const longest = plane + Math.max(edge, copy);
        for (const percentile of [50, 90, 99, 100]) {
          const value = lag.quantile(percentile);
          expect(value).toBeLessThanOrEqual(longest * 1.04 + 0.002);
          expect(value).toBeGreaterThanOrEqual(copy * 0.98);
          expect(value).toBeGreaterThanOrEqual(quantileOf(uniformUpTo(plane), percentile) * 0.98);
        }
      }),
    );
  });
});

describe('rows of consumers', () => {
  const began = tableOf({ density: exactly(2) }, { edge: { density: exactly(7) } });

  test('survive as text', () => {
    const read = plannedFromJson(JSON.parse(plannedToText(began, true)))!;
    expect(plannedToText(read, true)).toBe(plannedToText(began, true));
    expect(
      plannedLags(read)
        .planned('shop', [reports('edge')])!
        .quantile(99),
    ).toBeCloseTo(9, 0);
  });

  test('a text from before there were any has none', () => {
    const { consumers: _, ...older } = JSON.parse(plannedToText(began, true)) as Record<string, unknown>;
    expect(plannedFromJson(older)!.consumers.size).toBe(0);
  });

  test.each([
    ['of a consumer that is gone go', new Map(), []],
    ['of one without a sample of late stay', new Map([['edge', undefined]]), ['edge']],
    ['stay while nobody knows which there are', undefined, ['edge']],
  ])('%s', (_, consumers, names) => {
    const next = nextPlanned(
      began,
      { cluster: candidate({ density: exactly(2) }), namespaces: new Map(), consumers },
      NOW + 60,
    );
    expect([...next.consumers.keys()]).toEqual(names);
  });

  test('rise after ten minutes, like all others', () => {
    let table = began;
    const lagAt = (seconds: number) => {
      const now = NOW + seconds;
      const edge = { ...candidate({ density: exactly(20) }), latest: now };
      const candidates = { cluster: undefined, namespaces: new Map(), consumers: new Map([['edge', edge]]) };
      table = nextPlanned(table, candidates, now);
      return Math.round(
        plannedLags(table)
          .planned('shop', [reports('edge')])!
          .quantile(99),
      );
    };
    expect([60, 300, 600, 700].map(lagAt)).toEqual([9, 9, 9, 22]);
  });
});
