import type { IncomingMessage } from 'node:http';
import { LONGEST_PAGE, type PageFindings, type PageReader } from './page-formats.ts';
import { askOnce, type Problem, problem, type Question, refusal } from './probe.ts';

export interface PageRequest extends Omit<Question, 'headers'> {
  readonly token?: string | undefined;
  readonly reader: PageReader;
}

export interface PageAnswer {
  /** What the page shows, or why it could not be read whole. */
  readonly outcome: PageFindings | Problem;
  readonly bytes: number;
}

/**
 * Reads a page over its own connection to exactly this address. Only a complete answer with status 200 counts: in a
 * truncated one, addresses would seem to be gone. Never throws, and resolves within the timeout.
 */
export async function readPage({ reader, token, ...asked }: PageRequest): Promise<PageAnswer> {
  let bytes = 0;
  const headers = {
    'user-agent': 'linger-inspect',
    'accept-encoding': 'identity',
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
  };
  const outcome = await askOnce<PageFindings>({ ...asked, headers }, 'whole answer', (response, settle) => {
    const refused = whyUnusable(response);
    if (refused !== undefined) return settle(refused);
    response.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > LONGEST_PAGE) settle(problem('BadAnswer', `is longer than ${LONGEST_PAGE >> 20} MiB`));
      else reader.write(chunk);
    });
    response.on('end', () => {
      if (!response.complete) return settle(problem('BadAnswer', 'breaks off'));
      const found = reader.end();
      settle(typeof found === 'string' ? problem('BadAnswer', found) : found);
    });
  });
  return { outcome, bytes };
}

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
