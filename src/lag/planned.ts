import { isRecord, readEntries } from '../api/index.ts';
import { setNewest } from './busiest.ts';
import { type Consumer, WITNESSED_ENOUGH, witnessName } from './consumer.ts';
import {
  type Density,
  type LagScope,
  type Lags,
  lagsOf,
  maxOf,
  quantileOf,
  quantilesOf,
  sumOf,
  totalOf,
} from './distribution.ts';
import { CELLS, lastCellWithin } from './grid.ts';
import { cellsToText, isCount, isInstant, readCells } from './histogram.ts';
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

/** From when on a built-in consumer counts: with fewer samples its p99 would be its worst or second-worst one. */
const ENOUGH_OF_BUILT_IN: Enough = { minSamples: 100, minHistory: 0 };

/** From when on a witness is published, and counts. */
const ENOUGH_OF_WITNESS: Enough = { minSamples: WITNESSED_ENOUGH, minHistory: 0 };

/** From when on a namespace's own lag counts: its p99 then rests on ten lags instead of one or two. */
export const OWN_SAMPLES = 1_000;

/** Curves are published in whole units of 0.005 %, so that every replica computes with exactly the same numbers. */
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
  /** The curve that waits are taken from: the pointwise maximum of the hourly curves of the last 24 hours. */
  readonly slow: Density;
  /** A short span without which waits would be shorter. */
  readonly episode?: PlannedEpisode;
}

