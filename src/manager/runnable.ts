import type { Registry } from '@prometheus-io/client';
import type { ResourceEvent, WatchStats } from '../cluster/index.ts';
import type { OwnStatus } from '../core/api/index.ts';
import type { ClusterEvent, PodMetadata } from '../core/lag/index.ts';

/** A term as the leader, for code that does what only a leader may do. */
export interface Leadership {
  /** Aborts when the term is over. */
  readonly signal: AbortSignal;
  /** To be checked right before anything that only a leader may do: a paused process learns late that its term is over. */
  holds(): boolean;
}

export type PodEvent = ResourceEvent<PodMetadata>;

/** A part of a running server, as the manager runs it. Every member but the name is optional. */
export interface Runnable {
  /** The value of the label `runnable`. */
  readonly name: string;
  /** Registers metrics, once, when the manager starts. */
  metrics?(registry: Registry): void;
  /** The list-watches of its own, by the plural of their kind. */
  watches?(): Readonly<Record<string, WatchStats>>;
  /** What it adds to the status of this replica, at `/status`: its `FactsOf`. */
  status?(): Partial<OwnStatus>;
  /** Hears each event of the cluster's watches, synchronously. */
  onEvent?(event: ClusterEvent): void;
  /** Hears each event of the pods' watch, before {@link onEvent} hears what it means for endpoints. */
  onPod?(event: PodEvent): void;
  /** Works from the start to the end of the process, on every replica. */
  run?(signal: AbortSignal): Promise<unknown>;
  /**
   * Works while this replica leads, from the beginning of the term on; ends when `leadership.signal` aborts. A term's work
   * begins once that of the term before has ended.
   */
  lead?(leadership: Leadership): unknown;
  /** Ends what nothing else does, such as a server; the last call. */
  close?(): unknown;
}
