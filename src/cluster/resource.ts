import type { Labels } from '../core/api/index.ts';
import { type FailureReason, type KubeFailure, RESTARTS } from './failure.ts';

export interface RawMetadata {
  readonly name: string;
  /** Absent if the kind is not namespaced. */
  readonly namespace?: string;
  readonly uid: string;
  readonly resourceVersion: string;
  /** Incremented by each change of the spec. */
  readonly generation?: number;
  readonly labels?: Labels;
  readonly annotations?: Labels;
  /** RFC 3339. */
  readonly creationTimestamp?: string;
  /** Not validated. */
  readonly ownerReferences?: unknown;
  /** RFC 3339. The instant at which the grace ends, not at which the deletion began. */
  readonly deletionTimestamp?: string;
  readonly deletionGracePeriodSeconds?: number;
  /** Labels, annotations or owners were too large to be read; see object-json. */
  readonly leftOut?: true;
}

export interface RawObject {
  readonly metadata: RawMetadata;
  readonly spec?: unknown;
  readonly status?: unknown;
}

/** A collection to follow, and which part of each object to keep. */
export interface Resource<T> {
  /** Such as `/api/v1/pods` or `/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices`. */
  readonly path: string;
  readonly query?: { readonly labelSelector?: string; readonly fieldSelector?: string };
  /** Whether to request metadata only (meta.k8s.io/v1 PartialObjectMetadata). */
  readonly metadataOnly?: boolean;
  /** Called as soon as an object has been parsed; only the result is kept. */
  readonly project: (raw: RawObject) => T;
}

export interface ObjectIdentity {
  /** Empty if the kind is not namespaced. */
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

/**
 * What happened to an object. `at`: when it arrived here, in milliseconds of the caller's monotonic clock.
 * - `added`, `modified`: its state. `listed`: from a list, which names every object, changed or not.
 * - `deleted`: the object is gone. With `relist`, no watch showed the deletion, but a list or a new object of the same name
 *   proves it; the object's last state is unknown.
 */
export type ResourceEvent<T> = { readonly identity: ObjectIdentity; readonly at: number } & (
  | { readonly type: 'added' | 'modified'; readonly object: T; readonly listed: boolean }
  | { readonly type: 'deleted'; readonly relist: false; readonly object: T }
  | { readonly type: 'deleted'; readonly relist: true }
);

const PARTIAL = 'g=meta.k8s.io;v=v1';

export function acceptOf(
  { metadataOnly }: Pick<Resource<unknown>, 'metadataOnly'>,
  verb: 'list' | 'watch',
): string {
  if (metadataOnly !== true) return 'application/json';
  return `application/json;as=PartialObjectMetadata${verb === 'list' ? 'List' : ''};${PARTIAL}`;
}

export function requestPath(
  { path, query = {} }: Pick<Resource<unknown>, 'path' | 'query'>,
  parameters: Readonly<Record<string, string>>,
): string {
  return `${path}?${new URLSearchParams({ ...query, ...parameters })}`;
}

/**
 * Whether the times of a collection's events can be trusted; the lag recorder uses the same terms.
 * - `ListBegins` … `ListEnds`: enclose all existing objects, followed by the deletions of those that are gone. A list that
 *   cannot be finished starts again with another `ListBegins`.
 * - `StreamBroken`: the watch was interrupted. Events may be late from `at` on, which is in the past if the connection died
 *   silently.
 * - `StreamRotated`: the watch was closed in good order, by the server or by this process after a silence, and is resumed at
 *   once. If the connection turns out to have been dead, `StreamBroken` precedes any event that was missed.
 * - `StreamCurrent`: from now on, events arrive as they happen.
 */
export interface StreamChange {
  readonly type: 'ListBegins' | 'ListEnds' | 'StreamBroken' | 'StreamRotated' | 'StreamCurrent';
  readonly at: number;
}

/**
 * Handlers that a list-watch calls synchronously and in order. An error thrown by a handler is counted and reported, with no
 * other effect. Handlers must not return promises, because nothing awaits them.
 */
export interface WatchHandlers<T> {
  onEvent(event: ResourceEvent<T>): void;
  onStream?(change: StreamChange): void;
  /** Called at `ListEnds`, after {@link onStream}. */
  onListed?(): void;
  /** Called at `StreamCurrent`. */
  onCurrent?(): void;
  /** Called with each failure and the pause before the next attempt. Not called for watches that ended in good order. */
  onFailure?(failure: KubeFailure, pauseMs: number): void;
  /** Called with an error thrown by a projection or another handler. */
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
    /**
     * How often a list or a watch ended, by reason. All reasons are present from the start, so that the first restart shows
     * as an increase.
     */
    restarts: Object.fromEntries(restarts) as Restarts,
    /** How many silent watches turned out to have been dead, because the next one delivered missed events. */
    stalls: 0,
    lists: 0,
    /** Events of watches, not counting bookmarks and the objects of lists. */
    events: 0,
    bookmarks: 0,
    /** When the last event or bookmark arrived; a high age reveals a stalled watch. */
    lastEventAt: undefined as number | undefined,
    /** The newest resourceVersion from a list, an event or a bookmark. */
    version: undefined as string | undefined,
    bytes: 0,
    objects: 0,
    /** How often a projection or a handler threw an error. The event was lost for it, but the watch continued. */
    handlerErrors: 0,
    /** `pausing`: between two attempts. */
    state: 'connecting' as 'listing' | 'connecting' | 'watching' | 'pausing' | 'ended',
    /** Whether events arrive as they happen; see `StreamCurrent`. */
    current: false,
  };
}

