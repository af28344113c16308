import { BUCKETS, lastBucketWithin } from './buckets.ts';
import { WITNESSED_ENOUGH } from './consumer.ts';
import { type Density, type LagScope, quantileOf, quantilesOf } from './distribution.ts';
import {
  type Enough,
  furthest,
  isEnough,
  type LagHistory,
  OWN_SECONDS,
  type Reached,
  type WindowLags,
} from './lag-history.ts';

/** The built-in policy’s, until the policies in force are known. */
export const BUILT_IN_ENOUGH: Enough = { minSamples: 200, minHistory: 86_400 };

/** From when on a built-in consumer counts: with fewer samples its p99 would be its worst or second-worst one. */
export const ENOUGH_OF_BUILT_IN: Enough = { minSamples: 100, minHistory: 0 };

/** From when on a witness is published, and counts. */
export const ENOUGH_OF_WITNESS: Enough = { minSamples: WITNESSED_ENOUGH, minHistory: 0 };

/** From when on a namespace's own lag counts: its p99 then rests on ten lags instead of one or two. */
export const OWN_SAMPLES = 1_000;

/** Curves are published in whole units of 0.005 %, so that every replica computes with exactly the same numbers. */
export const UNITS = 20_000;

/** One scope's published lag. Curves are distributions by bucket, in units that add up to {@link UNITS}. */
export interface PlannedRow {
  readonly scope: LagScope;
  readonly samples: number;
  /** How far back the samples reach. */
  readonly historySeconds: number;
  readonly reached: Reached;
  /** The lags of the window, as measured: a plan states its coverage by them. */
  readonly current: Density;
  /** The curve that waits are taken from: the pointwise maximum of the hourly curves of the last 24 hours. */
  readonly slow: Density;
  /** Measured before the history was lost, or lengthened since: no more than that is known again. */
  readonly kept?: true;
  /** A short span without which waits would be shorter. */
  readonly episode?: PlannedEpisode;
}

export interface PlannedEpisode {
  /** Seconds since the epoch. */
  readonly from: number;
  readonly to: number;
  /** The share of the removals that ended in it, 0 to 1. */
  readonly share: number;
  /** The curve {@link PlannedRow.slow} as it would be without the episode. */
  readonly without: Density;
}

export interface PlannedTable {
  /** When it was made: seconds since the epoch; −Infinity for none. */
  readonly at: number;
  readonly cluster: PlannedRow | undefined;
  /** Only namespaces with enough samples of their own. */
  readonly namespaces: ReadonlyMap<string, PlannedRow>;
  /** By name: how long a consumer takes after the control plane has withdrawn an endpoint. */
  readonly consumers: ReadonlyMap<string, PlannedRow>;
}

export const NOTHING_PLANNED: PlannedTable = {
  at: Number.NEGATIVE_INFINITY,
  cluster: undefined,
  namespaces: new Map(),
  consumers: new Map(),
};

export interface MeasuredHistories {
  readonly cluster: LagHistory;
  readonly namespaces: ReadonlyMap<string, LagHistory>;
  /** All measured consumers; undefined until they are known. */
  readonly consumers: ReadonlyMap<string, LagHistory> | undefined;
}

const PUBLISH_SECONDS = 600;

const PERCENTILES = [50, 90, 99, 99.9] as const;

/** A percentile must move by this share, and by this much, to count as changed: waits go in steps of 5 s. */
const MOVED_SHARE = 0.05;
const MOVED_SECONDS = 0.05;

/** The coverage in plans may be wrong by this much. */
const MOVED_COVERAGE = 0.003;
const WAITS: readonly number[] = Array.from({ length: 60 }, (_, index) => 5 * (index + 1));

/**
 * The next published table, or the same one where nothing is due. A row is renewed when a percentile or the coverage of a
 * wait has moved, the table at most every {@link PUBLISH_SECONDS}; a scope's first row, and the first with enough
 * history, are published at once. Each hour of a scope is a step of a millisecond or two at most.
 *
 * The hourly curves of the last 24 hours are computed from the history and not stored, so nothing of an old curve
 * survives a restart, a new leader or a forgotten span.
 *
 * @param now seconds since the epoch
 * @param asked the thresholds of the policies in force
 */
