import { isRecord } from '../api/index.ts';
import { type Consumer, WITNESSED_ENOUGH, witnessName } from './consumer.ts';
import {
  type Density,
  type LagScope,
  type Lags,
  lagsOf,
  maxOf,
  quantilesOf,
  sumOf,
  totalOf,
} from './distribution.ts';
import { CELLS, lastCellWithin } from './grid.ts';
import { cellsFromText, cellsToText, isCount, isInstant } from './histogram.ts';
import {
  type Enough,
  furthest,
  isEnough,
  type LagHistory,
  type Reached,
  type WindowLags,
} from './lag-history.ts';

/** Until the policies in force are known: the built-in policy's. */
export const BUILT_IN_ENOUGH: Enough = { minSamples: 200, minHistory: 86_400 };

/** A built-in consumer counts from here on: with fewer, its p99 would be its worst or its second-worst sample. */
const ENOUGH_OF_BUILT_IN: Enough = { minSamples: 100, minHistory: 0 };

/** A witness's row is published from here on, and counts. */
const ENOUGH_OF_WITNESS: Enough = { minSamples: WITNESSED_ENOUGH, minHistory: 0 };

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

/** A percentile moves a wait (they go in steps of 5 s) when it has moved by this share, and by this much. */
const MOVED_SHARE = 0.05;
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
  const isDue = (row: PlannedRow | undefined, history: LagHistory, enough: readonly Enough[]) =>
    row === undefined ? history.samples > 0 : isNewlyEnough(history.reached(now), row, enough);
  const atOnce =
    isDue(table.cluster, cluster, asked) ||
    [...(consumers ?? [])].some(([name, each]) => isDue(table.consumers.get(name), each, ofConsumers));
  // A clock that was set back does not hold up a table.
  if (!atOnce && Math.abs(now - table.at) < PUBLISH_SECONDS) return table;

  const minSamples = Math.max(...asked.map((each) => each.minSamples));
  const windows = cluster.windows(now, minSamples);
  const ofCluster = windows.map(curveOf);
  const look = { whole: windows[0], reached: cluster.reached(now), now, minSamples, asked };
  const rows = new Map<string, PlannedRow>();
  const next = {
    cluster: nextRow(table.cluster, { scope: 'cluster', history: cluster, curves: ofCluster, ...look }),
    namespaces: new Map<string, PlannedRow>(),
    consumers: consumers === undefined ? table.consumers : rows,
  };
  for (const [name, history] of namespaces) {
    if (history.samples < OWN_SAMPLES) continue;
    yield;
    const windows = history.windows(now, minSamples);
    const own = windows.map(curveOf);
    if (!own.some(({ samples }) => samples >= OWN_SAMPLES)) continue;
    // Where it did not speak for itself, its pods had the cluster's waits.
    const curves = own.map((curve) =>
      curve.samples >= OWN_SAMPLES ? curve : (ofCluster.find(({ at }) => at === curve.at) ?? curve),
    );
    const reached = furthest(history.reached(now), look.reached);
    const measured = { ...look, scope: 'namespace', history, whole: windows[0], curves, reached } as const;
    next.namespaces.set(name, nextRow(table.namespaces.get(name), measured) as PlannedRow);
  }
  for (const [name, history] of consumers ?? []) {
    yield;
    const windows = history.windows(now, minSamples);
    const ofConsumer = { whole: windows[0], curves: windows.map(curveOf), reached: history.reached(now) };
    const measured = { ...look, scope: 'cluster', history, ...ofConsumer, asked: ofConsumers } as const;
    const row = nextRow(table.consumers.get(name), measured);
    if (row !== undefined) rows.set(name, row);
  }
  const same =
    next.cluster === table.cluster &&
    sameRows(next.namespaces, table.namespaces) &&
    sameRows(next.consumers, table.consumers);
  return same ? table : { at: now, ...next };
}

/** Whether what has been reached is enough for one of these, and was not yet in the row before. */
function isNewlyEnough(reached: Reached, before: PlannedRow, asked: readonly Enough[]): boolean {
  return asked.some((enough) => isEnough(reached, enough) && !isEnough(before.reached, enough));
}

/** The share of lags beyond each cell, at one hour. */
interface HourlyCurve extends Omit<WindowLags, 'counts'> {
  readonly longer: Uint32Array;
  /** From this cell on it is 0. */
  readonly end: number;
}

/** Those of past hours are asked for again and again. */
const CURVES = new WeakMap<WindowLags, HourlyCurve>();

