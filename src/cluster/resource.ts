import type { Labels } from '../api/index.ts';
import { type FailureReason, type KubeFailure, RESTARTS } from './failure.ts';

/** The metadata that Linger reads of any object. */
export interface RawMetadata {
  readonly name: string;
  /** Absent where the kind is not namespaced. */
  readonly namespace?: string;
  readonly uid: string;
  readonly resourceVersion: string;
  /** Raised by each change of the spec, in kinds that count. */
  readonly generation?: number;
  readonly labels?: Labels;
  readonly annotations?: Labels;
  /** RFC 3339. */
  readonly creationTimestamp?: string;
  /** Unchecked. */
  readonly ownerReferences?: unknown;
  /** RFC 3339. The end of the grace, not its beginning. */
  readonly deletionTimestamp?: string;
  readonly deletionGracePeriodSeconds?: number;
}

export interface RawObject {
  readonly metadata: RawMetadata;
  readonly spec?: unknown;
  readonly status?: unknown;
}

/** A collection to follow, and the part of each object that is kept. */
export interface Resource<T> {
  /** Such as `/api/v1/pods` or `/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices`. */
  readonly path: string;
  readonly query?: { readonly labelSelector?: string; readonly fieldSelector?: string };
  /** Ask for metadata only (meta.k8s.io/v1 PartialObjectMetadata). */
  readonly metadataOnly?: boolean;
  /**
   * The field that follows metadata in the object's JSON, unless {@link metadataOnly}. It shows where the managedFields
   * end, which are skipped instead of parsed.
   */
  readonly afterMetadata?: string;
  /** Called as soon as an object is parsed; the rest of it is garbage from then on. */
  readonly project: (raw: RawObject) => T;
}