/** The limits of a list-watch. Milliseconds unless stated otherwise. */
export type WatchLimits = Readonly<typeof WATCH_LIMITS>;

export const WATCH_LIMITS = {
  /**
   * Objects in one page of a list: half as many as client-go requests (tools/pager), because a page is kept in memory as a
   * whole, and pods with their managedFields take 1 MB.
   */
  pageSize: 250,
  /**
   * How many seconds the server is asked to keep a watch open. Short enough that watches move to another API server within 5
   * minutes (each uses a connection of its own), and drawn from a range, so that they do not all move in the same second.
   */
  watchSeconds: [240, 300] as readonly [least: number, most: number],
  /**
   * How long a watch may be silent. The API server sends a bookmark every 60 s, rounded up by at most 2.3 s (cacher.go:
   * defaultBookmarkFrequency, buckets of 1 s, a timer of 1 to 1.25 s). It remembers events for at least 75 s
   * (DefaultEventFreshDuration), so after 70 s there are 5 s left to reconnect before resuming could require a new list. But
   * it omits a bookmark that is no newer than the watch (cache_watcher.go): if nothing happens to any object of the kind,
   * and etcd does not report its progress (kubeadm sets 5 s; etcd's own default is 10 minutes), a healthy watch is silent as
   * well. So a silent watch is just resumed, and counts as interrupted only if it turns out to have missed something.
   */
  silenceMs: 70_000,
  /**
   * How long a response may take to begin, and how long a list may pause. The API server's own --request-timeout is 60 s,
   * and its error says more than a timeout here would.
   */
  answerMs: 65_000,
  /**
   * The pause after the first failure, drawn from its upper half: 250 to 500 ms, then 0.5 to 1 s, … 7.5 to 15 s. client-go's
   * pauses grow to 30 s, for 5,000 kubelets; here, six watches in each of a few replicas make at most 2 requests a second to
   * a server that has just recovered.
   */
  firstPauseMs: 500,
  longestPauseMs: 15_000,
  /**
   * A watch that lived this long counts as healthy, so that pauses start from the shortest again. Twice the longest pause:
   * in the long run, a watch that always dies at once is started 4 to 8 times a minute, one that dies just before this time
   * 1.5 times, and one that dies just after it, with hardly any pause, twice.
   */
  healthyMs: 30_000,
  /**
   * The longest pause after a healthy watch was closed in good order. Short, because events during the pause are seen late;
   * not 0, so that watches that a server closes together do not all reconnect at once.
   */
  rewatchMs: 250,
  /**
   * A watch that is behind by less than this, plus the time of one request, counts as current: this is the largest
   * difference between streams that the recorder tolerates (INVERSION_MS).
   */
  currentWithinMs: 250,
  currentRetryMs: 1_000,
};
