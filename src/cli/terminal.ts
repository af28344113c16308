import { createTwoFilesPatch, FILE_HEADERS_ONLY } from 'diff';
import { stringify } from 'yaml';
import { printable } from '../api/index.ts';
import type { OutputFormat } from './commands.ts';
import { type KubeEnvironment, usageError } from './flags.ts';

/** Results go to standard output, everything else to standard error. */
export interface Terminal {
  readonly print: (text: string) => void;
  /** One line. Whatever it quotes can neither end it nor command the terminal. */
  readonly warn: (line: string) => void;
}

/** The streams of a command: the process's own, which may be terminals, or others. */
export interface Streams {
  readonly stdin: NodeJS.ReadableStream & { readonly isTTY?: boolean };
  readonly stdout: NodeJS.WritableStream & { readonly isTTY?: boolean; readonly fd?: number };
  readonly stderr: NodeJS.WritableStream & { readonly isTTY?: boolean; readonly columns?: number };
}

/** What a command may use of its process. */
export interface Surroundings extends Terminal {
  /** To standard output. */
  readonly write: (bytes: Uint8Array) => void;
  readonly kube: KubeEnvironment;
  readonly version: string;
  readonly stdin: NodeJS.ReadableStream;
  /** Whether a user could answer a question, such as a credential plugin's. */
  readonly interactive: boolean;
  /** To standard error, as it is: for a line that is overwritten. */
  readonly overwrite: (text: string) => void;
  /** Whether standard output may be coloured. */
  readonly colour: boolean;
  /** The width of standard error; undefined if it is not a terminal. */
  readonly errorColumns: () => number | undefined;
  /** Seconds since the epoch. */
  readonly now: () => number;
}

/** The exit code of a command that found something that --fail-on names. */
export const FINDINGS_EXIT_CODE = 3;

/**
 * Checks the words of --fail-on: a misspelt one would never be found, so the intended check would always pass.
 * @throws LingerError `settings-invalid`
 */
export function checkFailOn(asked: readonly string[] = [], known: readonly string[]): void {
  const unknown = asked.find((word) => !known.includes(word));
  if (unknown === undefined) return;
  const expected = `expected some of ${known.join(', ')}`;
  throw usageError(`--fail-on: ${expected}, got "${unknown}"`);
}

/** @returns 3 where one of the words of --fail-on is among those that were found */
export function exitCodeFor(failOn: readonly string[] = [], found: readonly (string | null)[]): number {
  return failOn.some((word) => found.includes(word)) ? FINDINGS_EXIT_CODE : 0;
}

/** A result in the format of --output. @param table the text form; `wide`: with all columns */
export function rendered(output: OutputFormat, value: object, table: (wide: boolean) => string): string {
  if (output === 'json') return jsonText(value);
  return output === 'yaml' ? yamlText(value) : table(output === 'wide');
}

/** Where a terminal would obey a character, JSON's own escape stands for it: the value stays the same. */
export function jsonText(value: unknown): string {
  return paragraphs(JSON.stringify(value, undefined, 2).split('\n'));
}

/** The same for YAML, which quotes strings with control characters, but escapes only those that JSON must. */
export function yamlText(value: unknown): string {
  return stringify(value).replaceAll(/[\u007f-\u009f]/g, printable);
}

/** Blocks of lines, separated by empty lines; empty blocks are left out. Quoted text cannot break a line. */
export function paragraphs(...blocks: readonly (readonly string[])[]): string {
  const shown = blocks.filter((lines) => lines.length > 0).map((lines) => lines.map(printable).join('\n'));
  return `${shown.join('\n\n')}\n`;
}

/** A name of 1 MB in a manifest must not make every line that long. */
const WIDEST = 400;

/** Lines with columns as wide as their widest cell, without trailing blanks. */
export function columns(
  rows: readonly (readonly string[])[],
  alignment: readonly ('left' | 'right')[] = [],
): readonly string[] {
  const widths: number[] = [];
  const shown = rows.map((row) => row.map(printable));
  for (const row of shown)
    for (const [column, { length }] of row.entries())
      widths[column] = Math.min(WIDEST, Math.max(widths[column] ?? 0, length));
  const padded = (cell: string, column: number) =>
    alignment[column] === 'right' ? cell.padStart(widths[column] ?? 0) : cell.padEnd(widths[column] ?? 0);
  return shown.map((row) => row.map(padded).join('  ').trimEnd());
}

/** What turns one text into another, as `diff -u` shows it; empty where they are the same. */
export function unifiedDiff(name: string, before: string, after: string): string {
  const options = { context: 3, headerOptions: FILE_HEADERS_ONLY };
  return before === after ? '' : createTwoFilesPatch(name, name, before, after, '', '', options);
}

/** UTC: `2026-03-01 14:05:09`. @param at seconds since the epoch */
export function showInstant(at: number): string {
  return new Date(at * 1000).toISOString().slice(0, 19).replace('T', ' ');
}

/** A lag or an age for display, to the millisecond, as precise as two watches are: `38ms`, `4.215s`, `12m04s`. */
export function showSeconds(seconds: number): string {
  const milliseconds = Math.round(seconds * 1000);
  if (milliseconds < 1000) return `${milliseconds}ms`;
  if (milliseconds < 10_000) return `${(milliseconds / 1000).toFixed(3)}s`;
  const tenths = Math.round(seconds * 10);
  if (tenths < 1000) return `${(tenths / 10).toFixed(1)}s`;
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)}m${String(whole % 60).padStart(2, '0')}s`;
}
