import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ChangeSummary, type ObservedChange } from '../../../src/core/lag/endpoint-changes.ts';

const change = (lag: number | undefined, more: Partial<ObservedChange> = {}): ObservedChange => ({
  change: 'removed',
  source: 'Endpoints',
  namespace: 'shop',
  service: 'web',
  uid: 'uid-a',
  pod: 'a',
  ip: '10.0.0.1',
  withdrawn: true,
  at: 0,
  lag,
  seen: 'live',
  ...more,
});

function summaryOf(...changes: readonly ObservedChange[]): ChangeSummary {
  const summary = new ChangeSummary();
  for (const each of changes) summary.add(each);
  return summary;
}

const BOTH = ['Endpoints', 'EndpointSlice'] as const;

describe('the summary', () => {
  it('counts changes by source and kind, and lags apart from those without one', () => {
    const [slices, endpoints] = summaryOf(
      change(1),
      change(undefined),
      change(undefined, { change: 'added', source: 'EndpointSlice' }),
    ).sources(BOTH);
    expect(slices).toMatchObject({ source: 'EndpointSlice', samples: 0, lag: undefined });
    expect(slices?.changes).toEqual({ added: 1, ready: 0, notReady: 0, terminating: 0, removed: 0 });
    expect(endpoints).toMatchObject({ samples: 1, lag: { p50: 1, p90: 1, p99: 1, max: 1 } });
    expect(endpoints?.changes.removed).toBe(2);
  });

  it('leaves out initial endpoints, and sources that are not wanted', () => {
    const summary = summaryOf(change(undefined, { seen: 'initial' }));
    expect(summary.sources(['Endpoints']).map(({ changes }) => changes.removed)).toEqual([0]);
  });

  it('has percentiles within 2 %, and never above the longest', () => {
    const lags = fc.array(fc.double({ min: 0.002, max: 7_000, noNaN: true }), {
      minLength: 1,
      maxLength: 60,
    });
    fc.assert(
      fc.property(lags, (all) => {
        const [summary] = summaryOf(...all.map((lag) => change(lag))).sources(['Endpoints']);
        const sorted = all.toSorted((a, b) => a - b);
        for (const [percentile, value] of [
          [50, summary?.lag?.p50 ?? 0],
          [90, summary?.lag?.p90 ?? 0],
          [99, summary?.lag?.p99 ?? 0],
        ] as const) {
          const exact = sorted[Math.ceil((percentile / 100) * sorted.length - 1e-9) - 1] ?? 0;
          expect(Math.abs(value - exact)).toBeLessThanOrEqual(0.02 * exact);
          expect(value).toBeLessThanOrEqual(sorted.at(-1) ?? 0);
        }
        expect(summary?.lag?.max).toBe(sorted.at(-1));
      }),
    );
  });

  it('keeps the five slowest, slowest first, the earlier of two alike in front', () => {
    const lags = [1, 5, 2, 5, 3, 0.5, 4];
    const { slowest } = summaryOf(...lags.map((lag, index) => change(lag, { pod: `pod-${index}` })));
    expect(slowest.map(({ lag, pod }) => [lag, pod])).toEqual([
      [5, 'pod-1'],
      [5, 'pod-3'],
      [4, 'pod-6'],
      [3, 'pod-4'],
      [2, 'pod-2'],
    ]);
  });
});
