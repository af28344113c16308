import { ManifestError } from './manifest-error.ts';

/**
 * What the reader produces and both writers (block, flow) edit: values with the offsets at which
 * their author wrote them. Offsets are UTF-16 units into the text; an end is exclusive.
 */
export type JsonScalar = string | number | boolean | null;
export type JsonValue = JsonScalar | readonly JsonValue[] | { readonly [key: string]: JsonValue };

/** Where a node stands. An absent value (`key:`) has start = end. An anchor or tag lies before `start`. */
interface Placed {
  readonly start: number;
  readonly end: number;
  /** The anchor that makes this node, or one around it, appear in more than one place. */
  sharedBy: string | undefined;
}

export interface ScalarNode extends Placed {
  readonly kind: 'scalar';
  readonly value: JsonScalar;
  readonly style: 'plain' | 'single' | 'double' | 'block';
}

export interface MapNode extends Placed {
  readonly kind: 'map';
  readonly layout: 'block' | 'flow';
  readonly entries: readonly EntryNode[];
  /** The column (from 0) of a block mapping's keys; 0 for a flow mapping. */
  readonly column: number;
}

export interface EntryNode {
  readonly key: string;
  /** `<<: …`, which brings the members of other mappings. */
  readonly merge: boolean;
  /** Where the entry begins: its `?`, its key's anchor or tag, or the key. */
  readonly start: number;
  readonly keyQuote: 'double' | 'other';
  /** Just behind the colon; behind the key where there is no colon (`{a, b}`). */
  readonly colonEnd: number;
  readonly hasColon: boolean;
  readonly value: SourceNode;
  /** Behind the last character of the entry that means something (value, or anchor, or colon). */
  readonly end: number;
}

export interface ListNode extends Placed {
  readonly kind: 'list';
  readonly layout: 'block' | 'flow';
  readonly items: readonly SourceNode[];
}

export interface AliasNode extends Placed {
  readonly kind: 'alias';
  readonly name: string;
  readonly target: SourceNode;
}

/** An item of a List, whose content is read when it is asked for. It holds no anchor and no alias. */
export interface LaterNode extends Placed {
  readonly kind: 'later';
  readonly read: () => SourceNode;
}

export type SourceNode = ScalarNode | MapNode | ListNode | AliasNode | LaterNode;

/** One document, read. */
export interface ReadDocument {
  /** undefined: there is nothing in it. */
  readonly root: SourceNode | undefined;
  /** Where a mapping has a key again. kubectl takes the last one. */
  readonly duplicates: readonly { readonly key: string; readonly at: number }[];
  readonly json: boolean;
  /** Where another document begins: JSON objects may stand one behind the other. */
  readonly next: number | undefined;
}

/** The node that an alias stands for, or the content of an item; any other node itself. */
export function dereference(node: SourceNode): SourceNode {
  if (node.kind === 'alias') return dereference(node.target);
  return node.kind === 'later' ? node.read() : node;
}

/** Marks a node, and all in it, as one that stands in other places as well. */
export function markShared(node: SourceNode, anchor: string): void {
  if (node.sharedBy !== undefined) return;
  node.sharedBy = anchor;
  if (node.kind === 'map') for (const { value } of node.entries) markShared(value, anchor);
  if (node.kind === 'list') for (const item of node.items) markShared(item, anchor);
}

/** Sets an own member, also one called `__proto__`, which an assignment would swallow. */
export function setMember(target: Record<string, JsonValue>, key: string, value: JsonValue): void {
  if (key === '__proto__') {
    Object.defineProperty(target, key, { value, enumerable: true, configurable: true, writable: true });
  } else {
    target[key] = value;
  }
}

/**
 * The JSON value that kubectl would send. Merge keys act in the order in which they are written, a later one
 * overwriting what stands before it: that is how go-yaml v2 reads them, though YAML's own text says otherwise.
 */
export function jsonValue(node: SourceNode): JsonValue {
  if (node.kind === 'scalar') return node.value;
  if (node.kind === 'alias' || node.kind === 'later') return jsonValue(dereference(node));
  if (node.kind === 'list') return node.items.map(jsonValue);
  const value: Record<string, JsonValue> = {};
  for (const entry of node.entries) {
    if (!entry.merge) setMember(value, entry.key, jsonValue(entry.value));
    else for (const [key, member] of mergedMembers(entry)) setMember(value, key, member);
  }
  return value;
}

/** The members that a `<<` entry brings; of several sources the earlier one wins, as in YAML 1.1. */
export function mergedMembers(entry: EntryNode): Map<string, JsonValue> {
  const source = dereference(entry.value);
  const maps = source.kind === 'list' ? source.items.toReversed() : [source];
  return new Map(maps.flatMap((map) => Object.entries(jsonValue(map) as Record<string, JsonValue>)));
}

/** A replacement of `[start, end)` by `text`; start = end inserts. */
export interface Splice {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/**
 * Applies splices to a part of a text. Insertions at the same offset keep the order in which they are given; those within what
 * is removed come behind it, as where the last line of a mapping goes with its comments and another line comes.
 * @throws ManifestError (internal) when two of them overlap otherwise
 */
export function applySplices(text: string, splices: readonly Splice[], from = 0, to = text.length): string {
  const ordered = splices.toSorted(
    (a, b) => a.start - b.start || Number(a.end > a.start) - Number(b.end > b.start),
  );
  const parts: string[] = [];
  let at = from;
  let removedUntil = from;
  for (const splice of ordered) {
    const { start, end } = splice.start === splice.end ? behind(splice, removedUntil) : splice;
    if (start < at) throw new ManifestError('two changes of the text overlap', { internal: true });
    parts.push(text.slice(at, start), splice.text);
    at = end;
    if (splice.text === '') removedUntil = end;
  }
  parts.push(text.slice(at, to));
  return parts.join('');
}

function behind({ start }: Splice, least: number): Pick<Splice, 'start' | 'end'> {
  const at = Math.max(start, least);
  return { start: at, end: at };
}

export function lineStart(text: string, offset: number): number {
  return offset === 0 ? 0 : text.lastIndexOf('\n', offset - 1) + 1;
}

/** The start of the line behind the one on which content that ends at `end` stands (a block scalar ends there). */
export function nextLine(text: string, end: number): number {
  if (text[end - 1] === '\n') return end;
  const found = text.indexOf('\n', end);
  return found === -1 ? text.length : found + 1;
}

/** The white space that a line begins with. */
export function indentAt(text: string, offset: number): string {
  return /^[ \t]*/.exec(text.slice(lineStart(text, offset), offset))?.[0] ?? '';
}

/** Whether nothing but white space stands before `offset` on its line. */
export function beginsLine(text: string, offset: number): boolean {
  return lineStart(text, offset) + indentAt(text, offset).length === offset;
}

/** `end` without the line ends and blanks before it, but not before `start`. */
export function trimmedEnd(text: string, start: number, end: number): number {
  let at = end;
  while (at > start && ' \t\r\n'.includes(text[at - 1] ?? '')) at--;
  return at;
}

/** The kind of line end in use just before `offset`; the text's first one where there is none before. */
export function eolBefore(text: string, offset: number): '\n' | '\r\n' {
  const before = offset === 0 ? -1 : text.lastIndexOf('\n', offset - 1);
  const at = before === -1 ? text.indexOf('\n') : before;
  return at > 0 && text[at - 1] === '\r' ? '\r\n' : '\n';
}
