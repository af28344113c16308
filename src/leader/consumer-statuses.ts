import { API_VERSION, type ConsumerStatus, formatDuration, GROUP, isRecord } from '../api/index.ts';
import { asFailure, callApi, type KubeConnection } from '../cluster/index.ts';
import { type ConsumerView, hasChanged, type LagView } from '../lag/index.ts';
import { Schedule } from '../timing/index.ts';
import { bytesOf, consumersContent, readConsumers, SHARED_NAMES } from './codec.ts';
import type { ElectionClock, Leadership } from './election.ts';
import type { PublishLimits, Reporting } from './publish-status.ts';
import type { SharedStore } from './store.ts';

/** The type of the condition. */
const MEASURED = 'Measured';

/** Owns the fields of statuses that Linger applies; conditions of other types, and their owners, are left alone. */
const FIELD_MANAGER = 'linger';

/** The status that says what a view says. */
export function statusOf(view: ConsumerView, generation: number | undefined): ConsumerStatus {
  const { measure, removals, additions, lastSample, instances, limits, condition } = view;
  const { status, reason, message, since } = condition;
  const observed = generation === undefined ? {} : { observedGeneration: generation };
  const lastTransitionTime = instant(since);
  return {
    ...observed,
    measure,
    ...lagOf(removals),
    ...(lastSample === null ? {} : { lastSample: instant(lastSample) }),
    ...(additions === null ? {} : { additions: lagOf(additions) }),
    ...(instances === null ? {} : { instances }),
    limits: [...limits],
    conditions: [{ type: MEASURED, status, reason, message, lastTransitionTime, ...observed }],
  };
}

function lagOf(lag: LagView | null): { samples: number; p50?: string; p99?: string } {
  if (lag === null) return { samples: 0 };
  // Three digits: histograms are no better.
  const duration = (seconds: number) => formatDuration(Number(seconds.toPrecision(3)));
  return { samples: lag.samples, p50: duration(lag.p50), p99: duration(lag.p99) };
}

/** metav1.Time has whole seconds. */
function instant(epochSeconds: number): string {
  return new Date(Math.floor(epochSeconds) * 1000).toISOString().replace('.000Z', 'Z');
}

/** A DiscoveryConsumer of the cluster, as it was seen last. */
export interface StatusTarget {
  readonly name: string;
  readonly resourceVersion: string;
  readonly generation: number | undefined;
  readonly status: unknown;
}

/** What the leader publishes of consumers. */
export interface PublishedConsumers {
  /** Of all consumers; none until something is known. */
  views(): readonly ConsumerView[];
  /** What the leader before has published: since when a condition has lasted. */
  since(published: readonly ConsumerView[]): void;
  /** Those with a status of their own. */
  targets(): readonly StatusTarget[];
}

export interface ConsumerPublisherOptions {
  readonly connection: KubeConnection;
  readonly consumers: PublishedConsumers;
  readonly store: SharedStore;
  readonly reporting: Reporting;
  readonly limits: PublishLimits;
  readonly time: ElectionClock;
  readonly epochSeconds: () => number;
}

/** What has been written into the status of a consumer, by this leader or the one before. */
interface Written {
  readonly view: ConsumerView;
  /** Milliseconds of the monotonic clock. */
  readonly at: number;
}

/** After another writer has changed the object: until the watch has brought that. */
const CHANGED_MEANWHILE_MS = 5_000;

/**
 * Publishes what is known of consumers for as long as this replica leads: all of them in one ConfigMap, and in the status
 * of those that have one. Each is written when it says something new, at most once a minute.
 */
export class ConsumerPublisher {
  readonly #leadership: Leadership;
  readonly #options: ConsumerPublisherOptions;
  readonly #begunAt: number;
  /** Of the ConfigMap. */
  readonly #schedule: Schedule;
  #published: readonly ConsumerView[] | undefined;
  #publishedAt = Number.NEGATIVE_INFINITY;
  /** Of all statuses: after failures. */
  readonly #statuses: Schedule;
  readonly #written = new Map<string, Written>();
  /** Milliseconds of the monotonic clock, by name. */
  readonly #notBefore = new Map<string, number>();

  constructor(leadership: Leadership, options: ConsumerPublisherOptions) {
    const { limits, time } = options;
    const { clock, random } = time;
    this.#leadership = leadership;
    this.#options = options;
    this.#begunAt = clock();
    const first = this.#begunAt + limits.firstConsumersMs;
    this.#schedule = new Schedule({ everyMs: limits.consumersEveryMs, ...limits }, first, random);
    this.#statuses = new Schedule({ everyMs: 0, ...limits }, first, random);
  }

