import { ManifestError } from './manifest-error.ts';

/** A replacement of `[start, end)` by `text`; start = end inserts. */
export interface Splice {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/**
 * Applies splices of one text. Insertions at the same offset keep the order in which they are given; those within what
 * is removed come behind it, as where the last line of a mapping goes with its comments and another line comes.
 * @throws ManifestError (internal) when two of them overlap otherwise
 */
export function applySplices(text: string, splices: readonly Splice[]): string {
  const ordered = splices.toSorted(
    (a, b) => a.start - b.start || Number(a.end > a.start) - Number(b.end > b.start),
  );
  const parts: string[] = [];
  let at = 0;
  let removedUntil = 0;
  for (const splice of ordered) {
    const { start, end } = splice.start === splice.end ? behind(splice, removedUntil) : splice;
    if (start < at) throw new ManifestError('two changes of the text overlap', { internal: true });
    parts.push(text.slice(at, start), splice.text);
    at = end;
    if (splice.text === '') removedUntil = end;
  }
  parts.push(text.slice(at));
  return parts.join('');
}

function behind({ start }: Splice, least: number): Pick<Splice, 'start' | 'end'> {
  const at = Math.max(start, least);
  return { start: at, end: at };
}

export function lineStart(text: string, offset: number): number {
  return offset === 0 ? 0 : text.lastIndexOf('\n', offset - 1) + 1;
}

/** The start of the line behind the one on which content that ends at `end` stands (a block scalar ends there). */
export function nextLine(text: string, end: number): number {
  if (text[end - 1] === '\n') return end;
  const found = text.indexOf('\n', end);
  return found === -1 ? text.length : found + 1;
}

/** The white space that a line begins with. */
export function indentAt(text: string, offset: number): string {
  return /^[ \t]*/.exec(text.slice(lineStart(text, offset), offset))?.[0] ?? '';
}

/** Whether nothing but white space stands before `offset` on its line. */
export function beginsLine(text: string, offset: number): boolean {
  return lineStart(text, offset) + indentAt(text, offset).length === offset;
}

/** `end` without the line ends and blanks before it, but not before `start`. */
export function trimmedEnd(text: string, start: number, end: number): number {
  let at = end;
  while (at > start && ' \t\r\n'.includes(text[at - 1] ?? '')) at--;
  return at;
}

/** The kind of line end in use just before `offset`; the text's first one where there is none before. */
export function eolBefore(text: string, offset: number): '\n' | '\r\n' {
  const before = offset === 0 ? -1 : text.lastIndexOf('\n', offset - 1);
  const at = before === -1 ? text.indexOf('\n') : before;
  return at > 0 && text[at - 1] === '\r' ? '\r\n' : '\n';
}
