import type { Consumer } from '../core/consumers/consumer.ts';
import type { KubeConnection } from '../kube/connection.ts';
import type { RestartReason, WatchFailure } from '../kube/failure.ts';
import type { WorldEvent } from '../world/world.ts';
import { type ConsumerProjection, discoveryConsumersResource } from './kube/discovery-consumers.ts';
import type { ResourceEvent } from './kube/resource.ts';
import type { WatchStats } from './kube/stats.ts';
import { type WatchOptions, watchResource } from './kube/watch-resource.ts';

/** Calls are synchronous. */
export interface ConsumersHandlers {
  /** What the cluster declares has changed, or has been read for the first time. */
  onWorld(event: WorldEvent): void;
  /** The spec of one cannot be read, or (undefined) can be again. Its last good one stays in force. */
  onProblem(name: string, problem: string | undefined): void;
  /** Whether the kind is served, told when that changes: where it is not, files alone declare consumers. */
  onServed(served: boolean): void;
  /** Not for a kind that is not served: that is no failure. */
  onFailure(failure: WatchFailure, pauseMs: number): void;
  onCurrent(): void;
  /** What a handler threw. */
  onHandlerError(error: Error): void;
}

/** A DiscoveryConsumer that there is. */
export interface ConsumerObject extends ConsumerProjection {
  /** The last good one; undefined: there has been none. */
  readonly consumer: Consumer | undefined;
}

export interface ConsumersSource {
  /** Resolves once the API server has given an answer: all of them, or that there are none for us. It may never. */
  readonly read: Promise<void>;
  /** Whether it is certain which ones there are: they have been listed, or the kind has not been served for a while. */
  known(): boolean;
  served(): boolean;
  /** By name, in its order. */
  objects(): readonly ConsumerObject[];
  readonly stats: WatchStats;
  /** Resolves once the signal has aborted and every connection is closed. */
  readonly ended: Promise<void>;
}

/**
 * How long a kind must not have been served for it to be believed: what has been measured of its consumers is forgotten
 * then, and an API server that has just started might not know it yet.
 */
const ABSENT_AFTER_MS = 3_000;

/** A CRD that is installed later is found within this: 404 is no failure that anybody waits for. */
const LONGEST_PAUSE_MS = 45_000;

/** Every pod is held against all of them, and every one may have a row in what is published. */
export const MOST_CONSUMERS = 200;

/** Our rights may be older than this version: then files declare the consumers, and the log says why. */
const NONE_FOR_US: ReadonlySet<RestartReason> = new Set(['NotServed', 'Forbidden']);

/** Follows the DiscoveryConsumers of a cluster until the signal aborts, also where their CRD is not installed. */
export function followConsumers(
  connection: KubeConnection,
  handlers: ConsumersHandlers,
  options: WatchOptions,
): ConsumersSource {
  return new FollowedConsumers(handlers, options).start(connection);
}

class FollowedConsumers {
  readonly #handlers: ConsumersHandlers;
  readonly #options: WatchOptions;
  readonly #objects = new Map<string, ConsumerObject>();
  readonly #read = Promise.withResolvers<void>();
  #served: boolean | undefined;
  #listed = false;
  #known = false;
  /** Since when the kind is not served; undefined: it is, or nobody knows. */
  #absentSince: number | undefined;

  constructor(handlers: ConsumersHandlers, options: WatchOptions) {
    this.#handlers = handlers;
    this.#options = { ...options, limits: { longestPauseMs: LONGEST_PAUSE_MS, ...options.limits } };
  }

  start(connection: KubeConnection): ConsumersSource {
    const watch = watchResource(
      discoveryConsumersResource(),
      connection,
      {
        onEvent: (event) => this.#take(event),
        onStream: ({ type }) => {
          if (type === 'ListEnds') this.#listEnds();
          if (type === 'StreamCurrent') this.#handlers.onCurrent();
        },
        onFailure: (failure, pauseMs) => this.#failed(failure, pauseMs),
        onHandlerError: this.#handlers.onHandlerError,
      },
      this.#options,
    );
    return {
      read: this.#read.promise,
      known: () => this.#known,
      served: () => this.#served === true,
      objects: () => this.#sorted(),
      ...watch,
    };
  }

  #take(event: ResourceEvent<ConsumerProjection>): void {
    const { name } = event.identity;
    const before = this.#objects.get(name);
    if (event.type === 'deleted') {
      // A list that finds another object of the name tells the end of the one before after its beginning.
      if (before?.uid !== event.identity.uid) return;
      this.#objects.delete(name);
      if (before.problem !== undefined) this.#handlers.onProblem(name, undefined);
      this.#tell();
      return;
    }
    const { object } = event;
    if (before === undefined && this.#objects.size >= MOST_CONSUMERS) {
      this.#handlers.onProblem(
        name,
        `only ${MOST_CONSUMERS} DiscoveryConsumers are followed; it is left out`,
      );
      return;
    }
    // Another object of the same name has no last good spec.
    const lastGood = before?.uid === object.uid ? before.consumer : undefined;
    // Most changes are of the status, which we write ourselves: nothing else is to be made anew for them.
    const consumer = before?.spec === object.spec ? before.consumer : (object.consumer ?? lastGood);
    this.#objects.set(name, { ...object, consumer });
    if (before?.problem !== object.problem) this.#handlers.onProblem(name, object.problem);
    if (consumer !== before?.consumer) this.#tell();
  }

  #listEnds(): void {
    const first = !this.#listed;
    this.#listed = true;
    this.#known = true;
    this.#absentSince = undefined;
    this.#sayServed(true);
    if (first) this.#tell();
    this.#read.resolve();
  }

  #failed(failure: WatchFailure, pauseMs: number): void {
    if (failure.reason === 'NotServed') this.#notServed();
    else this.#handlers.onFailure(failure, pauseMs);
    if (NONE_FOR_US.has(failure.reason)) this.#read.resolve();
  }

  /** With its CRD, every object of a kind is gone. */
  #notServed(): void {
    const now = this.#options.clock();
    this.#absentSince ??= now;
    this.#sayServed(false);
    if (now - this.#absentSince < ABSENT_AFTER_MS) return;
    this.#known = true;
    if (this.#objects.size === 0) return;
    this.#objects.clear();
    this.#tell();
  }

  #sayServed(served: boolean): void {
    if (served === this.#served) return;
    this.#served = served;
    this.#handlers.onServed(served);
  }

  /** A list is told as a whole. */
  #tell(): void {
    if (!this.#listed) return;
    const consumers = this.#sorted().flatMap(({ consumer }) => (consumer === undefined ? [] : [consumer]));
    this.#handlers.onWorld({ kind: 'consumers', consumers });
  }

  #sorted(): readonly ConsumerObject[] {
    return [...this.#objects.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  }
}
