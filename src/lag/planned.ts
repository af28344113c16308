import { isRecord } from '../api/index.ts';
import type { Consumer } from './consumer.ts';
import { type Density, type LagScope, type Lags, lagsOf, maxOf, sumOf, totalOf } from './distribution.ts';
import { CELLS, lastCellWithin } from './grid.ts';
import { cellsFromText, cellsToText, isCount, isInstant } from './histogram.ts';
import { type Enough, isEnough, type LagHistory, type Reached, type WindowLags } from './lag-history.ts';

/** Until the policies in force are known: the built-in policy's. */
export const BUILT_IN_ENOUGH: Enough = { minSamples: 200, minHistory: 86_400 };

/** A built-in consumer counts from here on: with fewer, its p99 would be its worst or its second-worst sample. */
const ENOUGH_OF_BUILT_IN: Enough = { minSamples: 100, minHistory: 0 };

/** A namespace speaks for itself from here on: its p99 then rests on ten lags, not on one or two. */
export const OWN_SAMPLES = 1_000;

/** Curves are published in parts of 0.005 %, whole numbers: every replica computes with exactly the same. */
const UNITS = 20_000;

/** One scope's published lag. Curves are distributions by cell, in units that add up to {@link UNITS}. */
export interface PlannedRow {
  readonly scope: LagScope;
  readonly samples: number;
  /** How far back the samples reach. */
  readonly historySeconds: number;
  readonly reached: Reached;
  /** The lags of the window, as measured: a plan states its coverage by them. */
  readonly current: Density;
  /** What waits are taken from: the pointwise largest of the hourly curves of the last 24 hours. */
  readonly slow: Density;
  /** One short time without which waits would be shorter. */
  readonly episode?: PlannedEpisode;
}

export interface PlannedEpisode {
  /** Seconds since the epoch. */
  readonly from: number;
  readonly to: number;
  /** Of the removals, 0 to 1. */
  readonly share: number;
  /** As {@link PlannedRow.slow}, without the episode. */
  readonly without: Density;
}

export interface PlannedTable {
  /** When it was made: seconds since the epoch; −Infinity for none. */
  readonly at: number;
  readonly cluster: PlannedRow | undefined;
  /** Only the namespaces that have samples enough of their own. */
  readonly namespaces: ReadonlyMap<string, PlannedRow>;
  /** By name: how long a consumer takes from when the control plane has withdrawn an endpoint. */
  readonly consumers: ReadonlyMap<string, PlannedRow>;
}

export const NOTHING_PLANNED: PlannedTable = {
  at: Number.NEGATIVE_INFINITY,
  cluster: undefined,
  namespaces: new Map(),
  consumers: new Map(),
};

/** What the published table follows. */
export interface MeasuredHistories {
  readonly cluster: LagHistory;
  readonly namespaces: ReadonlyMap<string, LagHistory>;
  /** Every consumer that is measured; undefined while it is not known which there are. */
  readonly consumers: ReadonlyMap<string, LagHistory> | undefined;
}

/** The table is made anew at most this often. */
const PUBLISH_SECONDS = 600;

const PERCENTILES = [50, 90, 99, 99.9] as const;

/** A percentile that has moved by less than this share of it… */
const MOVED_SHARE = 0.05;
/** …or by less than this moves no wait: waits go in steps of 5 s. */
const MOVED_SECONDS = 0.05;

/** The coverage that plans state stays this close to the truth. */
const MOVED_COVERAGE = 0.003;
const WAITS: readonly number[] = Array.from({ length: 60 }, (_, index) => 5 * (index + 1));

/**
 * The next published table; the same one where nothing is to be published. A row is new when a percentile or the coverage
 * of a wait has moved, and the table at most every {@link PUBLISH_SECONDS}; the first row of a scope, and one by which
 * there is enough history, are published at once. Each scope takes about a millisecond, and is a step.
 *
 * The hourly curves of the last 24 hours are worked out from the history, not kept: a restart, another leader or a part
 * of the history that is forgotten leaves nothing of an old curve behind.
 *
 * @param now seconds since the epoch
 * @param asked what the policies in force ask for
 */
