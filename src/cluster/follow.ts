import type { WorldEvent } from '../decision/index.ts';
import type { ClusterEvent, StampedStream, Stream } from '../lag/index.ts';
import { atMostEvery } from '../timing/index.ts';
import {
  endpointsEvent,
  podEvent,
  serviceEvent,
  sliceEvent,
  stampEvent,
  streamEvent,
} from './cluster-events.ts';
import type { KubeConnection } from './connection.ts';
import { endpointSlicesResource, endpointsResource } from './endpoints.ts';
import type { KubeFailure } from './failure.ts';
import { NamespaceTable, namespacesResource } from './namespaces.ts';
import { FollowedFleet, nodesResource } from './nodes.ts';
import { podsResource } from './pods.ts';
import { type ResourceWatch, watchResource } from './reflector.ts';
import type { Resource, ResourceEvent, WatchHandlers, WatchLimits, WatchStats } from './resource.ts';
import { ServiceTable, servicesResource } from './services.ts';
import { StandstillGuard } from './standstill.ts';

/** What is followed, by the plural names of the API. */
export const CLUSTER_RESOURCES = [
  'namespaces',
  'services',
  'nodes',
  'pods',
  'endpointslices',
  'endpoints',
] as const;
export type ClusterResource = (typeof CLUSTER_RESOURCES)[number];

/** Receives what happens in the cluster. Calls are synchronous. */
export interface ClusterHandlers {
  /** What decisions read has changed. Many changes at once come as one. */
  onWorld(event: WorldEvent): void;
  /** For the lag recorder: each at once, in the order of its stream. */
  onEvent(event: ClusterEvent): void;
  /** A list or a watch, or the question for the version, failed; it is tried again after the pause. */
  onFailure(what: ClusterResource | 'version', failure: KubeFailure, pauseMs: number): void;
  /** Events come when they happen, or the version is known: for the first time, or again. */
  onCurrent(what: ClusterResource | 'version'): void;
  /** What a handler or a projection threw; the event was lost to it. */
  onHandlerError(resource: ClusterResource, error: Error): void;
}

export interface ClusterOptions {
  readonly signal: AbortSignal;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  /** In [0, 1). */
  readonly random: () => number;
  readonly limits?: Partial<WatchLimits>;
  /** Linger's own namespace, where its leader stamps objects; undefined: there are no stamps. */
  readonly namespace?: string | undefined;
}

/** A cluster that is followed. */
export interface ClusterSource {
  /** Resolves once everything that decisions read (Namespaces, Services, versions) has been read; it may never. */
  readonly synced: Promise<void>;
  readonly watches: Readonly<Record<ClusterResource, WatchStats>>;
  /** Resolves once the signal has aborted and every connection is closed. */
  readonly ended: Promise<void>;
}

/**
 * The least time between two worlds made of the same kind of change. What decisions know of the cluster is older than
 * the watches by at most this. Making a world of 13,000 Services takes 3 ms where each has a namespace of its own, and
 * 0.03 ms where they share 500: in a storm that changes all of them again and again, 3 % of a processor at the most.
 */
const WORLD_EVERY_MS = 100;

/** Follows the cluster until the signal aborts. */
export function followCluster(
  connection: KubeConnection,
  handlers: ClusterHandlers,
  options: ClusterOptions,
): ClusterSource {
  return new FollowedCluster(connection, handlers, options).start();
}

type Handler<T> = (event: ResourceEvent<T>) => void;

class FollowedCluster {
  readonly #connection: KubeConnection;
  readonly #handlers: ClusterHandlers;
  readonly #options: ClusterOptions;
  readonly #namespaces = new NamespaceTable();
  readonly #services = new ServiceTable();
  readonly #fleet: FollowedFleet;
  /** What has been listed to its end once: before that a table is no answer, but a part of one. */
  readonly #listed = new Set<ClusterResource>();
  readonly #synced = Promise.withResolvers<void>();
  /** Of the streams that the recorder hears of. */
  readonly #guard: StandstillGuard;
  readonly #namespacesChanged: () => void;
  readonly #servicesChanged: () => void;

