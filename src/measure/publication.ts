import { promisify } from 'node:util';
import { gunzip, gzip } from 'node:zlib';
import { asError } from '../core/catalog/errors.ts';
import { GROUP } from '../core/catalog/vocabulary.ts';
import { type ToldConsumers, toldFromJson, toldToText } from '../core/consumers/told.ts';
import type { PlannedTable } from '../core/lag/planned.ts';
import { plannedFromJson } from '../core/lag/published.ts';
import { SLICE_SECONDS, SLICES } from '../core/lag/slices.ts';
import { isRecord, isString, isStringMap, jsonIn } from '../core/schema/shape.ts';

/** The ConfigMaps that replicas share, in Linger's own namespace. */
export const PUBLISHED_NAMES = {
  planned: 'linger-planned',
  history: 'linger-history',
  consumers: 'linger-consumers',
} as const;
export type PublishedObject = keyof typeof PUBLISHED_NAMES;

/** The planned lags, as `plannedToText` writes them without what is pending. */
export const PLANNED_KEY = 'planned.json';

/** The histories, as `snapshotWithin` writes them, in gzip. */
export const HISTORY_KEY = 'history.json.gz';

/** The planned lags with what is pending, for the next leader; in gzip. */
export const PENDING_KEY = 'planned.json.gz';

/** What the leader tells of consumers, for people: as `toldToText` writes it. */
export const CONSUMERS_KEY = 'consumers.json';

/** Raised when a version that knows only the lower one could not read, or would damage, what is written. */
const FORMAT = 1;

/** Of these ConfigMaps. */
export const PUBLISHED_ANNOTATIONS = {
  format: `${GROUP}/format`,
  /** The transitions of the lease of whoever wrote it: what is older must not be written over it. */
  term: `${GROUP}/term`,
  writer: `${GROUP}/writer`,
  writtenAt: `${GROUP}/written-at`,
} as const;

/** Why what is published is not used. A metric's label. */
export const REFUSALS = {
  Newer: 'A newer version of Linger wrote it. It is left alone.',
  Foreign: 'Something other than Linger wrote it. It is left alone.',
  Corrupt: 'It is not what Linger writes. The leader writes it anew.',
  Old: 'Everything in it is more than a week old. The leader writes it anew.',
  Future: 'It was written by a clock that is ahead of this one by more than an hour. It is left alone.',
} as const satisfies Record<string, string>;
export type Refusal = keyof typeof REFUSALS;

/** Whoever wrote a ConfigMap, and when. */
export interface Stamp {
  readonly writer: string;
  readonly term: number;
  /** Seconds since the epoch, by the writer's clock; NaN where it does not say. */
  readonly writtenAt: number;
}

/** What a ConfigMap holds. */
export interface Content {
  readonly data?: Readonly<Record<string, string>>;
  /** Base64. */
  readonly binaryData?: Readonly<Record<string, string>>;
}

/** What was published, or why it cannot be used. */
export type Published<T> =
  | { readonly outcome: 'read'; readonly value: T; readonly stamp: Stamp; readonly bytes: number }
  | { readonly outcome: 'refused'; readonly refusal: Refusal; readonly problem: string }
  /** A ConfigMap without contents, made by somebody in advance. */
  | { readonly outcome: 'empty' };

export interface PublishedHistory {
  /** For the estimator to restore. */
  readonly snapshot: unknown;
  /** undefined: what had been pending is lost. */
  readonly planned: PlannedTable | undefined;
}

/** A history of which nothing counts any more. */
const OLD_SECONDS = SLICES * SLICE_SECONDS;

/** Clocks that differ by more are set wrong, or the zone is mistaken: slices from the future would never expire. */
const AHEAD_SECONDS = 3_600;

/** More than this was not made by `snapshotWithin`: 1 MiB of gzip could hold a gigabyte of zeros. */
const LONGEST_TEXT = 16 * 1024 * 1024;

const compress = promisify<Uint8Array, Buffer>(gzip);
const decompress = (bytes: Buffer) =>
  promisify<Buffer, { maxOutputLength: number }, Buffer>(gunzip)(bytes, { maxOutputLength: LONGEST_TEXT });

/** Why a ConfigMap is to be left alone; undefined: it is ours to read and to write over. Given as the API has it. */
export function untouchable(object: unknown): 'Newer' | 'Foreign' | undefined {
  const { annotations, data, binaryData } = partsOf(object);
  const format = annotations[PUBLISHED_ANNOTATIONS.format];
  if (format !== undefined) {
    if (!/^\d+$/.test(format)) return 'Foreign';
    return Number(format) > FORMAT ? 'Newer' : undefined;
  }
  // Without a mark it may have been put back by hand from a backup; the contents still say their version.
  const ours = [PLANNED_KEY, HISTORY_KEY, PENDING_KEY, CONSUMERS_KEY];
  if (!Object.keys({ ...data, ...binaryData }).every((key) => ours.includes(key))) return 'Foreign';
  const planned = data[PLANNED_KEY];
  return planned !== undefined && isNewer(jsonIn(planned)) ? 'Newer' : undefined;
}

export function stampOf(object: unknown): Stamp {
  const { annotations } = partsOf(object);
  const term = annotations[PUBLISHED_ANNOTATIONS.term] ?? '';
  return {
    writer: annotations[PUBLISHED_ANNOTATIONS.writer] ?? '',
    term: /^\d{1,9}$/.test(term) ? Number(term) : 0,
    writtenAt: Date.parse(annotations[PUBLISHED_ANNOTATIONS.writtenAt] ?? '') / 1000,
  };
}

