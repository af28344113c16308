import { FOREIGN_LIMITS } from '../core/api/index.ts';
import { stepsOnLoop } from '../telemetry/index.ts';
import { Backoff, inPieces, pause } from '../timing/index.ts';
import type { KubeConnection } from './connection.ts';
import { asFailure, type FailureReason, KubeFailure } from './failure.ts';
import { type PageEnd, readListPage } from './object-json.ts';
import { ask, type KubeRequest, newAgent, readBytes } from './request.ts';
import {
  acceptOf,
  type RawObject,
  type Resource,
  requestPath,
  WATCH_LIMITS,
  type WatchLimits,
} from './resource.ts';

type ListRequest = Pick<Resource<unknown>, 'path' | 'query' | 'metadataOnly'>;

/** A longer page is requested again with fewer objects. */
const LONGEST_PAGE = FOREIGN_LIMITS.watch.bytes;

type OnItem = (item: RawObject) => void;

/**
 * Requests pages over one connection, and without a resourceVersion, so that the first page is a consistent read, never
 * older than what any API server has returned before. `resourceVersion=0` would be cheaper for the server, but may go back
 * in time after a reconnect, and ignores `limit`: 150,000 pods would come in one response of hundreds of MB. From 1.31 on,
 * the watch cache serves consistent reads, and from 1.34 on, also their further pages.
 */
export function pagesOf(
  resource: ListRequest,
  connection: KubeConnection,
  onBytes = (_bytes: number): void => undefined,
) {
  const agent = newAgent(connection);
  /** The number of objects to request; reduced if that many did not fit into a page. */
  let most = LARGEST_PAGE_SIZE;
  /** The buffer is reused for every page, because allocating one each time would fragment the memory of the process. */
  let room: ArrayBufferLike | undefined;
  return {
    /**
     * @param from the `next` of the previous page; undefined: the first page
     * @param onItem is called with the same items again if a failed page is retried
     * @throws KubeFailure; `Expired` if the server no longer has the state as of the first page
     */
    async page(
      from: string | undefined,
      { limit, signal, answerMs }: Pick<KubeRequest, 'signal' | 'answerMs'> & { readonly limit: number },
      onItem: OnItem = () => undefined,
    ): Promise<PageEnd> {
      for (;;) {
        const asked = Math.min(limit, most);
        const parameters = { limit: String(asked), ...(from === undefined ? {} : { continue: from }) };
        const response = await ask(connection, {
          path: requestPath(resource, parameters),
          accept: acceptOf(resource, 'list'),
          compressed: connection.compressed,
          agent,
          signal,
          answerMs,
        });
        const page = await readBytes(response, LONGEST_PAGE, answerMs, room);
        room = page?.buffer;
        onBytes(page?.length ?? LONGEST_PAGE);
        if (page !== undefined) {
          if (2 * page.length < LONGEST_PAGE) most = Math.min(LARGEST_PAGE_SIZE, 2 * most);
          // In pieces, between which reviews are answered.
          return await inPieces(stepsOnLoop('list', readListPage(page, onItem)));
        }
        if (asked === 1) throw new KubeFailure('Malformed', `an object of more than ${LONGEST_PAGE} bytes`);
        most = Math.ceil(asked / 4);
      }
    },
    close: () => agent.destroy(),
  };
}

interface ListOptions {
  readonly limits: Pick<WatchLimits, 'pageSize' | 'answerMs'>;
  readonly signal: AbortSignal;
  readonly backoff: Backoff;
  /** Called before the first page, and whenever the list has to start again. */
  readonly onBegin: () => void;
  readonly onItem: OnItem;
  readonly onBytes: (bytes: number) => void;
  /** Called with a failure before the page is requested again. */
  readonly pause: (failure: KubeFailure, pauseMs: number) => Promise<void>;
  readonly isEnough?: () => boolean;
}

/**
 * The largest page. A list that takes longer than the server keeps the state of its first page (5 minutes, by etcd's
 * compaction) would never finish. So whenever that happens, the page size is doubled.
 */
const LARGEST_PAGE_SIZE = 16_000;

/**
 * Reads a collection from beginning to end. If a page fails, only that page is requested again, because starting again would
 * cost most just when the server is overloaded.
 * @returns the resourceVersion from which to watch
 * @throws only the signal's reason, once that has aborted
 */
