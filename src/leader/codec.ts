import { createHash } from 'node:crypto';
import { isDeepStrictEqual, promisify } from 'node:util';
import { gunzip, gzip } from 'node:zlib';
import type { V1ConfigMap } from '@kubernetes/client-node';
import { z } from 'zod';
import { type Curable, GROUP, isRecord, isStringMap, listOf } from '../core/api/index.ts';
import type { ClusterSnapshot, HoldSupply } from '../core/decision/index.ts';
import {
  type ConsumerTable,
  consumersFromJson,
  type PlannedTable,
  plannedFromJson,
} from '../core/lag/index.ts';

/** The ConfigMaps that replicas share, in Linger's own namespace. */
export const SHARED_NAMES = {
  planned: 'linger-planned',
  history: 'linger-history',
  consumers: 'linger-consumers',
  shortfalls: 'linger-shortfalls',
} as const;
export type SharedObject = keyof typeof SHARED_NAMES;

/** ConfigMaps for a history that is too large for one. A fixed list, because RBAC grants rights by name. */
export const HISTORY_NAMES: readonly string[] = [
  SHARED_NAMES.history,
  ...[2, 3, 4, 5, 6, 7, 8].map((number) => `${SHARED_NAMES.history}-${number}`),
];

const TEXT_KEYS = {
  planned: 'planned.json',
  consumers: 'consumers.json',
  shortfalls: 'shortfalls.json',
} as const;
/** In the ConfigMap of the consumers: the leader's view of what hook Hold needs. */
const HOLD_KEY = 'hold.json';
export const PLANNED_KEY = TEXT_KEYS.planned;
/** The suffix of all keys of a history, one for each part: `namespace.shop.json.gz`. */
const PART_SUFFIX = '.json.gz';

/**
 * The format's version. To be raised when a program that knows only the lower one could not read, or would damage, what is
 * written.
 */
const FORMAT = 2;

export const SHARED_ANNOTATIONS = {
  format: `${GROUP}/format`,
  /** The number of transitions of the writer's Lease, so that an older term cannot overwrite a newer one. */
  term: `${GROUP}/term`,
  writer: `${GROUP}/writer`,
  writtenAt: `${GROUP}/written-at`,
  /**
   * On `linger-planned`: spans to forget, as recorded by `linger history forget`. On the ConfigMaps of the history: spans
   * that have been removed from them.
   */
  forgotten: `${GROUP}/forgotten`,
} as const;

/** Why a shared ConfigMap is not used; the value of a metric's label. */
export const REFUSALS = {
  Newer: {
    means: 'A newer version of Linger wrote it. It is left alone.',
    more: 'Nothing new is published: waits stay as they are, or are `initial`.',
    cure: 'Upgrade again; or, to stay with the older version, delete the ConfigMap.',
  },
  Foreign: {
    means: 'Something other than Linger wrote it. It is left alone.',
    cure: 'Move it elsewhere, and delete it here.',
  },
  Corrupt: {
    means: 'It is not what this version of Linger writes. The leader overwrites it.',
    more: 'It is damaged, or of an older version. Of a history, all other parts are used.',
    cure: 'After an upgrade: nothing. Otherwise: find out what else writes it.',
  },
  Future: {
    means:
      'It was written by a clock that is ahead of this one by more than an hour. What is not of the future is used, and it is left alone.',
    more: 'No history is written.',
    cure: "Correct the wrong clock; if it was the writer's, delete `linger-history`.",
  },
} as const satisfies Readonly<Record<string, Curable>>;
export type Refusal = keyof typeof REFUSALS;

/** Refusals of objects that may contain a week of measurements, and so are not overwritten. */
export const LEFT_ALONE: ReadonlySet<Refusal> = new Set(['Newer', 'Foreign', 'Future']);

export type ConfigMap = Pick<V1ConfigMap, 'metadata' | 'data' | 'binaryData'>;

export interface Content extends Pick<ConfigMap, 'data' | 'binaryData'> {
  /** In addition to the stamp. */
  readonly annotations?: Record<string, string>;
}

/** Which replica wrote a ConfigMap, and when. */
export interface Stamp {
  readonly writer: string;
  readonly term: number;
  /** Seconds since the epoch, by the writer's clock; NaN if the ConfigMap does not say. */
  readonly writtenAt: number;
}

export interface Refused {
  readonly outcome: 'refused';
  readonly refusal: Refusal;
  readonly problem: string;
}

export type Shared<T> =
  | Refused
  | { readonly outcome: 'read'; readonly value: T; readonly stamp: Stamp; readonly bytes: number }
  /** The ConfigMap does not exist, or has no contents. */
  | { readonly outcome: 'empty' };

