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

/** The thresholds of the built-in policy, used until the policies have been read. */
export const BUILT_IN_ENOUGH: Enough = { minSamples: 200, minHistory: 86_400 };

/** When the lag of a built-in consumer counts: with fewer samples, its p99 would be its worst or second-worst one. */
export const ENOUGH_OF_BUILT_IN: Enough = { minSamples: 100, minHistory: 0 };

/** When a witness is published and counts. */
export const ENOUGH_OF_WITNESS: Enough = { minSamples: WITNESSED_ENOUGH, minHistory: 0 };

/** A namespace's own lag counts from this many samples on: its p99 then depends on ten lags instead of one or two. */
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
  /** The lags of the window, as measured: the coverage that a plan states is taken from them. */
  readonly current: Density;
  /**
   * The curve that waits are based on: the pointwise maximum of the hourly curves of the last 24 hours. In the cluster's
   * curve, no namespace counts for more than all others together.
   */
  readonly slow: Density;
  /** The row is from before the history was lost (possibly lengthened since). It is kept until as much is known again. */
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
  /** Namespaces with enough samples of their own, and those whose own lags are longer than the cluster's row shows. */
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
  /** All measured consumers; undefined until the list of them is known. */
  readonly consumers: ReadonlyMap<string, LagHistory> | undefined;
}

const PUBLISH_SECONDS = 600;

const PERCENTILES = [50, 90, 99, 99.9] as const;

/**
 * A percentile must move by this share, and by at least this many seconds, to count as changed: waits go in steps of 5 s.
 */
const MOVED_SHARE = 0.05;
const MOVED_SECONDS = 0.05;

/**
 * The cap on one namespace needs at least this many removals in all others: with fewer, their p99 would be their worst one.
 */
const LEAST_OTHERS = 100;

/** How much the published coverage may deviate from the current one before the row is renewed. */
const MOVED_COVERAGE = 0.003;
const WAITS: readonly number[] = Array.from({ length: 60 }, (_, index) => 5 * (index + 1));

/** Whether something must be published at once: the first lags of a scope, or the first that are enough for a policy. */
export function isDueAtOnce(
  table: PlannedTable,
  { cluster, consumers }: Pick<MeasuredHistories, 'cluster' | 'consumers'>,
  now: number,
  asked: readonly Enough[] = [BUILT_IN_ENOUGH],
): boolean {
  const ofConsumers = [...asked, ENOUGH_OF_BUILT_IN];
  const isDue = (row: PlannedRow | undefined, history: LagHistory, enough: readonly Enough[]) =>
    row === undefined ? history.samples > 0 : isNewlyEnough(history.reached(now), row, enough);
  return (
    isDue(table.cluster, cluster, asked) ||
    [...(consumers ?? [])].some(([name, each]) => isDue(table.consumers.get(name), each, ofConsumers))
  );
}

/**
 * The next published table, or the same one where nothing is due. A row is renewed when a percentile or the coverage of a
 * wait has moved, the table at most every {@link PUBLISH_SECONDS}; a scope's first row, and the first with enough history,
 * are published at once. A step of the generator computes one hour of a scope and takes at most a millisecond or two.
 *
 * The hourly curves of the last 24 hours are computed from the history instead of being stored, so a restart, a new leader
 * or a forgotten span leaves nothing of an old curve behind.
 *
 * @param now seconds since the epoch
 * @param asked the thresholds of all current policies
 */
