import type { Consumer } from '../core/consumers/consumer.ts';
import { ConsumerEstimator, type ConsumerLag, type Direction } from '../core/consumers/estimator.ts';
import type { MeasuringState } from '../core/consumers/measuring.ts';
import type { Candidates } from '../core/lag/planned.ts';

export type { MeasuringState };

/** How long a consumer took to follow one change. */
export interface ConsumerSample {
  readonly consumer: string;
  readonly direction: Direction;
  /** Seconds from when the control plane had said so until the consumer followed. */
  readonly lag: number;
}

/**
 * What is measured of consumers, by the one replica that leads; the others follow what it publishes. Whoever measures
 * (canary, reports) brings samples and says how it goes.
 */
export class ConsumerMeasurement {
  readonly #epochSeconds: () => number;
  readonly #estimator = new ConsumerEstimator();
  readonly #states = new Map<string, MeasuringState>();
  readonly #listeners = new Set<(sample: ConsumerSample) => void>();
  #changed = true;

  constructor(epochSeconds: () => number) {
    this.#epochSeconds = epochSeconds;
  }

  /**
   * The consumers that there are now.
   * @param all whether it is certain that there are no others: then what was measured of those is forgotten. Until that
   *   has been said once, nothing that is published of consumers changes
   */
  keep(consumers: readonly Consumer[], all = true): void {
    const measured = new Set(
      consumers.filter(({ declared }) => declared === undefined).map(({ name }) => name),
    );
    this.#estimator.keep(measured, all);
    if (all) for (const name of this.#states.keys()) if (!measured.has(name)) this.#states.delete(name);
    this.#changed = true;
  }

  /** @throws RangeError for a negative lag or NaN */
  record(sample: ConsumerSample): void {
    const { consumer, direction, lag } = sample;
    this.#estimator.record(consumer, direction, lag, this.#epochSeconds());
    this.#changed = true;
    for (const listener of this.#listeners) listener(sample);
  }

  /** @returns what to call to hear no more */
  onSample(listener: (sample: ConsumerSample) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** How the measuring of a consumer goes from now on. */
  report(consumer: string, state: MeasuringState): void {
    this.#states.set(consumer, state);
  }

  /** Nobody measures here any more: another replica does, or none. */
  idle(): void {
    this.#states.clear();
  }

  /** undefined: nobody measures it here. */
  state(consumer: string): MeasuringState | undefined {
    return this.#states.get(consumer);
  }

  /** The week's lag before smoothing. @returns undefined when there is no sample */
  measured(consumer: string, direction: Direction): ConsumerLag | undefined {
    return this.#estimator.measured(consumer, direction, this.#epochSeconds());
  }

  candidates(epochSeconds: number): Candidates['consumers'] {
    return this.#estimator.candidates(epochSeconds);
  }

  /** Whether there is anything new since it was asked for last. */
  takeChanged(): boolean {
    const changed = this.#changed;
    this.#changed = false;
    return changed;
  }

  snapshot(epochSeconds: number): unknown {
    return this.#estimator.snapshot(epochSeconds);
  }

  /** Takes over what another replica has measured, instead of what is here. @returns false for what is no snapshot */
  restore(json: unknown): boolean {
    this.#changed = true;
    return this.#estimator.restore(json);
  }
}
