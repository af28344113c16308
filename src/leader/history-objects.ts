import { setImmediate as turn } from 'node:timers/promises';
import type { HistoryPart } from '../core/lag/index.ts';
import {
  bytesOf,
  type Content,
  type Forgotten,
  forgottenText,
  HISTORY_NAMES,
  isFromFuture,
  isKnown,
  LEFT_ALONE,
  packPart,
  partKey,
  type Refused,
  readForgotten,
  readHistoryParts,
  refused,
  SHARED_ANNOTATIONS,
  type Stamp,
  unpackPart,
} from './codec.ts';
import type { LeaseLeadership } from './election.ts';
import type { SharedStore, WriteOutcome } from './store.ts';

/** A replica’s measured history, as parts of one scope each. Calls take some milliseconds. */
export interface StoredHistory {
  /** The parts, most important first. The text of a part is created only when it is needed. */
  parts(epochSeconds: number): Iterable<HistoryPart>;
  /**
   * Merges a part. Restoring it twice changes nothing, and older data never replace newer ones.
   * @returns false, without any change, if it is not a part
   */
  restorePart(json: unknown, epochSeconds: number): boolean;
}

/**
 * How many characters a part may have before gzip, by the kind of its scope. With 200 consumers (in two directions) and 50
 * namespaces that is 10 MB; gzip reduces such text to two thirds at worst, and real measurements to a quarter.
 */
const PART_CHARACTERS: Readonly<Record<string, number>> = {
  cluster: 400_000,
  consumer: 14_000,
  namespace: 60_000,
};
const OTHER_CHARACTERS = 14_000;
/** The most bytes that are put into one ConfigMap; the API server allows 1 MiB. */
const OBJECT_BYTES = 900_000;

/** Several times as much text as is ever written; more was forged to keep a replica busy. */
const MOST_TEXT = 64 * 1024 * 1024;

/** The contents of the ConfigMaps of a history, one after the other, so that at most one is in memory. */
export async function* historyContents(
  history: Pick<StoredHistory, 'parts'>,
  epochSeconds: number,
): AsyncGenerator<Content> {
  let binaryData: Record<string, string> = {};
  let bytes = 0;
  for (const part of history.parts(epochSeconds)) {
    const [kind = ''] = part.key.split('/', 1);
    const packed = await packPart(part.text(PART_CHARACTERS[kind] ?? OTHER_CHARACTERS));
    const key = partKey(part.key);
    const size = key.length + Buffer.byteLength(packed, 'base64');
    if (bytes + size > OBJECT_BYTES && bytes > 0) {
      yield { binaryData };
      binaryData = {};
      bytes = 0;
    }
    binaryData[key] = packed;
    bytes += size;
  }
  yield { binaryData };
}

interface RestoredHistory {
  /** The stamp of the newest ConfigMap; undefined: there is no history. */
  readonly stamp: Stamp | undefined;
  readonly bytes: number;
  /** How many ConfigMaps have contents. */
  readonly objects: number;
  /** Spans that have been removed from all of them. */
  readonly forgotten: readonly Forgotten[];
  /** The most serious refusal, if any. */
  readonly refused: Refused | undefined;
}

/**
 * Reads all ConfigMaps of the history and merges their parts one at a time. An unreadable part does not affect the others.
 * @param read returns the contents of the ConfigMap of this name
 */
export async function restoreHistory(
  read: (name: string) => Promise<unknown>,
  history: Pick<StoredHistory, 'restorePart'>,
  epochSeconds: number,
): Promise<RestoredHistory> {
  let [bytes, objects, text] = [0, 0, 0];
  let stamp: Stamp | undefined;
  let worst: Refused | undefined;
  let forgotten: readonly Forgotten[] | undefined;
  for (const [index, name] of HISTORY_NAMES.entries()) {
    const object = await read(name);
    const present = readHistoryParts(object);
    if (present.outcome === 'empty') continue;
    objects = index + 1;
    if (present.outcome === 'refused') {
      if (worst === undefined || LEFT_ALONE.has(present.refusal)) worst = present;
      continue;
    }
    if (isFromFuture(present.stamp, epochSeconds)) worst = refused('Future');
    bytes += present.bytes;
    const known = readForgotten(object);
    forgotten = forgotten?.filter((each) => isKnown(each, known)) ?? known;
    if (!((stamp?.writtenAt ?? Number.NEGATIVE_INFINITY) > present.stamp.writtenAt)) stamp = present.stamp;
    let unreadable = 0;
    for (const packed of present.value) {
      const part = text > MOST_TEXT ? undefined : await unpackPart(packed);
      text += part?.bytes ?? 0;
      // Merging a part takes some milliseconds, so let other work run in between.
      await turn();
      if (part?.json === undefined || !history.restorePart(part.json, epochSeconds)) unreadable += 1;
    }
    if (unreadable > 0)
      worst ??= refused('Corrupt', `${name}: ${unreadable} of ${present.value.length} parts`);
  }
  return { stamp, bytes, objects, forgotten: forgotten ?? [], refused: worst };
}

export class HistoryObjects {
  readonly #store: SharedStore;
  readonly #history: StoredHistory;
  /** Whether every ConfigMap has been read and may be overwritten. Until then, nothing is written. */
  settled = false;
  #objects = 0;

  constructor(store: SharedStore, history: StoredHistory) {
    this.#store = store;
    this.#history = history;
  }

  /** Merges what is stored. @throws KubeFailure */
  async restore(epochSeconds: number, signal: AbortSignal): Promise<RestoredHistory> {
    const read = (name: string) => this.#store.read(name, signal);
    const restored = await restoreHistory(read, this.#history, epochSeconds);
    const { refused, objects } = restored;
    this.settled = refused === undefined || !LEFT_ALONE.has(refused.refusal);
    this.#objects = objects;
    return restored;
  }

  /**
   * Writes the current history. If there is no room for all parts, the least important ones are left out. @throws
   * KubeFailure
   */
  async write(
    leadership: LeaseLeadership,
    forgotten: readonly Forgotten[],
    epochSeconds: number,
    signal: AbortSignal,
  ): Promise<{ readonly outcome: WriteOutcome; readonly bytes: number; readonly writes: number }> {
    const annotations = { [SHARED_ANNOTATIONS.forgotten]: forgottenText(forgotten) };
    let [index, bytes, writes] = [0, 0, 0];
    for await (const content of historyContents(this.#history, epochSeconds)) {
      const name = HISTORY_NAMES[index];
      if (name === undefined) break;
      const outcome = await this.#store.write(name, { ...content, annotations }, leadership, signal);
      if (outcome !== 'written' && outcome !== 'unchanged') return { outcome, bytes, writes };
      bytes += bytesOf(content);
      writes += Number(outcome === 'written');
      index += 1;
      this.#objects = Math.max(this.#objects, index);
    }
    // ConfigMaps that remain from an earlier, longer history are emptied, or they would be restored again.
    for (const name of HISTORY_NAMES.slice(index, this.#objects)) {
      const outcome = await this.#store.write(name, {}, leadership, signal);
      if (outcome !== 'written' && outcome !== 'unchanged') return { outcome, bytes, writes };
    }
    this.#objects = index;
    return { outcome: 'written', bytes, writes };
  }
}
