import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { quantileOf } from '../../../src/core/lag/combine.ts';
import { CELLS } from '../../../src/core/lag/grid.ts';
import { Histogram } from '../../../src/core/lag/histogram.ts';
import {
  FALL_SECONDS,
  NOTHING_PLANNED,
  nextPlanned,
  type PlannedTable,
  RISE_SECONDS,
} from '../../../src/core/lag/planned.ts';
import { plannedFromJson, plannedLag, plannedToText } from '../../../src/core/lag/published.ts';
import { runs } from '../../property/runs.ts';

const START = 20_000 * 86_400;

const curve = fc
  .array(fc.double({ min: 0, max: 900, noNaN: true }), { minLength: 1, maxLength: 30 })
  .map((values) => {
    const histogram = new Histogram();
    for (const value of values) histogram.record(value);
    return histogram.counts;
  });
const steps = fc.array(fc.tuple(curve, fc.constantFrom(30, 300, 700, 40_000, 90_000)), {
  minLength: 1,
  maxLength: 25,
});

/** Runs the curves through, telling `check` each step. */
function walk(
  all: readonly (readonly [Float64Array, number])[],
  check: (table: PlannedTable, seen: readonly { at: number; density: Float64Array }[]) => void,
): void {
  let table = NOTHING_PLANNED;
  let now = START;
  const seen: { at: number; density: Float64Array }[] = [];
  for (const [density, after] of all) {
    now += after;
    const measured = { scope: 'cluster' as const, samples: 5_000, historySeconds: 1e6, density, stages: [] };
    table = nextPlanned(table, { cluster: { lag: measured, latest: now }, namespaces: new Map() }, now);
    seen.push({ at: now, density });
    check(table, seen);
  }
}

describe('whatever is measured', () => {
  it('the curve is a distribution, and every percentile is one that was measured, or lies between two', () => {
    fc.assert(
      fc.property(steps, (all) => {
        walk(all, (table, seen) => {
          const { longer } = table.cluster!;
          expect(longer.every((millionths, cell) => cell === 0 || millionths <= longer[cell - 1]!)).toBe(
            true,
          );
          expect(longer[CELLS - 1]).toBe(0);
          for (const p of [20, 50, 90, 99]) {
            // A millionth is the resolution of the table.
            const near = (by: number) => seen.map(({ density }) => quantileOf(density, p + by));
            const value = quantileOf(plannedLag(table.cluster!).density, p);
            expect(value).toBeGreaterThanOrEqual(Math.min(...near(-1e-4)));
            expect(value).toBeLessThanOrEqual(Math.max(...near(1e-4)));
          }
        });
      }),
      runs(60),
    );
  });

  it('a percentile that was not exceeded is not exceeded by the plan before it has held for 10 minutes', () => {
    fc.assert(
      fc.property(steps, (all) => {
        let before: number | undefined;
        walk(all, (table, seen) => {
          const value = quantileOf(plannedLag(table.cluster!).density, 90);
          const now = seen.at(-1)!.at;
          const last = seen.findLast(({ at }) => at <= now - RISE_SECONDS) ?? seen[0]!;
          const held = seen
            .filter(({ at }) => at >= last.at)
            .map(({ density }) => quantileOf(density, 90.0001));
          if (before !== undefined && value > before) expect(value).toBeLessThanOrEqual(Math.min(...held));
          before = value;
        });
      }),
      runs(60),
    );
  });

  it('written and read, with what is pending, it goes on as if nothing had been', () => {
    fc.assert(
      fc.property(steps, curve, (all, density) => {
        walk(all, (table, seen) => {
          const read = plannedFromJson(JSON.parse(plannedToText(table, true)))!;
          expect(plannedToText(read, true)).toBe(plannedToText(table, true));
          const later = seen.at(-1)!.at + FALL_SECONDS;
          const measured = {
            scope: 'cluster' as const,
            samples: 6_000,
            historySeconds: 1e6,
            density,
            stages: [],
          };
          const next = { cluster: { lag: measured, latest: later }, namespaces: new Map() };
          expect(plannedToText(nextPlanned(read, next, later), true)).toBe(
            plannedToText(nextPlanned(table, next, later), true),
          );
        });
      }),
      runs(20),
    );
  });
});