export function* nextPlanned(
  table: PlannedTable,
  { cluster, namespaces, consumers }: MeasuredHistories,
  now: number,
  asked: readonly Enough[] = [BUILT_IN_ENOUGH],
): Generator<undefined, PlannedTable> {
  const ofConsumers = [...asked, ENOUGH_OF_BUILT_IN];
  const atOnce =
    isNewlyEnough(table.cluster, cluster, now, asked) ||
    [...(consumers ?? [])].some(([name, each]) =>
      isNewlyEnough(table.consumers.get(name), each, now, ofConsumers),
    );
  // A clock that was set back does not hold up a table.
  if (!atOnce && Math.abs(now - table.at) < PUBLISH_SECONDS) return table;

  const minSamples = Math.max(...asked.map((each) => each.minSamples));
  const ofCluster = curvesOf(cluster.windows(now, minSamples));
  const clusterReached = cluster.reached(now);
  const rows = new Map<string, PlannedRow>();
  const next = {
    cluster: changed(
      table.cluster,
      rowOf('cluster', cluster, ofCluster, clusterReached, now, minSamples),
      asked,
    ),
    namespaces: new Map<string, PlannedRow>(),
    consumers: consumers === undefined ? table.consumers : rows,
  };
  for (const [name, history] of namespaces) {
    if (history.samples < OWN_SAMPLES) continue;
    yield;
    const own = history.windows(now, minSamples);
    if (!own.some(({ samples }) => samples >= OWN_SAMPLES)) continue;
    // Where it did not speak for itself, its pods had the cluster's waits.
    const curves = curvesOf(own).map((curve) =>
      curve.samples >= OWN_SAMPLES ? curve : (ofCluster.find(({ at }) => at === curve.at) ?? curve),
    );
    const { samples, seconds } = history.reached(now);
    const reached = {
      samples: Math.max(samples, clusterReached.samples),
      seconds: Math.max(seconds, clusterReached.seconds),
    };
    const row = rowOf('namespace', history, curves, reached, now, minSamples);
    next.namespaces.set(name, changed(table.namespaces.get(name), row, asked) as PlannedRow);
  }
  for (const [name, history] of consumers ?? []) {
    yield;
    const curves = curvesOf(history.windows(now, minSamples));
    const row = rowOf('cluster', history, curves, history.reached(now), now, minSamples);
    const kept = changed(table.consumers.get(name), row, ofConsumers);
    if (kept !== undefined) rows.set(name, kept);
  }
  const same =
    next.cluster === table.cluster &&
    sameRows(next.namespaces, table.namespaces) &&
    sameRows(next.consumers, table.consumers);
  return same ? table : { at: now, ...next };
}

/** Whether a scope's first row is due, or one by which there is enough history for a wait. */
function isNewlyEnough(
  row: PlannedRow | undefined,
  history: LagHistory,
  now: number,
  asked: readonly Enough[],
): boolean {
  if (row === undefined) return history.samples > 0;
  const reached = history.reached(now);
  return asked.some((enough) => isEnough(reached, enough) && !isEnough(row.reached, enough));
}

/** The share of lags beyond each cell, at one hour. */
interface HourlyCurve {
  readonly at: number;
  readonly samples: number;
  readonly historySeconds: number;
  readonly longer: Uint32Array;
}

/** Those of past hours are asked for again and again. */
const CURVES = new WeakMap<WindowLags, HourlyCurve>();

function curvesOf(windows: readonly WindowLags[]): readonly HourlyCurve[] {
  return windows.map((lags) => {
    const known = CURVES.get(lags);
    if (known !== undefined) return known;
    const { at, samples, historySeconds, counts } = lags;
    const longer = new Uint32Array(CELLS);
    let beyond = 0;
    for (let cell = CELLS - 1; cell >= 0; cell -= 1) {
      // Rounded up: no lag, however rare, gets lost, and no coverage reads better than it is.
      longer[cell] = Math.ceil((beyond / samples) * UNITS - 1e-6);
      beyond += counts[cell] ?? 0;
    }
    const curve = { at, samples, historySeconds, longer };
    CURVES.set(lags, curve);
    return curve;
  });
}

