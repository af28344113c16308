import type { KubeConnection, WatchLimits } from '../../../src/cluster/index.ts';
import type { DiscardCounts, StageSample } from '../../../src/core/lag/index.ts';
import { type ClusterSource, followCluster } from '../../../src/informers/index.ts';
import { Measurement } from '../../../src/measurement/index.ts';
import { waitUntil } from '../../testbed/cluster.ts';

/**
 * The measurement of `linger serve`, in this process, where every single sample can be inspected.
 * Instants: milliseconds since the epoch, by this machine's clock, which is also the API servers'.
 */
export class MeasuredCluster {
  readonly samples: StageSample[] = [];
  readonly measurement: Measurement;
  readonly #source: ClusterSource;
  readonly #stopping = new AbortController();
  readonly #problems: Error[] = [];

  private constructor(connection: KubeConnection, limits: Partial<WatchLimits>) {
    const { clock } = this;
    this.measurement = new Measurement({ clock, epochSeconds: () => clock() / 1000 });
    this.measurement.onSample((sample) => this.samples.push(sample));
    const handlers = {
      onSnapshot: () => undefined,
      onEvent: this.measurement.apply.bind(this.measurement),
      onFailure: () => undefined,
      onCurrent: () => undefined,
      onHandlerError: (_: unknown, error: Error) => void this.#problems.push(error),
    };
    const { signal } = this.#stopping;
    this.#source = followCluster(connection, handlers, { signal, clock, random: Math.random, limits });
  }

  /** Resolves when every watch is current. */
  static async start(
    connection: KubeConnection,
    limits: Partial<WatchLimits> = {},
  ): Promise<MeasuredCluster> {
    const measured = new MeasuredCluster(connection, limits);
    await measured.current();
    return measured;
  }

  readonly clock = (): number => performance.timeOrigin + performance.now();

  get watches(): ClusterSource['watches'] {
    return this.#source.watches;
  }

  get discarded(): DiscardCounts {
    return this.measurement.discarded;
  }

  /** The number of open removals of a namespace. */
  unresolved(namespace: string): number {
    return this.measurement
      .unresolvedServices(Number.POSITIVE_INFINITY)
      .filter((service) => service.namespace === namespace)
      .reduce((sum, { count }) => sum + count, 0);
  }

  /** Waits until every watch is current. */
  async current(timeoutMs = 60_000): Promise<void> {
    const all = Object.values(this.watches);
    await waitUntil('all watches to be current', () => all.every(({ current }) => current), {
      timeoutMs,
      intervalMs: 20,
    });
  }

  /** Throws if a handler threw. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#source.ended;
    const [problem] = this.#problems;
    if (problem !== undefined) throw problem;
  }
}
