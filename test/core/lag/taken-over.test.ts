import { describe, expect, it } from 'vitest';
import {
  FALL_SECONDS,
  NOTHING_PLANNED,
  nextPlanned,
  type PlannedTable,
  RISE_SECONDS,
} from '../../../src/core/lag/planned.ts';
import { plannedFromJson, plannedToText } from '../../../src/core/lag/published.ts';
import { sameCurves, shrunkTable, takenOver } from '../../../src/core/lag/taken-over.ts';
import { candidates, p99, START } from './sample-candidates.ts';

const step = (table: PlannedTable, seconds: number, at: number, shop?: number) =>
  nextPlanned(table, candidates({ cluster: seconds, shop }, at), at);

/** As it is published: without what is pending. */
const published = (table: PlannedTable) => plannedFromJson(JSON.parse(plannedToText(table, false)))!;
const kept = (table: PlannedTable) => plannedFromJson(JSON.parse(plannedToText(table, true)))!;

/** A lag of 4 s that has been 20 s for the last 8 minutes. */
const rising = step(step(NOTHING_PLANNED, 4, START), 20, START + 60);

describe('a new leader', () => {
  it('goes on with a change that was pending, as if it had been there all the time', () => {
    const table = takenOver(published(rising), kept(rising), START + 500);
    expect(p99(step(table, 20, START + 60 + RISE_SECONDS - 1))).toBe(4);
    expect(p99(step(table, 20, START + 60 + RISE_SECONDS))).toBe(20);
  });

  it('begins the change anew where nobody knows since when it was pending', () => {
    const table = takenOver(published(rising), undefined, START + 500);
    const seen = step(table, 20, START + 500);
    expect(p99(step(seen, 20, START + 500 + RISE_SECONDS - 1))).toBe(4);
    expect(p99(step(seen, 20, START + 500 + RISE_SECONDS))).toBe(20);
  });

  it('takes what is published for true, and what was pending on another curve for nothing', () => {
    const falling = step(step(NOTHING_PLANNED, 20, START), 4, START + 60);
    const other = step(NOTHING_PLANNED, 12, START);
    const table = takenOver(published(other), kept(falling), START + 500);
    const seen = step(table, 4, START + 500);
    expect(p99(step(seen, 4, START + 60 + FALL_SECONDS))).toBe(12);
    expect(p99(step(seen, 4, START + 500 + FALL_SECONDS))).toBe(4);
  });

  it('does so for each namespace', () => {
    const shop = step(step(NOTHING_PLANNED, 4, START, 8), 4, START + 60, 30);
    const table = takenOver(published(shop), kept(shop), START + 500);
    expect(p99(step(table, 4, START + 60 + RISE_SECONDS, 30), 'shop')).toBe(30);
  });

  it('is not held back by a clock that was ahead', () => {
    const ahead = START + 10 * 86_400;
    const written = step(step(NOTHING_PLANNED, 4, ahead), 20, ahead + 60);
    const table = takenOver(published(written), kept(written), START);
    expect(p99(step(table, 20, START + RISE_SECONDS))).toBe(20);
  });

  it('begins with nothing where nothing is there', () => {
    expect(takenOver(NOTHING_PLANNED, undefined, START)).toEqual(NOTHING_PLANNED);
  });
});

describe('two tables', () => {
  const table = step(NOTHING_PLANNED, 4, START, 8);
  it.each<[string, PlannedTable, boolean]>([
    ['of other samples and the same lags', step(table, 4, START + 60, 8), true],
    ['with another change pending', step(table, 20, START + 60, 8), true],
    ['one of which has been written and read', published(table), true],
    ['of other lags', step(NOTHING_PLANNED, 5, START, 8), false],
    ['with other lags of a namespace', step(NOTHING_PLANNED, 4, START, 9), false],
    [
      'of another namespace',
      { ...table, namespaces: new Map([['x', table.namespaces.get('shop')!]]) },
      false,
    ],
    ['with a namespace less', step(NOTHING_PLANNED, 4, START), false],
    ['one of which is empty', NOTHING_PLANNED, false],
  ])('%s', (_name, other, same) => {
    expect(sameCurves(table, other)).toBe(same);
    expect(sameCurves(other, table)).toBe(same);
  });
});

describe('a table that is too long', () => {
  const namespaces = new Map(
    Array.from({ length: 20 }, (_, index) => [`n-${index}`, { ...rising.cluster!, samples: index }] as const),
  );
  const table = { ...rising, namespaces };
  const text = (each: PlannedTable) => plannedToText(each, false);

  it('loses the namespaces with the fewest samples', () => {
    const { table: shrunk, text: written } = shrunkTable(table, text(table).length / 2, text);
    expect(written).toBe(text(shrunk));
    expect(written.length).toBeLessThanOrEqual(text(table).length / 2);
    expect(shrunk.cluster).toBe(table.cluster);
    expect([...shrunk.namespaces.keys()]).toContain('n-19');
    expect([...shrunk.namespaces.keys()]).not.toContain('n-0');
  });

  it('keeps the cluster, however long that is', () => {
    expect(shrunkTable(table, 1, text).table).toEqual({ ...table, namespaces: new Map() });
  });

  it('is left as it is where there is room', () => {
    expect(shrunkTable(table, 1e6, text).table).toBe(table);
  });
});
