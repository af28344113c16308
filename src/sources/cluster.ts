import type { Fleet } from '../core/cluster/fleet.ts';
import type { ClusterEvent, Stream } from '../core/lag/events.ts';
import type { KubeConnection } from '../kube/connection.ts';
import { asFailure, type RestartReason, type WatchFailure } from '../kube/failure.ts';
import { kubeVersion } from '../kube/version.ts';
import { NamespaceTable } from '../world/namespace-table.ts';
import { ServiceTable } from '../world/service-table.ts';
import type { WorldEvent } from '../world/world.ts';
import { atMostEvery } from './at-most-every.ts';
import { FleetVersions } from './fleet.ts';
import { Backoff } from './kube/backoff.ts';
import { endpointsEvent, podEvent, serviceEvent, sliceEvent, streamEvent } from './kube/cluster-events.ts';
import { endpointSlicesResource } from './kube/endpoint-slices.ts';
import { endpointsResource } from './kube/endpoints.ts';
import type { WatchHandlers } from './kube/handlers.ts';
import { WATCH_LIMITS, type WatchLimits } from './kube/limits.ts';
import { namespacesResource } from './kube/namespaces.ts';
import { nodesResource } from './kube/nodes.ts';
import { podsResource } from './kube/pods.ts';
import type { Resource, ResourceEvent } from './kube/resource.ts';
import { servicesResource } from './kube/services.ts';
import { StandstillGuard } from './kube/standstill.ts';
import type { WatchStats } from './kube/stats.ts';
import { type ResourceWatch, watchResource } from './kube/watch-resource.ts';
import { pause } from './pause.ts';

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

/** Upgrades take longer than this, and a new answer counts only when it has held for ten minutes. */
const VERSION_EVERY_MS = 300_000;

/** How often to look whether a changed fleet has held long enough. */
const SETTLE_EVERY_MS = 30_000;

/** A server that answers so will not say its version to us: then it does not count. */
const WILL_NOT_SAY: ReadonlySet<RestartReason> = new Set(['Forbidden', 'NotServed', 'Refused', 'Malformed']);

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
  readonly #fleet = new FleetVersions();
  /** What has been listed to its end once: before that a table is no answer, but a part of one. */
  readonly #listed = new Set<ClusterResource>();
  readonly #synced = Promise.withResolvers<void>();
  /** Of the streams that the recorder hears of. */
  readonly #guard: StandstillGuard;
  readonly #tellNamespaces: () => void;
  readonly #tellServices: () => void;
  readonly #tellFleet: () => void;
  #fleetTold: Fleet | undefined;

  constructor(connection: KubeConnection, handlers: ClusterHandlers, options: ClusterOptions) {
    this.#connection = connection;
    this.#handlers = handlers;
    this.#options = options;
    const { onWorld, onEvent } = handlers;
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
    this.#tellFleet = atMostEvery(WORLD_EVERY_MS, () => this.#observeFleet(), options);
  }

  start(): ClusterSource {
    const following = { ...this.#followForDecisions(), ...this.#followForLags() };
    const watches = Object.values(following).map((watch) => watch.ended);
    const ended = Promise.all([
      ...watches,
      this.#followVersion(),
      this.#letFleetSettle(),
      this.#guard.ended(),
    ]);
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
      nodes: this.#follow('nodes', nodesResource(), undefined, (event) => {
        const { name } = event.identity;
        const gone = event.type === 'deleted';
        const changed = gone ? this.#fleet.deleteNode(name) : this.#fleet.putNode(name, event.object);
        if (changed) this.#tellFleet();
      }),
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
    if (name === 'nodes') {
      this.#fleet.nodesListed();
      this.#observeFleet();
    }
    this.#lookWhetherSynced();
  }

  #observeFleet(): void {
    const fleet = this.#fleet.observe(this.#options.clock() / 1000);
    if (fleet === undefined || JSON.stringify(fleet) === JSON.stringify(this.#fleetTold)) return;
    this.#fleetTold = fleet;
    this.#handlers.onWorld({ kind: 'fleet', fleet });
    this.#lookWhetherSynced();
  }

  #lookWhetherSynced(): void {
    const listed = this.#listed.has('namespaces') && this.#listed.has('services');
    if (listed && this.#fleetTold !== undefined) this.#synced.resolve();
  }

  async #letFleetSettle(): Promise<void> {
    while (await pause(SETTLE_EVERY_MS, this.#options.signal)) this.#observeFleet();
  }

  /** Asks again and again: API servers are upgraded under a process that runs. */
  async #followVersion(): Promise<void> {
    const { signal, random, limits } = this.#options;
    const backoff = new Backoff({ ...WATCH_LIMITS, ...limits }, random);
    let known = false;
    let waitMs: number;
    do {
      try {
        this.#fleet.apiServerIs(await kubeVersion(this.#connection, signal));
        known = true;
        this.#handlers.onCurrent('version');
        backoff.reset();
        waitMs = VERSION_EVERY_MS;
      } catch (thrown) {
        if (signal.aborted) return;
        const failure = asFailure(thrown);
        if (!known && WILL_NOT_SAY.has(failure.reason)) this.#fleet.apiServerIs('');
        waitMs = backoff.next(failure.retryAfterMs);
        this.#handlers.onFailure('version', failure, waitMs);
      }
      this.#tellFleet();
    } while (await pause(waitMs, signal));
  }
}

function statsOf(following: Readonly<Record<ClusterResource, ResourceWatch>>): ClusterSource['watches'] {
  const entries = CLUSTER_RESOURCES.map((name) => [name, following[name].stats] as const);
  return Object.fromEntries(entries) as Record<ClusterResource, WatchStats>;
}
