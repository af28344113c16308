import { type Encoding, encodingOf } from '../yaml/index.ts';
import { ManifestError } from './manifest-error.ts';

export type { Encoding };

/** V8 refuses strings of 512 MiB, and reading a manifest takes several times its size. */
const MAX_BYTES = 256 * 1024 * 1024;

/**
 * Decodes the bytes of a manifest. The text includes the byte order mark, if there is one.
 * @throws ManifestError for bytes that are not text, with line and column
 */
export function decodeText(bytes: Uint8Array, name: string) {
  if (bytes.length > MAX_BYTES) {
    const problem = `${bytes.length} bytes long, more than ${MAX_BYTES}`;
    throw new ManifestError(`${name}: is ${problem}: split it into several files`);
  }
  const encoding = encodingOf(bytes);
  try {
    return { text: new TextDecoder(encoding, { fatal: true, ignoreBOM: true }).decode(bytes), encoding };
  } catch {
    const { line, column } = encoding === 'utf-8' ? firstInvalid(bytes) : { line: 1, column: 1 };
    const label = encoding.toUpperCase();
    throw new ManifestError(`${name}:${line}:${column}: this is not ${label}: save the file as UTF-8`);
  }
}

const PIECE = 1024 * 1024;

/** Encodes a text piece by piece: the bytes of a large one need not all be in memory. */
export function* encodeText(text: string, encoding: Encoding): Generator<Uint8Array> {
  for (let [at, end] = [0, 0]; at < text.length; at = end) {
    end = at + PIECE;
    // Surrogate pairs are kept together.
    if (/[\uD800-\uDBFF]/.test(text[end - 1] ?? '')) end++;
    const piece = text.slice(at, end);
    yield encoding === 'utf-8' ? new TextEncoder().encode(piece) : utf16(piece, encoding === 'utf-16le');
  }
}

function utf16(text: string, littleEndian: boolean): Uint8Array {
  const view = new DataView(new ArrayBuffer(text.length * 2));
  for (let at = 0; at < text.length; at += 1) view.setUint16(at * 2, text.charCodeAt(at), littleEndian);
  return new Uint8Array(view.buffer);
}

const LINE_FEED = 10;

function firstInvalid(bytes: Uint8Array): { readonly line: number; readonly column: number } {
  let line = 1;
  let start = 0;
  for (;;) {
    const found = bytes.indexOf(LINE_FEED, start);
    const end = found === -1 ? bytes.length : found;
    const part = bytes.subarray(start, end);
    const column = invalidAt(part);
    if (column > 0 || found === -1) return { line, column };
    line++;
    start = end + 1;
  }
}

/** @returns the column from 1, or 0 for valid UTF-8 */
function invalidAt(line: Uint8Array): number {
  try {
    new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(line);
    return 0;
  } catch {
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(line).indexOf('\uFFFD') + 1;
  }
}
