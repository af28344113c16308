import { isRecord } from '../../core/schema/shape.ts';
import type { KubeConnection } from '../../kube/connection.ts';
import { asFailure, type RestartReason, WatchFailure } from '../../kube/failure.ts';
import { ask, newAgent, readText } from '../../kube/request.ts';
import type { Backoff } from './backoff.ts';
import type { WatchLimits } from './limits.ts';
import { acceptOf, pathOf, type RawObject, type Resource } from './resource.ts';

/**
 * The longest page: 500 Endpoints of 1,000 addresses each are about 100 MB. Beyond it something is wrong, and a string
 * cannot have more than 512 MB.
 */
const LONGEST_PAGE = 256 * 1024 * 1024;

export interface Page {
  readonly items: readonly RawObject[];
  /** Of the whole list: all pages show the collection as it was at one instant. */
  readonly resourceVersion: string;
  /** Where to go on; undefined: that was all. */
  readonly next: string | undefined;
  readonly bytes: number;
}

export interface PageOptions {
  readonly limit: number;
  readonly signal: AbortSignal;
  readonly answerMs: number;
}

/**
 * Asks for pages over one connection.
 *
 * No resourceVersion is given, so the first page is a consistent read: never older than anything seen before, from
 * whichever API server. `resourceVersion=0` would be cheaper for the server, but may go back in time after a
 * reconnect, and ignores `limit`: 150,000 pods in one answer of hundreds of MB. From 1.31 on the watch cache serves
 * consistent reads too, and from 1.34 their further pages.
 */
export class Pages {
  readonly #resource: Pick<Resource<unknown>, 'path' | 'query' | 'metadataOnly'>;
  readonly #connection: KubeConnection;
  readonly #agent: ReturnType<typeof newAgent>;

  constructor(
    resource: Pick<Resource<unknown>, 'path' | 'query' | 'metadataOnly'>,
    connection: KubeConnection,
  ) {
    this.#resource = resource;
    this.#connection = connection;
    this.#agent = newAgent(connection);
  }

  /**
   * @param from what the page before gave as `next`; undefined: the first
   * @throws WatchFailure; `Expired` when the server no longer remembers the instant of the first page
   */
  async page(from: string | undefined, { limit, signal, answerMs }: PageOptions): Promise<Page> {
    const parameters = { limit: String(limit), ...(from === undefined ? {} : { continue: from }) };
    const response = await ask(this.#connection, {
      path: pathOf(this.#resource, parameters),
      accept: acceptOf(this.#resource, 'list'),
      agent: this.#agent,
      signal,
      answerMs,
    });
    const text = await readText(response, LONGEST_PAGE, answerMs);
    return parsePage(text);
  }

  close(): void {
    this.#agent.destroy();
  }
}

export interface ListOptions {
  readonly limits: Pick<WatchLimits, 'pageSize' | 'answerMs'>;
  readonly signal: AbortSignal;
  /** For the pages of this list. */
  readonly backoff: Backoff;
  /** Called before the first page, and again when the list has to begin anew. */
  readonly onBegin: () => void;
  readonly onPage: (page: Page) => void;
  /** Called with what went wrong before the page is asked for again. */
  readonly pause: (failure: WatchFailure, pauseMs: number) => Promise<void>;
}

/**
 * The longest that pages grow. A list that takes longer than the server's memory of its first page (5 minutes, by
 * etcd's compaction) would never end; twice as many objects in a page, whenever that happens, ends it sooner.
 */
const LARGEST_PAGE_SIZE = 16_000;

/**
 * Reads a collection from beginning to end. A page that fails is asked for again, since beginning anew would cost the
 * most just when the server is overloaded.
 * @returns the resourceVersion to watch from
 * @throws the signal's reason once that has aborted, and nothing else
 */
export async function listAll(
  resource: Pick<Resource<unknown>, 'path' | 'query' | 'metadataOnly'>,
  connection: KubeConnection,
  { limits, signal, backoff, onBegin, onPage, pause }: ListOptions,
): Promise<string> {
  const pages = new Pages(resource, connection);
  let limit = limits.pageSize;
  let from: string | undefined;
  let anew = false;
  try {
    onBegin();
    for (;;) {
      try {
        const page = await pages.page(from, { limit, signal, answerMs: limits.answerMs });
        onPage(page);
        // Not once it has begun anew, or first pages that succeed would hide that it never gets any further.
        if (!anew) backoff.reset();
        if (page.next === undefined) return page.resourceVersion;
        from = page.next;
      } catch (thrown) {
        signal.throwIfAborted();
        const failure = asFailure(thrown);
        await pause(failure, backoff.next(failure.retryAfterMs));
        signal.throwIfAborted();
        // A continuation that the server refuses is as useless as one that has expired.
        if (from === undefined || !ANEW.has(failure.reason)) continue;
        from = undefined;
        anew = true;
        if (failure.reason === 'Expired') limit = Math.min(2 * limit, LARGEST_PAGE_SIZE);
        onBegin();
      }
    }
  } finally {
    pages.close();
  }
}

const ANEW: ReadonlySet<RestartReason> = new Set(['Expired', 'Refused', 'Malformed', 'Internal']);

function parsePage(text: string): Page {
  let list: unknown;
  try {
    list = JSON.parse(text);
  } catch {
    throw new WatchFailure('Malformed', `expected a list, got ${text.slice(0, 100)}`);
  }
  const { metadata, items } = isRecord(list) ? list : {};
  if (!isRecord(metadata) || typeof metadata.resourceVersion !== 'string') {
    throw new WatchFailure('Malformed', 'a list without a resourceVersion');
  }
  // Go writes an empty list as null in some kinds.
  if (!Array.isArray(items ?? [])) throw new WatchFailure('Malformed', 'a list without items');
  const next = metadata.continue;
  return {
    items: (items ?? []) as RawObject[],
    resourceVersion: metadata.resourceVersion,
    next: typeof next === 'string' && next !== '' ? next : undefined,
    bytes: Buffer.byteLength(text),
  };
}
