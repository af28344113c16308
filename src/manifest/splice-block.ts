import type { MapChange } from './changes.ts';
import { blockLines, isFilledMap } from './emit.ts';
import { ManifestError } from './manifest-error.ts';
import type { EntryNode, JsonValue, MapNode, SourceNode } from './source-tree.ts';
import { replaceInPlace, type WriteContext } from './splice-value.ts';
import { beginsLine, eolBefore, lineStart, nextLine, type Splice, trimmedEnd } from './text-lines.ts';

/**
 * New entries of a block mapping go behind the line on which its last value ends: behind that line's trailing
 * comment, before comments on lines of their own, which may belong to what follows.
 */
export function blockChanges(map: MapNode, change: MapChange, context: WriteContext): Splice[] {
  const last = map.entries.at(-1);
  if (last === undefined) return [];
  if (map.entries.every((entry) => change.removed.has(entry))) return [rewritten(map, change, context)];
  const removals = [...change.removed].map((entry) => removal(map, entry, change, context));
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
  return node.kind !== 'alias' && node.layout === 'block';
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

function removal(map: MapNode, entry: EntryNode, change: MapChange, { text }: WriteContext): Splice {
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
