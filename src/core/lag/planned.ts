import { type Density, totalOf } from './combine.ts';
import type { LagDistribution } from './distribution.ts';
import type { MeasuredLag } from './estimate.ts';
import { CELLS } from './grid.ts';

/** A longer lag is believed when it has held this long: pods created in the meantime still get the old wait. */
export const RISE_SECONDS = 600;

/** A shorter lag is believed after a day, so that a calm night does not shorten the waits of the morning. */
export const FALL_SECONDS = 86_400;

/**
 * A namespace that no longer speaks for itself follows the cluster's lag for two falls (the second covers what was
 * pending when it began), and then has no row of its own any more.
 */
const AWAY_SECONDS = 2 * FALL_SECONDS;

/**
 * Before so many samples (the built-in `minSamples`) no wait is taken from the curve, and a first odd lag must not
 * stay in it for a day: up to here it follows at once.
 */
const SMOOTHED_FROM = 200;

/** Shares are published in millionths, whole numbers: every replica computes with exactly the same. */
export const MILLIONTHS = 1_000_000;

/** The lag as measured now, and when its newest sample ended (seconds since the epoch). */
export interface Candidate {
  readonly lag: MeasuredLag;
  readonly latest: number;
}

export interface Candidates {
  readonly cluster: Candidate | undefined;
  /** Only the namespaces that have samples enough of their own. */
  readonly namespaces: ReadonlyMap<string, Candidate>;
  /**
   * Every consumer that there is and that is measured, by name; undefined: it has no sample of the last 7 days. Absent
   * as long as nobody knows which there are.
   */
  readonly consumers?: ReadonlyMap<string, Candidate | undefined> | undefined;
}

/** Since when (0: not at all) a share has been on the other side of the published one, and the nearest it came. */
export interface Pending {
  readonly since: Float64Array;
  readonly nearest: Uint32Array;
}

/** One scope's published lag, and the changes that have not held long enough yet. Never changed in place. */
export interface PlannedRow {
  readonly scope: LagDistribution['scope'];
  readonly samples: number;
  readonly historySeconds: number;
  readonly latest: number;
  /** Since when a namespace has followed the cluster's lag for want of its own; undefined while it has. */
  readonly away: number | undefined;
  /** Whether there have ever been samples enough for the curve to be held back. */
  readonly smoothed: boolean;
  /** By cell: how many millionths of the lags are longer than it. Never rises from cell to cell; ends at 0. */
  readonly longer: Uint32Array;
  readonly rising: Pending;
  readonly falling: Pending;
}

export interface PlannedTable {
  readonly cluster: PlannedRow | undefined;
  readonly namespaces: ReadonlyMap<string, PlannedRow>;
  /** By name: how long a consumer takes from when the control plane has withdrawn an endpoint. */
  readonly consumers: ReadonlyMap<string, PlannedRow>;
}

export const NOTHING_PLANNED: PlannedTable = {
  cluster: undefined,
  namespaces: new Map(),
  consumers: new Map(),
};

/**
 * The next published table; pure, for the leader to call every half minute or so.
 *
 * What is smoothed is not one wait but the whole curve "what share of lags is longer than x", for each x of the grid:
 * a share rises when a higher one has held for {@link RISE_SECONDS}, to the lowest seen meanwhile, and falls after
 * {@link FALL_SECONDS}, to the highest seen meanwhile. Any percentile of the curve, and with it every wait that any
 * policy takes from it, therefore rises only to what has held, and within twice that time; the same for falling.
 * Where a scope has no new samples since the last step its row stays as it is.
 *
 * @param now seconds since the epoch of the candidates
 */
export function nextPlanned(table: PlannedTable, candidates: Candidates, now: number): PlannedTable {
  const consumers = nextConsumers(table.consumers, candidates.consumers, now);
  if (candidates.cluster === undefined) {
    return consumers === table.consumers ? table : { ...table, consumers };
  }
  const cluster = nextRow(table.cluster, 'cluster', candidates.cluster, now);
  const namespaces = new Map<string, PlannedRow>();
  for (const name of new Set([...table.namespaces.keys(), ...candidates.namespaces.keys()])) {
    const own = candidates.namespaces.get(name);
    // Until now its pods had the cluster's waits: what is different rises and falls from there.
    const before = table.namespaces.get(name) ?? (table.cluster && settled(table.cluster));
    const row =
      own === undefined
        ? awayRow(before, candidates.cluster, now)
        : reaching(nextRow(before, 'namespace', own, now), cluster.historySeconds);
    if (row !== undefined) namespaces.set(name, row);
  }
  return { cluster, namespaces, consumers };
}