function curveOf(lags: WindowLags): HourlyCurve {
  const known = CURVES.get(lags);
  if (known !== undefined) return known;
  const { counts, ...rest } = lags;
  const end = Math.max(
    0,
    counts.findLastIndex((count) => count > 0),
  );
  const curve = { ...rest, longer: new Uint32Array(CELLS), end };
  let [beyond, units] = [0, 0];
  for (let cell = end; cell >= 0; cell -= 1) {
    curve.longer[cell] = units;
    const count = counts[cell] as number;
    if (count === 0) continue;
    beyond += count;
    // Rounded up: no lag, however rare, gets lost, and no coverage reads better than it is.
    units = Math.ceil((beyond / lags.samples) * UNITS - 1e-6);
  }
  CURVES.set(lags, curve);
  return curve;
}

/** What a scope's next row is made of; the current curve comes first. */
interface Measured {
  readonly scope: LagScope;
  readonly history: LagHistory;
  /** The history's own current window. */
  readonly whole: WindowLags | undefined;
  readonly curves: readonly HourlyCurve[];
  readonly reached: Reached;
  readonly now: number;
  readonly minSamples: number;
  readonly asked: readonly Enough[];
}

/** The row to publish: the one before, where a new one would make no difference or nothing is measured any more. */
function nextRow(before: PlannedRow | undefined, measured: Measured): PlannedRow | undefined {
  const { scope, history, whole, curves, reached, now, minSamples, asked } = measured;
  const [current] = curves;
  if (current === undefined) return before;
  // Whole seconds, as they are written: the leader decides by the very numbers that the other replicas read.
  const row = {
    scope,
    samples: current.samples,
    historySeconds: Math.floor(current.historySeconds),
    reached: { ...reached, seconds: Math.floor(reached.seconds) },
    current: densityOf(current.longer),
    slow: largestOf(curves),
  };
  const relevant = (1 - MOVED_SHARE) * lagsOf(row.current).quantile(99);
  const [first] = history.episodes(now, minSamples, whole);
  const episode = first && first.p99WithoutSeconds <= relevant ? first : undefined;
  const differs =
    before === undefined ||
    isNewlyEnough(row.reached, before, asked) ||
    row.scope !== before.scope ||
    (episode === undefined) !== (before.episode === undefined) ||
    haveMoved(row.slow, before.slow) ||
    haveMoved(row.current, before.current) ||
    hasCoverageMoved(row.current, before.current);
  if (!differs) return before;
  if (episode === undefined) return row;
  const { from, to, share } = episode;
  const without = largestOf(history.without(from, to).windows(now, minSamples).map(curveOf));
  return { ...row, episode: { from, to, share, without } };
}

/** Beyond each cell the largest share that any of the curves has there. */
function largestOf(curves: readonly HourlyCurve[]): Density {
  const longest = new Uint32Array(CELLS);
  for (const { longer, end } of curves) {
    for (let cell = 0; cell < end; cell += 1) {
      const units = longer[cell] as number;
      if (units > (longest[cell] as number)) longest[cell] = units;
    }
  }
  return densityOf(longest);
}