/** Why a ConfigMap must not be overwritten; undefined: Linger wrote it. */
export function notOurs(object: unknown): 'Newer' | 'Foreign' | undefined {
  const { annotations, data, binaryData } = partsOf(object);
  const format = annotations[SHARED_ANNOTATIONS.format];
  if (format !== undefined) {
    if (!/^\d{1,9}$/.test(format)) return 'Foreign';
    return Number(format) > FORMAT ? 'Newer' : undefined;
  }
  // It may have been restored by hand from a backup, without its annotations.
  const ours = (key: string) =>
    key === HOLD_KEY || Object.values<string>(TEXT_KEYS).includes(key) || key.endsWith(PART_SUFFIX);
  if (!Object.keys({ ...data, ...binaryData }).every(ours)) return 'Foreign';
  const planned = parsed(data[PLANNED_KEY] ?? '{}');
  return isRecord(planned) && Number(planned.v) > FORMAT ? 'Newer' : undefined;
}

export function stampOf(object: unknown): Stamp {
  const { annotations } = partsOf(object);
  const term = annotations[SHARED_ANNOTATIONS.term] ?? '';
  return {
    writer: annotations[SHARED_ANNOTATIONS.writer] ?? '',
    term: /^\d{1,9}$/.test(term) ? Number(term) : 0,
    writtenAt: Date.parse(annotations[SHARED_ANNOTATIONS.writtenAt] ?? '') / 1000,
  };
}

export function stampAnnotations({ writer, term, writtenAt }: Stamp): Record<string, string> {
  return {
    [SHARED_ANNOTATIONS.format]: String(FORMAT),
    [SHARED_ANNOTATIONS.term]: String(term),
    [SHARED_ANNOTATIONS.writer]: writer,
    [SHARED_ANNOTATIONS.writtenAt]: new Date(writtenAt * 1000).toISOString(),
  };
}

export function textContent(object: keyof typeof TEXT_KEYS, text: string): Content {
  return { data: { [TEXT_KEYS[object]]: text } };
}

/** Reads the published curves. However old they are, they apply until there are newer ones. */
export function readPlanned(object: unknown): Shared<PlannedTable> {
  return readText(object, TEXT_KEYS.planned, plannedFromJson);
}

export function readConsumers(object: unknown): Shared<ConsumerTable> {
  return readText(object, TEXT_KEYS.consumers, consumersFromJson);
}

/** If more namespaces than this have the helper, their names are not published: they would take more than 300 KB. */
const MOST_NAMESPACES = 5_000;

/** Added to the consumers, because both are read by people who ask what pods get. */
export function withHold(content: Content, hold: ClusterSnapshot['hold']): Content {
  if (hold === undefined) return content;
  const json = 'why' in hold ? hold : { ...hold, namespaces: namesIn(hold.namespaces), ...listsOf(hold) };
  return { ...content, data: { ...content.data, [HOLD_KEY]: JSON.stringify(json) } };
}

function namesIn(namespaces: ReadonlySet<string>): readonly string[] | undefined {
  return namespaces.size > MOST_NAMESPACES ? undefined : [...namespaces].toSorted();
}

function listsOf({ tested, architectures }: HoldSupply) {
  return { tested: [...tested].toSorted(), architectures: [...architectures] };
}

const holdJson = z.union([
  z.object({ why: z.string() }),
  z.object({
    address: z.string(),
    digest: z.string(),
    namespaces: z.array(z.string()).optional(),
    tested: z.array(z.string()),
    architectures: z.array(z.string()),
    image: z.string().optional(),
  }),
]);

/**
 * Reads what the leader knows of hook Hold.
 * @param all the namespaces that count as having the helper if there were too many to publish
 * @returns undefined if nothing readable is published
 */
export function readHold(object: unknown, all: Iterable<string>): ClusterSnapshot['hold'] {
  if (notOurs(object) !== undefined) return undefined;
  const { data } = holdJson.safeParse(parsed(partsOf(object).data[HOLD_KEY] ?? ''));
  if (data === undefined || 'why' in data) return data;
  const { namespaces = all, tested, architectures, image, ...supply } = data;
  return {
    ...supply,
    namespaces: new Set(namespaces),
    tested: new Set(tested),
    architectures: new Set(architectures),
    ...(image !== undefined && { image }),
  };
}

/** @param parse returns undefined for anything that Linger does not write */
export function readShortfalls<T>(object: unknown, parse: (json: unknown) => T | undefined): Shared<T> {
  return readText(object, TEXT_KEYS.shortfalls, parse);
}

function readText<T>(object: unknown, key: string, parse: (json: unknown) => T | undefined): Shared<T> {
  const left = notOurs(object);
  if (left !== undefined) return refused(left);
  const { data } = partsOf(object);
  const text = data[key];
  if (text === undefined) return { outcome: 'empty' };
  const value = parse(parsed(text));
  if (value === undefined) return refused('Corrupt', key);
  return { outcome: 'read', value, stamp: stampOf(object), bytes: bytesOf({ data }) };
}

/** If a time stamp is further in the future than this, one of the clocks is wrong, this one or the writer's. */
const AHEAD_SECONDS = 3_600;

