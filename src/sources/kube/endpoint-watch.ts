import { Interruptions } from '../../core/changes/interruptions.ts';
import type { ObservedEvent } from '../../core/changes/observed.ts';
import { ChangeObserver, type ObserverOptions } from '../../core/changes/observer.ts';
import type { Stream } from '../../core/lag/events.ts';
import type { KubeConnection } from '../../kube/connection.ts';
import type { WatchFailure } from '../../kube/failure.ts';
import { endpointsEvent, podEvent, serviceEvent, sliceEvent } from './cluster-events.ts';
import { type EndpointScope, resourcesOf } from './endpoint-scope.ts';
import type { StreamChange } from './handlers.ts';
import type { Resource, ResourceEvent } from './resource.ts';
import { type ResourceWatch, type WatchOptions, watchResource } from './watch-resource.ts';

export interface EndpointWatchHandlers {
  /** Something has come, and is taken in after this: the instant to notice that the process stood still before it. */
  onArrival(at: number): void;
  /** A list or a watch failed, and is tried again, before everything has {@link EndpointWatch.begun}. */
  onStartFailure(stream: Stream, failure: WatchFailure): void;
  /** What the program itself threw; the event was lost to it. */
  onHandlerError(error: Error): void;
}

/** The endpoints of a scope, and how their removals lag, from now until the signal aborts. */
export class EndpointWatch {
  readonly scope: EndpointScope;
  readonly observer: ChangeObserver;
  readonly interruptions = new Interruptions();
  readonly #connection: KubeConnection;
  readonly #handlers: EndpointWatchHandlers;
  readonly #options: WatchOptions;
  readonly #watches = new Map<Stream, ResourceWatch>();
  readonly #services = new Set<string>();
  #distrusted = false;

  constructor(
    scope: EndpointScope,
    connection: KubeConnection,
    handlers: EndpointWatchHandlers,
    options: WatchOptions & ObserverOptions,
  ) {
    this.scope = scope;
    this.observer = new ChangeObserver(options);
    this.#connection = connection;
    this.#handlers = handlers;
    this.#options = options;
    this.#follow();
  }

  /** Resolves once the signal has aborted and every connection is closed. */
  async ended(): Promise<void> {
    await Promise.all([...this.#watches.values()].map((watch) => watch.ended));
  }

  /** Whether every stream has told once what there is, and since then tells what happens. */
  get begun(): boolean {
    return this.interruptions.begun([...this.#watches.keys()]);
  }

  /** The Services that there are, as `NAMESPACE/NAME`. */
  get services(): ReadonlySet<string> {
    return this.#services;
  }

  /** This process stood still since then, so that whatever comes now came earlier; until {@link trust}. */
  distrust(since: number): void {
    this.#distrusted = true;
    for (const stream of this.#watches.keys()) this.#tell({ type: 'StreamBroken', at: since, stream });
    for (const stream of this.#watches.keys()) this.interruptions.because(stream, 'this process stood still');
  }

  trust(now: number): void {
    this.#distrusted = false;
    for (const [stream, { stats }] of this.#watches) {
      if (stats.current) this.#tell({ type: 'StreamCurrent', at: now, stream });
    }
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
    this.#start('pods', pods, podEvent);
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
      this.#handlers.onArrival(event.at);
      const observed = eventOf(event);
      if (observed !== undefined) this.observer.apply(observed);
    };
    const onStream = ({ type, at }: StreamChange) => {
      if (!(this.#distrusted && type === 'StreamCurrent')) this.#tell({ type, at, stream });
    };
    const onFailure = (failure: WatchFailure) => {
      this.interruptions.because(stream, `${failure.reason}: ${failure.message}`);
      if (!this.begun) this.#handlers.onStartFailure(stream, failure);
    };
    const { onHandlerError } = this.#handlers;
    const handlers = { onEvent, onStream, onFailure, onHandlerError };
    this.#watches.set(stream, watchResource(resource, this.#connection, handlers, this.#options));
  }

  #tell(event: StreamChange & { readonly stream: Stream }): void {
    const { type, stream, at } = event;
    this.observer.apply(event);
    if (type === 'StreamBroken' || type === 'ListBegins') this.interruptions.broken(stream, at);
    if (type === 'StreamCurrent') this.interruptions.current(stream, at);
  }
}
