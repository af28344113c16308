import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, brotliDecompress, constants } from 'node:zlib';
import { LingerError } from '../core/api/index.ts';

/** The answers of a real cluster's API server to a dashboard over some minutes. `at`: seconds since the beginning. */
export interface Recording {
  /** The cluster on which it was recorded. */
  readonly of: string;
  /** Seconds since the epoch. */
  readonly from: number;
  /** Seconds. */
  readonly lasts: number;
  /** Answers by {@link requestKey}, earliest first. For collections that are also watched, only the first list. */
  readonly answers: Readonly<Record<string, readonly RecordedAnswer[]>>;
  /** Lines of watches by {@link requestKey}, earliest first. */
  readonly watches: Readonly<Record<string, readonly (readonly [at: number, line: string])[]>>;
}

export type RecordedAnswer = readonly [at: number, status: number, type: string, body: string];

/** Parameters that differ between requests for the same thing. */
const VARYING = [
  'limit',
  'continue',
  'watch',
  'resourceVersion',
  'resourceVersionMatch',
  'timeoutSeconds',
  'allowWatchBookmarks',
];

/** A key for what is requested, the same for a list and its watch. */
export function requestKey({ method = 'GET', url = '', headers }: IncomingMessage): string {
  const { pathname, searchParams } = new URL(url, 'http://recording');
  for (const each of VARYING) searchParams.delete(each);
  const query = searchParams.size === 0 ? '' : `?${searchParams}`;
  const [, as] = /as=(\w+?)(?:List)?;/.exec(headers.accept ?? '') ?? [];
  return [method, pathname + query, ...(as === undefined ? [] : [as])].join(' ');
}

/** The file is next to this one, or next to the bundle. */
export const RECORDING_FILE = 'recording.json.br';

const compress = promisify(brotliCompress);
const decompress = promisify(brotliDecompress);

/** The recording with which Linger is shipped. @throws LingerError `page-missing` if it was shipped without one */
export async function readRecording(): Promise<Recording> {
  const file = join(import.meta.dirname, RECORDING_FILE);
  if (!existsSync(file))
    throw new LingerError(
      'page-missing',
      'this build of Linger has no recording: use the npm package or a checkout',
    );
  return JSON.parse(String(await decompress(await readFile(file)))) as Recording;
}

/** Packs a recording for {@link readRecording}. */
export async function packedRecording(recording: Recording): Promise<Buffer> {
  const text = JSON.stringify(recording);
  const params = {
    // A large window, because the same objects are repeated at large distances.
    [constants.BROTLI_PARAM_LGWIN]: constants.BROTLI_MAX_WINDOW_BITS,
    [constants.BROTLI_PARAM_SIZE_HINT]: text.length,
  };
  return compress(text, { params });
}
