import { isNews } from '../core/consumers/news.ts';
import type { ConsumerView } from '../core/consumers/view.ts';
import type { KubeConnection } from '../kube/connection.ts';
import { asObjectFailure } from '../kube/object-request.ts';
import { bytesOf, consumersContent, REFUSALS, readConsumers } from '../measure/publication.ts';
import type { PublishedConfigMaps } from './config-map.ts';
import { ConsumerStatuses, type StatusTarget } from './consumer-statuses.ts';
import type { ElectionClock, Leadership } from './leadership.ts';
import type { PublishLimits } from './limits.ts';
import type { Reporting } from './reporting.ts';
import { Schedule } from './schedule.ts';
import type { PublishStatus } from './status.ts';

/** What there is to tell of consumers. */
export interface ConsumersToTell {
  /** Of all consumers; none until something is known. */
  views(): readonly ConsumerView[];
  /** What a leader before has told: since when a condition has lasted. */
  since(told: readonly ConsumerView[]): void;
  /** Those with a status of their own. */
  targets(): readonly StatusTarget[];
  /** Of their collection. */
  readonly path: string;
}

export interface TellingOptions {
  readonly connection: KubeConnection;
  readonly toTell: ConsumersToTell;
  readonly configMaps: PublishedConfigMaps;
  readonly status: PublishStatus;
  readonly reporting: Reporting;
  readonly limits: PublishLimits;
  readonly time: ElectionClock;
  readonly epochSeconds: () => number;
}

/** Tells people what is known of consumers: all of them in a ConfigMap, and in the status of those that have one. */
export class ConsumerTelling {
  readonly #options: TellingOptions;
  readonly #leadership: Leadership;
  readonly #statuses: ConsumerStatuses;
  readonly #schedule: Schedule;
  readonly #firstAt: number;
  #told: readonly ConsumerView[] | undefined;
  #toldAt = Number.NEGATIVE_INFINITY;
  /** Whether what a leader before has told has been read. */
  #lookedBack = false;

  constructor(leadership: Leadership, options: TellingOptions) {
    const { limits, time, toTell } = options;
    const { clock, random } = time;
    this.#leadership = leadership;
    this.#options = options;
    this.#statuses = new ConsumerStatuses({ ...options, path: toTell.path, clock, random });
    this.#firstAt = clock() + limits.firstToldMs;
    this.#schedule = new Schedule({ everyMs: limits.toldEveryMs, ...limits }, this.#firstAt, random);
  }

  /** To be called again and again. Never throws. */
  async tick(signal: AbortSignal): Promise<void> {
    const { toTell, time } = this.#options;
    const views = toTell.views();
    if (views.length === 0 || time.clock() < this.#firstAt) return;
    if (this.#schedule.due(time.clock()) && this.#hasNews(views)) await this.#publish(signal);
    await this.#statuses.tick(toTell.views(), toTell.targets(), this.#leadership, signal);
  }

  close(): void {
    this.#statuses.close();
  }

  #hasNews(views: readonly ConsumerView[]): boolean {
    const { time, limits } = this.#options;
    if (this.#told === undefined || time.clock() - this.#toldAt >= limits.toldAgainMs) return true;
    if (views.length !== this.#told.length) return true;
    const told = new Map(this.#told.map((view) => [view.name, view]));
    return views.some((view) => {
      const before = told.get(view.name);
      return before === undefined || isNews(view, before);
    });
  }

  async #publish(signal: AbortSignal): Promise<void> {
    const { configMaps, reporting, time, limits, toTell, epochSeconds: clock, status } = this.#options;
    try {
      await this.#lookBack(signal);
      const views = toTell.views();
      const epochSeconds = clock();
      const content = consumersContent({ asOf: epochSeconds, consumers: views });
      const options = { epochSeconds, signal };
      const outcome = await configMaps.write('consumers', content, this.#leadership, options);
      reporting.succeeded('consumers');
      const now = time.clock();
      if (outcome === 'outgrown') this.#schedule.failed(now, limits.election.renewEveryMs);
      else this.#schedule.done(now);
      if (outcome === 'Newer' || outcome === 'Foreign')
        reporting.refused('consumers', outcome, REFUSALS[outcome]);
      if (outcome !== 'written') return;
      reporting.accepted('consumers');
      Object.assign(status.published.consumers, { writtenAt: epochSeconds, bytes: bytesOf(content) });
      status.published.consumers.writes += 1;
      this.#told = views;
      this.#toldAt = now;
    } catch (thrown) {
      if (signal.aborted) return;
      const failure = asObjectFailure(thrown);
      reporting.failed('consumers', failure, this.#schedule.failed(time.clock(), failure.retryAfterMs));
    }
  }

  async #lookBack(signal: AbortSignal): Promise<void> {
    if (this.#lookedBack) return;
    const { configMaps, toTell } = this.#options;
    const told = readConsumers(await configMaps.read('consumers', signal));
    if (told.outcome === 'read') toTell.since(told.value.consumers);
    this.#lookedBack = true;
  }
}
