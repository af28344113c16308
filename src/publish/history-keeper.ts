import type { PlannedTable } from '../core/lag/planned.ts';
import { plannedToText } from '../core/lag/published.ts';
import { inPieces } from '../measure/pieces.ts';
import {
  bytesOf,
  historyContent,
  type Published,
  type PublishedHistory,
  type Refusal,
  readHistory,
  type Stamp,
} from '../measure/publication.ts';
import type { PublishedConfigMaps, WriteOutcome } from './config-map.ts';
import type { Leadership } from './leadership.ts';
import type { Reporting } from './reporting.ts';
import type { PublishStatus } from './status.ts';

/** The histories that a replica measures. */
export interface MeasuredHistories {
  /** As they are now, as JSON text of at most so many characters, written step by step. */
  snapshot(characters: number, epochSeconds: number): Generator<undefined, string>;
  /** Takes in a snapshot. @returns false, and nothing is changed, for what is none */
  restore(json: unknown, epochSeconds: number): boolean;
  /** Takes in what only leaders measure, instead of what is here; nothing is changed for what is no snapshot. */
  restoreConsumers(json: unknown): void;
}

export interface HistoryKeeperOptions {
  readonly configMaps: PublishedConfigMaps;
  readonly measurement: MeasuredHistories;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  readonly epochSeconds: () => number;
  readonly status: PublishStatus;
  readonly reporting: Reporting;
  /** The most that a snapshot may have before gzip. */
  readonly characters: number;
  readonly onRestored: (stamp: Stamp) => void;
}

/** What is refused so may be worth a week of measuring to somebody: it is not written over. */
const LEFT_ALONE: ReadonlySet<Refusal> = new Set(['Newer', 'Foreign', 'Future']);

/** Under this there is nothing to be gained: the cluster alone takes some 20 kB. */
const LEAST_CHARACTERS = 30_000;

/** The measured histories between their ConfigMap and the estimator: taken from there once, and written there. */
export class HistoryKeeper {
  readonly #options: HistoryKeeperOptions;
  /** Whether everything of use that was there has been taken in: until then nothing is written over it. */
  #settled = false;
  #characters: number;

  constructor(options: HistoryKeeperOptions) {
    this.#options = options;
    this.#characters = options.characters;
  }

  get settled(): boolean {
    return this.#settled;
  }

  /**
   * Reads the ConfigMap, and takes its histories in if that has not been done yet.
   * @returns the planned lags with what was pending, where there are any
   * @throws ObjectFailure
   */
  async look(signal: AbortSignal): Promise<PlannedTable | undefined> {
    const { configMaps, measurement, epochSeconds, reporting } = this.#options;
    const present = await configMaps.read('history', signal);
    reporting.succeeded('history');
    const read = await readHistory(present, epochSeconds());
    if (read.outcome === 'refused') {
      this.#settled ||= !LEFT_ALONE.has(read.refusal);
      reporting.refused('history', read.refusal, read.problem);
      return undefined;
    }
    const first = !this.#settled;
    this.#settled = true;
    if (read.outcome === 'empty') return undefined;
    if (first) this.#restore(read);
    else {
      measurement.restoreConsumers(read.value.snapshot);
      reporting.accepted('history');
    }
    return read.value.planned;
  }

  /**
   * Writes what is measured now. In a large cluster that is work of some 0.2 s, which is done in pieces: a leader
   * answers reviews, too.
   * @throws ObjectFailure
   */
  async write(
    table: PlannedTable,
    leadership: Leadership,
    signal: AbortSignal,
  ): Promise<WriteOutcome | 'unsettled'> {
    const { configMaps, measurement, clock, reporting, status } = this.#options;
    if (!this.#settled) await this.look(signal);
    if (!this.#settled) return 'unsettled';
    const epochSeconds = this.#options.epochSeconds();
    const snapshot = await inPieces(measurement.snapshot(this.#characters, epochSeconds), clock);
    const content = await historyContent(snapshot, plannedToText(table, true));
    const outcome = await configMaps.write('history', content, leadership, { epochSeconds, signal });
    reporting.succeeded('history');
    if (outcome === 'written') {
      reporting.accepted('history');
      Object.assign(status.published.history, { writtenAt: epochSeconds, bytes: bytesOf(content) });
      status.published.history.writes += 1;
    }
    return outcome;
  }

  /** The server did not take it: less the next time, whatever it was that was too much. */
  shrink(): void {
    this.#characters = Math.max(LEAST_CHARACTERS, this.#characters / 2);
  }

  #restore({ value, stamp, bytes }: Extract<Published<PublishedHistory>, { outcome: 'read' }>): void {
    const { measurement, epochSeconds, reporting, status, onRestored } = this.#options;
    if (!measurement.restore(value.snapshot, epochSeconds())) {
      reporting.refused('history', 'Corrupt', 'it is no snapshot');
      return;
    }
    reporting.accepted('history');
    Object.assign(status.published.history, { writtenAt: stamp.writtenAt, bytes });
    onRestored(stamp);
  }
}
