/**
 * The tree that the reader produces and both writers (block, flow) edit: values with the offsets at which
 * they are written. Offsets are UTF-16 units; ends are exclusive.
 */
export type JsonScalar = string | number | boolean | null;
export type JsonMap = { readonly [key: string]: JsonValue };
export type JsonValue = JsonScalar | readonly JsonValue[] | JsonMap;

/** The position of a node. An absent value (`key:`) has start = end. An anchor or tag precedes `start`. */
interface Placed {
  readonly start: number;
  readonly end: number;
  /** The anchor by which this node, or an enclosing one, appears in more than one place. */
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
  /** `<<: …`, which merges the members of other mappings. */
  readonly merge: boolean;
  /** The entry's first offset: its `?`, its key's anchor or tag, or the key. */
  readonly start: number;
  /** Whether the key is in double quotes, as in JSON. */
  readonly quoted: boolean;
  /** Directly after the colon, or after the key if there is no colon (`{a, b}`). */
  readonly colonEnd: number;
  readonly hasColon: boolean;
  readonly value: SourceNode;
  /** After the last significant character of the entry (value, anchor, or colon). */
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

/** An item of the list whose items are parsed on demand. It contains no anchor and no alias. */
export interface LaterNode extends Placed {
  readonly kind: 'later';
  readonly read: () => SourceNode;
}

export type SourceNode = ScalarNode | MapNode | ListNode | AliasNode | LaterNode;

export interface ReadDocument {
  /** undefined: it is empty. */
  readonly root: SourceNode | undefined;
  /** The positions of duplicate keys. go-yaml takes the last one. */
  readonly duplicates: readonly { readonly key: string; readonly at: number }[];
  readonly json: boolean;
  /** Where the next document begins: JSON objects may follow one another. */
  readonly next: number | undefined;
}

/** The node that an alias refers to, or the content of an item; any other node itself. */
export function dereference(node: SourceNode): SourceNode {
  if (node.kind === 'alias') return dereference(node.target);
  return node.kind === 'later' ? node.read() : node;
}

/** Marks a node and everything in it as appearing in other places as well. */
export function markShared(node: SourceNode, anchor: string): void {
  if (node.sharedBy !== undefined) return;
  node.sharedBy = anchor;
  if (node.kind === 'map') for (const { value } of node.entries) markShared(value, anchor);
  if (node.kind === 'list') for (const item of node.items) markShared(item, anchor);
}

/**
 * The JSON value that sigs.k8s.io/yaml makes of it. Merge keys apply in the order in which they are written, a later one
 * overwriting earlier members: that is what go-yaml v2 does, although the YAML specification says otherwise.
 */
export function jsonValue(node: SourceNode): JsonValue {
  if (node.kind === 'scalar') return node.value;
  if (node.kind === 'alias' || node.kind === 'later') return jsonValue(dereference(node));
  if (node.kind === 'list') return node.items.map(jsonValue);
  const members = node.entries.flatMap((entry): (readonly [string, JsonValue])[] =>
    entry.merge ? [...mergedMembers(entry)] : [[entry.key, jsonValue(entry.value)]],
  );
  // An assignment would swallow a member called `__proto__`.
  return Object.fromEntries(members);
}

/** The members that a `<<` entry merges; among several sources the earlier one wins, as in YAML 1.1. */
export function mergedMembers(entry: EntryNode): Map<string, JsonValue> {
  const source = dereference(entry.value);
  const maps = source.kind === 'list' ? source.items.toReversed() : [source];
  return new Map(maps.flatMap((map) => Object.entries(jsonValue(map) as Record<string, JsonValue>)));
}
