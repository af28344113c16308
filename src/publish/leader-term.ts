import { asError } from '../core/catalog/errors.ts';
import { NOTHING_PLANNED, type PlannedTable } from '../core/lag/planned.ts';
import { plannedToText } from '../core/lag/published.ts';
import { sameCurves, shrunkTable, takenOver } from '../core/lag/taken-over.ts';
import { asObjectFailure } from '../kube/object-request.ts';
import { type PublishedObject, plannedContent, REFUSALS, readPlanned } from '../measure/publication.ts';
import type { PublishedConfigMaps, WriteOutcome } from './config-map.ts';
import type { ConsumerTelling } from './consumer-telling.ts';
import type { HistoryKeeper } from './history-keeper.ts';
import type { ElectionClock, Lead, Leadership } from './leadership.ts';
import type { PublishLimits } from './limits.ts';
import type { Reporting } from './reporting.ts';
import { Schedule } from './schedule.ts';
import type { PublishStatus } from './status.ts';

/** What is measured, as far as the planned lags are concerned. */
export interface PlannedMeasurement {
  /** What is in force here. */
  readonly table: PlannedTable;
  /** The step after a table, by what is measured now; see `nextPlanned`. */
  next(table: PlannedTable, epochSeconds: number): Promise<PlannedTable>;
  /** From now on waits come from this table. */
  adopt(table: PlannedTable): void;
}

export interface LeaderOptions {
  readonly configMaps: PublishedConfigMaps;
  readonly histories: HistoryKeeper;
  readonly measurement: PlannedMeasurement;
  readonly status: PublishStatus;
  readonly reporting: Reporting;
  readonly limits: PublishLimits;
  readonly time: ElectionClock;
  readonly epochSeconds: () => number;
  /** Whether the API server answers as usual: histories can wait. */
  readonly calm: () => boolean;
  /** Tells of consumers; undefined: nobody does. */
  readonly telling: ConsumerTelling | undefined;
  /** Called once everything that the leader before has left has been taken over. */
  readonly onTakenOver: (lead: Lead) => void;
}

/**
 * A leader's work, from the beginning of a term to its end: steps the planned lags, publishes them and the histories.
 *
 * Waits come from what is published, also the leader's own: a table is in force only once it has been written, so
 * that all replicas give one number, and a leader that cannot write leaves the last one as it is.
 */
export class LeaderTerm {
  readonly #leadership: Leadership;
  readonly #options: LeaderOptions;
  readonly #stopping = new AbortController();
  readonly #planned: Schedule;
  readonly #history: Schedule;
  /** With what is pending. */
  #working: PlannedTable = NOTHING_PLANNED;
  #published: PlannedTable = NOTHING_PLANNED;
  #publishedText = '';
  #historyOf = '';
  #tookOver = false;
  #nextStep = Number.NEGATIVE_INFINITY;
  #running: Promise<void> = Promise.resolve();

  constructor(leadership: Leadership, options: LeaderOptions) {
    const { limits, time } = options;
    const { plannedEveryMs, historyEveryMs, firstHistoryMs, firstPauseMs, longestPauseMs } = limits;
    const now = time.clock();
    const failures = { firstPauseMs, longestPauseMs };
    this.#leadership = leadership;
    this.#options = options;
    this.#planned = new Schedule({ everyMs: plannedEveryMs, ...failures }, now, time.random);
    const firstHistory = now + firstHistoryMs;
    this.#history = new Schedule({ everyMs: historyEveryMs, ...failures }, firstHistory, time.random);
  }

  start(): void {
    const { reporting, telling } = this.#options;
    this.#running = this.#run()
      .catch((error: unknown) => {
        reporting.broke(asError(error));
        // Begins anew with the next renewal.
        this.#leadership.end();
      })
      .finally(() => telling?.close());
  }

