import { isRecord } from '../schema/shape.ts';
import type { MeasuredLag } from './estimate.ts';
import { CELLS } from './grid.ts';
import { integersFromText, integersToText, isCount, isInstant } from './integer-text.ts';
import { MILLIONTHS, nothingPending, type Pending, type PlannedRow, type PlannedTable } from './planned.ts';

const VERSION = 1;

/** The lag that a row publishes, for percentiles to be taken. */
export function plannedLag(row: PlannedRow): MeasuredLag {
  const density = new Float64Array(CELLS);
  let longer = MILLIONTHS;
  row.longer.forEach((millionths, cell) => {
    density[cell] = longer - millionths;
    longer = millionths;
  });
  const { scope, samples, historySeconds } = row;
  return { scope, samples, historySeconds, density, stages: [] };
}

/**
 * The table as compact JSON text.
 * @param pending whether what has not held long enough yet goes along: a replica that only answers does without, the
 *   next leader needs it, or every change of leader would put off all changes of waits
 */
export function plannedToText(table: PlannedTable, pending: boolean): string {
  const { cluster, namespaces, consumers } = table;
  return JSON.stringify({
    v: VERSION,
    ...(cluster === undefined ? {} : { cluster: rowToJson(cluster, pending) }),
    namespaces: rowsToJson(namespaces, pending),
    consumers: rowsToJson(consumers, pending),
  });
}

/** Reads what {@link plannedToText} wrote, parsed. @returns undefined when it is none, or of another version */
export function plannedFromJson(json: unknown): PlannedTable | undefined {
  if (!isRecord(json) || json.v !== VERSION) return undefined;
  const cluster = json.cluster === undefined ? undefined : rowFromJson(json.cluster);
  if (json.cluster !== undefined && cluster === undefined) return undefined;
  const namespaces = rowsFromJson(json.namespaces);
  // Absent in what a version before consumers were measured has written.
  const consumers = rowsFromJson(json.consumers ?? {});
  if (namespaces === undefined || consumers === undefined) return undefined;
  return { cluster, namespaces, consumers };
}

function rowsToJson(rows: ReadonlyMap<string, PlannedRow>, pending: boolean): unknown {
  return Object.fromEntries([...rows].map(([name, row]) => [name, rowToJson(row, pending)]));
}

function rowsFromJson(json: unknown): ReadonlyMap<string, PlannedRow> | undefined {
  if (!isRecord(json)) return undefined;
  const rows = new Map<string, PlannedRow>();
  for (const [name, each] of Object.entries(json)) {
    const row = rowFromJson(each);
    if (row === undefined) return undefined;
    rows.set(name, row);
  }
  return rows;
}

function rowToJson(row: PlannedRow, pending: boolean): unknown {
  const { scope, samples, historySeconds, latest, away, smoothed } = row;
  return {
    scope,
    samples,
    historySeconds,
    latest,
    ...(away === undefined ? {} : { away }),
    smoothed,
    // The differences: small numbers and runs of zeros.
    shares: integersToText(plannedLag(row).density),
    ...(pending ? { rising: pendingToJson(row.rising), falling: pendingToJson(row.falling) } : {}),
  };
}

function pendingToJson({ since, nearest }: Pending): unknown {
  const relevant = nearest.map((millionths, cell) => ((since[cell] ?? 0) > 0 ? millionths : 0));
  return { since: integersToText(since), nearest: integersToText(relevant) };
}

function rowFromJson(json: unknown): PlannedRow | undefined {
  if (!isRecord(json)) return undefined;
  const { scope, samples, historySeconds, latest, away, smoothed } = json;
  if (scope !== 'cluster' && scope !== 'namespace') return undefined;
  if (!isCount(samples) || !isInstant(historySeconds) || !isInstant(latest)) return undefined;
  if (typeof smoothed !== 'boolean' || !(away === undefined || isInstant(away))) return undefined;
  const longer = longerFromText(json.shares);
  const rising = pendingFromJson(json.rising);
  const falling = pendingFromJson(json.falling);
  if (longer === undefined || rising === undefined || falling === undefined) return undefined;
  return { scope, samples, historySeconds, latest, away, smoothed, longer, rising, falling };
}

function longerFromText(text: unknown): Uint32Array | undefined {
  const shares = integersFromText(text, CELLS);
  if (shares === undefined) return undefined;
  let left = MILLIONTHS;
  const longer = new Uint32Array(CELLS);
  for (const [cell, share] of shares.entries()) {
    left -= share;
    if (left < 0) return undefined;
    longer[cell] = left;
  }
  return left === 0 ? longer : undefined;
}

function pendingFromJson(json: unknown): Pending | undefined {
  if (json === undefined) return nothingPending();
  if (!isRecord(json)) return undefined;
  const since = integersFromText(json.since, CELLS);
  const nearest = integersFromText(json.nearest, CELLS);
  if (since === undefined || nearest === undefined) return undefined;
  if (nearest.some((millionths) => millionths > MILLIONTHS)) return undefined;
  return { since, nearest: Uint32Array.from(nearest) };
}
