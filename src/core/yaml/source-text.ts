/** Where in a text a problem is, both from 1, and what it is. */
export interface TextProblem {
  readonly line: number;
  readonly column?: number;
  readonly problem: string;
}

/** A text that cannot be read. The message starts with `NAME:LINE:COLUMN:`. */
export class YamlError extends Error {
  override readonly name = 'YamlError';
  readonly place: TextProblem;

  constructor(name: string, place: Required<TextProblem>) {
    super(`${name}:${place.line}:${place.column}: ${place.problem}`);
    this.place = place;
  }
}

const TEMPLATE_HINT = ' (this looks like a template: render it first, for example with "helm template")';

/**
 * A text with its name and a table of its lines. Offsets are UTF-16 units, ends are exclusive. The table is needed because
 * JSON may be a single line of many megabytes, which would be too slow to search for each change.
 */
export class SourceText {
  readonly name: string;
  readonly text: string;
  #starts: Uint32Array | undefined;

  constructor(name: string, text: string) {
    this.name = name;
    this.text = text;
  }

  /** The line and the column of an offset, both from 1. */
  at(offset: number): { readonly line: number; readonly column: number } {
    const line = this.#lineOf(offset);
    return { line: line + 1, column: offset - this.#startOf(line) + 1 };
  }

  errorAt(offset: number, message: string): YamlError {
    const { line, column } = this.at(offset);
    const hint = this.text.slice(this.lineStart(offset), this.nextLine(offset + 1)).includes('{{');
    return new YamlError(this.name, { line, column, problem: message + (hint ? TEMPLATE_HINT : '') });
  }

  lineStart(offset: number): number {
    return this.#startOf(this.#lineOf(offset));
  }

  /** The start of the line after the one on which content that ends at `end` is (a block scalar ends at such a start). */
  nextLine(end: number): number {
    return this.text[end - 1] === '\n' ? end : this.#startOf(this.#lineOf(end) + 1);
  }

  indentAt(offset: number): string {
    const start = this.lineStart(offset);
    let end = start;
    while (end < offset && (this.text[end] === ' ' || this.text[end] === '\t')) end++;
    return this.text.slice(start, end);
  }

  /** Whether only white space precedes `offset` on its line. */
  beginsLine(offset: number): boolean {
    return this.lineStart(offset) + this.indentAt(offset).length === offset;
  }

  /** `end`, moved back over line breaks and blanks, but not beyond `start`. */
  trimmedEnd(start: number, end: number): number {
    let at = end;
    while (at > start && ' \t\r\n'.includes(this.text[at - 1] ?? '')) at--;
    return at;
  }

  /** The kind of line break used last before `offset`; the text's first one if there is none before. */
  eolBefore(offset: number): '\n' | '\r\n' {
    const behind = this.lineStart(offset) || this.#startOf(1);
    return this.text.slice(behind - 2, behind) === '\r\n' ? '\r\n' : '\n';
  }

  #lineOf(offset: number): number {
    this.#starts ??= lineStarts(this.text);
    let low = 0;
    let high = this.#starts.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.#startOf(middle) <= offset) low = middle;
      else high = middle;
    }
    return low;
  }

  /** The offset of a line (from 0); the end of the text if it has fewer lines. */
  #startOf(line: number): number {
    this.#starts ??= lineStarts(this.text);
    return this.#starts[line] ?? this.text.length;
  }
}

/** Counts the lines first: a growing array would take twice the memory. */
function lineStarts(text: string): Uint32Array {
  let count = 1;
  for (let i = text.indexOf('\n'); i !== -1; i = text.indexOf('\n', i + 1)) count++;
  const starts = new Uint32Array(count);
  for (let line = 1; line < count; line++) starts[line] = text.indexOf('\n', starts[line - 1]) + 1;
  return starts;
}

const QUOTED_LENGTH = 80;

/** An excerpt of a text for a message: part of a line, in quotes. */
export function quote(text: string): string {
  const line = /^[^\r\n]*/.exec(text)?.[0] ?? '';
  const shown = line.slice(0, QUOTED_LENGTH);
  return `"${shown}${shown === text ? '' : '…'}"`;
}
