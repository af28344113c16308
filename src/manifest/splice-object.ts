import { isDeepStrictEqual } from 'node:util';
import { YAML_FLOW } from './emit.ts';
import {
  type EntryNode,
  type JsonValue,
  jsonValue,
  type ListNode,
  type MapNode,
  type SourceNode,
} from './source-tree.ts';
import { blockChanges, setBlockValue } from './splice-block.ts';
import { flowChanges, setFlowValue, styleOf } from './splice-flow.ts';
import { replaceInPlace, type WriteContext } from './splice-value.ts';
import type { Splice } from './text-lines.ts';

/** The splices that carry a change set into the text of one object. */
export function objectSplices(
  root: SourceNode,
  context: Omit<WriteContext, 'flow'>,
  json: boolean,
): Splice[] {
  return nodeSplices(root, { ...context, flow: { ...YAML_FLOW, json } });
}

/** Inner changes come first: at the end of a mapping that is another's last value, both insert at one offset. */
function nodeSplices(node: SourceNode, context: WriteContext): Splice[] {
  if (node.kind === 'map') return mapSplices(node, context);
  if (node.kind === 'list') return listSplices(node, context);
  return [];
}

function mapSplices(map: MapNode, outer: WriteContext): Splice[] {
  const flow = map.layout === 'flow';
  const context = flow ? { ...outer, flow: styleOf(map, outer) } : outer;
  const change = context.changes.of(map);
  const inner = map.entries.flatMap((entry) => {
    if (change?.removed.has(entry)) return [];
    const isSet = change?.set.has(entry) || flow;
    const value = isSet ? change?.set.get(entry) : firstMembers(entry, context);
    if (value === undefined) return nodeSplices(entry.value, context);
    if (unchanged(entry.value, value)) return [];
    return flow ? setFlowValue(entry, value, context) : setBlockValue(map, entry, value, context);
  });
  if (change === undefined) return inner;
  return [...inner, ...(flow ? flowChanges(map, change, context) : blockChanges(map, change, context))];
}

/** `annotations: {}` in block style gets its first members as if it were written anew: in block style too. */
function firstMembers({ value }: EntryNode, { changes }: WriteContext): JsonValue | undefined {
  const braces =
    value.kind === 'map' && value.entries.length === 0 && value.end - value.start === '{}'.length;
  const added = braces ? changes.of(value)?.added : undefined;
  return added === undefined || added.size === 0 ? undefined : Object.fromEntries(added);
}

function listSplices(list: ListNode, context: WriteContext): Splice[] {
  const change = context.changes.itemsOf(list);
  return list.items.flatMap((item, index) => {
    const value = change?.get(index);
    if (value === undefined) return nodeSplices(item, context);
    return unchanged(item, value) ? [] : [replaceInPlace(item, value, context)];
  });
}

function unchanged(node: SourceNode, value: JsonValue): boolean {
  return isDeepStrictEqual(jsonValue(node), value);
}

/** The first step from a block mapping into a block mapping in this document; 2 where there is none. */
export function blockStep(node: SourceNode): number {
  return findStep(node) ?? 2;
}

function findStep(node: SourceNode): number | undefined {
  const children = node.kind === 'map' ? node.entries.map((entry) => entry.value) : [];
  const items = node.kind === 'list' ? node.items : [];
  for (const child of [...children, ...items]) {
    const nested = node.kind === 'map' && child.kind === 'map' && child.layout === 'block';
    const step = nested && node.layout === 'block' ? child.column - node.column : findStep(child);
    if (step !== undefined && step > 0) return step;
  }
  return undefined;
}
