import fastJsonPatch from 'fast-json-patch';
import { fewOf, fingerprint, isRecord } from '../api/index.ts';
import type { Operation } from '../decision/index.ts';
import { type JsonValue, mergedMembers, type SourceNode, SourceText } from '../yaml/index.ts';
import { ManifestError } from './manifest-error.ts';
import { type ManifestDocument, type ManifestObject, readDocuments } from './read.ts';
import { type Splice, splicesFor } from './splices.ts';

export interface ManifestEdit {
  readonly object: ManifestObject;
  readonly operations: readonly Operation[];
  /** JSON pointer that the operations' paths are relative to, e.g. "/spec/template"; "" means the object. */
  readonly at: string;
}

/**
 * Applies patches to the text of a document: lines are inserted and scalars replaced, everything else stays byte for byte.
 * An object is left unchanged, with a note, if changing it would affect others through a YAML anchor, or if items of a list
 * would have to change. The result is parsed again and compared with the patched values before it is returned.
 * @param edits at most one for each object; taken one at a time, so that no more than one object is in memory
 * @returns the text, with its `---`, and by `where` of each object that was left unchanged, why
 * @throws ManifestError for a patch that does not apply, or whose result does not have the patched values
 */
export function editDocument(document: ManifestDocument, edits: Iterable<ManifestEdit>) {
  const { start, end, json } = document;
  const { name, text: whole } = document.source;
  // With a line break at the end, a line can be added after any line.
  const isOpen = !json && end === whole.length && !whole.endsWith('\n');
  const lastEol = isOpen ? document.source.eolBefore(end) : '';
  const source = isOpen ? new SourceText(name, whole + lastEol) : document.source;
  const expected = new Map<string, string>();
  const splices: Splice[] = [];
  const left = new Map<string, readonly string[]>();
  for (const { object, operations, at } of edits) {
    if (operations.length === 0) continue;
    const { where, line, source: root } = object;
    const absolute = operations.map((operation) => ({ ...operation, path: at + operation.path }));
    const obstacle = sharedPlace(root, absolute) ?? changedItems(object.value, absolute);
    if (obstacle === undefined) {
      // Both are converted through JSON, as kubectl does: it has no -0.
      const before = fastJsonPatch.deepClone(object.value) as JsonValue;
      const after = patched(before, absolute);
      splices.push(...splicesFor(root, before, after, { source, json }));
      expected.set(where, digest(after));
    } else {
      left.set(where, [`${where} (line ${line}): left unchanged, because ${obstacle}`]);
    }
  }
  if (expected.size === 0) return { text: whole.slice(start, end), left };
  const edited = applySplices(source.text, splices, start, end + lastEol.length);
  const text = isOpen && edited.endsWith(lastEol) ? edited.slice(0, -lastEol.length) : edited;
  verify(document, expected, text);
  return { text, left };
}

/** Which of the places to change is shared with others, by what, and what to do. */
function sharedPlace(root: SourceNode, operations: readonly Operation[]): string | undefined {
  for (const { path } of operations) {
    const name = sharedThrough(root, path);
    if (name === undefined) continue;
    const through = name === '<<' ? 'merge key <<' : `anchor &${name}`;
    return `${path} comes through the YAML ${through}, which other places share: write it out there to have it changed`;
  }
  return undefined;
}

/** Lists are not edited. Only a live pod with hook Hold would need that, for the mounts and the volume of its helper. */
function changedItems(object: unknown, operations: readonly Operation[]): string | undefined {
  const items = operations.filter(
    ({ op, path }) => op !== 'replace' && Array.isArray(parentIn(object, path)),
  );
  if (items.length === 0) return undefined;
  const paths = fewOf(items.map(({ path }) => path));
  return `items of lists are neither added nor removed here: change ${paths} by hand, then run this again`;
}

function parentIn(object: unknown, path: string): unknown {
  const members = path.split('/').slice(1, -1).map(fastJsonPatch.unescapePathComponent);
  return members.reduce<unknown>(
    (value, member) => (value as Readonly<Record<string, unknown>> | null | undefined)?.[member],
    object,
  );
}

/**
 * What shares the place that a pointer designates with other places (an anchor's name, or "<<"),
 * or `undefined` if it can be changed on its own.
 */