  /** To be called again and again. Writes the ConfigMap and at most one status. Never throws. */
  async tick(signal: AbortSignal): Promise<void> {
    const { consumers, time } = this.#options;
    const now = time.clock();
    if (this.#schedule.due(now) && this.#isNewer(consumers.views())) await this.#publish(signal);
    if (this.#statuses.due(now)) await this.#writeStatus(signal);
  }

  #isNewer(views: readonly ConsumerView[]): boolean {
    const { time, limits } = this.#options;
    if (views.length === 0) return false;
    if (this.#published === undefined || time.clock() - this.#publishedAt >= limits.consumersAgainMs)
      return true;
    const published = new Map(this.#published.map((view) => [view.name, view]));
    if (views.length !== published.size) return true;
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
        if (before.outcome === 'read') {
          consumers.since(before.value.consumers);
          for (const view of before.value.consumers)
            this.#written.set(view.name, { view, at: this.#begunAt });
        }
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

  /** Writes the status of the consumer that has waited longest, if any has something new. */
  async #writeStatus(signal: AbortSignal): Promise<void> {
    const { consumers, time, limits, reporting, epochSeconds } = this.#options;
    const next = this.#nextStatus(consumers.views(), consumers.targets());
    if (next === undefined || !this.#leadership.holds()) return;
    const { name } = next.target;
    try {
      await this.#apply(next.target, next.view, signal);
      const now = time.clock();
      this.#written.set(name, { view: next.view, at: now });
      this.#notBefore.set(name, now + limits.consumersEveryMs);
      this.#statuses.done(now);
      reporting.succeeded('status');
      reporting.written('status', epochSeconds());
    } catch (thrown) {
      if (!signal.aborted) this.#statusFailed(name, thrown);
    }
  }

  #nextStatus(views: readonly ConsumerView[], targets: readonly StatusTarget[]) {
    const byName = new Map(views.map((view) => [view.name, view]));
    const due = targets.flatMap((target) => {
      const view = byName.get(target.name);
      const ripe = this.#options.time.clock() >= (this.#notBefore.get(target.name) ?? 0);
      return view !== undefined && ripe && this.#saysMore(target, view) ? [{ target, view }] : [];
    });
    const writtenAt = ({ target }: (typeof due)[number]) => this.#written.get(target.name)?.at ?? 0;
    return due.toSorted((a, b) => writtenAt(a) - writtenAt(b))[0];
  }

  /** Whether the view says something that the object's status does not. */
  #saysMore({ name, generation, status }: StatusTarget, view: ConsumerView): boolean {
    const written = this.#written.get(name);
    const observed = isRecord(status) ? status.observedGeneration : undefined;
    if (written === undefined || observed !== generation || conditionIn(status) === undefined) return true;
    if (hasChanged(view, written.view)) return true;
    const { time, limits } = this.#options;
    const isNewer = (view.lastSample ?? 0) - (written.view.lastSample ?? 0) >= 1;
    return isNewer && time.clock() - written.at >= limits.statusAgainMs;
  }

  async #apply(target: StatusTarget, view: ConsumerView, signal: AbortSignal): Promise<void> {
    const { connection, limits } = this.#options;
    const { name, resourceVersion, generation } = target;
    // The status may have been the same since before this replica led.
    const before = conditionIn(target.status);
    const same = before?.status === view.condition.status;
    const since = (same && Date.parse(String(before.lastTransitionTime)) / 1000) || view.condition.since;
    const status = statusOf({ ...view, condition: { ...view.condition, since } }, generation);
    const body = {
      apiVersion: API_VERSION,
      kind: 'DiscoveryConsumer',
      // Of two leaders, or beside an author who changes the spec, one fails.
      metadata: { name, resourceVersion },
      status,
    };
    const call = { signal, withinMs: limits.requestMs, patch: 'apply-patch' } as const;
    const [version = ''] = API_VERSION.split('/').slice(1);
    const resource = { group: GROUP, version, plural: 'discoveryconsumers', name };
    await callApi(connection, 'CustomObjectsApi', call, (api) =>
      api.patchClusterCustomObjectStatus({ ...resource, body, fieldManager: FIELD_MANAGER, force: true }),
    );
  }

  #statusFailed(name: string, thrown: unknown): void {
    const { time, reporting } = this.#options;
    const { reason } = asFailure(thrown, 'Malformed');
    if (reason === 'Conflict' || reason === 'NotFound')
      this.#notBefore.set(name, time.clock() + CHANGED_MEANWHILE_MS);
    else reporting.failed('status', thrown, (after) => this.#statuses.failed(time.clock(), after));
  }
}

/** The condition of ours in a status. @returns undefined where it has none */
function conditionIn(status: unknown): Readonly<Record<string, unknown>> | undefined {
  const conditions: unknown = isRecord(status) ? status.conditions : undefined;
  const list: readonly unknown[] = Array.isArray(conditions) ? conditions : [];
  return list.filter(isRecord).find(({ type }) => type === MEASURED);
}
