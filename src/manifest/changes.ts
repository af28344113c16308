import fastJsonPatch from 'fast-json-patch';
import type { Operation } from '../core/patch/operation.ts';
import { ManifestError } from './manifest-error.ts';
import {
  type EntryNode,
  type JsonValue,
  type ListNode,
  type MapNode,
  mergedMembers,
  type SourceNode,
} from './source-tree.ts';

/** What is to become of one mapping of the text. */
export interface MapChange {
  readonly added: Map<string, JsonValue>;
  readonly set: Map<EntryNode, JsonValue>;
  readonly removed: Set<EntryNode>;
}

/** What is to become of the items of one list: index → new value. */
export type ListChange = Map<number, JsonValue>;

/** `/metadata/annotations/linger.dev~1plan` → its three member names. */
export function pointerTokens(pointer: string): string[] {
  return pointer
    .split('/')
    .slice(1)
    .map((token) => token.replaceAll('~1', '/').replaceAll('~0', '~'));
}

/**
 * A patch, laid over the source tree: which mappings get which members. Operations that reach into a value that
 * an earlier one brought change that value, so that each place of the text is written once.
 */
export class ChangeSet {
  readonly #root: SourceNode;
  readonly #maps = new Map<MapNode, MapChange>();
  readonly #lists = new Map<ListNode, ListChange>();

  constructor(root: SourceNode) {
    this.#root = root;
  }

  of(node: MapNode): MapChange | undefined {
    return this.#maps.get(node);
  }

  itemsOf(node: ListNode): ListChange | undefined {
    return this.#lists.get(node);
  }

  /** @throws ManifestError (internal) for an operation that does not apply, or inserts into a list */
  apply(operation: Operation): void {
    const tokens = pointerTokens(operation.path);
    let node = this.#root;
    for (const [depth, token] of tokens.entries()) {
      const rest = tokens.slice(depth + 1);
      const next =
        node.kind === 'map'
          ? this.#stepInMap(node, token, rest, operation)
          : node.kind === 'list'
            ? this.#stepInList(node, token, rest, operation)
            : fail(operation, 'leads into something that has no members');
      if (next === undefined) return;
      node = next;
    }
    fail(operation, 'would replace the whole object');
  }

  /** One step down; `undefined` when the operation has been dealt with. */
  #stepInMap(map: MapNode, key: string, rest: string[], operation: Operation): SourceNode | undefined {
    const change = this.#changeOf(map);
    const entry = map.entries.find((candidate) => !candidate.merge && candidate.key === key);
    const pending = entry && change.set.has(entry) ? change.set.get(entry) : change.added.get(key);
    const exists = pending !== undefined || (entry !== undefined && !change.removed.has(entry));
    if (!exists && (rest.length > 0 || operation.op !== 'add')) fail(operation, 'does not exist');
    if (rest.length > 0 && pending === undefined) return entry?.value;

    const value = rest.length > 0 ? patched(pending, rest, operation) : newValue(operation);
    if (entry === undefined) {
      if (value === undefined) change.added.delete(key);
      else change.added.set(key, value);
    } else if (value === undefined) {
      change.set.delete(entry);
      change.removed.add(entry);
    } else {
      change.removed.delete(entry);
      change.set.set(entry, value);
    }
    return undefined;
  }

  #stepInList(list: ListNode, token: string, rest: string[], operation: Operation): SourceNode | undefined {
    const index = /^(0|[1-9][0-9]*)$/.test(token) ? Number(token) : -1;
    const item = list.items[index];
    if (item === undefined) return fail(operation, 'names no item of the list');
    const change = this.#lists.get(list) ?? new Map<number, JsonValue>();
    this.#lists.set(list, change);
    const pending = change.get(index);
    if (rest.length > 0 && pending === undefined) return item;
    if (rest.length === 0 && operation.op !== 'replace') fail(operation, 'would insert or delete an item');
    const value = rest.length > 0 ? patched(pending, rest, operation) : newValue(operation);
    change.set(index, value ?? null);
    return undefined;
  }

  #changeOf(map: MapNode): MapChange {
    const change = this.#maps.get(map) ?? { added: new Map(), set: new Map(), removed: new Set() };
    this.#maps.set(map, change);
    return change;
  }
}

/** The new value of the member that the operation names; `undefined` removes it. */
function newValue(operation: Operation): JsonValue | undefined {
  if (operation.op === 'remove') return undefined;
  if (operation.value === undefined) return fail(operation, 'has no value');
  return fastJsonPatch.deepClone(operation.value) as JsonValue;
}

function patched(pending: JsonValue | undefined, rest: string[], operation: Operation): JsonValue {
  const path = rest.map((token) => `/${fastJsonPatch.escapePathComponent(token)}`).join('');
  const inner = { ...operation, path } as fastJsonPatch.Operation;
  try {
    return fastJsonPatch.applyPatch(pending, [inner], true, false).newDocument ?? null;
  } catch (cause) {
    return fail(operation, cause instanceof Error ? cause.message : String(cause));
  }
}

function fail(operation: Operation, problem: string): never {
  throw new ManifestError(`the operation ${operation.op} "${operation.path}" ${problem}`, { internal: true });
}

/**
 * The name through which the place that a pointer means is shared with other places (an anchor's name, or "<<"),
 * or `undefined` when it can be changed without changing anything else.
 */
export function sharedThrough(root: SourceNode, pointer: string): string | undefined {
  let node = root;
  for (const token of pointerTokens(pointer)) {
    if (node.sharedBy !== undefined) return node.sharedBy;
    if (node.kind === 'scalar' || node.kind === 'alias') return undefined;
    const next = node.kind === 'list' ? node.items[Number(token)] : memberOf(node, token);
    if (next === 'merged') return '<<';
    if (next === undefined) return undefined;
    node = next;
  }
  return node.sharedBy ?? anchorWithin(node);
}

function memberOf(map: MapNode, key: string): SourceNode | 'merged' | undefined {
  const merged = map.entries.some((entry) => entry.merge && mergedMembers(entry).has(key));
  return merged ? 'merged' : map.entries.find((entry) => !entry.merge && entry.key === key)?.value;
}

/** An anchor inside a value that is to be replaced or removed, while an alias still needs it. */
function anchorWithin(node: SourceNode): string | undefined {
  const children = node.kind === 'map' ? node.entries.map((entry) => entry.value) : childItems(node);
  for (const child of children) {
    const found = child.kind === 'alias' ? undefined : (child.sharedBy ?? anchorWithin(child));
    if (found !== undefined) return found;
  }
  return undefined;
}

function childItems(node: SourceNode): readonly SourceNode[] {
  return node.kind === 'list' ? node.items : [];
}
