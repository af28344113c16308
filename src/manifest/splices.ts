import { isDeepStrictEqual } from 'node:util';
import fastJsonPatch from 'fast-json-patch';
import type { Operation } from '../decision/index.ts';
import { ManifestError } from './manifest-error.ts';
import { resolvePlain } from './read-yaml.ts';
import {
  beginsLine,
  type EntryNode,
  eolBefore,
  indentAt,
  type JsonScalar,
  type JsonValue,
  jsonValue,
  type ListNode,
  lineStart,
  type MapNode,
  mergedMembers,
  nextLine,
  type ScalarNode,
  type SourceNode,
  type Splice,
  trimmedEnd,
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
    if (node.kind !== 'map' && node.kind !== 'list') return undefined;
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

/** How new text inside braces looks: taken from the mapping around it. */
export interface FlowStyle {
  /** Quote everything as JSON does. */
  readonly json: boolean;
  /** Between colon and value, and behind a comma on one line. */
  readonly gap: '' | ' ';
  /** The indentation step, where each member has a line of its own. */
  readonly unit: string | undefined;
}

export const YAML_FLOW: FlowStyle = { json: false, gap: ' ', unit: undefined };

/** The lines of block mapping entries (no line ends); scalars and lists stand behind their key. */
export function blockLines(
  members: Iterable<readonly [string, JsonValue]>,
  column: number,
  step: number,
): string[] {
  const indent = ' '.repeat(column);
  return [...members].flatMap(([key, value]) => {
    const name = `${indent}${yamlScalar(key)}:`;
    if (!isFilledMap(value)) return [`${name} ${flowText(value, YAML_FLOW)}`];
    return [name, ...blockLines(Object.entries(value), column + step, step)];
  });
}

/** A value on one line, or in the style's lines, where `indent` and `eol` say how the line it begins on goes. */
export function flowText(value: JsonValue, style: FlowStyle, indent = '', eol = '\n'): string {
  if (typeof value !== 'object' || value === null) return flowScalar(value, style);
  const inner = style.unit === undefined ? indent : indent + style.unit;
  const parts = Array.isArray(value)
    ? value.map((item: JsonValue) => flowText(item, style, inner, eol))
    : Object.entries(value).map((member) => memberText(member, style, inner, eol));
  const [open, close] = Array.isArray(value) ? ['[', ']'] : ['{', '}'];
  if (parts.length === 0) return open + close;
  if (style.unit === undefined) return open + parts.join(`,${style.gap}`) + close;
  return `${open}${eol}${inner}${parts.join(`,${eol}${inner}`)}${eol}${indent}${close}`;
}

/** One `key: value` of a flow mapping. */
export function memberText(
  [key, value]: readonly [string, JsonValue],
  style: FlowStyle,
  indent: string,
  eol: string,
): string {
  return `${flowScalar(key, style)}:${style.gap}${flowText(value, style, indent, eol)}`;
}

function flowScalar(value: JsonScalar, style: FlowStyle): string {
  if (!style.json) return yamlScalar(value);
  return typeof value === 'string' ? doubleQuoted(value) : JSON.stringify(value);
}

/** A scalar that takes the place of `old`: a text keeps the quotes, a number stays without. */
export function scalarLike(value: JsonScalar, old: ScalarNode, style: FlowStyle): string {
  if (style.json || typeof value !== 'string') return flowScalar(value, style);
  if (old.style === 'double') return doubleQuoted(value);
  if (old.style === 'single' && !NEEDS_ESCAPES.test(value)) return singleQuoted(value);
  return yamlScalar(value);
}

/** A scalar in the plainest form that YAML 1.1 and 1.2 both read as this value. */
export function yamlScalar(value: JsonScalar): string {
  if (typeof value !== 'string') return String(value);
  if (/^[A-Za-z][A-Za-z0-9._/-]*$/.test(value) && resolvePlain(value) === value) return value;
  return NEEDS_ESCAPES.test(value) ? doubleQuoted(value) : singleQuoted(value);
}

/** What single quotes cannot carry: control characters, line breaks of any YAML version, a BOM, lone surrogates. */
const NEEDS_ESCAPES = /[\p{Cc}\p{Cs}\u2028\u2029\uFEFF]/u;

function singleQuoted(value: string): string {
  return `'${value.replaceAll("'", "''")}'`;
}

/** JSON's form, with the characters escaped that JSON lets stand and YAML does not. */
function doubleQuoted(value: string): string {
  return JSON.stringify(value).replace(
    /[\u007F-\u009F\u2028\u2029\uFEFF]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

export function isFilledMap(value: JsonValue): value is { readonly [key: string]: JsonValue } {
  return (
    typeof value === 'object' && value !== null && !Array.isArray(value) && Object.keys(value).length > 0
  );
}

/** What the writers need to know about the place they write to. */
export interface WriteContext {
  readonly text: string;
  readonly changes: ChangeSet;
  /** How many columns a nested block mapping is indented more than the one around it. */
  readonly step: number;
  /** How the nearest flow mapping around is written. */
  readonly flow: FlowStyle;
}

/** Writes a value over another one, in flow style. */
export function replaceInPlace(old: SourceNode, value: JsonValue, { text, flow }: WriteContext): Splice {
  const { start } = old;
  const end = trimmedEnd(text, start, old.end);
  const written =
    old.kind === 'scalar' && (typeof value !== 'object' || value === null)
      ? scalarLike(value, old, flow)
      : flowText(value, flow, indentAt(text, start), eolBefore(text, start));
  return { start, end, text: start === old.end ? ` ${written}` : written };
}

/** How a flow mapping is written; an empty one is taken to be like the one around it. */
export function styleOf(map: MapNode, { text, flow }: WriteContext): FlowStyle {
  const first = map.entries[0];
  const last = map.entries.at(-1);
  if (first === undefined || last === undefined) return flow;
  const json = first.keyQuote === 'double';
  const tight = json && first.hasColon && /^\S/.test(text.slice(first.colonEnd, first.colonEnd + 1));
  const unit = beginsLine(text, last.start) ? stepInto(map, first, text) : undefined;
  return { json, gap: tight ? '' : ' ', unit };
}

function stepInto(map: MapNode, first: EntryNode, text: string): string {
  const outer = indentAt(text, map.start);
  const inner = indentAt(text, first.start);
  return inner.startsWith(outer) && inner !== outer ? inner.slice(outer.length) : '  ';
}

/** Gives an entry of a flow mapping another value. */
export function setFlowValue(entry: EntryNode, value: JsonValue, context: WriteContext): Splice[] {
  const inner = nestedStyle(context.flow);
  const splice = replaceInPlace(entry.value, value, { ...context, flow: inner });
  return [entry.hasColon ? splice : { ...splice, text: `:${splice.text}` }];
}

export function flowChanges(map: MapNode, change: MapChange, context: WriteContext): Splice[] {
  const kept = map.entries.filter((entry) => !change.removed.has(entry));
  const last = kept.at(-1);
  const removals =
    last === undefined ? [] : [...change.removed].map((entry) => flowRemoval(map, entry, kept));
  if (last === undefined && map.entries.length === 0 && change.added.size === 0) return [];
  if (last === undefined) return [refilled(map, change, context)];
  if (change.added.size === 0) return removals;
  return [...removals, ...appended(last, last === map.entries.at(-1), change, context)];
}

/** An entry goes together with the comma before it; one at the front, with what leads to its successor. */
function flowRemoval(map: MapNode, entry: EntryNode, kept: readonly EntryNode[]): Splice {
  const index = map.entries.indexOf(entry);
  const previous = map.entries[index - 1];
  const next = map.entries[index + 1];
  const front = kept[0] !== undefined && entry.start < kept[0].start;
  if (front && next) return { start: entry.start, end: next.start, text: '' };
  return { start: previous?.end ?? entry.start, end: entry.end, text: '' };
}

/** A mapping that has nothing, or loses all it had. */
function refilled(map: MapNode, change: MapChange, { text, flow }: WriteContext): Splice {
  const outer = indentAt(text, map.start);
  const eol = eolBefore(text, map.start);
  const inner = flow.unit === undefined ? outer : outer + flow.unit;
  const members = [...change.added].map((member) => memberText(member, nestedStyle(flow), inner, eol));
  const start = map.start + 1;
  const end = map.end - 1;
  if (map.entries.length === 0 && text.slice(start, end).includes('#'))
    return { start, end: start, text: members.join(`,${flow.gap}`) };
  if (flow.unit === undefined || members.length === 0)
    return { start, end, text: members.join(`,${flow.gap}`) };
  return { start, end, text: `${eol}${inner}${members.join(`,${eol}${inner}`)}${eol}${outer}` };
}

const COMMENT_BEHIND = /^[ \t]*(,?)[ \t]+#[^\r\n]*/;

/** New members behind `last`, the last entry that stays; `ends` when it is the last one of the text, too. */
function appended(last: EntryNode, ends: boolean, change: MapChange, { text, flow }: WriteContext): Splice[] {
  const at = last.end;
  // A colon with no value behind it would swallow the comma.
  const gap = last.value.start === last.value.end ? ' ' : '';
  const indent = indentAt(text, last.start);
  const eol = eolBefore(text, at);
  const members = [...change.added].map((member) => memberText(member, nestedStyle(flow), indent, eol));
  if (flow.unit === undefined) {
    return [{ start: at, end: at, text: members.map((member) => `${gap},${flow.gap}${member}`).join('') }];
  }
  // Behind an entry that others followed stands what goes with them.
  const comment = ends ? COMMENT_BEHIND.exec(text.slice(at, nextLine(text, at))) : null;
  if (comment === null) {
    return [
      { start: at, end: at, text: members.map((member) => `${gap},${eol}${indent}${member}`).join('') },
    ];
  }
  // The comment stays with the value that it stands behind.
  const behind = at + comment[0].length;
  const comma = comment[1] === ',';
  const lines = members.map((member) => eol + indent + member).join(',') + (comma ? ',' : '');
  const inserted = { start: behind, end: behind, text: lines };
  return comma ? [inserted] : [{ start: at, end: at, text: `${gap},` }, inserted];
}

/** In YAML, a value inside a mapping of many lines still goes on one. */
function nestedStyle(style: FlowStyle): FlowStyle {
  return style.json ? style : { ...style, unit: undefined };
}

/**
 * New entries of a block mapping go behind the line on which its last value ends: behind that line's trailing
 * comment, before comments on lines of their own, which may belong to what follows.
 */
export function blockChanges(map: MapNode, change: MapChange, context: WriteContext): Splice[] {
  const last = map.entries.at(-1);
  if (last === undefined) return [];
  if (map.entries.every((entry) => change.removed.has(entry))) return [rewritten(map, change, context)];
  const removals = [...change.removed].map((entry) => blockRemoval(map, entry, change, context));
  if (change.added.size === 0) return removals;
  return [...removals, insertedLines(last.end, [...change.added], map.column, context)];
}

/** Gives an entry of a block mapping another value. */
export function setBlockValue(
  map: MapNode,
  entry: EntryNode,
  value: JsonValue,
  context: WriteContext,
): Splice[] {
  const { text } = context;
  const old = entry.value;
  if (!entry.hasColon) throw new ManifestError(`the key "${entry.key}" has no colon`, { internal: true });
  const column = map.column + context.step;
  if (isFilledMap(value) && isEmpty(old) && !text.slice(entry.colonEnd, old.start).includes('\n')) {
    // What is written for "nothing" goes, the rest of its line (a comment, an anchor) stays.
    const start = trimmedEnd(text, entry.colonEnd, old.start);
    const erased = old.end > old.start ? [{ start, end: old.end, text: '' }] : [];
    return [...erased, insertedLines(old.end, Object.entries(value), column, context)];
  }
  if (!spansLines(old)) return [replaceInPlace(old, value, context)];
  const end = trimmedEnd(text, entry.colonEnd, old.end);
  if (!isFilledMap(value)) {
    const absent = { ...old, start: entry.colonEnd, end: entry.colonEnd };
    return [{ ...replaceInPlace(absent, value, context), end }];
  }
  const eol = eolBefore(text, end);
  const lines = blockLines(Object.entries(value), column, context.step);
  return [{ start: entry.colonEnd, end, text: lines.map((line) => eol + line).join('') }];
}

/** Null, written or not, and `{}` without a comment in it. */
function isEmpty(node: SourceNode): boolean {
  if (node.kind === 'scalar') return node.value === null;
  return (
    node.kind === 'map' && node.entries.length === 0 && node.layout === 'flow' && node.end - node.start === 2
  );
}

function spansLines(node: SourceNode): boolean {
  if (node.kind === 'scalar') return node.style === 'block';
  return (node.kind === 'map' || node.kind === 'list') && node.layout === 'block';
}

function insertedLines(
  contentEnd: number,
  members: readonly (readonly [string, JsonValue])[],
  column: number,
  { text, step }: WriteContext,
): Splice {
  const at = nextLine(text, contentEnd);
  const eol = eolBefore(text, at);
  const lines = blockLines(members, column, step).map((line) => line + eol);
  return { start: at, end: at, text: lines.join('') };
}

/** A mapping that loses all it had. */
function rewritten(map: MapNode, change: MapChange, { text, step }: WriteContext): Splice {
  const first = map.entries[0];
  const start = first?.start ?? map.start;
  const end = trimmedEnd(text, start, map.end);
  const lines = blockLines(change.added, map.column, step).join(eolBefore(text, end));
  return { start, end, text: lines === '' ? '{}' : lines.trimStart() };
}

function blockRemoval(map: MapNode, entry: EntryNode, change: MapChange, { text }: WriteContext): Splice {
  const first = map.entries[0];
  const kept = map.entries.find((candidate) => !change.removed.has(candidate));
  if (first === undefined || beginsLine(text, first.start) || !kept || kept.start < entry.start) {
    return { start: lineStart(text, entry.start), end: removedEnd(map, entry, text), text: '' };
  }
  // Behind a dash: the first entry that stays moves up to it.
  const next = map.entries[map.entries.indexOf(entry) + 1] ?? kept;
  return { start: entry.start, end: next.start, text: '' };
}

/**
 * Comments that are indented deeper than the entry go with it. Left behind, they would become text where a block
 * scalar stands before them.
 */
function removedEnd(map: MapNode, entry: EntryNode, text: string): number {
  let end = nextLine(text, entry.end);
  let at = end;
  while (at < text.length) {
    const next = nextLine(text, at + 1);
    const line = text.slice(at, next);
    const indent = /^[ \t]*/.exec(line)?.[0] ?? '';
    const comment = line.trimStart().startsWith('#');
    if (!comment && line.trim() !== '') break;
    if (comment && indent.length <= map.column && !indent.includes('\t')) break;
    if (comment) end = next;
    at = next;
  }
  return end;
}

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
