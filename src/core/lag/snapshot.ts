import { LAG_STAGES, type LagStage } from './sample.ts';
import { BLOCK_WIDTHS, type BlockWidth, type LagHistory } from './slices.ts';

/** Snapshots up to this many characters are written in a few milliseconds: there, finer ones may be tried in vain. */
const SHORT = 100_000;

type Histories = Readonly<Record<LagStage, LagHistory>>;

/** The histories that a snapshot is to be made of. They must not change while it is written. */
export interface SnapshotSource {
  readonly version: number;
  readonly cluster: Histories;
  readonly namespaces: ReadonlyMap<string, Histories>;
  /** Goes along as it is. */
  readonly beside: Readonly<Record<string, unknown>>;
}

/**
 * Writes histories as JSON text of at most so many characters (all ASCII), with slices as fine as there is room for;
 * where even blocks of a day are too many, namespaces are left out, the quietest first. The cluster alone takes some
 * 20 kB then.
 *
 * It is work of some hundred milliseconds, so it is done in steps of one history each: whoever takes them may do
 * something else in between.
 */
export function* snapshotSteps(
  source: SnapshotSource,
  characters: number,
  epochSeconds: number,
): Generator<undefined, string> {
  const writer = new SnapshotWriter(source, epochSeconds);
  const busiest = yield* writer.busiest();
  for (let kept = busiest.length; kept > 0; kept >>= 1) {
    const text = yield* finest(writer, characters, new Set(busiest.slice(0, kept)));
    if (text !== undefined) return text;
  }
  return (yield* writer.text(96, new Set())) ?? '';
}

function* finest(
  writer: SnapshotWriter,
  characters: number,
  names: ReadonlySet<string>,
): Generator<undefined, string | undefined> {
  let found: string | undefined;
  // From the shortest on, because the longest take long to write: each step at least doubles a busy cluster's.
  for (const width of BLOCK_WIDTHS.toReversed()) {
    const text = yield* writer.text(width, names, characters);
    if (text === undefined) return found;
    found = text;
    if (2 * text.length > characters && text.length > SHORT) return found;
  }
  return found;
}

class SnapshotWriter {
  readonly #source: SnapshotSource;
  readonly #epochSeconds: number;
  /** What has been written of each scope, by the width of its blocks: the same with many namespaces and with few. */
  readonly #written = new Map<BlockWidth, Map<Histories, string>>();

  constructor(source: SnapshotSource, epochSeconds: number) {
    this.#source = source;
    this.#epochSeconds = epochSeconds;
  }

  /** The namespaces with the most lags first. */
  *busiest(): Generator<undefined, readonly string[]> {
    const counted: { name: string; samples: number }[] = [];
    for (const [name, histories] of this.#source.namespaces) {
      const samples = LAG_STAGES.map((stage) => histories[stage].samples(this.#epochSeconds));
      counted.push({ name, samples: Math.max(...samples) });
      yield;
    }
    return counted.sort((a, b) => b.samples - a.samples).map(({ name }) => name);
  }

  /** @returns undefined as soon as it is clear that it has more than so many characters */
  *text(
    width: BlockWidth,
    names: ReadonlySet<string>,
    characters = Number.POSITIVE_INFINITY,
  ): Generator<undefined, string | undefined> {
    const { version, cluster, namespaces, beside } = this.#source;
    const head = JSON.stringify({ ...beside, v: version }).slice(0, -1);
    let text = `${head},"cluster":${yield* this.#scope(cluster, width)},"namespaces":{`;
    let separator = '';
    for (const [name, histories] of namespaces) {
      if (!names.has(name)) continue;
      text += `${separator}${JSON.stringify(name)}:${yield* this.#scope(histories, width)}`;
      separator = ',';
      if (text.length > characters) return undefined;
    }
    text += '}}';
    return text.length > characters ? undefined : text;
  }

  *#scope(histories: Histories, width: BlockWidth): Generator<undefined, string> {
    const written = this.#written.get(width) ?? new Map<Histories, string>();
    this.#written.set(width, written);
    const present = written.get(histories);
    if (present !== undefined) return present;
    const members: string[] = [];
    for (const stage of LAG_STAGES) {
      const history = JSON.stringify(histories[stage].coarsened(width, this.#epochSeconds));
      members.push(`${JSON.stringify(stage)}:${history}`);
      yield;
    }
    const text = `{${members.join()}}`;
    written.set(histories, text);
    return text;
  }
}