/** The rows of consumers that there are; one without new samples stays as it is, however long that takes. */
function nextConsumers(
  rows: PlannedTable['consumers'],
  candidates: Candidates['consumers'],
  now: number,
): PlannedTable['consumers'] {
  if (candidates === undefined || (rows.size === 0 && candidates.size === 0)) return rows;
  const next = new Map<string, PlannedRow>();
  for (const [name, candidate] of candidates) {
    const before = rows.get(name);
    const row = candidate === undefined ? before : nextRow(before, 'cluster', candidate, now);
    if (row !== undefined) next.set(name, row);
  }
  return next;
}

/** Its curve grew out of the cluster's, so the samples behind it reach as far back. */
function reaching(row: PlannedRow, clusterHistory: number): PlannedRow {
  return { ...row, away: undefined, historySeconds: Math.max(row.historySeconds, clusterHistory) };
}

function awayRow(before: PlannedRow | undefined, cluster: Candidate, now: number): PlannedRow | undefined {
  const away = before?.away ?? now;
  if (before === undefined || now - away >= AWAY_SECONDS) return undefined;
  return { ...nextRow(before, 'cluster', cluster, now), away };
}

/** The row without what is pending, and open to samples of any time. */
function settled(row: PlannedRow): PlannedRow {
  return { ...row, latest: Number.NEGATIVE_INFINITY, rising: nothingPending(), falling: nothingPending() };
}

function nextRow(
  row: PlannedRow | undefined,
  scope: LagDistribution['scope'],
  { lag, latest }: Candidate,
  now: number,
): PlannedRow {
  const { samples, historySeconds } = lag;
  const wanted = sharesLonger(lag.density);
  const smoothed = row?.smoothed === true || samples >= SMOOTHED_FROM;
  const facts = { scope, samples, historySeconds, latest, away: undefined, smoothed };
  if (row === undefined || !row.smoothed) {
    return { ...facts, longer: wanted, rising: nothingPending(), falling: nothingPending() };
  }
  if (row.scope === scope && latest <= row.latest) return row;
  const next = {
    ...facts,
    longer: row.longer.slice(),
    rising: copyOf(row.rising),
    falling: copyOf(row.falling),
  };
  for (let cell = 0; cell < CELLS; cell += 1) stepCell(next, cell, wanted[cell] ?? 0, Math.floor(now));
  // Cells that rose at different times may cross; what is longer than more is longer than less, too.
  for (let cell = CELLS - 2; cell >= 0; cell -= 1) {
    next.longer[cell] = Math.max(next.longer[cell] ?? 0, next.longer[cell + 1] ?? 0);
  }
  return next;
}

type Curves = Pick<PlannedRow, 'longer' | 'rising' | 'falling'>;

function stepCell({ longer, rising, falling }: Curves, cell: number, wanted: number, now: number): void {
  const present = longer[cell] ?? 0;
  if (wanted <= present) rising.since[cell] = 0;
  if (wanted >= present) falling.since[cell] = 0;
  if (wanted === present) return;
  const [pending, nearer, hold] =
    wanted > present
      ? ([rising, Math.min, RISE_SECONDS] as const)
      : ([falling, Math.max, FALL_SECONDS] as const);
  const since = pending.since[cell] ?? 0;
  const nearest = since === 0 ? wanted : nearer(pending.nearest[cell] ?? 0, wanted);
  if (since === 0 || now - since < hold) {
    pending.since[cell] = since === 0 ? now : since;
    pending.nearest[cell] = nearest;
    return;
  }
  // A cell that was lifted by its neighbour may have passed what it was rising to.
  longer[cell] = wanted > present ? Math.max(present, nearest) : nearest;
  // Where it went further than that, the rest begins to hold now.
  pending.since[cell] = nearest === wanted ? 0 : now;
  pending.nearest[cell] = wanted;
}

function sharesLonger(density: Density): Uint32Array {
  const total = totalOf(density);
  const longer = new Uint32Array(CELLS);
  let beyond = 0;
  for (let cell = CELLS - 1; cell >= 0; cell -= 1) {
    longer[cell] = Math.round((beyond / total) * MILLIONTHS);
    beyond += density[cell] ?? 0;
  }
  return longer;
}

export function nothingPending(): Pending {
  return { since: new Float64Array(CELLS), nearest: new Uint32Array(CELLS) };
}

function copyOf(pending: Pending): Pending {
  return { since: pending.since.slice(), nearest: pending.nearest.slice() };
}
