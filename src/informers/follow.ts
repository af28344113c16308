import type { KubeConnection, KubeFailure } from '../cluster/index.ts';
import {
  type ObjectIdentity,
  type Resource,
  type ResourceEvent,
  type ResourceWatch,
  type WatchHandlers,
  type WatchOptions,
  type WatchStats,
  watchResource,
} from '../cluster/index.ts';
import type { NamespaceRecord } from '../core/api/index.ts';
import type { SnapshotChange } from '../core/decision/index.ts';
import type {
  ClusterEvent,
  EndpointsChoice,
  HeartbeatStream,
  PodMetadata,
  Stream,
} from '../core/lag/index.ts';
import { throttle } from '../timing/index.ts';
import {
  endpointsEvent,
  heartbeatEvent,
  podEvent,
  serviceEvent,
  sliceEvent,
  streamEvent,
} from './cluster-events.ts';
import {
  EndpointRoom,
  type EndpointsProjection,
  endpointSlicesResource,
  endpointsResource,
  type SliceProjection,
} from './endpoints.ts';
import { putChanged } from './kept.ts';
import { namespacesResource } from './namespaces.ts';
import { followFleet, nodesResource } from './nodes.ts';
import { PodCounts, type PodGroup, podsResource } from './pods.ts';
import { ProcessPauseGuard } from './process-pause.ts';
import { ServiceTable, servicesResource } from './services.ts';

type ClusterResource = 'namespaces' | 'services' | 'nodes' | 'pods' | 'endpointslices' | 'endpoints';

/** Calls are synchronous. */
export interface ClusterHandlers {
  /** Called when the input of decisions has changed. Changes in quick succession are merged. */
  onSnapshot(event: SnapshotChange): void;
  /** Called with events for the lag recorder, immediately and in the order of each stream. */
  onEvent(event: ClusterEvent): void;
  /** Called with each event of the watch of pods, before {@link onEvent} is called with what it means for the recorder. */
  onPod?(event: ResourceEvent<PodMetadata>): void;
  /** Called when a list, a watch or a version request has failed; it is retried after the pause. */
  onFailure(what: ClusterResource | 'version', failure: KubeFailure, pauseMs: number): void;
  /** Called when events arrive without delay, or the version is known, for the first time or again. */
  onCurrent(what: ClusterResource | 'version'): void;
  /**
   * Called when part of an object is not kept, because it is too large, its namespace has no room left, or its targets are
   * in other namespaces.
   */
  onLeftOut?(resource: ClusterResource, identity: ObjectIdentity, cause: 'NoRoom' | 'ForeignTargets'): void;
  onHandlerError(resource: ClusterResource, error: Error): void;
}

export interface ClusterOptions extends WatchOptions {
  /** Linger's own namespace, in which its leader writes heartbeats; undefined: there is none. */
  readonly namespace?: string | undefined;
  /** Default: Auto. */
  readonly endpoints?: EndpointsChoice;
}

type FollowedWatches<T> = Readonly<
  Record<Exclude<ClusterResource, 'endpoints'>, T> & Partial<Record<'endpoints', T>>
>;

export interface ClusterSource {
  /** Resolves once everything that decisions need (Namespaces, Services, versions) has been read; may never resolve. */
  readonly synced: Promise<void>;
  readonly watches: FollowedWatches<WatchStats>;
  /** undefined until pods have been listed, and if Linger has no namespace of its own. */
  readonly pods: () => Iterable<PodGroup> | undefined;
  /** Pods without a controller that are not terminating. If there are very many, only some of each namespace. */
  readonly barePods: () => Iterable<Pick<PodMetadata, 'namespace' | 'name'>>;
  /** How many objects of a namespace are unknown, because they are too large or it has no room left. */
  readonly unread: () => Readonly<Record<'pods' | 'services' | 'endpoints', ReadonlyMap<string, number>>>;
  /** Resolves once the signal has aborted and every connection is closed. */
  readonly ended: Promise<void>;
}

/**
 * The shortest time between two new snapshots for the same kind of change: the snapshot lags behind the watches by at most
 * this. Building one with 13,000 Services takes 3 ms if each Service has a namespace of its own, and 0.03 ms if they share
 * 500 namespaces. So a storm that keeps changing all of them takes at most 3 % of a processor.
 */
const SNAPSHOT_EVERY_MS = 100;

