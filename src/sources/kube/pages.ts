import type { KubeConnection } from '../../kube/connection.ts';
import { asFailure, type RestartReason, type WatchFailure } from '../../kube/failure.ts';
import { ask, newAgent, readChunks } from '../../kube/request.ts';
import type { Backoff } from './backoff.ts';
import type { WatchLimits } from './limits.ts';
import { ListReader, type PageEnd } from './list-reader.ts';
import { SparingParser } from './managed-fields.ts';
import { acceptOf, pathOf, type RawObject, type Resource } from './resource.ts';

/** Called with items as they arrive, and how many bytes have. */
export type OnItems = (items: readonly RawObject[], bytes: number) => void;

type Listed = Pick<Resource<unknown>, 'path' | 'query' | 'metadataOnly' | 'afterMetadata'>;

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
  readonly #resource: Listed;
  readonly #parser: SparingParser;
  readonly #connection: KubeConnection;
  readonly #agent: ReturnType<typeof newAgent>;

  constructor(resource: Listed, connection: KubeConnection) {
    this.#resource = resource;
    this.#parser = new SparingParser(resource);
    this.#connection = connection;
    this.#agent = newAgent(connection);
  }

  /**
   * @param from what the page before gave as `next`; undefined: the first
   * @param onItems what it was told before a failure, it is told again with the page's next attempt
   * @throws WatchFailure; `Expired` when the server no longer remembers the instant of the first page
   */
  async page(
    from: string | undefined,
    { limit, signal, answerMs }: PageOptions,
    onItems: OnItems = () => undefined,
  ): Promise<PageEnd> {
    const parameters = { limit: String(limit), ...(from === undefined ? {} : { continue: from }) };
    const response = await ask(this.#connection, {
      path: pathOf(this.#resource, parameters),
      accept: acceptOf(this.#resource, 'list'),
      compressed: this.#connection.compressed,
      agent: this.#agent,
      signal,
      answerMs,
    });
    const reader = new ListReader(this.#parser);
    await readChunks(response, answerMs, (chunk) => onItems(reader.push(chunk), chunk.length));
    const { items, ...end } = reader.end();
    onItems(items, 0);
    return end;
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
  readonly onItems: OnItems;
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
  resource: Listed,
  connection: KubeConnection,
  { limits, signal, backoff, onBegin, onItems, pause }: ListOptions,
): Promise<string> {
  const pages = new Pages(resource, connection);
  let limit = limits.pageSize;
  let from: string | undefined;
  let anew = false;
  try {
    onBegin();
    for (;;) {
      try {
        const page = await pages.page(from, { limit, signal, answerMs: limits.answerMs }, onItems);
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

const ANEW: ReadonlySet<RestartReason> = new Set([
  'Expired',
  'NotServed',
  'Refused',
  'Malformed',
  'Internal',
]);