  /** What others see, and undefined where that is nothing. If somebody has changed it, it is written again. */
  saw(table: PlannedTable | undefined): void {
    const text = table && plannedToText(table, false);
    if (text !== this.#publishedText) this.#planned.hasten();
  }

  /** The last words before the lease is released. */
  async finish(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
    if (!this.#tookOver) return;
    // What has been measured since the last step is news, too.
    await this.#step(this.#options.time.clock());
    const within = AbortSignal.timeout(this.#options.limits.handOverMs);
    const signal = AbortSignal.any([within, this.#leadership.signal]);
    if (!sameCurves(this.#working, this.#published)) await this.#publishPlanned(signal);
    if (this.#historyIsNew) await this.#publishHistory(signal);
  }

  async #run(): Promise<void> {
    const { limits, time } = this.#options;
    const signal = AbortSignal.any([this.#leadership.signal, this.#stopping.signal]);
    if (!(await this.#takeOver(signal))) return;
    do await this.#tick(signal);
    while (await time.pause(limits.tickMs, signal));
  }

  /** Nothing is written before what is there has been read: it would be lost. */
  async #takeOver(signal: AbortSignal): Promise<boolean> {
    const { configMaps, histories, reporting, epochSeconds, limits, time } = this.#options;
    const tries = new Schedule({ everyMs: 0, ...limits }, 0, time.random);
    while (!signal.aborted) {
      let reading: PublishedObject = 'planned';
      try {
        const planned = readPlanned(await configMaps.read('planned', signal));
        reporting.succeeded('planned');
        if (planned.outcome === 'refused') reporting.refused('planned', planned.refusal, planned.problem);
        reading = 'history';
        const kept = await histories.look(signal);
        const published = planned.outcome === 'read' ? planned.value : this.#lastKnown(kept);
        this.#working = takenOver(published, kept, epochSeconds());
        this.#tookOver = true;
        this.#options.onTakenOver(this.#leadership);
        return true;
      } catch (thrown) {
        if (!signal.aborted) await time.pause(this.#failed(reading, tries, thrown), signal);
      }
    }
    return false;
  }

  /** Where it has been deleted or cannot be read: what is in force here is what everybody has seen last. */
  #lastKnown(kept: PlannedTable | undefined): PlannedTable {
    const { table } = this.#options.measurement;
    return table.cluster === undefined && kept !== undefined ? kept : table;
  }

  async #tick(signal: AbortSignal): Promise<void> {
    const { time, calm } = this.#options;
    const now = time.clock();
    if (now >= this.#nextStep) await this.#step(now);
    if (this.#planned.due(now)) await this.#publishPlanned(signal);
    if (this.#history.due(now) && this.#historyIsNew && calm()) await this.#publishHistory(signal);
    await this.#options.telling?.tick(signal);
  }

  async #step(now: number): Promise<void> {
    const { measurement, limits, epochSeconds } = this.#options;
    this.#working = await measurement.next(this.#working, epochSeconds());
    const settling = this.#working.cluster?.smoothed !== true;
    this.#nextStep = now + (settling ? limits.firstStepMs : limits.stepMs);
    if (!sameCurves(this.#working, this.#published)) this.#planned.hasten();
  }

  async #publishPlanned(signal: AbortSignal): Promise<void> {
    const { configMaps, measurement, limits, epochSeconds: clock, reporting, status } = this.#options;
    const textOf = (table: PlannedTable) => plannedToText(table, false);
    const { table, text } = shrunkTable(this.#working, limits.plannedCharacters, textOf);
    const epochSeconds = clock();
    await this.#attempt('planned', this.#planned, signal, async () => {
      const content = plannedContent(text);
      const outcome = await configMaps.write('planned', content, this.#leadership, { epochSeconds, signal });
      if (outcome !== 'written' && outcome !== 'unchanged') return outcome;
      reporting.accepted('planned');
      const state = status.published.planned;
      state.bytes = Buffer.byteLength(text);
      if (outcome === 'written') {
        state.writtenAt = epochSeconds;
        state.writes += 1;
      }
      this.#published = this.#working;
      this.#publishedText = text;
      measurement.adopt(table);
      return outcome;
    });
  }

  async #publishHistory(signal: AbortSignal): Promise<void> {
    const { histories } = this.#options;
    const key = this.#samplesKey;
    await this.#attempt('history', this.#history, signal, async () => {
      const outcome = await histories.write(this.#working, this.#leadership, signal);
      if (outcome === 'written' || outcome === 'unchanged') this.#historyOf = key;
      return outcome;
    });
  }

  async #attempt(
    object: PublishedObject,
    schedule: Schedule,
    signal: AbortSignal,
    write: () => Promise<WriteOutcome | 'unsettled'>,
  ): Promise<void> {
    const { reporting, time, limits } = this.#options;
    try {
      const outcome = await write();
      reporting.succeeded(object);
      // The next renewal raises our term, or ends it.
      if (outcome === 'outgrown') schedule.failed(time.clock(), limits.election.renewEveryMs);
      else schedule.done(time.clock());
      if (outcome === 'Newer' || outcome === 'Foreign') reporting.refused(object, outcome, REFUSALS[outcome]);
    } catch (thrown) {
      if (!signal.aborted) this.#failed(object, schedule, thrown);
    }
  }

  #failed(object: PublishedObject, schedule: Schedule, thrown: unknown): number {
    const { reporting, time, histories } = this.#options;
    const failure = asObjectFailure(thrown);
    if (object === 'history' && failure.reason === 'Refused') histories.shrink();
    const pauseMs = schedule.failed(time.clock(), failure.retryAfterMs);
    reporting.failed(object, failure, pauseMs);
    return pauseMs;
  }

  get #historyIsNew(): boolean {
    return this.#samplesKey !== this.#historyOf && this.#working.cluster !== undefined;
  }

  /** Changes with every sample. */
  get #samplesKey(): string {
    const { cluster } = this.#working;
    return `${cluster?.samples}/${cluster?.latest}`;
  }
}
