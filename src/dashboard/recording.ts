import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, brotliDecompress, constants } from 'node:zlib';
import { LingerError } from '../core/api/index.ts';

/** What the API server of a real cluster answered a dashboard over some minutes. `at`: seconds since its beginning. */
export interface Recording {
  /** What it was recorded on. */
  readonly of: string;
  /** Seconds since the epoch. */
  readonly from: number;
  /** Seconds. */
  readonly lasts: number;
  /** By {@link requestKey}, the earliest first. Of what is also watched, the first list alone. */
  readonly answers: Readonly<Record<string, readonly RecordedAnswer[]>>;
  /** By {@link requestKey}: lines, the earliest first. */
  readonly watches: Readonly<Record<string, readonly (readonly [at: number, line: string])[]>>;
}

export type RecordedAnswer = readonly [at: number, status: number, type: string, body: string];

/** What differs from one request to the next though the same is asked for. */
const VARYING = [
  'limit',
  'continue',
  'watch',
  'resourceVersion',
  'resourceVersionMatch',
  'timeoutSeconds',
  'allowWatchBookmarks',
];

/** What is asked for: the same for a list and its watch. */
export function requestKey({ method = 'GET', url = '', headers }: IncomingMessage): string {
  const { pathname, searchParams } = new URL(url, 'http://recording');
  for (const each of VARYING) searchParams.delete(each);
  const query = searchParams.size === 0 ? '' : `?${searchParams}`;
  const [, as] = /as=(\w+?)(?:List)?;/.exec(headers.accept ?? '') ?? [];
  return [method, pathname + query, ...(as === undefined ? [] : [as])].join(' ');
}

/** Beside this file, and beside the bundle. */
export const RECORDING_FILE = 'recording.json.br';

const compress = promisify(brotliCompress);
const decompress = promisify(brotliDecompress);

/** The recording that Linger is shipped with. @throws LingerError `page-missing`, where it was shipped without it */
export async function readRecording(): Promise<Recording> {
  const file = join(import.meta.dirname, RECORDING_FILE);
  if (!existsSync(file))
    throw new LingerError(
      'page-missing',
      'this build of Linger has no recording: use the npm package or a checkout',
    );
  return JSON.parse(String(await decompress(await readFile(file)))) as Recording;
}

/** As {@link readRecording} reads it. */
export async function packedRecording(recording: Recording): Promise<Buffer> {
  const text = JSON.stringify(recording);
  const params = {
    // The same objects come again and again, far apart.
    [constants.BROTLI_PARAM_LGWIN]: constants.BROTLI_MAX_WINDOW_BITS,
    [constants.BROTLI_PARAM_SIZE_HINT]: text.length,
  };
  return compress(text, { params });
}
