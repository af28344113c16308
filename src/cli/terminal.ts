import { once } from 'node:events';
import { EXITS, LingerError, printable } from '../core/api/index.ts';
import { pause } from '../timing/index.ts';
import { type KubeEnvironment, usageError } from './flags.ts';

/** Prints results to standard output, and everything else to standard error. */
export interface Terminal {
  readonly print: (text: string) => void;
  /** Prints one line. Quoted text can neither break it nor control the terminal. */
  readonly warn: (line: string) => void;
}

export interface Streams {
  readonly stdin: NodeJS.ReadableStream & { readonly isTTY?: boolean };
  readonly stdout: NodeJS.WritableStream & {
    readonly isTTY?: boolean;
    readonly fd?: number;
    readonly columns?: number;
  };
  readonly stderr: NodeJS.WritableStream & { readonly isTTY?: boolean; readonly columns?: number };
}

/** What a command may use of its process. */
export interface Surroundings extends Terminal {
  /** Writes to standard output. */
  readonly write: (bytes: Uint8Array) => void;
  readonly kube: KubeEnvironment;
  readonly version: string;
  /** The commit from which it was built; undefined: not known. */
  readonly commit: string | undefined;
  readonly stdin: Streams['stdin'];
  /** Whether a user can answer questions, such as a credential plugin's. */
  readonly interactive: boolean;
  /** Writes to standard error without changes, for a line that is overwritten. */
  readonly overwrite: (text: string) => void;
  /** Whether to colour standard output. */
  readonly colour: boolean;
  /** The width of standard output; undefined if it is not a terminal. */
  readonly outputColumns: () => number | undefined;
  /** The width of standard error; undefined if it is not a terminal. */
  readonly errorColumns: () => number | undefined;
  /**
   * Reports the progress of a command, which a terminal shows once it takes over a second.
   * @param what a clause: `reading pods`
   * @param total the number to reach; undefined: not known
   */
  readonly progress: (what: string, done?: number, total?: number) => void;
  /** Seconds since the epoch. */
  readonly now: () => number;
}

/** Resolves when the process is asked to stop; a second Ctrl-C ends it as usual. */
export async function stopRequested(): Promise<void> {
  await Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
}

const WATCH_MS = 2_000;

/**
 * Runs a step once or, with --watch, every two seconds until the process is asked to stop. While watching, a brief outage of
 * the cluster is only a warning.
 * @throws LingerError what the first step throws
 */
export async function repeated(
  watch: boolean,
  { warn }: Pick<Terminal, 'warn'>,
  step: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const stopping = new AbortController();
  const stop = () => stopping.abort();
  if (watch) process.once('SIGINT', stop).once('SIGTERM', stop);
  try {
    await step(stopping.signal);
    while (watch && (await pause(WATCH_MS, stopping.signal)))
      await step(stopping.signal).catch((thrown: unknown) => {
        if (!(thrown instanceof LingerError) || thrown.code !== 'cluster-unreachable') throw thrown;
        warn(`linger: ${thrown.message}`);
      });
  } finally {
    process.off('SIGINT', stop).off('SIGTERM', stop);
  }
}

const BACK_AND_CLEAR = '\r\u001b[K';

export type LiveSurroundings = Pick<Surroundings, 'print' | 'warn' | 'overwrite' | 'errorColumns'>;

/** Prints results and notes, and on a terminal a status line below them that is overwritten. */
export class LiveTerminal {
  readonly #terminal: LiveSurroundings;
  readonly #quiet: boolean;
  #status = '';

  /** @param quiet whether to leave out notes and the status line */
  constructor(terminal: LiveSurroundings, quiet: boolean) {
    this.#terminal = terminal;
    this.#quiet = quiet;
  }

  print(text: string): void {
    if (text === '') return;
    this.#withoutStatus(() => this.#terminal.print(text));
  }

