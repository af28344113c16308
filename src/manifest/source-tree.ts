/**
 * What the reader produces and both writers (block, flow) edit: values with the offsets at which
 * their author wrote them. Offsets are UTF-16 units into the text; an end is exclusive.
 */
export type JsonScalar = string | number | boolean | null;
export type JsonMap = { readonly [key: string]: JsonValue };
export type JsonValue = JsonScalar | readonly JsonValue[] | JsonMap;

/** Where a node stands. An absent value (`key:`) has start = end. An anchor or tag lies before `start`. */
interface Placed {
  readonly start: number;
  readonly end: number;
  /** The anchor that makes this node, or one around it, appear in more than one place. */
  sharedBy?: string;
}

export interface ScalarNode extends Placed {
  readonly kind: 'scalar';
  readonly value: JsonScalar;
  /** Without quotes, escapes and line folding. */
  readonly text: string;
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
  /** Whether the key stands in double quotes, as in JSON. */
  readonly quoted: boolean;
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
