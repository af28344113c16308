import {
  ANNOTATION_PREFIX,
  FOREIGN_LIMITS,
  isRecord,
  isString,
  jsonIn,
  TOLERATE_UNREADY,
} from '../core/api/index.ts';
import { KubeFailure } from './failure.ts';
import type { RawObject } from './resource.ts';

/**
 * Reads objects of the API server from bytes. Tenants write them, and neither the number nor the length of labels is
 * limited: in a single pass, excess is skipped as bytes before anything is decoded or kept.
 */

const SMALL = FOREIGN_LIMITS.watch.loopBytes;

const READ_METADATA: ReadonlySet<string> = new Set([
  ...['name', 'namespace', 'uid', 'resourceVersion', 'generation', 'creationTimestamp'],
  ...['deletionTimestamp', 'deletionGracePeriodSeconds', 'ownerReferences', 'labels', 'annotations'],
]);

/** Source: k8s.io/api core/v1 (EndpointsOverCapacity). */
export const OVER_CAPACITY = 'endpoints.kubernetes.io/over-capacity';

/** Annotations that are read in addition to Linger's own. */
const READ_ANNOTATIONS: ReadonlySet<string> = new Set([OVER_CAPACITY, TOLERATE_UNREADY]);

/**
 * V8 hashes short strings of digits by their value, so an attacker can make them collide, and thousands of them block the
 * event loop for seconds (HashDoS); other hashes use a secret seed. Real objects have few such strings.
 */
const DIGITS = /"(\d{5,15})"/g;
const MOST_DIGITS = 32;

/** @returns undefined for anything other than an object @throws KubeFailure `Malformed` */
function readObject(bytes: Buffer): RawObject | undefined {
  const text = smallText(bytes) ?? withoutExcess(bytes, 0);
  return recordIn(text) as RawObject | undefined;
}

/** @returns undefined for anything other than a watch event @throws KubeFailure `Malformed` */
export function readEvent(bytes: Buffer): { readonly type?: unknown; readonly object?: unknown } | undefined {
  const text = smallText(bytes);
  if (text !== undefined) return recordIn(text);
  const members = Array.from(membersOf(bytes, 0), ({ key, start, end }) => {
    const isObject = key === 'object' && bytes[start] === OPEN;
    return `"${key}":${isObject ? withoutExcess(bytes, start) : textOf(bytes, start, end)}`;
  });
  return recordIn(`{${members.join()}}`);
}

/** @returns undefined for text that is too long, or has too many strings of digits, to be parsed as it is */
function smallText(bytes: Buffer): string | undefined {
  if (bytes.length > SMALL) return undefined;
  const text = bytes.toString();
  return hasManyDigits(text) ? undefined : text;
}

/** The object that begins at `at`, without excess. @returns JSON, if the object is JSON */
function withoutExcess(bytes: Buffer, at: number): string {
  const members = Array.from(membersOf(bytes, at), ({ key, start, end }) => {
    const isMetadata = key === 'metadata' && bytes[start] === OPEN;
    // Outside of the metadata, no string of digits matters.
    return `"${key}":${isMetadata ? metadataIn(bytes, start) : harmless(textOf(bytes, start, end))}`;
  });
  return `{${members.join()}}`;
}

function metadataIn(bytes: Buffer, at: number): string {
  const kept: string[] = [];
  let leftOut = false;
  const keep = (key: string, text: string | undefined) => {
    if (text === undefined || harmless(text) !== text) leftOut = true;
    else kept.push(`"${key}":${text}`);
  };
  for (const { key, start, end } of membersOf(bytes, at)) {
    const text = end - start <= SMALL ? textOf(bytes, start, end) : undefined;
    if (key === 'annotations' && text === undefined) keep(key, annotationsIn(bytes, start));
    else if (READ_METADATA.has(key)) keep(key, text);
  }
  if (leftOut) kept.push('"leftOut":true');
  return `{${kept.join()}}`;
}

/**
 * Only the annotations that are read, for objects whose annotations are too large together. @returns undefined: even these
 * are too large
 */
function annotationsIn(bytes: Buffer, at: number): string | undefined {
  const kept: string[] = [];
  let left = SMALL;
  if (bytes[at] !== OPEN) return undefined;
  for (const { key, start, end } of membersOf(bytes, at)) {
    if (!key.startsWith(ANNOTATION_PREFIX) && !READ_ANNOTATIONS.has(key)) continue;
    left -= key.length + end - start;
    if (left < 0) return undefined;
    kept.push(`"${key}":${textOf(bytes, start, end)}`);
  }
  return `{${kept.join()}}`;
}

function harmless(text: string): string {
  return hasManyDigits(text) ? text.replaceAll(DIGITS, '"~$1"') : text;
}

function hasManyDigits(text: string): boolean {
  return (text.match(DIGITS)?.length ?? 0) > MOST_DIGITS;
}