interface PlannedEpisode {
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

/** The histories that the published table follows. */
export interface MeasuredHistories {
  readonly cluster: LagHistory;
  readonly namespaces: ReadonlyMap<string, LagHistory>;
  /** All measured consumers; undefined until they are known. */
  readonly consumers: ReadonlyMap<string, LagHistory> | undefined;
}

/** The table is renewed at most this often. */
const PUBLISH_SECONDS = 600;

const PERCENTILES = [50, 90, 99, 99.9] as const;

/** A percentile must move by this share, and by this much, to count as changed: waits go in steps of 5 s. */
const MOVED_SHARE = 0.05;
const MOVED_SECONDS = 0.05;

/** How far the coverage that plans state may be from the truth. */
const MOVED_COVERAGE = 0.003;
const WAITS: readonly number[] = Array.from({ length: 60 }, (_, index) => 5 * (index + 1));

/**
 * The next published table, or the same one where nothing is due. A row is renewed when a percentile or the coverage of a
 * wait has moved, the table at most every {@link PUBLISH_SECONDS}; a scope's first row, and the first with enough
 * history, are published at once. Each scope is a step of a few milliseconds at most.
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
  const ofCluster = curvesOf(cluster, look);
  const rows = new Map<string, PlannedRow>();
  const next = {
    cluster: nextRow(table.cluster, cluster, look),
    namespaces: new Map<string, PlannedRow>(),
    consumers: consumers === undefined ? table.consumers : rows,
  };
  for (const [name, history] of namespaces) {
    if (history.samples < OWN_SAMPLES) continue;
    yield;
    const own = curvesOf(history, look);
    if (!own.some(({ samples }) => samples >= OWN_SAMPLES)) continue;
    // While the namespace's own lag did not count, its pods had the cluster's waits.
    const curves = own.map((curve) =>
      curve.samples >= OWN_SAMPLES ? curve : (ofCluster.find(({ at }) => at === curve.at) ?? curve),
    );
    const reached = furthest(history.reached(now), cluster.reached(now));
    const row = nextRow(table.namespaces.get(name), history, look, { scope: 'namespace', curves, reached });
    if (row !== undefined) next.namespaces.set(name, row);
  }
  for (const [name, history] of consumers ?? []) {
    yield;
    const row = nextRow(table.consumers.get(name), history, { ...look, asked: ofConsumers });
    if (row !== undefined) rows.set(name, row);
  }
  const same =
    next.cluster === table.cluster &&
    sameRows(next.namespaces, table.namespaces) &&
    sameRows(next.consumers, table.consumers);
  return same ? table : { at: now, ...next };
}

/** Whether one of these thresholds has been reached since the previous row. */
function isNewlyEnough(reached: Reached, before: PlannedRow, asked: readonly Enough[]): boolean {
  return asked.some((enough) => isEnough(reached, enough) && !isEnough(before.reached, enough));
}

/** The share of lags beyond each cell, at one hour. */
interface HourlyCurve extends Omit<WindowLags, 'counts'> {
  readonly longer: Uint32Array;
}

/** Cached, because those of past hours are needed again and again. */
const CURVES = new WeakMap<WindowLags, HourlyCurve>();

function curveOf(lags: WindowLags): HourlyCurve {
  const known = CURVES.get(lags);
  if (known !== undefined) return known;
  const { counts, ...rest } = lags;
  const curve = { ...rest, longer: new Uint32Array(CELLS) };
  let [beyond, units] = [0, 0];
  for (let cell = CELLS - 1; cell >= 0; cell -= 1) {
    curve.longer[cell] = units;
    const count = counts[cell] as number;
    if (count === 0) continue;
    beyond += count;
    // Rounded up, so that no rare lag is lost and no coverage is overstated.
    units = Math.ceil((beyond / lags.samples) * UNITS - 1e-6);
  }
  CURVES.set(lags, curve);
  return curve;
}

/** When and by which thresholds a table is made. */
interface Look {
  readonly now: number;
  readonly minSamples: number;
  readonly asked: readonly Enough[];
}

/** The current curve comes first. */
function curvesOf(history: LagHistory, { now, minSamples }: Look): readonly HourlyCurve[] {
  return history.windows(now, minSamples).map(curveOf);
}

/**
 * The row to publish: the previous one where a new one would make no difference, or nothing is measured any more.
 * @param of what differs from the history's own
 */
function nextRow(
  before: PlannedRow | undefined,
  history: LagHistory,
  look: Look,
  of: {
    readonly scope?: LagScope;
    readonly curves?: readonly HourlyCurve[];
    readonly reached?: Reached;
  } = {},
): PlannedRow | undefined {
  const { scope = 'cluster', curves = curvesOf(history, look), reached = history.reached(look.now) } = of;
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
    isNewlyEnough(row.reached, before, look.asked) ||
    row.scope !== before.scope ||
    (episode === undefined) !== (before.episode === undefined) ||
    haveMoved(row.slow, before.slow) ||
    haveMoved(row.current, before.current) ||
    hasCoverageMoved(row.current, before.current);
  if (!differs) return before;
  if (episode === undefined) return row;
  const { from, to, share } = episode;
  const without = largestOf(curvesOf(history.without(from, to), look));
  return { ...row, episode: { from, to, share, without } };
}

/** The pointwise maximum: beyond each cell, the largest share of any curve. */
function largestOf(curves: readonly HourlyCurve[]): Density {
  const longest = new Uint32Array(CELLS);
  for (const { longer } of curves) {
    for (let cell = 0; cell < CELLS; cell += 1) {
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

/**
 * Reads the output of {@link plannedToText}, parsed. A row that cannot be read is absent, as if nothing had been measured.
 * @returns undefined for anything else, or another version
 */
export function plannedFromJson(json: unknown): PlannedTable | undefined {
  if (!isRecord(json) || json.v !== VERSION) return undefined;
  const cluster = rowFromJson(json.cluster);
  const namespaces = rowsFromJson(json.namespaces);
  const consumers = rowsFromJson(json.consumers);
  if (namespaces === undefined || consumers === undefined) return undefined;
  return { at: isInstant(json.at) ? json.at : Number.NEGATIVE_INFINITY, cluster, namespaces, consumers };
}

function rowsFromJson(json: unknown): ReadonlyMap<string, PlannedRow> | undefined {
  if (!isRecord(json)) return undefined;
  const named = readEntries(Object.entries(json), (entry) => {
    const [name, each] = entry as [string, unknown];
    const row = rowFromJson(each);
    return row && ([name, row] as const);
  });
  return new Map(named);
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
  const episode = episodeFromJson(json.episode);
  return episode === undefined ? row : { ...row, episode };
}

function episodeFromJson(json: unknown): PlannedEpisode | undefined {
  if (!isRecord(json)) return undefined;
  const { from, to, share } = json;
  const without = curveFromText(json.without);
  if (!isInstant(from) || !isInstant(to) || !isInstant(share) || without === undefined) return undefined;
  return { from, to, share, without };
}

function curveFromText(text: unknown): Density | undefined {
  const curve = new Float64Array(CELLS);
  for (const [cell, units] of readCells(text) ?? []) curve[cell] = units;
  return totalOf(curve) === UNITS ? curve : undefined;
}

/** The table as compact JSON text. */
export function plannedToText({ at, cluster, namespaces, consumers }: PlannedTable): string {
  const rows = (of: ReadonlyMap<string, PlannedRow>) =>
    Object.fromEntries([...of].flatMap(([name, row]) => (isStorable(row) ? [[name, rowToJson(row)]] : [])));
  return JSON.stringify({
    v: VERSION,
    at: Number.isFinite(at) ? at : null,
    cluster: cluster && isStorable(cluster) ? rowToJson(cluster) : undefined,
    namespaces: rows(namespaces),
    consumers: rows(consumers),
  });
}

/** JSON has no number for NaN: a row with one would not read back. */
function isStorable({ samples, historySeconds, reached, current, slow }: PlannedRow): boolean {
  const numbers = [
    samples,
    historySeconds,
    reached.samples,
    reached.seconds,
    totalOf(current),
    totalOf(slow),
  ];
  return numbers.every(Number.isFinite);
}

function rowToJson({ historySeconds, reached, current, slow, episode, ...row }: PlannedRow): unknown {
  const text = cellsToText(current.entries());
  const slower = cellsToText(slow.entries());
  return {
    ...row,
    history: historySeconds,
    reached: [reached.samples, reached.seconds],
    current: text,
    ...(slower === text ? {} : { slow: slower }),
    ...(episode && { episode: { ...episode, without: cellsToText(episode.without.entries()) } }),
  };
}

/** The table without the namespaces with the fewest samples, as many as needed for its text to fit. */
export function shrunkTable(table: PlannedTable, characters: number): PlannedTable {
  const busiest = [...table.namespaces].sort(([, a], [, b]) => b.samples - a.samples);
  let shrunk = table;
  for (let kept = busiest.length; kept > 0 && plannedToText(shrunk).length > characters; ) {
    kept >>= 1;
    shrunk = { ...table, namespaces: new Map(busiest.slice(0, kept)) };
  }
  return shrunk;
}

/** One of the parts that a lag consists of. */
interface LagPart {
  /** `control plane`, or the consumer's name. */
  readonly name: string;
  readonly builtIn: boolean;
  readonly source: 'measured' | 'declared' | 'unknown';
  /** Whether it counts: it is declared, or has enough samples and history for the policy. */
  readonly enough: boolean;
  readonly samples: number;
  readonly historySeconds: number;
  /** undefined: nothing is known. */
  readonly lags: Pick<Lags, 'quantile'> | undefined;
}

/** The known lag of a pod's removal, by a policy's thresholds. */
export interface PlannedLag {
  readonly scope: LagScope;
  /** The samples of the measured part with the fewest; 0 where none is measured. */
  readonly samples: number;
  readonly historySeconds: number;
  /** The control plane first, then each consumer that applies. */
  readonly parts: readonly LagPart[];
  /** The lag of all parts that count: waits are taken from it. */
  readonly known: Lags | undefined;
  /** The lag of all parts with any samples, for display. */
  readonly seen: Lags | undefined;
  /** The share of removals that a wait covers, as measured now; undefined where a part does not count yet. */
  readonly coverage: ((seconds: number) => number) | undefined;
  readonly episode: (Omit<PlannedEpisode, 'without'> & { readonly without: () => Lags }) | undefined;
}

/** Where planned (slow, published) lags come from. Answers from memory: it is asked for every pod. */
export interface LagSource {
  /**
   * @param consumers those that send traffic to the pod
   * @param services the names of the Services that select it: their witnesses count, too
   */
  planned(
    namespace: string,
    consumers: readonly Pick<Consumer, 'name' | 'lagKey' | 'declared' | 'builtIn'>[],
    enough: Enough,
    services?: readonly string[],
  ): PlannedLag;
}

/** How many combinations are cached: of namespaces with their own lags, applicable consumers, and thresholds. */
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
      // Neither names of namespaces nor of consumers contain blanks.
      let key = `${own === undefined ? '' : namespace} ${enough.minSamples}/${enough.minHistory}`;
      // A consumer that replaces a built-in one has its name, and other thresholds.
      for (const { lagKey, builtIn } of consumers) key += builtIn ? ` ${lagKey}!` : ` ${lagKey}`;
      const witnesses: string[] = [];
      for (const service of services) {
        const name = witnessName(namespace, service);
        if (!table.consumers.has(name)) continue;
        witnesses.push(name);
        key += ` ${name}`;
      }
      const kept = combinations.get(key);
      if (kept !== undefined) {
        setNewest(combinations, key, kept, COMBINATIONS_KEPT);
        return kept;
      }
      const plane = partOf({ name: CONTROL_PLANE, builtIn: true }, own ?? table.cluster, enough);
      const rowOf = (name: string) => table.consumers.get(name);
      const parts = [
        ...consumers.map((each) =>
          partOf(each, rowOf(each.name), each.builtIn ? ENOUGH_OF_BUILT_IN : enough),
        ),
        ...witnesses.map((name) => partOf({ name, builtIn: true }, rowOf(name), ENOUGH_OF_WITNESS)),
      ];
      const combined = combine(own === undefined ? 'cluster' : 'namespace', plane, parts);
      setNewest(combinations, key, combined, COMBINATIONS_KEPT);
      return combined;
    },
  };
}

function partOf(
  { name, builtIn, declared }: Pick<Consumer, 'name' | 'builtIn'> & Partial<Pick<Consumer, 'declared'>>,
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
  /** The control plane's lag followed by the slowest of the consumers', as far as they are known. */
  const combined = (densityOf: (part: Part) => Density | undefined): Lags | undefined => {
    const ofPlane = densityOf(plane);
    const ofConsumers = consumers.flatMap((part) => densityOf(part) ?? []);
    if (ofConsumers.length === 0) return ofPlane && lagsOf(ofPlane);
    const slowest = maxOf(ofConsumers);
    return lagsOf(ofPlane === undefined ? slowest : sumOf(ofPlane, slowest));
  };
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

/** Nothing measured yet: every wait is `initial`, or what consumers are declared to need. */
export const NONE_YET: LagSource = plannedLags(NOTHING_PLANNED);