export function followCluster(
  connection: KubeConnection,
  { onSnapshot, onEvent, onPod, onFailure, onCurrent, onLeftOut, onHandlerError }: ClusterHandlers,
  options: ClusterOptions,
): ClusterSource {
  const namespaces = new Map<string, NamespaceRecord>();
  const services = new ServiceTable();
  const pods = new PodCounts();
  const endpoints = new EndpointRoom();
  /** The kinds whose first list is complete. Before that, a table is only part of the answer. */
  const listed = new Set<ClusterResource>();
  const synced = Promise.withResolvers<void>();
  const guard = new ProcessPauseGuard((change) => onEvent(streamEvent(change, change.stream)), options);

  const showNamespaces = () => onSnapshot({ kind: 'namespaces', namespaces: new Map(namespaces) });
  const showServices = () => onSnapshot({ kind: 'services', services: services.index() });
  const namespacesChanged = throttle(SNAPSHOT_EVERY_MS, showNamespaces, options);
  const servicesChanged = throttle(SNAPSHOT_EVERY_MS, showServices, options);
  const lookWhetherSynced = () => {
    if (listed.has('namespaces') && listed.has('services') && fleet.known()) synced.resolve();
  };
  const fleet = followFleet(
    connection,
    {
      onFleet: (inForce) => {
        onSnapshot({ kind: 'fleet', fleet: inForce });
        lookWhetherSynced();
      },
      onFailure: (failure, pauseMs) => onFailure('version', failure, pauseMs),
      onCurrent: () => onCurrent('version'),
    },
    { ...options, everyMs: SNAPSHOT_EVERY_MS },
  );

  /** Passes on the first list at once, because nothing has been known about its kind so far. */
  const listEnded = (name: ClusterResource) => {
    if (listed.has(name)) return;
    listed.add(name);
    if (name === 'namespaces') showNamespaces();
    if (name === 'services') showServices();
    if (name === 'nodes') fleet.nodesListed();
    lookWhetherSynced();
  };

  const follow = <T>(
    name: ClusterResource,
    resource: Resource<T>,
    onChange: (event: ResourceEvent<T>) => void,
    stream?: Stream,
    relist?: () => boolean,
  ): ResourceWatch => {
    const own: WatchHandlers<T> = {
      onEvent: onChange,
      onListed: () => listEnded(name),
      onCurrent: () => onCurrent(name),
      onFailure: (failure, pauseMs) => onFailure(name, failure, pauseMs),
      onHandlerError: (error) => onHandlerError(name, error),
    };
    const start = (handlers: WatchHandlers<T>) =>
      watchResource(resource, connection, handlers, { ...options, ...(relist && { relist }) });
    return stream === undefined ? start(own) : guard.follow(stream, own, start);
  };

  /** The annotation counts only in Linger's own namespace; elsewhere any tenant may write it. */
  const followHeartbeats = <T extends { readonly heartbeat: string | undefined; readonly foreign?: true }>(
    name: ClusterResource,
    resource: Resource<T>,
    stream: HeartbeatStream,
    eventOf: (event: ResourceEvent<T>) => ClusterEvent | undefined,
    relist?: () => boolean,
  ) => {
    const pass = (event: ResourceEvent<T>) => {
      if (event.type !== 'deleted' && event.object.foreign)
        onLeftOut?.(name, event.identity, 'ForeignTargets');
      const change = eventOf(event);
      if (change !== undefined) onEvent(change);
      const heartbeat = event.identity.namespace === options.namespace && heartbeatEvent(event, stream);
      if (heartbeat) onEvent(heartbeat);
    };
    return follow(name, resource, pass, stream, relist);
  };

  const podChange = (event: ResourceEvent<PodMetadata>) => {
    const kept = pods.apply(event);
    if (kept.type !== 'deleted' && kept.object.unread) onLeftOut?.('pods', kept.identity, 'NoRoom');
    onPod?.(kept);
    return podEvent(kept);
  };

  const keptOf = <T extends SliceProjection | EndpointsProjection>(
    name: ClusterResource,
    event: ResourceEvent<T>,
  ) => {
    const kept = endpoints.apply(name, event);
    if (kept.type !== 'deleted' && kept.object.unread) onLeftOut?.(name, kept.identity, 'NoRoom');
    return kept;
  };

  const watches: FollowedWatches<ResourceWatch> = {
    namespaces: follow('namespaces', namespacesResource(), (event) => {
      const { name } = event.identity;
      const gone = event.type === 'deleted';
      const changed = gone ? namespaces.delete(name) : putChanged(namespaces, name, event.object);
      if (changed && listed.has('namespaces')) namespacesChanged();
    }),
    services: follow(
      'services',
      servicesResource(),
      (event) => {
        const { namespace, name } = event.identity;
        const gone = event.type === 'deleted';
        const changed = gone ? services.delete(namespace, name) : services.put(event.object);
        if (changed && listed.has('services')) servicesChanged();
        const kept = services.get(namespace, name);
        if (kept?.unread) onLeftOut?.('services', event.identity, 'NoRoom');
        onEvent(serviceEvent(kept === undefined || gone ? event : { ...event, object: kept }));
      },
      'services',
      () => services.hasRoomAgain,
    ),
    nodes: follow('nodes', nodesResource(), fleet.node),
    pods: followHeartbeats('pods', podsResource(), 'pods', podChange, () => pods.hasRoomAgain),
    endpointslices: followHeartbeats(
      ...(['endpointslices', endpointSlicesResource(), 'EndpointSlice'] as const),
      (event) => sliceEvent(keptOf('endpointslices', event)),
      () => endpoints.hasRoomAgain,
    ),
    ...(options.endpoints !== 'Ignore' && {
      endpoints: followHeartbeats(
        ...(['endpoints', endpointsResource(), 'Endpoints'] as const),
        (event) => endpointsEvent(keptOf('endpoints', event)),
        () => endpoints.hasRoomAgain,
      ),
    }),
  };
  const ended = Promise.all([...Object.values(watches).map((watch) => watch.ended), fleet.ended]);
  const stats = Object.entries(watches).map(([name, watch]) => [name, watch.stats] as const);
  return {
    synced: synced.promise,
    watches: Object.fromEntries(stats) as ClusterSource['watches'],
    pods: () => (listed.has('pods') && options.namespace !== undefined ? pods.groups() : undefined),
    barePods: () => pods.bare(),
    unread: () => ({ pods: pods.unread, services: services.unread, endpoints: endpoints.unread }),
    ended: ended.then(() => undefined),
  };
}