/** @param now seconds since the epoch */
export function isFromFuture({ writtenAt }: Stamp, now: number): boolean {
  return writtenAt > now + AHEAD_SECONDS;
}

/** The packed parts of a history; see {@link unpackPart}. */
export function readHistoryParts(object: unknown): Shared<readonly string[]> {
  const left = notOurs(object);
  if (left !== undefined) return refused(left);
  const { binaryData } = partsOf(object);
  const value = Object.values(binaryData);
  if (value.length === 0) return { outcome: 'empty' };
  return { outcome: 'read', value, stamp: stampOf(object), bytes: bytesOf({ binaryData }) };
}

/**
 * How many characters a part may inflate to: several times what is ever written. Without a limit, 1 MiB of gzip could
 * inflate to a gigabyte.
 */
const LONGEST_PART = 1024 * 1024;

const compress = promisify<Uint8Array, Buffer>(gzip);
const decompress = promisify<Buffer, { maxOutputLength: number }, Buffer>(gunzip);

/** Compresses in the thread pool. @returns base64 of gzip */
export async function packPart(text: string): Promise<string> {
  return (await compress(Buffer.from(text))).toString('base64');
}

/** @returns the parsed part and the size of its text; `json` is undefined for anything that is not a packed part */
export async function unpackPart(
  packed: string,
): Promise<{ readonly json: unknown; readonly bytes: number }> {
  try {
    const text = await decompress(Buffer.from(packed, 'base64'), { maxOutputLength: LONGEST_PART });
    return { json: parsed(text.toString('utf8')), bytes: text.length };
  } catch {
    return { json: undefined, bytes: LONGEST_PART };
  }
}

/** The key of a part in a ConfigMap, which may have at most 253 of certain characters. */
export function partKey(key: string): string {
  const name = key.replaceAll('/', '.');
  const fits = name.length + PART_SUFFIX.length <= 253 && /^[-._a-zA-Z0-9]+$/.test(name);
  return (fits ? name : createHash('sha256').update(key).digest('hex')) + PART_SUFFIX;
}

/** V8 takes a second to parse a number of 256 KiB of digits. Linger's numbers have at most 20. */
const ABSURD_NUMBER = /\d{40}/;

/** @returns undefined for text that is not JSON, or that would take long to parse */
function parsed(text: string): unknown {
  try {
    return ABSURD_NUMBER.test(text) ? undefined : JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The bytes that count towards a ConfigMap's 1 MiB; binaryData counts decoded. */
export function bytesOf({ data = {}, binaryData = {} }: Content): number {
  const texts = Object.values(data).reduce((sum, text) => sum + Buffer.byteLength(text), 0);
  return Object.values(binaryData).reduce((sum, text) => sum + Buffer.byteLength(text, 'base64'), texts);
}

export function sameContent(
  object: unknown,
  { data = {}, binaryData = {}, annotations = {} }: Content,
): boolean {
  const present = partsOf(object);
  const noted = Object.entries(annotations).every(([key, text]) => present.annotations[key] === text);
  return noted && isDeepStrictEqual([present.data, present.binaryData], [data, binaryData]);
}

/**
 * A span to remove from the history of one namespace or consumer, or (with neither) of everything. Seconds since the epoch.
 */
export type Forgotten = Readonly<z.infer<typeof FORGOTTEN>>;

const TIME = z.string().transform((text) => Date.parse(text) / 1000);
const FORGOTTEN = z
  .object({
    from: TIME,
    to: TIME,
    namespace: z.string().exactOptional(),
    consumer: z.string().exactOptional(),
  })
  .refine(({ from, to }) => from < to);

/** Entries that do not parse are ignored as a whole: an entry for a single scope must not be read as one for everything. */
export function readForgotten(object: unknown): readonly Forgotten[] {
  const list = parsed(partsOf(object).annotations[SHARED_ANNOTATIONS.forgotten] ?? '[]');
  return listOf(list).flatMap((each) => FORGOTTEN.safeParse(each).data ?? []);
}

export function forgottenText(forgotten: readonly Forgotten[]): string {
  const time = (seconds: number) => new Date(seconds * 1000).toISOString();
  return JSON.stringify(forgotten.map((each) => ({ ...each, from: time(each.from), to: time(each.to) })));
}

export function isKnown(span: Forgotten, known: readonly Forgotten[]): boolean {
  return known.some((each) => isDeepStrictEqual(each, span));
}

export function refused(refusal: Refusal, where?: string): Refused {
  const problem = where === undefined ? REFUSALS[refusal].means : `${where}: ${REFUSALS[refusal].means}`;
  return { outcome: 'refused', refusal, problem };
}

function partsOf(object: unknown) {
  const { metadata, data, binaryData } = isRecord(object) ? object : {};
  const annotations = isRecord(metadata) ? metadata.annotations : undefined;
  return { annotations: textsOf(annotations), data: textsOf(data), binaryData: textsOf(binaryData) };
}

function textsOf(value: unknown): Readonly<Record<string, string>> {
  return isStringMap(value) ? value : {};
}