export interface PageEnd {
  /** The list's resourceVersion; all pages show the collection at this version. */
  readonly resourceVersion: string;
  /** The continue token; undefined: this was the last page. */
  readonly next: string | undefined;
}

/**
 * Reads a page of a list, one item per step.
 * @returns the list's metadata
 * @throws KubeFailure `Malformed` for anything other than a list
 */
export function* readListPage(page: Buffer, onItem: (item: RawObject) => void): Generator<void, PageEnd> {
  const { items, metadata } = Object.fromEntries(
    Array.from(membersOf(page, 0), ({ key, ...span }) => [key, span] as const),
  );
  const about = metadata && recordIn(textOf(page, metadata.start, metadata.end));
  if (about === undefined || !isString(about.resourceVersion)) throw malformed('a list', page);
  // For some kinds, Go writes an empty list as null.
  if (items !== undefined && page[items.start] === OPEN_LIST)
    for (const { start, end } of elementsOf(page, items.start)) {
      const item = readObject(page.subarray(start, end));
      if (item === undefined) throw malformed('an object', page.subarray(start, end));
      onItem(item);
      yield;
    }
  const { resourceVersion, continue: next } = about;
  return { resourceVersion, next: isString(next) && next !== '' ? next : undefined };
}

export function malformed(expected: string, bytes: Buffer): KubeFailure {
  return new KubeFailure('Malformed', `expected ${expected}, got ${bytes.toString('utf8', 0, 100)}`);
}

const [OPEN, CLOSE, OPEN_LIST, CLOSE_LIST] = [0x7b, 0x7d, 0x5b, 0x5d];
const [QUOTE, BACKSLASH, COMMA, COLON, SPACE] = [0x22, 0x5c, 0x2c, 0x3a, 0x20];

/** The position of a value. In invalid JSON, spans are arbitrary but within the bytes, and their texts do not parse. */
interface Span {
  readonly start: number;
  readonly end: number;
}

/**
 * The members of the object that begins at `at`. Keys are returned as written, without quotes.
 * @throws KubeFailure `Malformed` if no object begins there, or it does not end
 */
function* membersOf(bytes: Buffer, at: number): Generator<Span & { readonly key: string }> {
  let next = bytes[at] === OPEN ? at : bytes.length;
  do {
    const quote = skipSpace(bytes, next + 1);
    if (bytes[quote] === CLOSE && next === at) return;
    const end = endOfString(bytes, quote);
    const colon = skipSpace(bytes, end);
    if (bytes[quote] !== QUOTE || bytes[colon] !== COLON) throw malformed('an object', bytes.subarray(at));
    const value = valueAt(bytes, colon + 1);
    yield { key: textOf(bytes, quote + 1, end - 1), ...value };
    next = skipSpace(bytes, value.end);
  } while (bytes[next] === COMMA);
  if (bytes[next] !== CLOSE) throw malformed('the end of an object', bytes.subarray(at));
}

/** The elements of the list that begins at `at`. @throws KubeFailure `Malformed` if it does not end */
function* elementsOf(bytes: Buffer, at: number): Generator<Span> {
  let next = at;
  do {
    const start = skipSpace(bytes, next + 1);
    if (bytes[start] === CLOSE_LIST && next === at) return;
    const value = valueAt(bytes, start);
    yield value;
    next = skipSpace(bytes, value.end);
  } while (bytes[next] === COMMA);
  if (bytes[next] !== CLOSE_LIST) throw malformed('the end of a list', bytes.subarray(at));
}

function valueAt(bytes: Buffer, at: number): Span {
  const start = skipSpace(bytes, at);
  let depth = 0;
  for (let index = start; index < bytes.length; index += 1) {
    const byte = bytes[index];
    if (byte === QUOTE) {
      index = endOfString(bytes, index) - 1;
      if (depth === 0) return { start, end: index + 1 };
    } else if (byte === OPEN || byte === OPEN_LIST) depth += 1;
    else if (byte === CLOSE || byte === CLOSE_LIST) {
      if (depth <= 1) return { start, end: depth === 0 ? index : index + 1 };
      depth -= 1;
    } else if (byte === COMMA && depth === 0) return { start, end: index };
  }
  return { start, end: bytes.length };
}

function endOfString(bytes: Buffer, at: number): number {
  for (let index = at + 1; index < bytes.length; index += 1) {
    const byte = bytes[index];
    if (byte === QUOTE) return index + 1;
    if (byte === BACKSLASH) index += 1;
  }
  return bytes.length;
}

function skipSpace(bytes: Buffer, at: number): number {
  let index = at;
  while ((bytes[index] ?? QUOTE) <= SPACE) index += 1;
  return index;
}

function textOf(bytes: Buffer, start: number, end: number): string {
  return bytes.toString('utf8', start, end);
}

function recordIn(json: string): Record<string, unknown> | undefined {
  const value = jsonIn(json);
  return isRecord(value) ? value : undefined;
}
