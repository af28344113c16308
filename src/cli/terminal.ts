import { fstatSync, writeSync } from 'node:fs';
import { asError, LingerError } from '../api/index.ts';

/** Where a command's words go: results to standard output, everything about them to standard error. */
export interface Terminal {
  readonly print: (text: string) => void;
  readonly warn: (text: string) => void;
}

/**
 * Writes all bytes, or calls `onError`. Node's own stream of a file takes a short write, as a full disk gives, for a
 * whole one.
 */
export function writerTo(
  stream: NodeJS.WriteStream,
  descriptor: number,
  onError: (error: NodeJS.ErrnoException) => void,
): (bytes: Uint8Array) => void {
  const about = fstatSync(descriptor);
  const isFile = !stream.isTTY && (about.isFile() || about.isCharacterDevice());
  if (!isFile) return (bytes) => void stream.write(bytes);
  return (bytes) => {
    try {
      for (let at = 0; at < bytes.length; ) at += writeSync(descriptor, bytes, at);
    } catch (error) {
      onError(asError(error));
    }
  };
}

/** The exit code of a command that has found what it was asked to fail on. */
export const FINDINGS_EXIT_CODE = 3;

/**
 * Checks what --fail-on names: a misspelt word would never be found, and the check that was meant would pass for ever.
 * @throws LingerError `settings-invalid`
 */
export function checkFailOn(asked: readonly string[] = [], known: readonly string[]): void {
  const unknown = asked.find((word) => !known.includes(word));
  if (unknown === undefined) return;
  throw new LingerError(
    'settings-invalid',
    `--fail-on: expected some of ${known.join(', ')}, got "${unknown}"`,
  );
}

/** Lines with columns as wide as their widest cell; nothing stands behind the last one. */
export function columns(
  rows: readonly (readonly string[])[],
  alignment: readonly ('left' | 'right')[],
): readonly string[] {
  const widths = alignment.map((_, column) => Math.max(0, ...rows.map((row) => row[column]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((cell, column) => {
        const width = widths[column] ?? 0;
        return alignment[column] === 'right' ? cell.padStart(width) : cell.padEnd(width);
      })
      .join('  ')
      .trimEnd(),
  );
}

/**
 * A lag or an age for people: `38ms`, `4.215s`, `72.4s`, `12m04s`. Milliseconds are as fine as two watches can be told
 * apart.
 */
export function showSeconds(seconds: number): string {
  const milliseconds = Math.round(seconds * 1000);
  if (milliseconds < 1000) return `${milliseconds}ms`;
  if (milliseconds < 10_000) return `${(milliseconds / 1000).toFixed(3)}s`;
  const tenths = Math.round(seconds * 10);
  if (tenths < 1000) return `${(tenths / 10).toFixed(1)}s`;
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)}m${String(whole % 60).padStart(2, '0')}s`;
}
