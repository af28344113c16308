import type { ChangeSet } from './changes.ts';
import { type FlowStyle, flowText, scalarLike } from './emit.ts';
import type { JsonValue, SourceNode } from './source-tree.ts';
import { eolBefore, indentAt, type Splice, trimmedEnd } from './text-lines.ts';

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
