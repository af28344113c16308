import type { ClusterEvent, Stream } from '../core/lag/events.ts';
import type { KubeConnection } from '../kube/connection.ts';
import type { WatchFailure } from '../kube/failure.ts';
import { NamespaceTable } from '../world/namespace-table.ts';
import { ServiceTable } from '../world/service-table.ts';
import type { WorldEvent } from '../world/world.ts';
import { atMostEvery } from './at-most-every.ts';
import { FollowedFleet } from './followed-fleet.ts';
import { endpointsEvent, podEvent, serviceEvent, sliceEvent, streamEvent } from './kube/cluster-events.ts';
import { endpointSlicesResource } from './kube/endpoint-slices.ts';
import { endpointsResource } from './kube/endpoints.ts';
import type { WatchHandlers } from './kube/handlers.ts';
import type { WatchLimits } from './kube/limits.ts';
import { namespacesResource } from './kube/namespaces.ts';
import { nodesResource } from './kube/nodes.ts';
import { podsResource } from './kube/pods.ts';
import type { Resource, ResourceEvent } from './kube/resource.ts';
import { servicesResource } from './kube/services.ts';
import { StandstillGuard } from './kube/standstill.ts';
import type { WatchStats } from './kube/stats.ts';
import { type ResourceWatch, watchResource } from './kube/watch-resource.ts';

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

/** What following a cluster tells. Calls are synchronous. */
export interface ClusterHandlers {
  /** What decisions read has changed. Many changes at once come as one. */
  onWorld(event: WorldEvent): void;
  /** For the lag recorder: each at once, in the order of its stream. */
  onEvent(event: ClusterEvent): void;
  /** A list or a watch, or the question for the version, failed; it is tried again after the pause. */
  onFailure(what: ClusterResource | 'version', failure: WatchFailure, pauseMs: number): void;
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
  readonly #tellNamespaces: () => void;
  readonly #tellServices: () => void;

  constructor(connection: KubeConnection, handlers: ClusterHandlers, options: ClusterOptions) {
    this.#connection = connection;
    this.#handlers = handlers;
    this.#options = options;
    const { onWorld, onEvent, onFailure, onCurrent } = handlers;
    this.#guard = new StandstillGuard((change) => onEvent(streamEvent(change, change.stream)), options);
    this.#tellNamespaces = atMostEvery(
      WORLD_EVERY_MS,
      () => onWorld({ kind: 'namespaces', namespaces: this.#namespaces.all() }),
      options,
    );
    this.#tellServices = atMostEvery(
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
        if (changed && this.#listed.has('namespaces')) this.#tellNamespaces();
      }),
      services: this.#follow('services', servicesResource(), 'services', (event) => {
        const { namespace, name } = event.identity;
        const gone = event.type === 'deleted';
        const changed = gone ? this.#services.delete(namespace, name) : this.#services.put(event.object);
        if (changed && this.#listed.has('services')) this.#tellServices();
        this.#handlers.onEvent(serviceEvent(event));
      }),
      nodes: this.#follow('nodes', nodesResource(), undefined, (event) => this.#fleet.node(event)),
    };
  }

  #followForLags() {
    const { onEvent } = this.#handlers;
    return {
      pods: this.#follow('pods', podsResource(), 'pods', (event) => {
        const told = podEvent(event);
        if (told !== undefined) onEvent(told);
      }),
      endpointslices: this.#follow('endpointslices', endpointSlicesResource(), 'EndpointSlice', (event) =>
        onEvent(sliceEvent(event)),
      ),
      endpoints: this.#follow('endpoints', endpointsResource(), 'Endpoints', (event) =>
        onEvent(endpointsEvent(event)),
      ),
    };
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
