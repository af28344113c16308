import { isSameJson } from '../api/index.ts';
import {
  type EntryNode,
  type JsonMap,
  type JsonScalar,
  type JsonValue,
  type MapNode,
  resolvePlain,
  type ScalarNode,
  type SourceNode,
  type SourceText,
} from '../yaml/index.ts';

/** A replacement of `[start, end)` by `text`; start = end inserts. */
export interface Splice {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/** The style of new text inside braces, taken from the enclosing mapping. */
interface FlowStyle {
  /** Quote everything, as JSON does. */
  readonly json: boolean;
  /** The space between colon and value, and after a comma on one line. */
  readonly gap: '' | ' ';
  /** The indentation step, if each member has a line of its own. */
  readonly unit: string | undefined;
}

const YAML_FLOW: FlowStyle = { json: false, gap: ' ', unit: undefined };

interface WriteContext {
  readonly source: SourceText;
  /** By how many columns a nested block mapping is indented. */
  readonly step: number;
  /** The style of the nearest enclosing flow mapping. */
  readonly flow: FlowStyle;
}

type Member = readonly [key: string, value: JsonValue];

/** The changes to the members of one mapping, apart from those that change inside. */
interface MapChange {
  readonly added: readonly Member[];
  readonly removed: ReadonlySet<EntryNode>;
}

/** The splices that turn the text of an object with the value `before` into one with the value `after`. */
export function splicesFor(
  root: SourceNode,
  before: JsonValue,
  after: JsonValue,
  { source, json }: { readonly source: SourceText; readonly json: boolean },
): Splice[] {
  return splicesOf(root, before, after, { source, step: blockStep(root) ?? 2, flow: { ...YAML_FLOW, json } });
}

/** Changes as little as possible: a value that cannot be changed inside is replaced. */
function splicesOf(
  node: SourceNode,
  before: JsonValue,
  after: JsonValue,
  context: WriteContext,
  replaced = () => [replacement(node, after, context)],
): Splice[] {
  if (isSameJson(before, after)) return [];
  if (node.kind === 'map' && isMap(before) && isMap(after)) return mapSplices(node, before, after, context);
  if (node.kind !== 'list' || !Array.isArray(after) || after.length !== node.items.length) return replaced();
  const old = before as readonly JsonValue[];
  return node.items.flatMap((item, at) => splicesOf(item, old[at] ?? null, after[at] ?? null, context));
}

/** Inner changes come first: at the end of a mapping that is the last value of another, both insert at the same offset. */
function mapSplices(map: MapNode, before: JsonMap, after: JsonMap, outer: WriteContext): Splice[] {
  const flow = map.layout === 'flow';
  const context = flow ? { ...outer, flow: styleOf(map, outer) } : outer;
  const own = map.entries.filter(({ merge }) => !merge);
  const removed = new Set(own.filter(({ key }) => !Object.hasOwn(after, key)));
  const added = Object.entries(after).filter(([key]) => !Object.hasOwn(before, key));
  const inner = own.flatMap((entry) => {
    const [was, value] = [before[entry.key], after[entry.key]];
    if (removed.has(entry) || was === undefined || value === undefined) return [];
    const replaced = () =>
      flow ? setFlowValue(entry, value, context) : setBlockValue(map, entry, value, context);
    // `annotations: {}` inside a block mapping gets its first members in block style, as if newly written.
    const rewritten = !flow && isBraces(entry.value) && !isSameJson(was, value);
    return rewritten ? replaced() : splicesOf(entry.value, was, value, context, replaced);
  });
  if (added.length === 0 && removed.size === 0) return inner;
  const change = { added, removed };
  return [...inner, ...(flow ? flowChanges(map, change, context) : blockChanges(map, change, context))];
}

function isMap(value: JsonValue | undefined): value is JsonMap {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isFilledMap(value: JsonValue): value is JsonMap {
  return isMap(value) && Object.keys(value).length > 0;
}

function isBraces(node: SourceNode): boolean {
  return node.kind === 'map' && node.entries.length === 0 && node.end - node.start === '{}'.length;
}

/** The lines of block mapping entries, without line breaks; scalars and lists follow their key on the same line. */
function blockLines(members: readonly Member[], column: number, step: number): string[] {
  return members.flatMap(([key, value]) => {
    const name = `${' '.repeat(column)}${yamlScalar(key)}:`;
    if (!isFilledMap(value)) return [`${name} ${flowText(value, YAML_FLOW)}`];
    return [name, ...blockLines(Object.entries(value), column + step, step)];
  });
}

/** A value on one line, or on several as the style has it; `indent` and `eol` are those of its first line. */
function flowText(value: JsonValue, style: FlowStyle, indent = '', eol = '\n'): string {
  if (typeof value !== 'object' || value === null) return flowScalar(value, style);
  const inner = indent + (style.unit ?? '');
  if (Array.isArray(value)) {
    const items = value.map((item: JsonValue) => flowText(item, style, inner, eol));
    return `[${flowContents(items, style, indent, eol)}]`;
  }
  const members = Object.entries(value).map((member) => memberText(member, style, inner, eol));
  return `{${flowContents(members, style, indent, eol)}}`;
}

function flowContents(parts: readonly string[], style: FlowStyle, indent: string, eol: string): string {
  if (style.unit === undefined || parts.length === 0) return parts.join(`,${style.gap}`);
  const line = eol + indent + style.unit;
  return line + parts.join(`,${line}`) + eol + indent;
}

function memberText([key, value]: Member, style: FlowStyle, indent: string, eol: string): string {
  return `${flowScalar(key, style)}:${style.gap}${flowText(value, style, indent, eol)}`;
}

function flowScalar(value: JsonScalar, style: FlowStyle): string {
  if (!style.json) return yamlScalar(value);
  return typeof value === 'string' ? doubleQuoted(value) : JSON.stringify(value);
}

/** A scalar that replaces `old`: a string keeps its quotes, a number stays unquoted. */
function scalarLike(value: JsonScalar, old: ScalarNode, style: FlowStyle): string {
  if (style.json || typeof value !== 'string') return flowScalar(value, style);
  if (old.style === 'double') return doubleQuoted(value);
  if (old.style === 'single' && !NEEDS_ESCAPES.test(value)) return singleQuoted(value);
  return yamlScalar(value);
}

/** A scalar in the plainest form that both YAML 1.1 and 1.2 parse as this value. */
function yamlScalar(value: JsonScalar): string {
  if (typeof value !== 'string') return String(value);
  if (/^[A-Za-z][A-Za-z0-9._/-]*$/.test(value) && resolvePlain(value) === value) return value;
  return NEEDS_ESCAPES.test(value) ? doubleQuoted(value) : singleQuoted(value);
}

/** Characters that single quotes cannot hold: control characters, line breaks of any YAML version, a BOM, lone surrogates. */
const NEEDS_ESCAPES = /[\p{Cc}\p{Cs}\u2028\u2029\uFEFF]/u;

function singleQuoted(value: string): string {
  return `'${value.replaceAll("'", "''")}'`;
}

/** The JSON form, also escaping the characters that JSON allows and YAML does not. */
function doubleQuoted(value: string): string {
  return JSON.stringify(value).replace(
    /[\u007F-\u009F\u2028\u2029\uFEFF]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** Overwrites a value with another one, in flow style. */
function replacement(old: SourceNode, value: JsonValue, { source, flow }: WriteContext): Splice {
  const { start } = old;
  const end = source.trimmedEnd(start, old.end);
  const written =
    old.kind === 'scalar' && (typeof value !== 'object' || value === null)
      ? scalarLike(value, old, flow)
      : flowText(value, flow, source.indentAt(start), source.eolBefore(start));
  return { start, end, text: start === old.end ? ` ${written}` : written };
}

/** The style of a flow mapping; an empty one is assumed to be like the enclosing one. */
function styleOf(map: MapNode, { source, flow }: WriteContext): FlowStyle {
  const [first, last] = [map.entries[0], map.entries.at(-1)];
  if (first === undefined || last === undefined) return flow;
  const json = first.quoted;
  const tight = json && first.hasColon && /\S/.test(source.text[first.colonEnd] ?? ' ');
  const [outer, inner] = [source.indentAt(map.start), source.indentAt(first.start)];
  const step = inner.startsWith(outer) && inner !== outer ? inner.slice(outer.length) : '  ';
  return { json, gap: tight ? '' : ' ', unit: source.beginsLine(last.start) ? step : undefined };
}

function setFlowValue(entry: EntryNode, value: JsonValue, context: WriteContext): Splice[] {
  const splice = replacement(entry.value, value, { ...context, flow: nestedStyle(context.flow) });
  return [entry.hasColon ? splice : { ...splice, text: `:${splice.text}` }];
}

function flowChanges(map: MapNode, change: MapChange, context: WriteContext): Splice[] {
  const last = map.entries.findLast((entry) => !change.removed.has(entry));
  if (last === undefined) return [refilled(map, change, context)];
  const removals = [...change.removed].map((entry) => flowRemoval(map, entry, change));
  if (change.added.length === 0) return removals;
  return [...removals, ...appended(last, last === map.entries.at(-1), change, context)];
}

/** Removes an entry with the comma before it, or, for the first entry, with everything up to its successor. */
function flowRemoval({ entries }: MapNode, entry: EntryNode, { removed }: MapChange): Splice {
  const index = entries.indexOf(entry);
  const next = entries[index + 1];
  const front = entries.slice(0, index).every((before) => removed.has(before));
  if (front && next) return { start: entry.start, end: next.start, text: '' };
  return { start: entries[index - 1]?.end ?? entry.start, end: entry.end, text: '' };
}

function refilled(map: MapNode, { added }: MapChange, { source, flow }: WriteContext): Splice {
  const outer = source.indentAt(map.start);
  const eol = source.eolBefore(map.start);
  const inner = outer + (flow.unit ?? '');
  const members = added.map((member) => memberText(member, nestedStyle(flow), inner, eol));
  const [start, end] = [map.start + 1, map.end - 1];
  // A comment inside an empty mapping stays.
  if (map.entries.length === 0 && source.text.slice(start, end).includes('#'))
    return { start, end: start, text: members.join(`,${flow.gap}`) };
  return { start, end, text: flowContents(members, flow, outer, eol) };
}

const COMMENT_BEHIND = /^[ \t]*(,?)[ \t]*#[^\r\n]*/;

/** Adds members after `last`, the last entry that is kept; `ends`: it is also the last one in the text. */
function appended(
  last: EntryNode,
  ends: boolean,
  { added }: MapChange,
  { source, flow }: WriteContext,
): Splice[] {
  const at = last.end;
  // A colon without a value would swallow the comma.
  const gap = last.value.start === last.value.end ? ' ' : '';
  const indent = source.indentAt(last.start);
  const eol = source.eolBefore(at);
  const lead = flow.unit === undefined ? flow.gap : eol + indent;
  const members = added.map((member) => lead + memberText(member, nestedStyle(flow), indent, eol));
  // What follows an entry that was not the last is removed with its successors.
  const behind = ends && flow.unit !== undefined ? source.text.slice(at, source.nextLine(at)) : '';
  const comment = COMMENT_BEHIND.exec(behind);
  if (comment === null)
    return [{ start: at, end: at, text: members.map((text) => `${gap},${text}`).join('') }];
  // A comment stays with the value that it follows.
  const start = at + comment[0].length;
  const comma = comment[1] === ',';
  const inserted = { start, end: start, text: members.join(',') + (comma ? ',' : '') };
  return comma ? [inserted] : [{ start: at, end: at, text: `${gap},` }, inserted];
}

/** In YAML, unlike JSON, a value inside a mapping of several lines is still written on one line. */
function nestedStyle(style: FlowStyle): FlowStyle {
  return style.json ? style : { ...style, unit: undefined };
}

/**
 * New entries of a block mapping go after the line on which its last value ends: after that line's trailing
 * comment, before comments on lines of their own, which may belong to what follows.
 */
function blockChanges(map: MapNode, change: MapChange, context: WriteContext): Splice[] {
  const last = map.entries.at(-1);
  if (last === undefined) return [];
  if (map.entries.every((entry) => change.removed.has(entry))) return [rewritten(map, change, context)];
  const removals = [...change.removed].map((entry) => blockRemoval(map, entry, change, context));
  if (change.added.length === 0) return removals;
  return [...removals, insertedLines(last.end, change.added, map.column, context)];
}

function setBlockValue(map: MapNode, entry: EntryNode, value: JsonValue, context: WriteContext): Splice[] {
  const { source, step } = context;
  const { value: old, colonEnd } = entry;
  const column = map.column + step;
  const isEmpty = isBraces(old) || (old.kind === 'scalar' && old.value === null);
  if (isFilledMap(value) && isEmpty && !source.text.slice(colonEnd, old.start).includes('\n')) {
    // The text of an empty value is removed; the rest of its line (a comment, an anchor) stays.
    const start = source.trimmedEnd(colonEnd, old.start);
    const erased = old.end > old.start ? [{ start, end: old.end, text: '' }] : [];
    return [...erased, insertedLines(old.end, Object.entries(value), column, context)];
  }
  const spansLines =
    old.kind === 'scalar' ? old.style === 'block' : 'layout' in old && old.layout === 'block';
  if (!spansLines) return [replacement(old, value, context)];
  const end = source.trimmedEnd(colonEnd, old.end);
  if (!isFilledMap(value))
    return [{ ...replacement({ ...old, start: colonEnd, end: colonEnd }, value, context), end }];
  const eol = source.eolBefore(end);
  const lines = blockLines(Object.entries(value), column, step);
  return [{ start: colonEnd, end, text: lines.map((line) => eol + line).join('') }];
}

function insertedLines(
  contentEnd: number,
  members: readonly Member[],
  column: number,
  { source, step }: WriteContext,
): Splice {
  const at = source.nextLine(contentEnd);
  const eol = source.eolBefore(at);
  const lines = blockLines(members, column, step).map((line) => line + eol);
  return { start: at, end: at, text: lines.join('') };
}

function rewritten(map: MapNode, { added }: MapChange, { source, step }: WriteContext): Splice {
  const start = map.entries[0]?.start ?? map.start;
  const end = source.trimmedEnd(start, map.end);
  const lines = blockLines(added, map.column, step).join(source.eolBefore(end));
  return { start, end, text: lines === '' ? '{}' : lines.trimStart() };
}

function blockRemoval(
  map: MapNode,
  entry: EntryNode,
  { removed }: MapChange,
  { source }: WriteContext,
): Splice {
  const { entries } = map;
  const index = entries.indexOf(entry);
  const behindDash = entries[0] !== undefined && !source.beginsLine(entries[0].start);
  const front = entries.slice(0, index).every((before) => removed.has(before));
  const next = entries[index + 1];
  // After a dash: the first remaining entry moves up to it.
  if (behindDash && front && next) return { start: entry.start, end: next.start, text: '' };
  return { start: source.lineStart(entry.start), end: removedEnd(map, entry, source), text: '' };
}

/**
 * Comments that are indented deeper than the entry are removed with it. Otherwise they would become text if a block
 * scalar precedes them.
 */
function removedEnd(map: MapNode, entry: EntryNode, source: SourceText): number {
  let end = source.nextLine(entry.end);
  let at = end;
  while (at < source.text.length) {
    const next = source.nextLine(at + 1);
    const line = source.text.slice(at, next);
    const indent = /^[ \t]*/.exec(line)?.[0] ?? '';
    const comment = line.trimStart().startsWith('#');
    if (!comment && line.trim() !== '') break;
    if (comment && indent.length <= map.column && !indent.includes('\t')) break;
    if (comment) end = next;
    at = next;
  }
  return end;
}

function blockStep(node: SourceNode): number | undefined {
  const children = node.kind === 'map' ? node.entries.map((entry) => entry.value) : [];
  const items = node.kind === 'list' ? node.items : [];
  for (const child of [...children, ...items]) {
    const nested = node.kind === 'map' && child.kind === 'map' && child.layout === 'block';
    const step = nested && node.layout === 'block' ? child.column - node.column : blockStep(child);
    if (step !== undefined && step > 0) return step;
  }
  return undefined;
}