  constructor(connection: KubeConnection, handlers: ClusterHandlers, options: ClusterOptions) {
    this.#connection = connection;
    this.#handlers = handlers;
    this.#options = options;
    const { onWorld, onEvent, onFailure, onCurrent } = handlers;
    this.#guard = new StandstillGuard((change) => onEvent(streamEvent(change, change.stream)), options);
    this.#namespacesChanged = atMostEvery(
      WORLD_EVERY_MS,
      () => onWorld({ kind: 'namespaces', namespaces: this.#namespaces.all() }),
      options,
    );
    this.#servicesChanged = atMostEvery(
      WORLD_EVERY_MS,
      () => onWorld({ kind: 'services', services: this.#services.index() }),
      options,
    );
    this.#fleet = new FollowedFleet(
      connection,
      {
        onFleet: (fleet) => {
          onWorld({ kind: 'fleet', fleet });
          this.#lookWhetherSynced();
        },
        onFailure: (failure, pauseMs) => onFailure('version', failure, pauseMs),
        onCurrent: () => onCurrent('version'),
      },
      { ...options, everyMs: WORLD_EVERY_MS },
    );
  }

  start(): ClusterSource {
    const following = { ...this.#followForDecisions(), ...this.#followForLags() };
    const watches = Object.values(following).map((watch) => watch.ended);
    const ended = Promise.all([...watches, this.#fleet.follow(), this.#guard.ended()]);
    return {
      synced: this.#synced.promise,
      watches: statsOf(following),
      ended: ended.then(() => undefined),
    };
  }

  /** The Services serve the recorder, too. */
  #followForDecisions() {
    return {
      namespaces: this.#follow('namespaces', namespacesResource(), undefined, (event) => {
        const { name } = event.identity;
        const gone = event.type === 'deleted';
        const changed = gone ? this.#namespaces.delete(name) : this.#namespaces.put(event.object);
        if (changed && this.#listed.has('namespaces')) this.#namespacesChanged();
      }),
      services: this.#follow('services', servicesResource(), 'services', (event) => {
        const { namespace, name } = event.identity;
        const gone = event.type === 'deleted';
        const changed = gone ? this.#services.delete(namespace, name) : this.#services.put(event.object);
        if (changed && this.#listed.has('services')) this.#servicesChanged();
        this.#handlers.onEvent(serviceEvent(event));
      }),
      nodes: this.#follow('nodes', nodesResource(), undefined, (event) => this.#fleet.node(event)),
    };
  }

  #followForLags() {
    const { onEvent } = this.#handlers;
    return {
      pods: this.#follow('pods', podsResource(), 'pods', (event) => {
        const ended = podEvent(event);
        if (ended !== undefined) onEvent(ended);
        this.#stamped(event, 'pods');
      }),
      endpointslices: this.#follow('endpointslices', endpointSlicesResource(), 'EndpointSlice', (event) => {
        onEvent(sliceEvent(event));
        this.#stamped(event, 'EndpointSlice');
      }),
      endpoints: this.#follow('endpoints', endpointsResource(), 'Endpoints', (event) => {
        onEvent(endpointsEvent(event));
        this.#stamped(event, 'Endpoints');
      }),
    };
  }

  /** The annotation counts in Linger's own namespace alone: any tenant may write it elsewhere. */
  #stamped(event: ResourceEvent<{ readonly stamp: string | undefined }>, from: StampedStream): void {
    const stamped = event.identity.namespace === this.#options.namespace && stampEvent(event, from);
    if (stamped) this.#handlers.onEvent(stamped);
  }

  #follow<T>(
    name: ClusterResource,
    resource: Resource<T>,
    stream: Stream | undefined,
    onEvent: Handler<T>,
  ): ResourceWatch {
    const { onFailure, onHandlerError, onCurrent } = this.#handlers;
    const own: WatchHandlers<T> = {
      onEvent,
      onStream: ({ type }) => {
        if (type === 'ListEnds') this.#listEnded(name);
        if (type === 'StreamCurrent') onCurrent(name);
      },
      onFailure: (failure, pauseMs) => onFailure(name, failure, pauseMs),
      onHandlerError: (error) => onHandlerError(name, error),
    };
    const start = (handlers: WatchHandlers<T>) =>
      watchResource(resource, this.#connection, handlers, this.#options);
    return stream === undefined ? start(own) : this.#guard.follow(stream, own, start);
  }

  /** The first list is passed on at once: until then nothing is known of its kind. */
  #listEnded(name: ClusterResource): void {
    if (this.#listed.has(name)) return;
    this.#listed.add(name);
    const { onWorld } = this.#handlers;
    if (name === 'namespaces') onWorld({ kind: 'namespaces', namespaces: this.#namespaces.all() });
    if (name === 'services') onWorld({ kind: 'services', services: this.#services.index() });
    if (name === 'nodes') this.#fleet.nodesListed();
    this.#lookWhetherSynced();
  }

  #lookWhetherSynced(): void {
    const listed = this.#listed.has('namespaces') && this.#listed.has('services');
    if (listed && this.#fleet.known) this.#synced.resolve();
  }
}

function statsOf(following: Readonly<Record<ClusterResource, ResourceWatch>>): ClusterSource['watches'] {
  const entries = CLUSTER_RESOURCES.map((name) => [name, following[name].stats] as const);
  return Object.fromEntries(entries) as Record<ClusterResource, WatchStats>;
}
