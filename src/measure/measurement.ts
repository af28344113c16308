import type { DiscardCounts } from '../core/lag/discards.ts';
import type { LagSource } from '../core/lag/distribution.ts';
import type { MeasuredLag } from '../core/lag/estimate.ts';
import { LagEstimator } from '../core/lag/estimator.ts';
import type { ClusterEvent } from '../core/lag/events.ts';
import { NOTHING_PLANNED, nextPlanned, type PlannedTable } from '../core/lag/planned.ts';
import { NONE_YET, plannedLags } from '../core/lag/planned-lags.ts';
import { LagRecorder } from '../core/lag/recorder.ts';
import type { RemovalSample } from '../core/lag/sample.ts';
import { isRecord } from '../core/schema/shape.ts';
import { ConsumerMeasurement } from './consumers.ts';
import { inPieces } from './pieces.ts';
import { type WaitingByStage, type WaitingService, waitingByService, waitingByStage } from './unresolved.ts';

export interface MeasurementClocks {
  /** Monotonic milliseconds: the clock of the events' instants. */
  readonly clock: () => number;
  /** Seconds since the Unix epoch: slices of several replicas and lives must be the same. */
  readonly epochSeconds: () => number;
}

/**
 * Everything that is measured: events of the watches go in; samples, estimates and the planned lags come out. It is
 * the only one to change them, and does so synchronously.
 */
export class Measurement {
  readonly #clocks: MeasurementClocks;
  readonly #recorder = new LagRecorder();
  readonly #estimator = new LagEstimator();
  readonly #listeners = new Set<(sample: RemovalSample) => void>();
  #table: PlannedTable = NOTHING_PLANNED;
  #lags: LagSource = NONE_YET;
  /** Another one with each sample. */
  #revision = 0;
  /** The table that the latest step led to, and the revision that it began with. */
  #latest: { readonly table: PlannedTable; readonly revision: number } | undefined;
  /** What the Services say may be out of date: one that never withdraws its pods would give samples. */
  #servicesInDoubt = true;
  #inDoubt = 0;

  /** What is measured of consumers, by the replica that leads. */
  readonly consumers: ConsumerMeasurement;

  constructor(clocks: MeasurementClocks) {
    this.#clocks = clocks;
    this.consumers = new ConsumerMeasurement(clocks.epochSeconds);
  }

  /** Takes in what a watch has told, and tells the listeners of the samples that it made. */
  apply(event: ClusterEvent): void {
    if ('stream' in event && event.stream === 'services') this.#trustServices(event.type);
    const samples = this.#recorder.apply(event);
    if (samples.length === 0) return;
    if (this.#servicesInDoubt) {
      this.#inDoubt += samples.length;
      return;
    }
    const now = this.#clocks.epochSeconds();
    for (const sample of samples) {
      this.#estimator.record(sample, now);
      for (const listener of this.#listeners) listener(sample);
    }
    this.#revision += 1;
  }

  /** @returns what to call to hear no more */
  onSample(listener: (sample: RemovalSample) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  unresolved(): WaitingByStage {
    return waitingByStage(this.#recorder.unresolved(), this.#clocks.clock());
  }

  unresolvedServices(most: number): readonly WaitingService[] {
    return waitingByService(this.#recorder.unresolved(), this.#clocks.clock(), most);
  }

  /** The lag of the last minutes with what is unresolved, of a namespace or (undefined) of the cluster. */
  now(namespace?: string): MeasuredLag | undefined {
    const { clock, epochSeconds } = this.#clocks;
    const now = { instant: clock(), epochSeconds: epochSeconds() };
    return this.#estimator.now(namespace, now, this.#recorder.unresolved());
  }

  /** The week's lag before smoothing, by stage. Takes some milliseconds. */
  week(namespace?: string): MeasuredLag | undefined {
    return this.#estimator.measured(namespace, this.#clocks.epochSeconds());
  }

  /** The planned lags in force. */
  get table(): PlannedTable {
    return this.#table;
  }

  /** What decisions read: the planned lags. Another one after each change of the table. */
  lags(): LagSource {
    return this.#lags;
  }

  /**
   * The step after a table, by what has been measured until now; nothing is put in force. In a large cluster that is work
   * of up to 0.2 s, to be done in pieces; where no sample has come since the step to that very table, it is the table
   * itself, at once.
   */
  async next(table: PlannedTable, epochSeconds: number): Promise<PlannedTable> {
    const revision = this.#revision;
    const consumersChanged = this.consumers.takeChanged();
    const { table: latest, revision: latestOf } = this.#latest ?? {};
    if (latest === table && latestOf === revision && !consumersChanged) return table;
    const measured = await inPieces(this.#estimator.candidateSteps(epochSeconds), this.#clocks.clock);
    const candidates = { ...measured, consumers: this.consumers.candidates(epochSeconds) };
    const next = nextPlanned(table, candidates, epochSeconds);
    this.#latest = { table: next, revision };
    return next;
  }

  /** The step of a replica that is alone: the lags in force follow what it has measured. */
  async replan(epochSeconds: number): Promise<PlannedTable> {
    this.adopt(await this.next(this.#table, epochSeconds));
    return this.#table;
  }

  /** From now on waits come from this table. */
  adopt(table: PlannedTable): void {
    if (table === this.#table) return;
    this.#table = table;
    this.#lags = plannedLags(table);
  }

  /** The histories as they are now, as JSON text of at most so many characters, written step by step; see the estimator. */
  snapshot(characters: number, epochSeconds: number): Generator<undefined, string> {
    return this.#estimator.snapshotWithin(characters, epochSeconds, {
      consumers: this.consumers.snapshot(epochSeconds),
    });
  }

  /** Takes in an earlier life's histories. @returns false, and nothing is changed, for what is no snapshot */
  restore(json: unknown, epochSeconds: number): boolean {
    this.#revision += 1;
    if (!this.#estimator.restore(json, epochSeconds)) return false;
    this.restoreConsumers(json);
    return true;
  }

  /**
   * Takes in what an earlier leader has measured of consumers, instead of what is here: only leaders measure them.
   * Without any in it, nothing is changed.
   */
  restoreConsumers(json: unknown): void {
    if (isRecord(json)) this.consumers.restore(json.consumers);
  }

  /** How many removals gave no sample, by reason. */
  get discarded(): DiscardCounts {
    const { discarded } = this.#recorder;
    return { ...discarded, Reconnect: discarded.Reconnect + this.#inDoubt };
  }

  /** How much is held, for gauges. */
  get size(): LagRecorder['size'] {
    return this.#recorder.size;
  }

  get estimatorBytes(): number {
    return this.#estimator.bytes;
  }

  #trustServices(change: ClusterEvent['type']): void {
    if (change === 'StreamBroken' || change === 'ListBegins') this.#servicesInDoubt = true;
    if (change === 'StreamCurrent') this.#servicesInDoubt = false;
  }
}