export function* nextPlanned(
  table: PlannedTable,
  { cluster, namespaces, consumers }: MeasuredHistories,
  now: number,
  asked: readonly Enough[] = [BUILT_IN_ENOUGH],
): Generator<undefined, PlannedTable> {
  const atOnce = isDueAtOnce(table, { cluster, consumers }, now, asked);
  // Compare absolute values, or a clock that was set back would delay the next table.
  if (!atOnce && Math.abs(now - table.at) < PUBLISH_SECONDS) return table;

  const minSamples = Math.max(...asked.map((each) => each.minSamples));
  const look = { now, minSamples, asked };
  const ofCluster = yield* curvesOf(cluster, look, [...namespaces.values()]);
  // Looks back only as far as needed for OWN_SAMPLES: older lags do not count as the namespace's own.
  const lookAtOwn = { ...look, minSamples: Math.min(minSamples, OWN_SAMPLES) };
  const rows = new Map<string, PlannedRow>();
  const next = {
    cluster: yield* nextRow(table.cluster, cluster, look, { curves: ofCluster }),
    namespaces: new Map<string, PlannedRow>(),
    consumers: consumers === undefined ? table.consumers : rows,
  };
  // The histories of namespaces are lost together with the cluster's; without their rows, they would get the cluster's
  // waits.
  if (next.cluster?.kept) for (const [name, row] of table.namespaces) next.namespaces.set(name, row);
  const isCapped = haveMoved(largestOf(cappedIn(ofCluster)), largestOf(ofCluster.map(longerIn)));
  for (const [name, history] of namespaces) {
    const before = table.namespaces.get(name);
    const own = history.samples < OWN_SAMPLES ? [] : yield* curvesOf(history, lookAtOwn);
    if (own.some(isOwn)) {
      // For hours in which the namespace had too few lags of its own, use the cluster's curve, as its pods did.
      const curves = own.map((curve) => {
        const instead = isOwn(curve) ? undefined : ofCluster.find(({ at }) => at === curve.at);
        return instead === undefined ? curve : { ...instead, capped: instead.longer };
      });
      const reached = furthest(history.reached(now), cluster.reached(now));
      const row = yield* nextRow(before, history, lookAtOwn, { scope: 'namespace', curves, reached });
      if (row !== undefined) next.namespaces.set(name, row);
    } else if (isCapped && next.cluster !== undefined && !next.cluster.kept) {
      // The cap protects other namespaces, so for the namespace itself, its own lags count in full.
      const { episode: _, ...ofAll } = next.cluster;
      const few = yield* curvesOf(history, look);
      const row = { ...ofAll, slow: largestOf([...few.map(longerIn), beyondEach(ofAll.slow)]) };
      if (!haveMoved(row.slow, ofAll.slow)) continue;
      next.namespaces.set(name, before === undefined || isNews(row, before, look) ? row : before);
    }
  }
  for (const [name, history] of consumers ?? []) {
    const row = yield* nextRow(table.consumers.get(name), history, {
      ...look,
      asked: [...asked, ENOUGH_OF_BUILT_IN],
    });
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

/** For one hour: the share of lags beyond each bucket, up to that of the longest lag. */
interface HourlyCurve extends Omit<WindowLags, 'counts'> {
  readonly longer: Uint32Array;
  /**
   * The same, capped so that no namespace counts for more than all others together; undefined: the others have too few lags.
   */
  readonly capped: Uint32Array | undefined;
}

const longerIn = ({ longer }: HourlyCurve) => longer;

/** The capped curves. Past hours with too few lags for a cap are left out. If there are too few now, no curve is capped. */
function cappedIn(curves: readonly HourlyCurve[]): readonly Uint32Array[] {
  return curves[0]?.capped === undefined
    ? curves.map(longerIn)
    : curves.flatMap(({ capped }) => capped ?? []);
}

function curveOf({ counts, ...lags }: WindowLags, namespaces: readonly LagHistory[]): HourlyCurve {
  const all = reachingEach(counts);
  const longer = sharesBeyond(all);
  const capped = cappedCounts(all, lags, namespaces);
  return { ...lags, longer, capped: capped === all ? longer : capped && sharesBeyond(capped) };
}

/** How many lags are in each bucket or a later one, up to the bucket of the longest lag. */
function reachingEach(counts: Density): Float64Array {
  let length = counts.length;
  while (length > 0 && counts[length - 1] === 0) length -= 1;
  const reaching = counts.slice(0, length);
  for (let bucket = reaching.length - 2; bucket >= 0; bucket -= 1)
    reaching[bucket] = (reaching[bucket] as number) + (reaching[bucket + 1] as number);
  return reaching;
}

/** The share of lags beyond each bucket, rounded up, so that rare lags are not lost and coverage is never overstated. */
function sharesBeyond(reaching: Float64Array): Uint32Array {
  const beyond = new Uint32Array(reaching.length);
  const total = reaching[0] as number;
  for (let bucket = 0; bucket < reaching.length - 1; bucket += 1)
    beyond[bucket] = Math.ceil(((reaching[bucket + 1] as number) / total) * UNITS - 1e-6);
  return beyond;
}

/**
 * A user with write access to one namespace can produce any number of removals there, as slow as they like. So at each
 * length, the namespace with the most removals of at least that length counts for as many as all others together: it can at
 * most double what the others have seen, or halve it, however many its own removals are.
 * @param all how many lags reach each bucket
 * @returns undefined: the others have too few lags to judge by
 */
function cappedCounts(
  all: Float64Array,
  { from, at }: Pick<WindowLags, 'from' | 'at'>,
  namespaces: readonly LagHistory[],
): Float64Array | undefined {
  const most = new Float64Array(all.length);
  for (const history of namespaces) {
    const reaching = reachingEach(history.countsWithin(from, at));
    for (let bucket = Math.min(reaching.length, most.length) - 1; bucket >= 0; bucket -= 1)
      most[bucket] = Math.max(most[bucket] as number, reaching[bucket] as number);
  }
  const others = (all[0] ?? 0) - (most[0] ?? 0);
  if (others < LEAST_OTHERS) return undefined;
  if (others === all[0]) return all;
  return all.map((count, bucket) => Math.max(0, Math.min(count, 2 * (count - (most[bucket] as number)))));
}

interface Look {
  readonly now: number;
  readonly minSamples: number;
  readonly asked: readonly Enough[];
}

/** The curve of now, then those of past hours, one in each step. @param namespaces those whose share is capped */
function* curvesOf(
  history: LagHistory,
  { now, minSamples }: Look,
  namespaces: readonly LagHistory[] = [],
): Generator<undefined, readonly HourlyCurve[]> {
  const curves: HourlyCurve[] = [];
  for (const lags of history.windows(now, minSamples)) {
    curves.push(curveOf(lags, namespaces));
    yield;
  }
  return curves;
}

/**
 * Keeps the published row until as much is known again as it was based on, but lengthens it where the new lags are longer.
 */
function keptRow(before: PlannedRow, curves: readonly HourlyCurve[]): PlannedRow {
  const slow = largestOf([...cappedIn(curves), beyondEach(before.slow)]);
  if (before.kept && !haveMoved(slow, before.slow)) return before;
  return {
    ...before,
    current: largestOf([...curves.slice(0, 1).map(longerIn), beyondEach(before.current)]),
    slow,
    kept: true,
  };
}

/**
 * The row to publish: the previous one if a new one would make no difference, or if nothing is measured any more.
 * @param of replaces what would be taken from the history
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
  // A new leader without the stored history, which may be lost or unreadable for now, knows less than what is published.
  const isLost = before !== undefined && isNewlyEnough(before.reached, { reached }, look.asked);
  const counts = !isLost || history.samples >= ENOUGH_OF_BUILT_IN.minSamples;
  const curves = counts ? (of.curves ?? (yield* curvesOf(history, look))) : [];
  if (isLost) return keptRow(before, curves);
  const [current] = curves;
  if (current === undefined) return before;
  // Whole seconds, as in the written text, so that the leader decides by exactly the numbers that other replicas read.
  const row = {
    scope,
    samples: current.samples,
    historySeconds: Math.floor(current.historySeconds),
    reached: { ...reached, seconds: Math.floor(reached.seconds) },
    current: densityOf(current.longer),
    slow: largestOf(cappedIn(curves)),
  };
  // Not an episode of a single namespace that the cap already neutralises: it makes no wait longer.
  const p99Seconds = Math.min(quantileOf(row.current, 99), quantileOf(row.slow, 99));
  const relevant = (1 - MOVED_SHARE) * p99Seconds;
  const [first] = history.episodes(look.now, look.minSamples);
  const episode = first && first.p99WithoutSeconds <= relevant ? first : undefined;
  const isOther = (episode === undefined) !== (before?.episode === undefined);
  if (before !== undefined && !isOther && !isNews(row, before, look)) return before;
  if (episode === undefined) return row;
  const { from, to, share } = episode;
  const without = largestOf((yield* curvesOf(history.without(from, to), look)).map(longerIn));
  return { ...row, episode: { from, to, share, without } };
}

function isNews(row: PlannedRow, before: PlannedRow, { asked }: Look): boolean {
  return (
    before.kept === true ||
    isNewlyEnough(row.reached, before, asked) ||
    row.scope !== before.scope ||
    haveMoved(row.slow, before.slow) ||
    haveMoved(row.current, before.current) ||
    hasCoverageMoved(row.current, before.current)
  );
}

/** The pointwise maximum: beyond each bucket, the largest share of any curve. */
function largestOf(curves: readonly Uint32Array[]): Density {
  const longest = new Uint32Array(BUCKETS);
  for (const longer of curves) {
    for (let bucket = 0; bucket < longer.length; bucket += 1) {
      const units = longer[bucket] as number;
      if (units > (longest[bucket] as number)) longest[bucket] = units;
    }
  }
  return densityOf(longest);
}

function beyondEach(density: Density): Uint32Array {
  let beyond = UNITS;
  return Uint32Array.from(density, (units) => (beyond -= units));
}

function densityOf(longer: Uint32Array): Density {
  const density = new Float64Array(BUCKETS);
  let before = UNITS;
  for (let bucket = 0; bucket < BUCKETS; bucket += 1) {
    const units = longer[bucket] ?? 0;
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