export function* nextPlanned(
  table: PlannedTable,
  { cluster, namespaces, consumers }: MeasuredHistories,
  now: number,
  asked: readonly Enough[] = [BUILT_IN_ENOUGH],
): Generator<undefined, PlannedTable> {
  const ofConsumers = [...asked, ENOUGH_OF_BUILT_IN];
  const isDue = (row: PlannedRow | undefined, history: LagHistory, enough: readonly Enough[]) =>
    row === undefined ? history.samples > 0 : isNewlyEnough(history.reached(now), row, enough);
  const atOnce =
    isDue(table.cluster, cluster, asked) ||
    [...(consumers ?? [])].some(([name, each]) => isDue(table.consumers.get(name), each, ofConsumers));
  // A clock that was set back must not delay a table.
  if (!atOnce && Math.abs(now - table.at) < PUBLISH_SECONDS) return table;

  const minSamples = Math.max(...asked.map((each) => each.minSamples));
  const look = { now, minSamples, asked };
  const ofCluster = yield* curvesOf(cluster, look);
  // Not further back than it takes: what is older does not count as its own.
  const lookAtOwn = { ...look, minSamples: Math.min(minSamples, OWN_SAMPLES) };
  const rows = new Map<string, PlannedRow>();
  const next = {
    cluster: yield* nextRow(table.cluster, cluster, look, { curves: ofCluster }),
    namespaces: new Map<string, PlannedRow>(),
    consumers: consumers === undefined ? table.consumers : rows,
  };
  // A namespace whose history was lost with the cluster's would otherwise have the cluster's waits.
  if (next.cluster?.kept) for (const [name, row] of table.namespaces) next.namespaces.set(name, row);
  for (const [name, history] of namespaces) {
    if (history.samples < OWN_SAMPLES) continue;
    const own = yield* curvesOf(history, lookAtOwn);
    if (!own.some(isOwn)) continue;
    // While the namespace's own lag did not count, its pods had the cluster's waits.
    const curves = own.map((curve) =>
      isOwn(curve) ? curve : (ofCluster.find(({ at }) => at === curve.at) ?? curve),
    );
    const reached = furthest(history.reached(now), cluster.reached(now));
    const row = yield* nextRow(table.namespaces.get(name), history, lookAtOwn, {
      scope: 'namespace',
      curves,
      reached,
    });
    if (row !== undefined) next.namespaces.set(name, row);
  }
  for (const [name, history] of consumers ?? []) {
    const row = yield* nextRow(table.consumers.get(name), history, { ...look, asked: ofConsumers });
    if (row !== undefined) rows.set(name, row);
  }
  const same =
    next.cluster === table.cluster &&
    sameRows(next.namespaces, table.namespaces) &&
    sameRows(next.consumers, table.consumers);
  return same ? table : { at: now, ...next };
}

function isNewlyEnough(
  reached: Reached,
  before: Pick<PlannedRow, 'reached'>,
  asked: readonly Enough[],
): boolean {
  return asked.some((enough) => isEnough(reached, enough) && !isEnough(before.reached, enough));
}

function isOwn({ samples, historySeconds }: HourlyCurve): boolean {
  return samples >= OWN_SAMPLES && historySeconds <= OWN_SECONDS;
}

/** The share of lags beyond each bucket, at one hour. */
interface HourlyCurve extends Omit<WindowLags, 'counts'> {
  readonly longer: Uint32Array;
}

function curveOf({ counts, ...lags }: WindowLags): HourlyCurve {
  const longer = new Uint32Array(BUCKETS);
  let [beyond, units] = [0, 0];
  for (let bucket = BUCKETS - 1; bucket >= 0; bucket -= 1) {
    longer[bucket] = units;
    const count = counts[bucket] as number;
    if (count === 0) continue;
    beyond += count;
    // Rounded up, so that no rare lag is lost and no coverage is overstated.
    units = Math.ceil((beyond / lags.samples) * UNITS - 1e-6);
  }
  return { ...lags, longer };
}

interface Look {
  readonly now: number;
  readonly minSamples: number;
  readonly asked: readonly Enough[];
}

/** The current curve comes first. Each hour is a step. */
function* curvesOf(
  history: LagHistory,
  { now, minSamples }: Look,
): Generator<undefined, readonly HourlyCurve[]> {
  const curves: HourlyCurve[] = [];
  for (const lags of history.windows(now, minSamples)) {
    curves.push(curveOf(lags));
    yield;
  }
  return curves;
}