export interface ObjectIdentity {
  /** Empty where the kind is not namespaced. */
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

/**
 * What happened to an object. `at`: when it arrived here, in milliseconds of the caller's monotonic clock.
 * - `added`, `modified`: its state. `listed`: it comes from a list, which names every object, changed or not.
 * - `deleted`: with `relist`, no watch saw the deletion: a list, or an object of the same name, showed that the object is
 *   gone, and its last state is unknown.
 */
export type ResourceEvent<T> = { readonly identity: ObjectIdentity; readonly at: number } & (
  | { readonly type: 'added' | 'modified'; readonly object: T; readonly listed: boolean }
  | { readonly type: 'deleted'; readonly relist: false; readonly object: T }
  | { readonly type: 'deleted'; readonly relist: true }
);

const PARTIAL = 'g=meta.k8s.io;v=v1';

/** The Accept header; a list and a watch of metadata have kinds of their own. */
export function acceptOf(
  { metadataOnly }: Pick<Resource<unknown>, 'metadataOnly'>,
  verb: 'list' | 'watch',
): string {
  if (metadataOnly !== true) return 'application/json';
  return `application/json;as=PartialObjectMetadata${verb === 'list' ? 'List' : ''};${PARTIAL}`;
}

/** Path and query of a request for the resource. */
export function pathOf(
  { path, query = {} }: Pick<Resource<unknown>, 'path' | 'query'>,
  parameters: Readonly<Record<string, string>>,
): string {
  return `${path}?${new URLSearchParams({ ...query, ...parameters })}`;
}

/**
 * Whether the instants of a collection's events can be trusted; the lag recorder uses the same terms.
 * - `ListBegins` … `ListEnds`: in between come all existing objects, then the deletions of those that are gone. A list
 *   that cannot be finished starts again with another `ListBegins`.
 * - `StreamBroken`: the watch was interrupted. Events may be late from `at` on, which lies before the call when the
 *   connection died silently.
 * - `StreamRotated`: the watch was closed in good order, by the server or by us after a silence, and is resumed at once.
 *   If the connection turns out to have been dead, `StreamBroken` follows before any event that it had withheld.
 * - `StreamCurrent`: from here on, events arrive when they happen.
 */
export interface StreamChange {
  readonly type: 'ListBegins' | 'ListEnds' | 'StreamBroken' | 'StreamRotated' | 'StreamCurrent';
  /** Milliseconds of the caller's monotonic clock. */
  readonly at: number;
}

/**
 * Called by a list-watch, synchronously and in order. What a handler throws is counted and reported, and changes nothing
 * else. Handlers must not return promises: nothing awaits them.
 */
export interface WatchHandlers<T> {
  onEvent(event: ResourceEvent<T>): void;
  onStream(change: StreamChange): void;
  /** Called with each failure and the pause before the next attempt. Not for watches that ended in good order. */
  onFailure?(failure: KubeFailure, pauseMs: number): void;
  /** Called with what a projection or another handler threw. */
  onHandlerError?(error: Error): void;
}

type Restarts = Record<keyof typeof RESTARTS, number> & Partial<Record<FailureReason, number>>;

/**
 * The state of one list-watch, for its metrics. Counts are since its start; instants and spans are milliseconds of its
 * monotonic clock.
 */
export type WatchStats = Readonly<ReturnType<typeof newStats>>;

export function newStats() {
  const restarts = Object.keys(RESTARTS).map((reason) => [reason, 0] as const);
  return {
    /** How often a list or a watch ended. All reasons from the start, so that the first restart is an increase. */
    restarts: Object.fromEntries(restarts) as Restarts,
    /** Silent watches that had been dead: the next one brought something before it was current. */
    stalls: 0,
    lists: 0,
    /** From the first request of the last complete list to its last page. */
    lastListMs: undefined as number | undefined,
    /** Events of watches; bookmarks and the objects of lists do not count. */
    events: 0,
    bookmarks: 0,
    /** When the last event or bookmark came. A stalled watch shows by its age. */
    lastEventAt: undefined as number | undefined,
    /** The newest resourceVersion that was delivered, by a list, an event or a bookmark. */
    version: undefined as string | undefined,
    bytes: 0,
    objects: 0,
    /** How often a projection or a handler threw; the event was lost to it, and the watch went on. */
    handlerErrors: 0,
    /** `pausing`: between two attempts. */
    state: 'connecting' as 'listing' | 'connecting' | 'watching' | 'pausing' | 'ended',
    /** Whether events arrive when they happen; see `StreamCurrent`. */
    current: false,
  };
}

/** The numbers of a list-watch. Milliseconds unless they say otherwise. */
export type WatchLimits = Readonly<typeof WATCH_LIMITS>;

export const WATCH_LIMITS = {
  /**
   * Objects in one page of a list: client-go's number (tools/pager); pods with their managedFields make 1 to 3 MB. Here a
   * page is read item by item and costs no memory; but the API server holds it whole, and it is what is lost with a
   * connection.
   */
  pageSize: 500,
  /**
   * Seconds that the server is asked to keep a watch. Short enough that watches move to another API server within 5
   * minutes (each is a connection of its own), and drawn from a range, so that they do not all move in the same second.
   */
  watchSeconds: [240, 300] as readonly [least: number, most: number],
  /**
   * How long a watch may bring nothing at all. The API server sends a bookmark every 60 s, rounded up by at most 2.3 s
   * (cacher.go: defaultBookmarkFrequency, buckets of 1 s, a timer of 1 to 1.25 s). It remembers events for at least 75 s
   * (DefaultEventFreshDuration), so after 70 s there are 5 left to reconnect before a resume could need a new list. But
   * it leaves out a bookmark that is no newer than the watch (cache_watcher.go): where nothing happens to any object of
   * the kind, and etcd does not report its progress (kubeadm lets it every 5 s; its own default is 10 minutes), a healthy
   * watch is silent, too. So silence only has a watch resumed, and is an interruption only if something was missed.
   */
  silenceMs: 70_000,
  /**
   * How long an answer may take to begin, and how long a list may pause. The API server's own --request-timeout is 60 s,
   * and its answer says more than our giving up would.
   */
  answerMs: 65_000,
  /**
   * The pause after the first failure, drawn from its upper half: 250 to 500 ms, then 0.5 to 1 s, … 7.5 to 15 s. client-go
   * grows to 30 s, for 5,000 kubelets; six watches in each of a few replicas are at most 2 requests a second to a server
   * that has just come back.
   */
  firstPauseMs: 500,
  longestPauseMs: 15_000,
  /**
   * A watch that lived this long was healthy: pauses start at the first again. Twice the longest pause: in the long run a
   * watch that always dies at once is begun 4 to 8 times a minute, one that dies just before this 1.5 times, and one that
   * dies just after it, with hardly a pause, twice.
   */
  healthyMs: 30_000,
  /**
   * The longest pause after a healthy watch that was closed in good order. Short, as what happens meanwhile is seen late;
   * not 0, so that 6 watches that a server closes together do not come back in the same millisecond.
   */
  rewatchMs: 250,
  /**
   * A watch that is behind by less than this, and the time of one request, is current: the most by which streams may
   * differ for the recorder (INVERSION_MS).
   */
  currentWithinMs: 250,
  /** Between two attempts to find out how far behind a watch is. */
  currentRetryMs: 1_000,
};
