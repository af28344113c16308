import { type ConsumerStatus, formatDuration } from '../core/api/index.ts';
import type { ClusterSnapshot } from '../core/decision/index.ts';
import { type ConsumerView, consumersToText, hasChanged, type LagView } from '../core/lag/index.ts';
import { Schedule } from '../timing/index.ts';
import { readConsumers, SHARED_NAMES, textContent, withHold } from './codec.ts';
import { type PublishContext, publish } from './publish-context.ts';
import { type Statement, type StatusSource, type StatusTarget, statusTime } from './status-publisher.ts';

function statementOf(view: ConsumerView, target: StatusTarget): Statement<ConsumerStatus> {
  const { measure, removals, additions, lastSample, services, instances, limits, condition } = view;
  const content = {
    measure,
    ...lagOf(removals),
    ...(lastSample === null ? {} : { lastSample: statusTime(lastSample) }),
    ...(additions === null ? {} : { additions: lagOf(additions) }),
    ...(services === null ? {} : { services }),
    ...(instances === null ? {} : { instances }),
    limits: [...limits],
  };
  return { target, content, conditions: [{ type: 'Measured', ...condition }] };
}

function lagOf(lag: LagView | null): Pick<ConsumerStatus, 'samples' | 'p50' | 'p99'> {
  if (lag === null) return { samples: 0 };
  return { samples: lag.samples, p50: lagText(lag.p50), p99: lagText(lag.p99) };
}

/** Seconds with three significant digits, the precision of the histograms; undefined if it is not a number. */
export function lagText(seconds: number | undefined): string | undefined {
  return Number.isFinite(seconds) ? formatDuration(Number(seconds?.toPrecision(3))) : undefined;
}

export function consumerStatuses({ views, targets }: PublishedConsumers): StatusSource {
  return {
    object: 'status',
    statements: () => {
      const byName = new Map(views().map((view) => [view.name, view]));
      return targets().flatMap((target) => {
        const view = byName.get(target.name);
        return view === undefined ? [] : [statementOf(view, target)];
      });
    },
  };
}

export interface PublishedConsumers {
  /** The views of all consumers; empty until anything is known. */
  views(): readonly ConsumerView[];
  /** The state of the Hold delivery. */
  hold?(): ClusterSnapshot['hold'];
  /** Takes over, from the previous leader's views, since when each condition has been as it is. */
  since(published: readonly ConsumerView[]): void;
  targets(): readonly StatusTarget[];
}

/** Publishes the consumers' views in one ConfigMap while this replica leads, whenever they have changed. */
export class ConsumerPublisher {
  readonly #context: PublishContext;
  readonly #consumers: PublishedConsumers;
  readonly #schedule: Schedule;
  /** By name; undefined: nothing has been published in this term. */
  #published: ReadonlyMap<string, ConsumerView> | undefined;
  #publishedAt = Number.NEGATIVE_INFINITY;
  #publishedHold: ClusterSnapshot['hold'];

  constructor(context: PublishContext, consumers: PublishedConsumers) {
    const { limits, time } = context;
    this.#context = context;
    this.#consumers = consumers;
    const first = time.clock() + limits.firstConsumersMs;
    this.#schedule = new Schedule({ everyMs: limits.consumersEveryMs, ...limits }, first, time.random);
  }

  /** Call this periodically. Never throws. */
  async tick(signal: AbortSignal): Promise<void> {
    const { limits, time } = this.#context;
    const now = time.clock();
    const age = now - this.#publishedAt;
    const views = this.#consumers.views();
    const published = this.#published;
    const others =
      published !== undefined &&
      (areOthers(views, published) || this.#consumers.hold?.() !== this.#publishedHold);
    // Publish new consumers early: their authors look at the status a moment later.
    if (others && age >= limits.statusLookMs) this.#schedule.hasten();
    if (!this.#schedule.due(now)) return;
    const news =
      published === undefined
        ? views.length > 0
        : others || views.some((view) => hasChanged(view, published.get(view.name) ?? view));
    if (news || (published !== undefined && age >= limits.consumersAgainMs)) await this.#publish(signal);
  }

  async #publish(signal: AbortSignal): Promise<void> {
    const { store, time, epochSeconds } = this.#context;
    const consumers = this.#consumers;
    let views: readonly ConsumerView[] = [];
    const hold = consumers.hold?.();
    const stored = await publish(this.#context, 'consumers', this.#schedule, signal, async () => {
      if (this.#published === undefined) {
        const before = readConsumers(await store.read(SHARED_NAMES.consumers, signal));
        if (before.outcome === 'read') consumers.since(before.value.consumers);
      }
      views = consumers.views();
      const text = consumersToText({ asOf: epochSeconds(), consumers: views });
      return withHold(textContent('consumers', text), hold);
    });
    if (!stored) return;
    this.#publishedHold = hold;
    this.#published = new Map(views.map((view) => [view.name, view]));
    this.#publishedAt = time.clock();
  }
}

function areOthers(views: readonly ConsumerView[], published: ReadonlyMap<string, ConsumerView>): boolean {
  return views.length !== published.size || views.some(({ name }) => !published.has(name));
}
