import type { KubeConnection, KubeFailure, Resource, ResourceEvent } from '../cluster/index.ts';
import { callApi, listSome, unlessNotFound, type WatchOptions, watchResource } from '../cluster/index.ts';
import type { LabelSelector } from '../core/api/index.ts';
import {
  ChangeObserver,
  type ClusterEvent,
  type EndpointSource,
  Interruptions,
  type ObserverOptions,
  PodSelection,
  type Stream,
} from '../core/lag/index.ts';
import { endpointsEvent, podEvent, serviceEvent, sliceEvent, streamEvent } from './cluster-events.ts';
import { endpointSlicesResource, endpointsResource } from './endpoints.ts';
import { podsResource } from './pods.ts';
import { type GuardedChange, ProcessPauseGuard } from './process-pause.ts';
import { servicesResource } from './services.ts';

/** The scope of what to watch. A member is undefined if it does not restrict the scope. */
export interface EndpointScope {
  readonly namespace: string | undefined;
  readonly services: readonly string[] | undefined;
  readonly sources: readonly EndpointSource[];
  /** A selector for pods. Undefined: addresses that belong to no pod count as well. */
  readonly selector: LabelSelector | undefined;
}

/**
 * The resources to follow; undefined: not followed. The server does the filtering that it can: of slices by the Service's
 * label, of a single other object by name. Pods are not filtered by label on the server, because it would report a change of
 * labels as a deletion, which would look like the beginning of a removal.
 */
function resourcesOf({ namespace, services, sources }: EndpointScope) {
  const core = namespace === undefined ? '/api/v1' : `/api/v1/namespaces/${encodeURIComponent(namespace)}`;
  const discovery = core.replace('/api/v1', '/apis/discovery.k8s.io/v1');
  const only = services?.length === 1 && { query: { fieldSelector: `metadata.name=${services[0]}` } };
  const labelled = services && {
    query: { labelSelector: `kubernetes.io/service-name in (${services.join(',')})` },
  };
  const wanted = <T>(source: EndpointSource, resource: Resource<T>) =>
    sources.includes(source) ? resource : undefined;
  const slices = { ...endpointSlicesResource(`${discovery}/endpointslices`), ...labelled };
  return {
    pods: podsResource(`${core}/pods`),
    services: { ...servicesResource(`${core}/services`), ...only },
    EndpointSlice: wanted('EndpointSlice', slices),
    Endpoints: wanted('Endpoints', { ...endpointsResource(`${core}/endpoints`), ...only }),
  };
}

/** Priority and Fairness may queue the request, and a person is waiting for the answer. */
const ANSWER_MS = 20_000;

/**
 * Requests one object of each kind that the scope needs, so that missing rights are noticed at once.
 * @throws KubeFailure
 */
export async function tryScope(
  scope: EndpointScope,
  connection: KubeConnection,
  signal: AbortSignal,
): Promise<void> {
  for (const resource of Object.values(resourcesOf(scope))) {
    if (resource === undefined) continue;
    await listSome<unknown>(resource, connection, { signal, answerMs: ANSWER_MS, most: 1 });
  }
}

/** If the user may not read the namespace, it is assumed to exist. */
export async function namespaceExists(
  name: string,
  connection: KubeConnection,
  signal: AbortSignal,
): Promise<boolean> {
  const call = { signal, withinMs: ANSWER_MS };
  const namespace = callApi(connection, 'CoreV1Api', call, (core) => core.readNamespace({ name }));
  return unlessNotFound(namespace).then(Boolean, () => true);
}

export interface EndpointWatchHandlers {
  /**
   * Called with failures of a list or a watch, which will be retried; only until everything has {@link EndpointWatch.begun}.
   */
  onStartFailure(stream: Stream, failure: KubeFailure): void;
  /** Called when events of a stream arrive without delay, for the first time or again. */
  onCurrent?(stream: Stream): void;
  onHandlerError?(error: Error): void;
}

export class EndpointWatch {
  readonly scope: EndpointScope;
  readonly observer: ChangeObserver;
  /** The pods that the scope selects; undefined: all. */
  readonly selection: PodSelection | undefined;
  readonly interruptions = new Interruptions();
  /** The existing Services, as `NAMESPACE/NAME`. */
  readonly services = new Set<string>();
  readonly #handlers: EndpointWatchHandlers;
  readonly #guard: ProcessPauseGuard;
  readonly #streams: Stream[] = [];

  constructor(
    scope: EndpointScope,
    connection: KubeConnection,
    handlers: EndpointWatchHandlers,
    options: WatchOptions & Pick<ObserverOptions, 'initial'>,
  ) {
    this.scope = scope;
    this.selection = scope.selector && new PodSelection(scope.selector);
    this.observer = new ChangeObserver({ ...options, pods: this.selection });
    this.#handlers = handlers;
    this.#guard = new ProcessPauseGuard((change) => this.#streamChanged(change), options);

    const follow = <T>(
      stream: Stream,
      resource: Resource<T>,
      eventOf: (event: ResourceEvent<T>) => ClusterEvent | undefined,
    ) => {
      const onEvent = (event: ResourceEvent<T>) => {
        const observed = eventOf(event);
        if (observed !== undefined) this.observer.apply(observed);
      };
      const onFailure = (failure: KubeFailure) => {
        this.interruptions.because(stream, `${failure.reason}: ${failure.message}`);
        if (!this.begun) handlers.onStartFailure(stream, failure);
      };
      const onHandlerError = (error: Error) => handlers.onHandlerError?.(error);
      this.#streams.push(stream);
      this.#guard.follow<T>(stream, { onEvent, onFailure, onHandlerError }, (guarded) =>
        watchResource(resource, connection, guarded, options),
      );
    };
    const { pods, services, EndpointSlice: slices, Endpoints: endpoints } = resourcesOf(scope);
    /** Does the filtering that the server could not do. */
    const isUnwanted = ({ identity }: ResourceEvent<unknown>) =>
      scope.services?.includes(identity.name) === false;
    follow('services', services, (event) => {
      if (isUnwanted(event)) return undefined;
      const name = `${event.identity.namespace}/${event.identity.name}`;
      if (event.type === 'deleted') this.services.delete(name);
      else this.services.add(name);
      return serviceEvent(event);
    });
    if (slices !== undefined) follow('EndpointSlice', slices, sliceEvent);
    if (endpoints !== undefined)
      follow('Endpoints', endpoints, (event) => (isUnwanted(event) ? undefined : endpointsEvent(event)));
    follow('pods', pods, (event) => {
      const { uid } = event.identity;
      if (event.type !== 'deleted' || !event.relist) this.selection?.put(uid, event.object.labels);
      if (event.type === 'deleted') this.selection?.delete(uid);
      return podEvent(event);
    });
  }

  /** Resolves once the signal has aborted and every connection is closed. */
  ended(): Promise<void> {
    return this.#guard.ended();
  }

  /** Whether every stream has listed its objects once, and has since delivered events without delay. */
  get begun(): boolean {
    return this.interruptions.begun(this.#streams);
  }

  #streamChanged(change: GuardedChange): void {
    const { type, stream, at, stoodStill } = change;
    this.observer.apply(streamEvent(change, stream));
    if (type === 'StreamBroken' || type === 'ListBegins') this.interruptions.broken(stream, at);
    if (stoodStill && type === 'StreamBroken') this.interruptions.because(stream, 'this process stood still');
    if (type !== 'StreamCurrent') return;
    this.interruptions.current(stream, at);
    this.#handlers.onCurrent?.(stream);
  }
}
