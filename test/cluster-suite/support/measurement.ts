import type { ClusterEvent, Stream } from '../../../src/core/lag/events.ts';
import { LagRecorder, type UnresolvedRemoval } from '../../../src/core/lag/recorder.ts';
import type { LagSample } from '../../../src/core/lag/sample.ts';
import type { KubeConnection } from '../../../src/kube/connection.ts';
import {
  endpointsEvent,
  podEvent,
  serviceEvent,
  sliceEvent,
  streamEvent,
} from '../../../src/sources/kube/cluster-events.ts';
import { endpointSlicesResource } from '../../../src/sources/kube/endpoint-slices.ts';
import { endpointsResource } from '../../../src/sources/kube/endpoints.ts';
import type { WatchLimits } from '../../../src/sources/kube/limits.ts';
import { podsResource } from '../../../src/sources/kube/pods.ts';
import type { Resource, ResourceEvent } from '../../../src/sources/kube/resource.ts';
import { servicesResource } from '../../../src/sources/kube/services.ts';
import { type ResourceWatch, watchResource } from '../../../src/sources/kube/watch-resource.ts';
import { waitUntil } from '../../cluster/cluster.ts';

/** Linger's list-watches feeding its recorder, as in `linger serve`. Instants: milliseconds since the epoch. */
export class Measurement {
  readonly recorder = new LagRecorder();
  readonly samples: LagSample[] = [];
  readonly #connection: KubeConnection;
  readonly #limits: Partial<WatchLimits>;
  readonly #stopping = new AbortController();
  readonly #watches = new Map<Stream, ResourceWatch>();
  readonly #problems: Error[] = [];

  private constructor(connection: KubeConnection, limits: Partial<WatchLimits>) {
    this.#connection = connection;
    this.#limits = limits;
  }

  /** Resolves when every watch is current. */
  static async start(connection: KubeConnection, limits: Partial<WatchLimits> = {}): Promise<Measurement> {
    const measurement = new Measurement(connection, limits);
    measurement.#follow('services', servicesResource(), serviceEvent);
    // What a Service says of its pods has to be known before they terminate.
    await measurement.current();
    measurement.#follow('pods', podsResource(), podEvent);
    measurement.#follow('EndpointSlice', endpointSlicesResource(), sliceEvent);
    measurement.#follow('Endpoints', endpointsResource(), endpointsEvent);
    await measurement.current();
    return measurement;
  }

  /** Monotonic, with the zero that this machine's API servers have. */
  readonly clock = (): number => performance.timeOrigin + performance.now();

  get watches(): ReadonlyMap<Stream, ResourceWatch> {
    return this.#watches;
  }

  /** The removals of a namespace that have begun and not ended. */
  unresolved(namespace: string): readonly UnresolvedRemoval[] {
    return [...this.recorder.unresolved()].filter((removal) => removal.namespace === namespace);
  }

  /** Waits until every watch is current. */
  async current(timeoutMs = 60_000): Promise<void> {
    const all = [...this.#watches.values()];
    await waitUntil('all watches to be current', () => all.every(({ stats }) => stats.current), {
      timeoutMs,
      intervalMs: 20,
    });
  }

  /** Throws what a handler threw meanwhile. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await Promise.all([...this.#watches.values()].map(({ ended }) => ended));
    const [problem] = this.#problems;
    if (problem !== undefined) throw problem;
  }

  #follow<T>(
    stream: Stream,
    resource: Resource<T>,
    told: (event: ResourceEvent<T>) => ClusterEvent | undefined,
  ): void {
    const apply = (event: ClusterEvent | undefined) => {
      if (event !== undefined) this.samples.push(...this.recorder.apply(event));
    };
    const handlers = {
      onEvent: (event: ResourceEvent<T>) => apply(told(event)),
      onStream: (change: Parameters<typeof streamEvent>[0]) => apply(streamEvent(change, stream)),
      onHandlerError: (error: Error) => void this.#problems.push(error),
    };
    const { signal } = this.#stopping;
    const { clock } = this;
    const options = { signal, clock, random: Math.random, limits: this.#limits };
    this.#watches.set(stream, watchResource(resource, this.#connection, handlers, options));
  }
}
