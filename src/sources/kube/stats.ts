import { RESTARTS, type RestartReason } from '../../kube/failure.ts';

/**
 * What the metrics of one list-watch are made of. Counts are since its start; instants and spans are milliseconds of
 * its monotonic clock.
 */
export interface WatchStats {
  /** How often a list or a watch ended, by why. */
  readonly restarts: Readonly<Record<RestartReason, number>>;
  /** Silent watches that seem to have been dead: the next one brought something before it was current. */
  readonly stalls: number;
  readonly lists: number;
  /** From the first request of the last complete list to its last page. */
  readonly lastListMs: number | undefined;
  /** Events of watches, without bookmarks and what lists name. */
  readonly events: number;
  readonly bookmarks: number;
  /** When the last event or bookmark came: its age tells a stalled watch. */
  readonly lastEventAt: number | undefined;
  /** Of bodies, as they are uncompressed. */
  readonly bytes: number;
  /** How many objects there are. */
  readonly objects: number;
  /** How often a projection or a handler threw; the event was lost to it, and the watch went on. */
  readonly handlerErrors: number;
  /** What is being done: `pausing` is between two attempts. */
  readonly state: 'listing' | 'connecting' | 'watching' | 'pausing' | 'ended';
  /** Whether events come when they happen; see `StreamCurrent`. */
  readonly current: boolean;
}

export type GrowingStats = { -readonly [K in keyof WatchStats]: WatchStats[K] } & {
  restarts: Record<RestartReason, number>;
};

export function newStats(): GrowingStats {
  const none = Object.keys(RESTARTS).map((reason) => [reason, 0] as const);
  return {
    restarts: Object.fromEntries(none) as Record<RestartReason, number>,
    stalls: 0,
    lists: 0,
    lastListMs: undefined,
    events: 0,
    bookmarks: 0,
    lastEventAt: undefined,
    bytes: 0,
    objects: 0,
    handlerErrors: 0,
    state: 'connecting',
    current: false,
  };
}