function densityOf(longer: Uint32Array): Density {
  const density = new Float64Array(CELLS);
  let before = UNITS;
  for (let cell = 0; cell < CELLS; cell += 1) {
    const units = longer[cell] as number;
    density[cell] = before - units;
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

/** The table as compact JSON text. */
export function plannedToText({ at, cluster, namespaces, consumers }: PlannedTable): string {
  const rows = (of: ReadonlyMap<string, PlannedRow>) =>
    Object.fromEntries([...of].map(([name, row]) => [name, rowToJson(row)]));
  return JSON.stringify({
    v: VERSION,
    at: Number.isFinite(at) ? at : null,
    cluster: cluster && rowToJson(cluster),
    namespaces: rows(namespaces),
    consumers: rows(consumers),
  });
}

function rowToJson({ historySeconds, reached, current, slow, episode, ...row }: PlannedRow): unknown {
  const text = cellsToText(current);
  const slower = cellsToText(slow);
  return {
    ...row,
    history: historySeconds,
    reached: [reached.samples, reached.seconds],
    current: text,
    ...(slower === text ? {} : { slow: slower }),
    ...(episode && { episode: { ...episode, without: cellsToText(episode.without) } }),
  };
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
  /**
   * @param consumers those that send traffic to the pod
   * @param services the names of those that select it: where their pods have seen who sends, that counts as well
   */
  planned(
    namespace: string,
    consumers: readonly LaggingConsumer[],
    enough: Enough,
    services?: readonly string[],
  ): PlannedLag;
}

export type LaggingConsumer = Pick<Consumer, 'name' | 'lagKey' | 'declared' | 'builtIn'>;

/** So many combinations are kept: of namespaces with lags of their own, consumers that apply, and thresholds. */
const COMBINATIONS_KEPT = 512;

export const CONTROL_PLANE = 'control plane';

interface Part extends LagPart {
  readonly row: Pick<PlannedRow, 'slow' | 'current' | 'episode'> | undefined;
}

/**
 * What the decision asks: the namespace's row where it has one, else the cluster's, followed by the slowest of the
 * consumers that apply. A combination takes some milliseconds once, and is kept for as long as the table is in force.
 */
export function plannedLags(table: PlannedTable): LagSource {
  const combinations = new Map<string, PlannedLag>();
  return {
    planned: (namespace, consumers, enough, services = []) => {
      const own = table.namespaces.get(namespace);
      const thresholds = `${enough.minSamples}/${enough.minHistory}`;
      const keys = consumers.map(({ lagKey }) => lagKey);
      const witnesses = services
        .map((service) => witnessName(namespace, service))
        .filter((name) => table.consumers.has(name));
      // No namespace's name, and no consumer's, has a blank in it.
      const key = [own === undefined ? '' : namespace, thresholds, ...keys, ...witnesses].join(' ');
      const kept = combinations.get(key);
      if (kept !== undefined) return kept;
      const plane = partOf({ name: CONTROL_PLANE, builtIn: true }, own ?? table.cluster, enough);
      const parts = consumers.map((consumer) => {
        const asked = consumer.builtIn ? ENOUGH_OF_BUILT_IN : enough;
        return partOf(consumer, table.consumers.get(consumer.name), asked);
      });
      const seen = witnesses.map((name) =>
        partOf({ name, builtIn: true }, table.consumers.get(name), ENOUGH_OF_WITNESS),
      );
      const combined = combine(own === undefined ? 'cluster' : 'namespace', plane, [...parts, ...seen]);
      if (combinations.size >= COMBINATIONS_KEPT) combinations.clear();
      combinations.set(key, combined);
      return combined;
    },
  };
}

function partOf(
  { name, builtIn, declared }: Pick<Consumer, 'name' | 'builtIn'> & Partial<LaggingConsumer>,
  measured: PlannedRow | undefined,
  enough: Enough,
): Part {
  const known = { name, builtIn, samples: 0, historySeconds: 0 };
  if (declared !== undefined) {
    const row = { slow: declared, current: declared };
    return { ...known, source: 'declared', enough: true, lags: lagsOf(declared), row };
  }
  if (measured === undefined)
    return { ...known, source: 'unknown', enough: false, lags: undefined, row: undefined };
  const { samples, historySeconds, reached, slow } = measured;
  const rest = { samples, historySeconds, enough: isEnough(reached, enough), lags: lagsOf(slow) };
  return { ...known, ...rest, source: 'measured', row: measured };
}

function combine(scope: LagScope, plane: Part, consumers: readonly Part[]): PlannedLag {
  const parts = [plane, ...consumers];
  const measured = parts.filter((part) => part === plane || part.source === 'measured');
  const whole = parts.every(({ enough }) => enough);
  const combined = (densityOfPart: (part: Part) => Density | undefined) =>
    combinedOf(
      densityOfPart(plane),
      consumers.flatMap((part) => densityOfPart(part) ?? []),
    );
  const current = whole ? combined(({ row }) => row?.current) : undefined;
  const lifted = whole ? parts.find(({ row }) => row?.episode !== undefined) : undefined;
  const episode = lifted?.row?.episode;
  const without = () => combined((part) => (part === lifted ? episode?.without : part.row?.slow)) as Lags;
  return {
    scope,
    samples: Math.min(...measured.map(({ samples }) => samples)),
    historySeconds: Math.min(...measured.map(({ historySeconds }) => historySeconds)),
    parts,
    known: combined(({ enough, row }) => (enough ? row?.slow : undefined)),
    seen: combined(({ row }) => row?.slow),
    coverage: current?.coverage,
    episode: episode && { ...episode, without },
  };
}

/** The control plane's lag followed by the slowest of the consumers', as far as they are known. */
function combinedOf(plane: Density | undefined, consumers: readonly Density[]): Lags | undefined {
  if (consumers.length === 0) return plane && lagsOf(plane);
  const slowest = maxOf(consumers);
  return lagsOf(plane === undefined ? slowest : sumOf(plane, slowest));
}

/** Nothing measured yet: every wait is `initial`, or what consumers are declared to need. */
export const NONE_YET: LagSource = plannedLags(NOTHING_PLANNED);