/** The annotations that say who wrote it. */
export function stampAnnotations({ writer, term, writtenAt }: Stamp): Readonly<Record<string, string>> {
  return {
    [PUBLISHED_ANNOTATIONS.format]: String(FORMAT),
    [PUBLISHED_ANNOTATIONS.term]: String(term),
    [PUBLISHED_ANNOTATIONS.writer]: writer,
    [PUBLISHED_ANNOTATIONS.writtenAt]: new Date(writtenAt * 1000).toISOString(),
  };
}

/** Reads the ConfigMap of the planned lags. However old they are: without newer ones they stay in force. */
export function readPlanned(object: unknown): Published<PlannedTable> {
  return readText(object, PLANNED_KEY, plannedFromJson);
}

/** Reads the ConfigMap of what is told of consumers. */
export function readConsumers(object: unknown): Published<ToldConsumers> {
  return readText(object, CONSUMERS_KEY, toldFromJson);
}

/** Reads what stands in a ConfigMap as JSON under one key. @param parse undefined: it is not what Linger writes */
function readText<T>(object: unknown, key: string, parse: (json: unknown) => T | undefined): Published<T> {
  const left = untouchable(object);
  if (left !== undefined) return refused(left, REFUSALS[left]);
  const text = partsOf(object).data[key];
  if (text === undefined) return { outcome: 'empty' };
  const value = parse(jsonIn(text));
  return value === undefined ? refused('Corrupt', `${key}: ${REFUSALS.Corrupt}`) : read(object, value);
}

/**
 * Reads the ConfigMap of the histories. Whether they can be restored is for the estimator to say.
 * @param now seconds since the epoch
 */
export async function readHistory(object: unknown, now: number): Promise<Published<PublishedHistory>> {
  const left = untouchable(object);
  if (left !== undefined) return refused(left, REFUSALS[left]);
  const { binaryData } = partsOf(object);
  if (binaryData[HISTORY_KEY] === undefined) return { outcome: 'empty' };
  const { writtenAt } = stampOf(object);
  if (writtenAt < now - OLD_SECONDS) return refused('Old', REFUSALS.Old);
  if (writtenAt > now + AHEAD_SECONDS) return refused('Future', REFUSALS.Future);
  try {
    const snapshot = await unpacked(binaryData[HISTORY_KEY]);
    if (isNewer(snapshot)) return refused('Newer', REFUSALS.Newer);
    const planned = await unpacked(binaryData[PENDING_KEY]).catch(() => undefined);
    return read(object, { snapshot, planned: plannedFromJson(planned) });
  } catch (error) {
    return refused('Corrupt', `${HISTORY_KEY}: ${asError(error).message}`);
  }
}

export function consumersContent(told: ToldConsumers): Content {
  return { data: { [CONSUMERS_KEY]: toldToText(told) } };
}

/** @param text of `plannedToText` without what is pending */
export function plannedContent(text: string): Content {
  return { data: { [PLANNED_KEY]: text } };
}

/**
 * @param snapshot of `snapshotWithin`
 * @param planned of `plannedToText` with what is pending
 */
export async function historyContent(snapshot: string, planned: string): Promise<Content> {
  const [history, pending] = await Promise.all([packed(snapshot), packed(planned)]);
  return { binaryData: { [HISTORY_KEY]: history, [PENDING_KEY]: pending } };
}

/** Bytes that count against a ConfigMap's 1 MiB: binaryData counts as what it stands for. */
export function bytesOf({ data = {}, binaryData = {} }: Content): number {
  const texts = Object.values(data).reduce((sum, text) => sum + Buffer.byteLength(text), 0);
  return Object.values(binaryData).reduce((sum, text) => sum + Buffer.byteLength(text, 'base64'), texts);
}

export function sameContent(object: unknown, { data = {}, binaryData = {} }: Content): boolean {
  const present = partsOf(object);
  return sameTexts(present.data, data) && sameTexts(present.binaryData, binaryData);
}

function sameTexts(a: Readonly<Record<string, string>>, b: Readonly<Record<string, string>>): boolean {
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => a[key] === b[key]);
}

function read<T>(object: unknown, value: T): Published<T> {
  return { outcome: 'read', value, stamp: stampOf(object), bytes: bytesOf(partsOf(object)) };
}

function refused(refusal: Refusal, problem: string): Published<never> {
  return { outcome: 'refused', refusal, problem };
}

function isNewer(json: unknown): boolean {
  return isRecord(json) && typeof json.v === 'number' && json.v > FORMAT;
}

function partsOf(object: unknown) {
  const { metadata, data, binaryData } = isRecord(object) ? object : {};
  const annotations = isRecord(metadata) ? metadata.annotations : undefined;
  return { annotations: textsOf(annotations), data: textsOf(data), binaryData: textsOf(binaryData) };
}

function textsOf(value: unknown): Readonly<Record<string, string>> {
  return isStringMap(value) ? value : {};
}

async function packed(text: string): Promise<string> {
  return (await compress(Buffer.from(text))).toString('base64');
}

async function unpacked(base64: string | undefined): Promise<unknown> {
  if (!isString(base64)) return undefined;
  return JSON.parse((await decompress(Buffer.from(base64, 'base64'))).toString('utf8'));
}
