import { nothingPending, type Pending, type PlannedRow, type PlannedTable } from './planned.ts';

/**
 * The table from which a new leader goes on: what is published, which everybody's waits come from, and what was
 * pending when the leader before it last wrote that down. Pure.
 *
 * A row's pending changes count only towards the curve that they were pending on: where another one has been published
 * since, they begin to hold anew. Instants that lie ahead were written by a clock that was set wrong; they would keep
 * the row as it is until then.
 *
 * @param kept the last table that was written with what was pending; undefined: there is none
 * @param now seconds since the epoch
 */
export function takenOver(
  published: PlannedTable,
  kept: PlannedTable | undefined,
  now: number,
): PlannedTable {
  const cluster = published.cluster && takenOverRow(published.cluster, kept?.cluster, now);
  const rows = (of: 'namespaces' | 'consumers') =>
    new Map([...published[of]].map(([name, row]) => [name, takenOverRow(row, kept?.[of].get(name), now)]));
  return { cluster, namespaces: rows('namespaces'), consumers: rows('consumers') };
}

function takenOverRow(row: PlannedRow, kept: PlannedRow | undefined, now: number): PlannedRow {
  const same = kept !== undefined && kept.scope === row.scope && sameShares(kept.longer, row.longer);
  return {
    ...row,
    latest: Math.min(row.latest, now),
    away: row.away === undefined ? undefined : Math.min(row.away, now),
    rising: same ? notAhead(kept.rising, now) : nothingPending(),
    falling: same ? notAhead(kept.falling, now) : nothingPending(),
  };
}

function notAhead({ since, nearest }: Pending, now: number): Pending {
  return { since: since.map((instant) => Math.min(instant, Math.floor(now))), nearest: nearest.slice() };
}

/** Whether two tables give the same waits, but for what they say of their samples. */
export function sameCurves(a: PlannedTable, b: PlannedTable): boolean {
  return (
    sameRow(a.cluster, b.cluster) &&
    sameRows(a.namespaces, b.namespaces) &&
    sameRows(a.consumers, b.consumers)
  );
}

function sameRows(a: ReadonlyMap<string, PlannedRow>, b: ReadonlyMap<string, PlannedRow>): boolean {
  return a.size === b.size && [...a].every(([name, row]) => sameRow(row, b.get(name)));
}

function sameRow(a: PlannedRow | undefined, b: PlannedRow | undefined): boolean {
  if (a === undefined || b === undefined) return a === b;
  return a.scope === b.scope && a.smoothed === b.smoothed && sameShares(a.longer, b.longer);
}

function sameShares(a: Uint32Array, b: Uint32Array): boolean {
  return a.length === b.length && a.every((share, cell) => share === b[cell]);
}

/** The table without the namespaces that have the fewest samples, until its text is at most so long. */
export function shrunkTable(
  table: PlannedTable,
  characters: number,
  textOf: (table: PlannedTable) => string,
): { readonly table: PlannedTable; readonly text: string } {
  const byActivity = [...table.namespaces].sort(([, a], [, b]) => b.samples - a.samples);
  for (let kept = byActivity.length; ; kept >>= 1) {
    const fitting =
      kept === byActivity.length ? table : { ...table, namespaces: new Map(byActivity.slice(0, kept)) };
    const text = textOf(fitting);
    if (text.length <= characters || kept === 0) return { table: fitting, text };
  }
}
