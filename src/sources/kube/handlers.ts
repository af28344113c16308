import type { WatchFailure } from '../../kube/failure.ts';
import type { ResourceEvent } from './resource.ts';

/**
 * How the instants of a collection's events are to be taken; see the lag recorder, which knows the same words.
 *
 * - `ListBegins` … `ListEnds`: every object that there is is told in between, and after those the ones that are gone.
 *   A list that cannot be finished begins anew: `ListBegins` again.
 * - `StreamBroken`: the watch was interrupted; `at`: from when on events may be late, which is before the instant of
 *   the call when the connection died silently.
 * - `StreamRotated`: it was closed in good order, and is resumed at once: by the server, or by us after a silence. If
 *   that turns out to have been a dead connection, `StreamBroken` follows before anything that it has withheld.
 * - `StreamCurrent`: from here on, events come when they happen.
 */
export interface StreamChange {
  readonly type: 'ListBegins' | 'ListEnds' | 'StreamBroken' | 'StreamRotated' | 'StreamCurrent';
  /** Milliseconds of the caller's monotonic clock. */
  readonly at: number;
}

/**
 * What a list-watch tells. Calls are synchronous and in order; what a handler throws is counted and reported, and
 * changes nothing else. Handlers must not return promises: nobody waits for them.
 */
export interface WatchHandlers<T> {
  onEvent(event: ResourceEvent<T>): void;
  onStream(change: StreamChange): void;
  /** Called with each failure, and how long the pause until the next attempt is. Not for watches that just ended. */
  onFailure?(failure: WatchFailure, pauseMs: number): void;
  /** Called with what a projection or another handler threw. */
  onHandlerError?(error: Error): void;
}
