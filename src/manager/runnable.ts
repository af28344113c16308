import type { Registry } from '@prometheus-io/client';
import type { ResourceEvent, WatchStats } from '../cluster/index.ts';
import type { OwnStatus } from '../core/api/index.ts';
import type { ClusterEvent, PodMetadata } from '../core/lag/index.ts';

/** A term as the leader, for code that only a leader may run. */
export interface Leadership {
  /** Aborts when the term is over. */
  readonly signal: AbortSignal;
  /**
   * Check this right before anything that only a leader may do, because a paused process learns late that its term is over.
   */
  holds(): boolean;
}

export type PodEvent = ResourceEvent<PodMetadata>;

/** A part of a running server, as the manager runs it. All members except the name are optional. */
export interface Runnable {
  /** The value of the label `runnable`. */
  readonly name: string;
  /** Registers metrics, once, when the manager starts. */
  metrics?(registry: Registry): void;
  /** Its own list-watches, by the plural of their kind. */
  watches?(): Readonly<Record<string, WatchStats>>;
  /** What it contributes to the status of this replica, at `/status`: its `FactsOf`. */
  status?(): Partial<OwnStatus>;
  /** Called with each event of the cluster's watches, synchronously. */
  onEvent?(event: ClusterEvent): void;
  /** Called with each event of the watch of pods, before {@link onEvent} is called with what it means for endpoints. */
  onPod?(event: PodEvent): void;
  /** Runs from the start to the end of the process, on every replica. */
  run?(signal: AbortSignal): Promise<unknown>;
  /**
   * Runs while this replica leads, from the beginning of the term, and ends when `leadership.signal` aborts. The work of a
   * term begins once that of the previous term has ended.
   */
  lead?(leadership: Leadership): unknown;
  /** The last call: ends what does not end otherwise, such as a server. */
  close?(): unknown;
}
