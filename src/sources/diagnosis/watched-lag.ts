import type { ClusterEvent } from '../../core/lag/events.ts';
import { STREAMS, type Stream } from '../../core/lag/events.ts';
import { LagRecorder } from '../../core/lag/recorder.ts';
import type { LagSample } from '../../core/lag/sample.ts';
import type { KubeConnection } from '../../kube/connection.ts';
import type { RestartReason, WatchFailure } from '../../kube/failure.ts';
import { type WaitingByStage, waitingByStage } from '../../measure/unresolved.ts';
import { endpointsEvent, podEvent, serviceEvent, sliceEvent, streamEvent } from '../kube/cluster-events.ts';
import { endpointSlicesResource } from '../kube/endpoint-slices.ts';
import { endpointsResource } from '../kube/endpoints.ts';
import { podsResource } from '../kube/pods.ts';
import type { Resource, ResourceEvent } from '../kube/resource.ts';
import { servicesResource } from '../kube/services.ts';
import { StandstillGuard } from '../kube/standstill.ts';
import { watchResource } from '../kube/watch-resource.ts';
import { oneLine } from './api-reader.ts';

export interface LagWatchOptions {
  readonly signal: AbortSignal;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  /** In [0, 1). */
  readonly random: () => number;
}

const REFUSED: ReadonlySet<RestartReason> = new Set(['Forbidden', 'Unauthorized', 'NotServed', 'Refused']);

/**
 * Removals as they happen, for as long as a diagnosis takes. Not the one of `serve`, which follows more than removals,
 * and keeps what it has measured.
 */
export class LagWatch {
  readonly #recorder = new LagRecorder();
  readonly #clock: () => number;
  readonly #samples: LagSample[] = [];
  readonly #late = new Set<Stream>(STREAMS);
  readonly #failures = new Map<Stream, string>();
  readonly #current = Promise.withResolvers<boolean>();
  /** Resolves once the signal has aborted and every connection is closed. */
  readonly ended: Promise<void>;

  constructor(connection: KubeConnection, options: LagWatchOptions) {
    this.#clock = options.clock;
    const guard = new StandstillGuard((change) => {
      this.#apply(streamEvent(change, change.stream));
      if (change.type === 'StreamCurrent') this.#becomesCurrent(change.stream);
    }, options);
    const follow = <T>(
      stream: Stream,
      resource: Resource<T>,
      eventOf: (event: ResourceEvent<T>) => ClusterEvent | undefined,
    ) =>
      guard.follow<T>(
        stream,
        {
          onEvent: (event) => {
            const told = eventOf(event);
            if (told !== undefined) this.#apply(told);
          },
          onFailure: (failure) => this.#fails(stream, failure),
        },
        (handlers) => watchResource(resource, connection, handlers, options),
      );
    follow('services', servicesResource(), serviceEvent);
    follow('pods', podsResource(), podEvent);
    follow('EndpointSlice', endpointSlicesResource(), sliceEvent);
    follow('Endpoints', endpointsResource(), endpointsEvent);
    this.ended = guard.ended();
  }

  /**
   * Resolves with true once every watch brings events when they happen, with false once one is refused: rights do not
   * come by themselves. It may do neither for long.
   */
  get current(): Promise<boolean> {
    return this.#current.promise;
  }

  /** The watches that have never been current, each with what went wrong last, where anything did. */
  get late(): ReadonlyMap<Stream, string | undefined> {
    return new Map([...this.#late].map((stream) => [stream, this.#failures.get(stream)]));
  }

  /** Begins to count: what came before is forgotten. */
  begin(): void {
    this.#samples.length = 0;
  }

  get samples(): readonly LagSample[] {
    return this.#samples;
  }

  /** Removals that have begun and not ended. */
  waiting(): WaitingByStage {
    return waitingByStage(this.#recorder.unresolved(), this.#clock());
  }

  #apply(event: ClusterEvent): void {
    for (const sample of this.#recorder.apply(event)) this.#samples.push(sample);
  }

  #becomesCurrent(stream: Stream): void {
    this.#late.delete(stream);
    if (this.#late.size === 0) this.#current.resolve(true);
  }

  #fails(stream: Stream, { reason, message }: WatchFailure): void {
    this.#failures.set(stream, oneLine(message));
    if (REFUSED.has(reason)) this.#current.resolve(false);
  }
}