function rowOf(
  scope: LagScope,
  history: LagHistory,
  curves: readonly HourlyCurve[],
  reached: Reached,
  now: number,
  minSamples: number,
): PlannedRow | undefined {
  const [current] = curves;
  if (current === undefined) return undefined;
  const { samples, historySeconds, longer } = current;
  // Whole seconds, as they are written: the leader decides by the very numbers that the other replicas read.
  const row = {
    scope,
    samples,
    historySeconds: Math.floor(historySeconds),
    reached: { ...reached, seconds: Math.floor(reached.seconds) },
    current: densityOf(longer),
    slow: largestOf(curves),
  };
  const [episode] = history.episodes(now, minSamples);
  if (
    episode === undefined ||
    episode.p99WithoutSeconds > (1 - MOVED_SHARE) * lagsOf(row.current).quantile(99)
  ) {
    return row;
  }
  const { from, to, share } = episode;
  const without = largestOf(curvesOf(history.without(from, to).windows(now, minSamples)));
  return { ...row, episode: { from, to, share, without } };
}

/** Beyond each cell the largest share that any of the curves has there. */
function largestOf(curves: readonly HourlyCurve[]): Density {
  const longest = new Uint32Array(CELLS);
  for (const { longer } of curves) {
    for (let cell = 0; cell < CELLS; cell += 1) {
      longest[cell] = Math.max(longest[cell] ?? 0, longer[cell] ?? 0);
    }
  }
  return densityOf(longest);
}

function densityOf(longer: Uint32Array): Density {
  const density = new Float64Array(CELLS);
  let before = UNITS;
  longer.forEach((units, cell) => {
    density[cell] = before - units;
    before = units;
  });
  return density;
}

/** The row to publish: the one before, where the new one would make no difference. */
function changed(
  before: PlannedRow | undefined,
  row: PlannedRow | undefined,
  asked: readonly Enough[],
): PlannedRow | undefined {
  // What has been measured once stays the best that is known.
  if (before === undefined || row === undefined) return row ?? before;
  const newlyEnough = asked.some((each) => isEnough(row.reached, each) && !isEnough(before.reached, each));
  const same =
    !newlyEnough &&
    row.scope === before.scope &&
    (row.episode === undefined) === (before.episode === undefined) &&
    !haveMoved(row.slow, before.slow) &&
    !haveMoved(row.current, before.current) &&
    !hasCoverageMoved(row.current, before.current);
  return same ? before : row;
}

function haveMoved(now: Density, before: Density): boolean {
  const [a, b] = [lagsOf(now), lagsOf(before)];
  return PERCENTILES.some((percentile) => {
    const [is, was] = [a.quantile(percentile), b.quantile(percentile)];
    return Math.abs(is - was) >= Math.max(MOVED_SECONDS, MOVED_SHARE * was);
  });
}

function hasCoverageMoved(now: Density, before: Density): boolean {
  let [upTo, cell] = [0, 0];
  for (const wait of WAITS) {
    for (const last = lastCellWithin(wait); cell <= last; cell += 1) {
      upTo += (now[cell] ?? 0) - (before[cell] ?? 0);
    }
    if (Math.abs(upTo) >= MOVED_COVERAGE * UNITS) return true;
  }
  return false;
}

function sameRows(a: ReadonlyMap<string, PlannedRow>, b: ReadonlyMap<string, PlannedRow>): boolean {
  return a.size === b.size && [...a].every(([name, row]) => row === b.get(name));
}

const VERSION = 2;

/** The table as compact JSON text. */
export function plannedToText({ at, cluster, namespaces, consumers }: PlannedTable): string {
  return JSON.stringify({
    v: VERSION,
    at: Number.isFinite(at) ? at : null,
    ...(cluster === undefined ? {} : { cluster: rowToJson(cluster) }),
    namespaces: rowsToJson(namespaces),
    consumers: rowsToJson(consumers),
  });
}

/** Reads what {@link plannedToText} wrote, parsed. @returns undefined when it is none, or of another version */
export function plannedFromJson(json: unknown): PlannedTable | undefined {
  if (!isRecord(json) || json.v !== VERSION) return undefined;
  const cluster = json.cluster === undefined ? undefined : rowFromJson(json.cluster);
  if (json.cluster !== undefined && cluster === undefined) return undefined;
  const namespaces = rowsFromJson(json.namespaces);
  const consumers = rowsFromJson(json.consumers);
  if (namespaces === undefined || consumers === undefined) return undefined;
  return { at: isInstant(json.at) ? json.at : Number.NEGATIVE_INFINITY, cluster, namespaces, consumers };
}