export async function listAll(
  resource: ListRequest,
  connection: KubeConnection,
  { limits, signal, backoff, onBegin, onItem, onBytes, pause, isEnough }: ListOptions,
): Promise<string> {
  const pages = pagesOf(resource, connection, onBytes);
  let limit = limits.pageSize;
  let from: string | undefined;
  let restarted = false;
  try {
    onBegin();
    for (;;) {
      try {
        const page = await pages.page(from, { limit, signal, answerMs: limits.answerMs }, onItem);
        // Not reset after a restart, because successful first pages would hide that the list never gets further.
        if (!restarted) backoff.reset();
        if (page.next === undefined || isEnough?.()) return page.resourceVersion;
        from = page.next;
      } catch (thrown) {
        signal.throwIfAborted();
        const failure = asFailure(thrown);
        await pause(failure, backoff.next(failure.retryAfterMs));
        signal.throwIfAborted();
        if (from === undefined || !NOT_RESUMABLE.has(failure.reason)) continue;
        from = undefined;
        restarted = true;
        if (failure.reason === 'Expired') limit = Math.min(2 * limit, LARGEST_PAGE_SIZE);
        onBegin();
      }
    }
  } finally {
    pages.close();
  }
}

/**
 * Reads a few objects once; the caller asks again when it needs them again.
 * @param most objects; others are left out
 * @param isWanted which objects to keep; others do not count towards `most`
 * @throws KubeFailure; the signal's reason once that has aborted
 */
export async function listSome<T>(
  resource: Resource<T>,
  connection: KubeConnection,
  { signal, answerMs, most }: Pick<KubeRequest, 'signal' | 'answerMs'> & { readonly most: number },
  isWanted?: (object: T) => boolean,
): Promise<readonly T[]> {
  const pages = pagesOf(resource, connection);
  const found: T[] = [];
  const onItem: OnItem = (item) => {
    if (found.length >= most) return;
    const object = resource.project(item);
    if (isWanted?.(object) !== false) found.push(object);
  };
  try {
    let from: string | undefined;
    do {
      const limit = isWanted === undefined ? Math.min(most - found.length, SOME_PAGE) : SOME_PAGE;
      from = (await pages.page(from, { limit, signal, answerMs }, onItem)).next;
    } while (from !== undefined && found.length < most);
    return found;
  } finally {
    pages.close();
  }
}

const SOME_PAGE = 250;

/** Failures that a healthy server returns occasionally; others would happen again a second later. */
const PASSING: ReadonlySet<FailureReason> = new Set(['Expired', 'Throttled', 'Cut']);

/**
 * Reads a collection once while its reader waits: passing failures are retried, any other one ends it.
 * @param onItem called once for each object, even if the list starts again
 * @returns whether there are no more objects than `most`
 * @throws KubeFailure; the signal's reason once that has aborted
 */
export async function listOnce<T>(
  resource: Resource<T>,
  connection: KubeConnection,
  { signal, most = Number.POSITIVE_INFINITY }: { readonly signal: AbortSignal; readonly most?: number },
  onItem: (item: T) => void,
): Promise<{ readonly isWhole: boolean }> {
  const seen = new Set<string>();
  await listAll(resource, connection, {
    limits: WATCH_LIMITS,
    signal,
    backoff: new Backoff(WATCH_LIMITS, Math.random),
    onBegin: () => undefined,
    onBytes: () => undefined,
    onItem: (item) => {
      const { uid } = item.metadata;
      if (seen.has(uid)) return;
      seen.add(uid);
      if (seen.size <= most) onItem(resource.project(item));
    },
    pause: async (failure, pauseMs) => {
      if (!PASSING.has(failure.reason)) throw failure;
      await pause(pauseMs, signal);
    },
    isEnough: () => seen.size > most,
  });
  return { isWhole: seen.size <= most };
}

/** After these failures, a list or a watch cannot be resumed from where it stopped. */
export const NOT_RESUMABLE: ReadonlySet<FailureReason> = new Set([
  'Expired',
  'NotServed',
  'Refused',
  'Malformed',
  'Internal',
]);
