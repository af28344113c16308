import { readFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { setTimeout as rest } from 'node:timers/promises';
import {
  FOREIGN_LIMITS,
  type InspectSpec,
  LONGEST_PAGE,
  type PageFindings,
  type PageReader,
} from '../../core/api/index.ts';
import { fileText } from '../../core/yaml/index.ts';
import { serialize } from '../../timing/index.ts';
import { askOnce, type Problem, problem, type Question, refusal } from './probe.ts';

export interface PageRequest extends Omit<Question, 'headers'> {
  readonly token?: string | undefined;
  readonly reader: PageReader;
}

export interface PageAnswer {
  /** The findings, or why the page could not be read completely. */
  readonly outcome: PageFindings | Problem;
  readonly bytes: number;
}

/**
 * Reads a page over a connection of its own to exactly this address. Only a complete response with status 200 counts,
 * because in a truncated one, addresses would seem to be gone. Never throws, and resolves within the timeout.
 */
export async function readPage({ reader, token, ...asked }: PageRequest): Promise<PageAnswer> {
  const read = { bytes: 0 };
  const headers = {
    'user-agent': 'linger-inspect',
    'accept-encoding': 'identity',
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
  };
  const outcome = await askOnce<PageFindings>({ ...asked, headers }, 'full answer', (response, settle) => {
    void readBody(response, reader, read).then(settle);
  });
  return { outcome, bytes: read.bytes };
}

/** Reads no more of the body than has been parsed. Never rejects. */
async function readBody(
  response: IncomingMessage,
  reader: PageReader,
  read: { bytes: number },
): Promise<PageFindings | Problem> {
  const refused = whyUnusable(response);
  if (refused !== undefined) return refused;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      read.bytes += chunk.length;
      if (read.bytes > LONGEST_PAGE) return problem('BadAnswer', `is longer than ${LONGEST_PAGE >> 20} MiB`);
      for (let at = 0; at < chunk.length; at += PIECE_BYTES)
        await parse(() => reader.write(chunk.toString('latin1', at, at + PIECE_BYTES)));
    }
    if (!response.complete) return problem('BadAnswer', 'is truncated');
    const found = reader.end();
    return typeof found === 'string' ? problem('BadAnswer', found) : found;
  } catch {
    return problem('BadAnswer', 'is truncated');
  }
}

/** How much is parsed at a time: that takes half a millisecond, and some 10 at worst. */
const PIECE_BYTES = FOREIGN_LIMITS.page.loopBytes;
/** Parsing pauses once it has taken this long, so that small pages are parsed without a pause. */
const WORK_MS = 5;
/**
 * How long it pauses in relation: parsing takes at most a fifth of the event loop's time, however many pages are read at
 * once.
 */
const REST_PER_WORK = 4;

let workedMs = 0;

/** Parses one piece of one page at a time. A page that takes longer than its timeout is not read to its end. */
const parse = serialize(async (piece: () => void) => {
  const began = performance.now();
  piece();
  workedMs += performance.now() - began;
  if (workedMs < WORK_MS) return;
  const restMs = REST_PER_WORK * workedMs;
  workedMs = 0;
  await rest(restMs, undefined, { ref: false });
});

/** Why the body of a response is not read; undefined: it is. */
function whyUnusable({ statusCode = 0, headers }: IncomingMessage): Problem | undefined {
  if (statusCode !== 200) return refusal(statusCode);
  const { 'content-encoding': encoding = 'identity', 'x-next-page': next = '' } = headers;
  if (encoding !== 'identity') return problem('BadAnswer', `is encoded as ${encoding.slice(0, 20)}, unasked`);
  // Traefik paginates its lists; on the last page, it names page 1 as the next.
  if (next !== '' && next !== '1')
    return problem('BadAnswer', 'is only a part: the path must ask for all at once (per_page)');
  const isMeasured = headers['content-length'] !== undefined || headers['transfer-encoding'] === 'chunked';
  if (isMeasured) return undefined;
  return problem('BadAnswer', 'does not say how long it is, so that a part of it would look like the whole');
}

/**
 * Reads a file to which a consumer refers. It is read each time, because tokens are rotated.
 * @param folder undefined: the operator allows no files
 */
export async function readNamed(folder: string | undefined, name: string): Promise<string> {
  if (folder === undefined) throw new Error(`needs the file ${name}, and --inspect-files names no folder`);
  return readFile(join(folder, name)).then(fileText, () => {
    throw new Error(`needs the file ${name} of --inspect-files, which cannot be read`);
  });
}

/** The characters and the length that servers accept in a header. */
const HEADER_VALUE = /^[ -~]{1,8192}$/;

/**
 * Reads the value of a header from a file. It is checked here, because grpc-js quotes values that it refuses, and a
 * condition would show the secret.
 */
export async function readHeaderValue(folder: string | undefined, name: string): Promise<string> {
  const text = (await readNamed(folder, name)).trim();
  if (HEADER_VALUE.test(text)) return text;
  throw new Error(`needs one line of printable ASCII in the file ${name}`);
}

export async function trustOf(
  folder: string | undefined,
  { caFile, ...trust }: NonNullable<InspectSpec['tls']>,
): Promise<NonNullable<Question['trust']>> {
  return { ...trust, ca: caFile === undefined ? undefined : await readNamed(folder, caFile) };
}
