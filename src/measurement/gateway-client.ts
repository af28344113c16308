import type { IncomingMessage } from 'node:http';
import { asError, FOREIGN_LIMITS, type PageFormat } from '../api/index.ts';
import { OffLoop, workerUrl } from '../timing/index.ts';
import { LONGEST_PAGE, type PageEndpoint, PageFindings, readerOf } from './page-formats.ts';
import type { PagePiece, PageTask } from './page-worker.ts';
import { askOnce, type Problem, problem, type Question, refusal } from './probe.ts';

/** Where the bytes of a page go. */
export interface PageSink {
  write(chunk: Buffer): unknown;
  end(): PageFindings | string | Promise<PageFindings | string>;
}

export interface PageRequest extends Omit<Question, 'headers'> {
  readonly token?: string | undefined;
  readonly reader: PageSink;
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
  const read = { bytes: 0 };
  const headers = {
    'user-agent': 'linger-inspect',
    'accept-encoding': 'identity',
    ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
  };
  const outcome = await askOnce<PageFindings>({ ...asked, headers }, 'whole answer', (response, settle) => {
    void readBody(response, reader, read).then(settle);
  });
  return { outcome, bytes: read.bytes };
}

/** Takes no more of the body than the reader has taken in. Never rejects. */
async function readBody(
  response: IncomingMessage,
  reader: PageSink,
  read: { bytes: number },
): Promise<PageFindings | Problem> {
  const refused = whyUnusable(response);
  if (refused !== undefined) return refused;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      read.bytes += chunk.length;
      if (read.bytes > LONGEST_PAGE) return problem('BadAnswer', `is longer than ${LONGEST_PAGE >> 20} MiB`);
      await reader.write(chunk);
    }
    if (!response.complete) return problem('BadAnswer', 'breaks off');
    const found = await reader.end();
    return typeof found === 'string' ? problem('BadAnswer', found) : found;
  } catch (error) {
    return problem('BadAnswer', error instanceof UnreadablePage ? error.message : 'breaks off');
  }
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

/** Pages up to this size are parsed where they arrive, in a millisecond; the worst in some 10. */
const SMALL_PAGE_BYTES = FOREIGN_LIMITS.page.loopBytes;
/**
 * For each chunk, including the queue. The thread limits each page itself; ending the thread would abort other pages, too.
 */
const OFF_LOOP = { timeoutMs: 10_000, heapMb: 64 };

class UnreadablePage extends Error {}

/** Parses large pages off the event loop, chunk by chunk. */
export class PageParser {
  readonly #thread = new OffLoop<PageTask, PagePiece>(workerUrl(import.meta.url, 'page-worker'), OFF_LOOP);
  #pages = 0;

  open(format: PageFormat, wanted: readonly PageEndpoint[]): PageSink {
    this.#pages += 1;
    const page = this.#pages;
    const chunks: Buffer[] = [];
    let bytes = 0;
    let isLarge = false;
    return {
      write: async (chunk) => {
        bytes += chunk.length;
        if (isLarge) return this.#run({ page, chunk });
        chunks.push(chunk);
        if (bytes <= SMALL_PAGE_BYTES) return undefined;
        isLarge = true;
        return this.#run({ page, as: { format, wanted }, chunk: Buffer.concat(chunks.splice(0)) });
      },
      end: async () => {
        if (isLarge) return joined(await this.#run({ page }));
        const reader = readerOf(format, wanted);
        reader.write(Buffer.concat(chunks));
        return reader.end();
      },
    };
  }

  /** @throws UnreadablePage */
  async #run(task: PageTask): Promise<readonly PagePiece[]> {
    try {
      return await this.#thread.run(task);
    } catch (error) {
      throw new UnreadablePage(`cannot be parsed: ${asError(error).message}`);
    }
  }
}

function joined(pieces: readonly PagePiece[]): PageFindings | string {
  const found = pieces.filter((piece) => typeof piece !== 'string');
  const [wrong] = pieces.filter((piece) => typeof piece === 'string');
  if (wrong !== undefined) return wrong;
  return new PageFindings({
    endpoints: new Map(found.flatMap(({ endpoints }) => [...endpoints])),
    clusters: new Set(found.flatMap(({ clusters }) => [...clusters])),
  });
}
