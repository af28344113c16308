import type { ConsumerStatus } from '../api/index.ts';
import { formatDuration } from '../api/index.ts';
import { type ConsumerView, hasChanged, type LagView } from '../lag/index.ts';
import { Schedule } from '../timing/index.ts';
import { bytesOf, consumersContent, readConsumers, SHARED_NAMES } from './codec.ts';
import type { ElectionClock, Leadership } from './election.ts';
import type { PublishLimits, Reporting } from './publish-status.ts';
import { instant, type Statement, type StatusSource, type StatusTarget } from './status-publisher.ts';
import type { SharedStore } from './store.ts';

/** What the status of a DiscoveryConsumer should say. */
export function statementOf(view: ConsumerView, target: StatusTarget): Statement<ConsumerStatus> {
  const { measure, removals, additions, lastSample, instances, limits, condition } = view;
  const content = {
    measure,
    ...lagOf(removals),
    ...(lastSample === null ? {} : { lastSample: instant(lastSample) }),
    ...(additions === null ? {} : { additions: lagOf(additions) }),
    ...(instances === null ? {} : { instances }),
    limits: [...limits],
  };
  return { target, content, condition: { type: 'Measured', ...condition } };
}

function lagOf(lag: LagView | null): { samples: number; p50?: string; p99?: string } {
  if (lag === null) return { samples: 0 };
  return { samples: lag.samples, p50: lagText(lag.p50), p99: lagText(lag.p99) };
}

/** Three digits, the precision of the histograms. */
export function lagText(seconds: number): string {
  return formatDuration(Number(seconds.toPrecision(3)));
}

/** The desired statuses of all DiscoveryConsumers that anything is known of. */
export function consumerStatuses({ views, targets }: PublishedConsumers): StatusSource {
  return {
    object: 'status',
    kind: 'DiscoveryConsumer',
    plural: 'discoveryconsumers',
    statements: () => {
      const byName = new Map(views().map((view) => [view.name, view]));
      return targets().flatMap((target) => {
        const view = byName.get(target.name);
        return view === undefined ? [] : [statementOf(view, target)];
      });
    },
  };
}

/** What the leader publishes of consumers. */
export interface PublishedConsumers {
  /** The views of all consumers; empty until anything is known. */
  views(): readonly ConsumerView[];
  /** Takes over from the previous leader's views since when each condition has held. */
  since(published: readonly ConsumerView[]): void;
  /** Those with a status of their own. */
  targets(): readonly StatusTarget[];
}

export interface ConsumerPublisherOptions {
  readonly consumers: PublishedConsumers;
  readonly store: SharedStore;
  readonly reporting: Reporting;
  readonly limits: PublishLimits;
  readonly time: ElectionClock;
  readonly epochSeconds: () => number;
}

/** Publishes the consumers' views in one ConfigMap while this replica leads, whenever they have changed. */
export class ConsumerPublisher {
  readonly #leadership: Leadership;
  readonly #options: ConsumerPublisherOptions;
  readonly #schedule: Schedule;
  #published: readonly ConsumerView[] | undefined;
  #publishedAt = Number.NEGATIVE_INFINITY;

  constructor(leadership: Leadership, options: ConsumerPublisherOptions) {
    const { limits, time } = options;
    const { clock, random } = time;
    this.#leadership = leadership;
    this.#options = options;
    const first = clock() + limits.firstConsumersMs;
    this.#schedule = new Schedule({ everyMs: limits.consumersEveryMs, ...limits }, first, random);
  }

  /** To be called periodically. Never throws. */
  async tick(signal: AbortSignal): Promise<void> {
    const { consumers, time } = this.#options;
    const now = time.clock();
    const views = consumers.views();
    const soonEnough = now - this.#publishedAt >= this.#options.limits.statusLookMs;
    // The author of a new consumer looks at its status a moment later.
    if (soonEnough && this.#published !== undefined && areOthers(views, this.#published))
      this.#schedule.hasten();
    if (this.#schedule.due(now) && this.#isNewer(views)) await this.#publish(signal);
  }

  #isNewer(views: readonly ConsumerView[]): boolean {
    const { time, limits } = this.#options;
    if (views.length === 0 && this.#published === undefined) return false;
    if (this.#published === undefined || time.clock() - this.#publishedAt >= limits.consumersAgainMs)
      return true;
    if (areOthers(views, this.#published)) return true;
    const published = new Map(this.#published.map((view) => [view.name, view]));
    return views.some((view) => {
      const before = published.get(view.name);
      return before === undefined || hasChanged(view, before);
    });
  }

  async #publish(signal: AbortSignal): Promise<void> {
    const { store, reporting, time, consumers } = this.#options;
    await reporting.attempt('consumers', this.#schedule, signal, async () => {
      if (this.#published === undefined) {
        const before = readConsumers(await store.read(SHARED_NAMES.consumers, signal));
        if (before.outcome === 'read') consumers.since(before.value.consumers);
      }
      const views = consumers.views();
      const epochSeconds = this.#options.epochSeconds();
      const content = consumersContent({ asOf: epochSeconds, consumers: views });
      const options = { epochSeconds, signal };
      const outcome = await store.write(SHARED_NAMES.consumers, content, this.#leadership, options);
      if (outcome === 'written') {
        reporting.written('consumers', epochSeconds, bytesOf(content));
        this.#published = views;
        this.#publishedAt = time.clock();
      }
      return outcome;
    });
  }
}

/** Whether consumers have been added or removed. */
function areOthers(views: readonly ConsumerView[], published: readonly ConsumerView[]): boolean {
  const names = new Set(published.map(({ name }) => name));
  return views.length !== names.size || views.some(({ name }) => !names.has(name));
}