  note(...lines: readonly string[]): void {
    if (this.#quiet) return;
    this.#withoutStatus(() => lines.forEach(this.#terminal.warn));
  }

  /** @param text one line; empty: none */
  status(text: string): void {
    const columns = this.#terminal.errorColumns();
    if (columns === undefined || this.#quiet) return;
    // Cut, because a wrapped line could not be erased.
    const line = printable(text).slice(0, Math.max(0, columns - 1));
    if (line === this.#status) return;
    this.#terminal.overwrite(`${BACK_AND_CLEAR}${line}`);
    this.#status = line;
  }

  /** Erases the status line first, because both streams may be the same terminal. */
  #withoutStatus(write: () => void): void {
    if (this.#status !== '') this.#terminal.overwrite(BACK_AND_CLEAR);
    write();
    if (this.#status !== '') this.#terminal.overwrite(this.#status);
  }
}

/** For callers that report progress in their own way. */
export function withoutProgress(surroundings: Surroundings): Surroundings {
  return { ...surroundings, progress: () => undefined };
}

/** Milliseconds before progress is shown. */
const PROGRESS_AFTER_MS = 1_000;
const OVERWRITE_EVERY_MS = 200;
const BAR = 20;

/**
 * Shows the progress of a command that takes over a second, as a line that is overwritten, if standard error is a terminal.
 */
export class Progress {
  readonly #live: LiveTerminal;
  readonly #clock: () => number;
  #begun: number | undefined;
  #at: { readonly what: string; readonly done: number | undefined; readonly total: number | undefined };
  #timer: NodeJS.Timeout | undefined;

  /** @param clock monotonic milliseconds */
  constructor(terminal: LiveSurroundings, clock: () => number = () => performance.now()) {
    this.#live = new LiveTerminal(terminal, false);
    this.#clock = clock;
    this.#at = { what: '', done: undefined, total: undefined };
  }

  readonly report: Surroundings['progress'] = (what, done, total) => {
    this.#begun ??= this.#clock();
    this.#at = { what, done, total };
    this.#timer ??= setInterval(() => this.#show(), OVERWRITE_EVERY_MS).unref();
  };

  readonly print = (text: string): void => this.#live.print(text);
  readonly note = (line: string): void => this.#live.note(line);

  readonly end = (): void => {
    clearInterval(this.#timer);
    this.#live.status('');
  };

  #show(): void {
    const tookMs = this.#clock() - (this.#begun ?? 0);
    if (tookMs < PROGRESS_AFTER_MS) return;
    const { what, done, total } = this.#at;
    const count = done === undefined ? '' : `: ${done}${total === undefined ? '' : ` of ${total}`}`;
    const text = `${what}${count} (${Math.round(tookMs / 1000)} s)`;
    const filled = Math.round((BAR * (done ?? 0)) / Math.max(1, total ?? 0));
    this.#live.status(total === undefined ? text : `[${'#'.repeat(filled).padEnd(BAR)}] ${text}`);
  }
}

/** The exit code of a command that found something that --fail-on names. */
export const FINDINGS_EXIT_CODE = EXITS.findings.code;

/**
 * Checks the words of --fail-on. A misspelt one would never be found, so the intended check would always pass.
 * @throws LingerError `settings-invalid`
 */
export function checkFailOn(asked: readonly string[] = [], known: readonly string[]): void {
  const unknown = asked.find((word) => !known.includes(word));
  if (unknown === undefined) return;
  const expected = `expected some of ${known.join(', ')}`;
  throw usageError(`--fail-on: ${expected}, got "${unknown}"`);
}

/** @returns 3 if one of the words of --fail-on was found */
export function exitCodeFor(failOn: readonly string[] = [], found: readonly (string | null)[]): number {
  return failOn.some((word) => found.includes(word)) ? FINDINGS_EXIT_CODE : 0;
}

/** Replaces control characters by JSON escapes, which leaves the value unchanged. */
export function jsonText(value: unknown): string {
  return paragraphs(JSON.stringify(value, undefined, 2).split('\n'));
}

/** Joins blocks of lines, separated by empty lines; empty blocks are left out. Quoted text cannot break a line. */
export function paragraphs(...blocks: readonly (readonly string[])[]): string {
  const shown = blocks.filter((lines) => lines.length > 0).map((lines) => lines.map(printable).join('\n'));
  return `${shown.join('\n\n')}\n`;
}

/** Limits a column, so that a name of 1 MB in a manifest does not make every line that long. */
const WIDEST = 400;

/** The width of standard output; infinite if it is not a terminal. It is global, because the terminal is. */
let terminalWidth = Number.POSITIVE_INFINITY;

/** Called once, before a command runs. */
export function fitTablesTo(width: number): void {
  terminalWidth = width;
}

/** Whether no line is wider than the terminal. */
export function fits(lines: readonly string[]): boolean {
  return lines.every(({ length }) => length <= terminalWidth);
}

/** A narrower column has no room for prose. */
const LEAST_PROSE = 24;

/**
 * Lines with columns as wide as their widest cell, without trailing blanks. On a narrow terminal, the last column is
 * wrapped. Names are never cut, so that they can be copied.
 */
export function columns(
  rows: readonly (readonly string[])[],
  alignment: readonly ('left' | 'right')[] = [],
): readonly string[] {
  const widths: number[] = [];
  const last = Math.max(0, ...rows.map((row) => row.length)) - 1;
  const isProse = (column: number) => column === last && alignment[column] !== 'right';
  const before = rows.map((row) => row.map(printable));
  const others = Array.from({ length: Math.max(0, last) }, (_, column) =>
    Math.min(WIDEST, Math.max(0, ...before.map((row) => row[column]?.length ?? 0))),
  ).reduce((sum, width) => sum + width + 2, 0);
  const room = terminalWidth - others;
  const shown = before.flatMap((row) => {
    const lines =
      room < LEAST_PROSE || !isProse(row.length - 1) ? [row.at(-1) ?? ''] : wrapped(row.at(-1) ?? '', room);
    return lines.map((line, index) => [...row.slice(0, -1).map((cell) => (index === 0 ? cell : '')), line]);
  });
  for (const row of shown)
    for (const [column, { length }] of row.entries())
      widths[column] = Math.min(WIDEST, Math.max(widths[column] ?? 0, length));
  const padded = (cell: string, column: number) =>
    alignment[column] === 'right' ? cell.padStart(widths[column] ?? 0) : cell.padEnd(widths[column] ?? 0);
  return shown.map((row) => row.map(padded).join('  ').trimEnd());
}

/** Text in lines of at most this width, or the width of the terminal if that is narrower; long words are not broken. */
export function wrapped(text: string, width: number): readonly string[] {
  const most = Math.min(width, terminalWidth);
  if (text.length <= most) return [text];
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > most) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line];
}

/** Text in lines that fit the terminal. @param first prefix of the first line @param rest prefix of the others */
export function indented(text: string, first: string, rest: string): readonly string[] {
  const lines = wrapped(printable(text), terminalWidth - Math.max(first.length, rest.length));
  return lines.map((line, index) => `${index === 0 ? first : rest}${line}`);
}

/** @param colour an SGR code: 31 is red */
export function painted(text: string, colour: number, isColoured: boolean): string {
  return isColoured ? `\u001b[${colour}m${text}\u001b[0m` : text;
}

/** UTC: `2026-03-01 14:05:09`. @param at seconds since the epoch */
export function showInstant(at: number): string {
  return new Date(at * 1000).toISOString().slice(0, 19).replace('T', ' ');
}

/** A lag or an age for display, to the millisecond, which is the precision of two watches: `38ms`, `4.215s`, `12m04s`. */
export function showSeconds(seconds: number): string {
  const milliseconds = Math.round(seconds * 1000);
  if (milliseconds < 1000) return `${milliseconds}ms`;
  if (milliseconds < 10_000) return `${(milliseconds / 1000).toFixed(3)}s`;
  const tenths = Math.round(seconds * 10);
  if (tenths < 1000) return `${(tenths / 10).toFixed(1)}s`;
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)}m${String(whole % 60).padStart(2, '0')}s`;
}