/** The published row until as much is known as it rests on, but longer where what is known by now is. */
function keptRow(before: PlannedRow, curves: readonly HourlyCurve[]): PlannedRow {
  const slow = largestOf([...curves, beyondEach(before.slow)]);
  if (before.kept && !haveMoved(slow, before.slow)) return before;
  return {
    ...before,
    current: largestOf([...curves.slice(0, 1), beyondEach(before.current)]),
    slow,
    kept: true,
  };
}

/**
 * The row to publish: the previous one where a new one would make no difference, or nothing is measured any more.
 * @param of what differs from the history's own
 */
function* nextRow(
  before: PlannedRow | undefined,
  history: LagHistory,
  look: Look,
  of: {
    readonly scope?: LagScope;
    readonly curves?: readonly HourlyCurve[];
    readonly reached?: Reached;
  } = {},
): Generator<undefined, PlannedRow | undefined> {
  const { scope = 'cluster', reached = history.reached(look.now) } = of;
  // Without the stored history, which may be lost or unreadable for now, a new leader knows less than is published.
  const isLost = before !== undefined && isNewlyEnough(before.reached, { reached }, look.asked);
  const counts = !isLost || history.samples >= ENOUGH_OF_BUILT_IN.minSamples;
  const curves = counts ? (of.curves ?? (yield* curvesOf(history, look))) : [];
  if (isLost) return keptRow(before, curves);
  const [current] = curves;
  if (current === undefined) return before;
  // Whole seconds, as written: the leader decides by exactly the numbers that the other replicas read.
  const row = {
    scope,
    samples: current.samples,
    historySeconds: Math.floor(current.historySeconds),
    reached: { ...reached, seconds: Math.floor(reached.seconds) },
    current: densityOf(current.longer),
    slow: largestOf(curves),
  };
  const relevant = (1 - MOVED_SHARE) * quantileOf(row.current, 99);
  const [first] = history.episodes(look.now, look.minSamples);
  const episode = first && first.p99WithoutSeconds <= relevant ? first : undefined;
  const differs =
    before === undefined ||
    before.kept ||
    isNewlyEnough(row.reached, before, look.asked) ||
    row.scope !== before.scope ||
    (episode === undefined) !== (before.episode === undefined) ||
    haveMoved(row.slow, before.slow) ||
    haveMoved(row.current, before.current) ||
    hasCoverageMoved(row.current, before.current);
  if (!differs) return before;
  if (episode === undefined) return row;
  const { from, to, share } = episode;
  const without = largestOf(yield* curvesOf(history.without(from, to), look));
  return { ...row, episode: { from, to, share, without } };
}

/** The pointwise maximum: beyond each bucket, the largest share of any curve. */
function largestOf(curves: readonly Pick<HourlyCurve, 'longer'>[]): Density {
  const longest = new Uint32Array(BUCKETS);
  for (const { longer } of curves) {
    for (let bucket = 0; bucket < BUCKETS; bucket += 1) {
      const units = longer[bucket] as number;
      if (units > (longest[bucket] as number)) longest[bucket] = units;
    }
  }
  return densityOf(longest);
}

function beyondEach(density: Density): Pick<HourlyCurve, 'longer'> {
  let beyond = UNITS;
  return { longer: Uint32Array.from(density, (units) => (beyond -= units)) };
}

function densityOf(longer: Uint32Array): Density {
  const density = new Float64Array(BUCKETS);
  let before = UNITS;
  for (let bucket = 0; bucket < BUCKETS; bucket += 1) {
    const units = longer[bucket] as number;
    density[bucket] = before - units;
    before = units;
  }
  return density;
}

function haveMoved(now: Density, before: Density): boolean {
  const then = quantilesOf(before, PERCENTILES);
  return quantilesOf(now, PERCENTILES).some((is, index) => {
    const was = then[index] as number;
    return Math.abs(is - was) >= Math.max(MOVED_SECONDS, MOVED_SHARE * was);
  });
}

function hasCoverageMoved(now: Density, before: Density): boolean {
  let [upTo, bucket] = [0, 0];
  for (const wait of WAITS) {
    for (const last = lastBucketWithin(wait); bucket <= last; bucket += 1) {
      upTo += (now[bucket] ?? 0) - (before[bucket] ?? 0);
    }
    if (Math.abs(upTo) >= MOVED_COVERAGE * UNITS) return true;
  }
  return false;
}

function sameRows(a: ReadonlyMap<string, PlannedRow>, b: ReadonlyMap<string, PlannedRow>): boolean {
  return a.size === b.size && [...a].every(([name, row]) => row === b.get(name));
}