/** The table without the namespaces that have the fewest samples, until its text is at most so long. */
export function shrunkTable(table: PlannedTable, characters: number): PlannedTable {
  const busiest = [...table.namespaces].sort(([, a], [, b]) => b.samples - a.samples);
  let shrunk = table;
  for (let kept = busiest.length; kept > 0 && plannedToText(shrunk).length > characters; ) {
    kept >>= 1;
    shrunk = { ...table, namespaces: new Map(busiest.slice(0, kept)) };
  }
  return shrunk;
}

function rowsToJson(rows: ReadonlyMap<string, PlannedRow>): unknown {
  return Object.fromEntries([...rows].map(([name, row]) => [name, rowToJson(row)]));
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

function rowToJson({ scope, samples, historySeconds, reached, current, slow, episode }: PlannedRow): unknown {
  const text = cellsToText(current);
  const slower = cellsToText(slow);
  return {
    scope,
    samples,
    history: historySeconds,
    reached: [reached.samples, reached.seconds],
    current: text,
    ...(slower === text ? {} : { slow: slower }),
    ...(episode && { episode: { ...episode, without: cellsToText(episode.without) } }),
  };
}

function rowFromJson(json: unknown): PlannedRow | undefined {
  if (!isRecord(json) || !Array.isArray(json.reached)) return undefined;
  const { scope, samples, history } = json;
  const [reachedSamples, seconds] = json.reached as unknown[];
  if (scope !== 'cluster' && scope !== 'namespace') return undefined;
  if (!isCount(samples) || !isInstant(history) || !isCount(reachedSamples) || !isInstant(seconds)) {
    return undefined;
  }
  const current = curveFromText(json.current);
  const slow = json.slow === undefined ? current : curveFromText(json.slow);
  if (current === undefined || slow === undefined) return undefined;
  const reached = { samples: reachedSamples, seconds };
  const row = { scope, samples, historySeconds: history, reached, current, slow } as const;
  if (json.episode === undefined) return row;
  const episode = episodeFromJson(json.episode);
  return episode && { ...row, episode };
}

function episodeFromJson(json: unknown): PlannedEpisode | undefined {
  if (!isRecord(json)) return undefined;
  const { from, to, share } = json;
  const without = curveFromText(json.without);
  if (!isInstant(from) || !isInstant(to) || !isInstant(share) || without === undefined) return undefined;
  return { from, to, share, without };
}

function curveFromText(text: unknown): Density | undefined {
  const curve = cellsFromText(text);
  return curve !== undefined && totalOf(curve) === UNITS ? curve : undefined;
}

/** One of the things that a lag is put together from. */
export interface LagPart {
  /** `control plane`, or the consumer's name. */
  readonly name: string;
  readonly builtIn: boolean;
  readonly source: 'measured' | 'declared' | 'unknown';
  /** Whether it counts: it is declared, or the policy has samples and history enough of it. */
  readonly enough: boolean;
  readonly samples: number;
  readonly historySeconds: number;
  /** undefined: nothing is known. */
  readonly lags: Pick<Lags, 'quantile'> | undefined;
}

/** What is known of the lag of a pod's removal, by what a policy takes for enough. */
export interface PlannedLag {
  readonly scope: LagScope;
  /** Of the measured part of which the fewest are known; 0 where none is measured. */
  readonly samples: number;
  readonly historySeconds: number;
  /** The control plane first, then each consumer that applies. */
  readonly parts: readonly LagPart[];
  /** The lag of all parts of which enough is known: what waits are taken from. */
  readonly known: Lags | undefined;
  /** The lag of all parts of which anything is known, for people. */
  readonly seen: Lags | undefined;
  /** The share of removals that a wait covers, as measured now; undefined where a part is not known enough. */
  readonly coverage: ((seconds: number) => number) | undefined;
  readonly episode: (Omit<PlannedEpisode, 'without'> & { readonly without: () => Lags }) | undefined;
}

/** Where planned (slow, published) lags come from. Answers from memory: it is asked for every pod. */
export interface LagSource {
  /** @param consumers those that send traffic to the pod */
  planned(namespace: string, consumers: readonly LaggingConsumer[], enough: Enough): PlannedLag;
}

export type LaggingConsumer = Pick<Consumer, 'name' | 'lagKey' | 'declared' | 'builtIn'>;

/** So many combinations are kept: of namespaces with lags of their own, consumers that apply, and thresholds. */
const COMBINATIONS_KEPT = 512;

export const CONTROL_PLANE = 'control plane';

interface Part extends LagPart {
  readonly slow: Density | undefined;
  readonly current: Density | undefined;
  readonly episode: PlannedEpisode | undefined;
}

/**
 * What the decision asks: the namespace's row where it has one, else the cluster's, followed by the slowest of the
 * consumers that apply. A combination takes some milliseconds once, and is kept for as long as the table is in force.
 */
export function plannedLags(table: PlannedTable): LagSource {
  const combinations = new Map<string, PlannedLag>();
  return {
    planned: (namespace, consumers, enough) => {
      const own = table.namespaces.get(namespace);
      // No namespace's name, and no consumer's, has a blank in it.
      const thresholds = `${enough.minSamples}/${enough.minHistory}`;
      const key = [
        own === undefined ? '' : namespace,
        thresholds,
        ...consumers.map(({ lagKey }) => lagKey),
      ].join(' ');
      const kept = combinations.get(key);
      if (kept !== undefined) return kept;
      const plane = measuredPart(CONTROL_PLANE, true, own ?? table.cluster, enough);
      const parts = consumers.map((consumer) => consumerPart(consumer, table.consumers, enough));
      const combined = combine(own === undefined ? 'cluster' : 'namespace', plane, parts);
      if (combinations.size >= COMBINATIONS_KEPT) combinations.clear();
      combinations.set(key, combined);
      return combined;
    },
  };
}

function consumerPart(
  { name, declared, builtIn }: LaggingConsumer,
  rows: PlannedTable['consumers'],
  enough: Enough,
): Part {
  if (declared === undefined) {
    return measuredPart(name, builtIn, rows.get(name), builtIn ? ENOUGH_OF_BUILT_IN : enough);
  }
  return {
    name,
    builtIn,
    source: 'declared',
    enough: true,
    samples: 0,
    historySeconds: 0,
    lags: lagsOf(declared),
    slow: declared,
    current: declared,
    episode: undefined,
  };
}

function measuredPart(name: string, builtIn: boolean, row: PlannedRow | undefined, enough: Enough): Part {
  return {
    name,
    builtIn,
    source: row === undefined ? 'unknown' : 'measured',
    enough: row !== undefined && isEnough(row.reached, enough),
    samples: row?.samples ?? 0,
    historySeconds: row?.historySeconds ?? 0,
    lags: row && lagsOf(row.slow),
    slow: row?.slow,
    current: row?.current,
    episode: row?.episode,
  };
}

function combine(scope: LagScope, plane: Part, consumers: readonly Part[]): PlannedLag {
  const parts = [plane, ...consumers];
  const measured = parts.filter((part) => part === plane || part.source === 'measured');
  const least = (of: 'samples' | 'historySeconds') => Math.min(...measured.map((part) => part[of]));
  const whole = parts.every(({ enough }) => enough);
  const known = combinedOf(plane, consumers, (part) => (part.enough ? part.slow : undefined));
  const seen = combinedOf(plane, consumers, ({ slow }) => slow);
  const current = whole ? combinedOf(plane, consumers, (part) => part.current) : undefined;
  const lifted = whole ? parts.find(({ episode }) => episode !== undefined) : undefined;
  const without = () =>
    combinedOf(plane, consumers, (part) => (part === lifted ? part.episode?.without : part.slow)) as Lags;
  return {
    scope,
    samples: least('samples'),
    historySeconds: least('historySeconds'),
    parts,
    known,
    seen,
    coverage: current && ((seconds) => current.coverage(seconds)),
    episode: lifted?.episode && { ...lifted.episode, without },
  };
}

/** The control plane's lag followed by the slowest of the consumers', as far as their densities are given. */
function combinedOf(
  plane: Part,
  consumers: readonly Part[],
  densityOfPart: (part: Part) => Density | undefined,
): Lags | undefined {
  const first = densityOfPart(plane);
  const after = consumers.flatMap((part) => densityOfPart(part) ?? []);
  if (after.length === 0) return first && lagsOf(first);
  return lagsOf(first === undefined ? maxOf(after) : sumOf(first, maxOf(after)));
}

/** Nothing measured yet: every wait is `initial`, or what consumers are declared to need. */
export const NONE_YET: LagSource = plannedLags(NOTHING_PLANNED);
