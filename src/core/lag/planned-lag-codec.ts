import { isRecord, readEntries } from '../api/index.ts';
import { BUCKETS } from './buckets.ts';
import { type Density, totalOf } from './distribution.ts';
import { bucketsToText, isCount, isInstant, readBuckets } from './histogram.ts';
import { type PlannedEpisode, type PlannedRow, type PlannedTable, UNITS } from './planned-lag.ts';

const VERSION = 2;

/**
 * Reads the output of {@link plannedToText}, parsed. A row that cannot be read is left out, as if nothing had been measured.
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
  const kept = json.kept === true && { kept: true as const };
  const row = { scope, samples, historySeconds: history, reached, current, slow, ...kept } as const;
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
  const curve = new Float64Array(BUCKETS);
  for (const [bucket, units] of readBuckets(text) ?? []) curve[bucket] = units;
  return totalOf(curve) === UNITS ? curve : undefined;
}

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

/** JSON cannot represent NaN, so a row with one could not be read back. */
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
  const text = bucketsToText(current.entries());
  const slower = bucketsToText(slow.entries());
  return {
    ...row,
    history: historySeconds,
    reached: [reached.samples, reached.seconds],
    current: text,
    ...(slower === text ? {} : { slow: slower }),
    ...(episode && { episode: { ...episode, without: bucketsToText(episode.without.entries()) } }),
  };
}

/** Leaves out the namespaces with the fewest samples, as many as necessary to make the text fit. */
export function shrunkTable(table: PlannedTable, characters: number): PlannedTable {
  const busiest = [...table.namespaces].sort(([, a], [, b]) => b.samples - a.samples);
  let shrunk = table;
  for (let kept = busiest.length; kept > 0 && plannedToText(shrunk).length > characters; ) {
    kept >>= 1;
    shrunk = { ...table, namespaces: new Map(busiest.slice(0, kept)) };
  }
  return shrunk;
}
