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
  /** The findings, or the reason why the page could not be read completely. */
  readonly outcome: PageFindings | Problem;
  readonly bytes: number;
}

/**
 * Reads a page over its own connection to exactly this address. Only a full answer with status 200 counts: in a
 * truncated one, addresses would seem to be gone. Never throws, and resolves within the timeout.
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

/** Takes no more of the body than has been parsed. Never rejects. */
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

/** Parsed in half a millisecond; the worst in some 10. */
const PIECE_BYTES = FOREIGN_LIMITS.page.loopBytes;
/** Parsing rests once it has taken this long, so that small pages do without. */
const WORK_MS = 5;
/** Parsing takes at most a fifth of the event loop's time, however many pages are read at once. */
const REST_PER_WORK = 4;

let workedMs = 0;

/** Parses one piece of one page at a time. A page that takes longer than its timeout allows is not read to its end. */
const parse = serialize(async (piece: () => void) => {
  const began = performance.now();
  piece();
  workedMs += performance.now() - began;
  if (workedMs < WORK_MS) return;
  const restMs = REST_PER_WORK * workedMs;
  workedMs = 0;
  await rest(restMs, undefined, { ref: false });
});

/** Why the body of an answer is not read, if it is not. */
function whyUnusable({ statusCode = 0, headers }: IncomingMessage): Problem | undefined {
  if (statusCode !== 200) return refusal(statusCode);
  const { 'content-encoding': encoding = 'identity', 'x-next-page': next = '' } = headers;
  if (encoding !== 'identity') return problem('BadAnswer', `is encoded as ${encoding.slice(0, 20)}, unasked`);
  // Traefik paginates its lists, and names page 1 where there is no next page.
  if (next !== '' && next !== '1')
    return problem('BadAnswer', 'is only a part: the path must ask for all at once (per_page)');
  const isMeasured = headers['content-length'] !== undefined || headers['transfer-encoding'] === 'chunked';
  if (isMeasured) return undefined;
  return problem('BadAnswer', 'does not say how long it is, so that a part of it would look like the whole');
}

/**
 * A file that a consumer refers to, read each time, because tokens are rotated.
 * @param folder undefined: the operator allows none
 */
export async function readNamed(folder: string | undefined, name: string): Promise<string> {
  if (folder === undefined) throw new Error(`needs the file ${name}, and --inspect-files names no folder`);
  return readFile(join(folder, name)).then(fileText, () => {
    throw new Error(`needs the file ${name} of --inspect-files, which cannot be read`);
  });
}

/** What servers take of a header at the most. */
const HEADER_VALUE = /^[ -~]{1,8192}$/;

/** The value of a header, from a file. Checked here, since grpc-js quotes what it refuses, and a condition would show it. */
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
