import { NOTES, type Note } from './notes.ts';

/**
 * kubectl and client-go print warnings as they come; the API server truncates all of a response's warnings
 * beyond 4 KiB and drops a header that is not valid text, so ours are one short line of ASCII.
 * Source: k8s.io/apiserver pkg/endpoints/filters/warning.go.
 */
export const WARNING_MAX_BYTES = 256;
const PREFIX = 'linger: ';
const ELLIPSIS = '...';

/** An admission warning: ASCII, at most 256 bytes, one line, prefixed `linger: `. */
export function warning(text: string): string {
  const line = PREFIX + toAscii(text);
  return line.length <= WARNING_MAX_BYTES
    ? line
    : line.slice(0, WARNING_MAX_BYTES - ELLIPSIS.length) + ELLIPSIS;
}

/** The warnings that a decision's notes give rise to, in their order. */
export function warningsOf(notes: readonly Note[]): string[] {
  const warnings: string[] = [];
  for (const each of notes) {
    if (NOTES[each.code].warns) warnings.push(warning(each.text));
  }
  return warnings;
}

const TYPOGRAPHY: Readonly<Record<string, string>> = {
  '’': "'",
  '“': '"',
  '”': '"',
  '×': 'x',
  '÷': '/',
  '…': '...',
  '→': '->',
  '≤': '<=',
  '≥': '>=',
};

function toAscii(text: string): string {
  return text.replace(/[^\x20-\x7e]/gu, (char) => TYPOGRAPHY[char] ?? (/\s/u.test(char) ? ' ' : '?'));
}