function sharedThrough(root: SourceNode, pointer: string): string | undefined {
  let node = root;
  for (const token of pointer.split('/').slice(1).map(fastJsonPatch.unescapePathComponent)) {
    if (node.sharedBy !== undefined) return node.sharedBy;
    const next = node.kind === 'list' ? node.items[Number(token)] : memberOf(node, token);
    if (next === 'merged') return '<<';
    if (next === undefined) return undefined;
    node = next;
  }
  return node.sharedBy ?? anchorWithin(node);
}

function memberOf(node: SourceNode, key: string): SourceNode | 'merged' | undefined {
  if (node.kind !== 'map') return undefined;
  const merged = node.entries.some((entry) => entry.merge && mergedMembers(entry).has(key));
  return merged ? 'merged' : node.entries.find((entry) => !entry.merge && entry.key === key)?.value;
}

/** An anchor inside a value that would be replaced or removed, while an alias still refers to it. */
function anchorWithin(node: SourceNode): string | undefined {
  const items = node.kind === 'list' ? node.items : [];
  for (const child of node.kind === 'map' ? node.entries.map(({ value }) => value) : items) {
    const found = child.kind === 'alias' ? undefined : (child.sharedBy ?? anchorWithin(child));
    if (found !== undefined) return found;
  }
  return undefined;
}

/** @throws ManifestError for an operation that does not apply */
function patched(value: JsonValue, operations: readonly Operation[]): JsonValue {
  // applyPatch inserts the operations' own values into the document, where later operations modify them.
  let document = fastJsonPatch.deepClone(value) as JsonValue;
  for (const operation of operations) {
    const { op, path } = operation;
    const fail = (problem: string, cause?: unknown) =>
      new ManifestError(`the operation ${op} "${path}" ${problem}`, { cause });
    if (path === '') throw fail('would replace the whole object');
    try {
      const own = fastJsonPatch.deepClone(operation) as fastJsonPatch.Operation;
      document = fastJsonPatch.applyOperation(document, own, true).newDocument;
    } catch (cause) {
      throw fail('does not apply', cause);
    }
  }
  return document;
}

/** Equal for equal objects, whatever the order of their members. */
function digest(value: unknown): string {
  const sorted = (_key: string, each: unknown) =>
    isRecord(each) ? Object.fromEntries(Object.entries(each).toSorted(([a], [b]) => (a < b ? -1 : 1))) : each;
  return fingerprint(JSON.stringify(value, sorted));
}

/**
 * Applies splices to part of a text. Insertions at the same offset keep their order; those inside a removed
 * range come after it, as when the last line of a mapping is removed with its comments and another line is added.
 * @throws ManifestError when two of them overlap otherwise
 */
function applySplices(text: string, splices: Splice[], from: number, to: number): string {
  splices.sort((a, b) => a.start - b.start || Number(a.end > a.start) - Number(b.end > b.start));
  const parts: string[] = [];
  let at = from;
  let removedUntil = from;
  for (const splice of splices) {
    const inserts = splice.start === splice.end;
    const start = inserts ? Math.max(splice.start, removedUntil) : splice.start;
    if (start < at) throw new ManifestError('two changes of the text overlap');
    parts.push(text.slice(at, start), splice.text);
    at = inserts ? start : splice.end;
    if (splice.text === '') removedUntil = at;
    // A comment may directly follow a bracket or a quote; after a word it would become text.
    if (text[at] === '#' && /\S/.test(splice.text.at(-1) ?? text[start - 1] ?? ' ')) parts.push(' ');
  }
  parts.push(text.slice(at, to));
  return parts.join('');
}

/** Every document that leaves this module has, object by object, exactly the patched values. */
function verify(document: ManifestDocument, expected: ReadonlyMap<string, string>, text: string): void {
  const [edited, ...more] = [...readDocuments(text, 'the result')].filter(({ start, end }) => end > start);
  if (edited === undefined || more.length > 0) throw wrong('the document', 'it is not one document');
  const after = edited.objects()[Symbol.iterator]();
  for (const before of document.objects()) {
    const next = after.next().value as ManifestObject | ManifestError | undefined;
    if (before instanceof ManifestError) continue;
    if (next === undefined || next instanceof ManifestError)
      throw wrong(before.where, next?.message ?? 'the object is gone', next);
    if (digest(next.value) !== (expected.get(before.where) ?? digest(before.value)))
      throw wrong(before.where, 'the object reads differently');
  }
  if (after.next().done !== true) throw wrong('the document', 'it has another object');
}

function wrong(where: string, problem: string, cause?: unknown): ManifestError {
  const message = `${where}: could not be edited safely, and nothing was written: ${problem}`;
  return new ManifestError(message, { cause });
}
