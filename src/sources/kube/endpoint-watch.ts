import { Interruptions } from '../../core/changes/interruptions.ts';
import type { ObservedEvent } from '../../core/changes/observed.ts';
import { ChangeObserver, type ObserverOptions } from '../../core/changes/observer.ts';
import { PodSelection } from '../../core/changes/pod-selection.ts';
import type { Stream } from '../../core/lag/events.ts';
import type { KubeConnection } from '../../kube/connection.ts';
import type { WatchFailure } from '../../kube/failure.ts';
import { endpointsEvent, podEvent, serviceEvent, sliceEvent, streamEvent } from './cluster-events.ts';
import { type EndpointScope, resourcesOf } from './endpoint-scope.ts';
import type { PodMetadata } from './pods.ts';
import type { Resource, ResourceEvent } from './resource.ts';
import { type GuardedChange, StandstillGuard } from './standstill.ts';
import { type WatchOptions, watchResource } from './watch-resource.ts';

export interface EndpointWatchHandlers {
  /** A list or a watch failed, and is tried again, before everything has {@link EndpointWatch.begun}. */
  onStartFailure(stream: Stream, failure: WatchFailure): void;
  /** What the program itself threw; the event was lost to it. */
  onHandlerError(error: Error): void;
}

/** The endpoints of a scope, and how their removals lag, from now until the signal aborts. */
export class EndpointWatch {
  readonly scope: EndpointScope;
  readonly observer: ChangeObserver;
  /** The pods that the scope selects; undefined: all. */
  readonly selection: PodSelection | undefined;
  readonly interruptions = new Interruptions();
  readonly #connection: KubeConnection;
  readonly #handlers: EndpointWatchHandlers;
  readonly #options: WatchOptions;
  readonly #guard: StandstillGuard;
  readonly #streams: Stream[] = [];
  readonly #services = new Set<string>();

  constructor(
    scope: EndpointScope,
    connection: KubeConnection,
    handlers: EndpointWatchHandlers,
    options: WatchOptions & Pick<ObserverOptions, 'initial'>,
  ) {
    this.scope = scope;
    this.selection = scope.selector && new PodSelection(scope.selector);
    this.observer = new ChangeObserver({ ...options, pods: this.selection });
    this.#connection = connection;
    this.#handlers = handlers;
    this.#options = options;
    this.#guard = new StandstillGuard((change) => this.#tell(change), options);
    this.#follow();
  }

  /** Resolves once the signal has aborted and every connection is closed. */
  ended(): Promise<void> {
    return this.#guard.ended();
  }

  /** Whether every stream has told once what there is, and since then tells what happens. */
  get begun(): boolean {
    return this.interruptions.begun(this.#streams);
  }

  /** The Services that there are, as `NAMESPACE/NAME`. */
  get services(): ReadonlySet<string> {
    return this.#services;
  }

  #follow(): void {
    const { pods, services, EndpointSlice: slices, Endpoints: endpoints } = resourcesOf(this.scope);
    this.#start('services', services, (event) => {
      const { namespace, name } = event.identity;
      const wanted = this.#ofWanted(name, serviceEvent(event));
      if (wanted?.type === 'Service') this.#services.add(`${namespace}/${name}`);
      if (wanted?.type === 'ServiceDeleted') this.#services.delete(`${namespace}/${name}`);
      return wanted;
    });
    if (slices !== undefined) this.#start('EndpointSlice', slices, sliceEvent);
    if (endpoints !== undefined) {
      this.#start('Endpoints', endpoints, (event) =>
        this.#ofWanted(event.identity.name, endpointsEvent(event)),
      );
    }
    this.#start('pods', pods, (event) => {
      this.#select(event);
      return podEvent(event);
    });
  }

  #select(event: ResourceEvent<PodMetadata>): void {
    const { uid } = event.identity;
    if (event.type !== 'deleted' || !event.relist) this.selection?.put(uid, event.object.labels);
    if (event.type === 'deleted') this.selection?.delete(uid);
  }

  /** What the server could not leave out. */
  #ofWanted<T>(service: string, event: T): T | undefined {
    const { services } = this.scope;
    return services === undefined || services.includes(service) ? event : undefined;
  }

  #start<T>(
    stream: Stream,
    resource: Resource<T>,
    eventOf: (event: ResourceEvent<T>) => ObservedEvent | undefined,
  ): void {
    const onEvent = (event: ResourceEvent<T>) => {
      const observed = eventOf(event);
      if (observed !== undefined) this.observer.apply(observed);
    };
    const onFailure = (failure: WatchFailure) => {
      this.interruptions.because(stream, `${failure.reason}: ${failure.message}`);
      if (!this.begun) this.#handlers.onStartFailure(stream, failure);
    };
    const { onHandlerError } = this.#handlers;
    this.#streams.push(stream);
    this.#guard.follow<T>(stream, { onEvent, onFailure, onHandlerError }, (handlers) =>
      watchResource(resource, this.#connection, handlers, this.#options),
    );
  }

  #tell(change: GuardedChange): void {
    const { type, stream, at, stoodStill } = change;
    this.observer.apply(streamEvent(change, stream));
    if (type === 'StreamBroken' || type === 'ListBegins') this.interruptions.broken(stream, at);
    if (type === 'StreamBroken' && stoodStill) this.interruptions.because(stream, 'this process stood still');
    if (type === 'StreamCurrent') this.interruptions.current(stream, at);
  }
}
