import type { MapChange } from './changes.ts';
import { type FlowStyle, memberText } from './emit.ts';
import type { EntryNode, JsonValue, MapNode } from './source-tree.ts';
import { replaceInPlace, type WriteContext } from './splice-value.ts';
import { beginsLine, eolBefore, indentAt, nextLine, type Splice } from './text-lines.ts';

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
  const removals = last === undefined ? [] : [...change.removed].map((entry) => removal(map, entry, kept));
  if (last === undefined && map.entries.length === 0 && change.added.size === 0) return [];
  if (last === undefined) return [refilled(map, change, context)];
  if (change.added.size === 0) return removals;
  return [...removals, ...appended(last, last === map.entries.at(-1), change, context)];
}

/** An entry goes together with the comma before it; one at the front, with what leads to its successor. */
function removal(map: MapNode, entry: EntryNode, kept: readonly EntryNode[]): Splice {
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
