import { isNews } from '../core/consumers/news.ts';
import type { ConsumerView } from '../core/consumers/view.ts';
import type { KubeConnection } from '../kube/connection.ts';
import { asObjectFailure, requestObject } from '../kube/object-request.ts';
import { newAgent } from '../kube/request.ts';
import { observedIn, statusOf, toldByStatus } from './consumer-status.ts';
import type { Lead } from './leadership.ts';
import type { PublishLimits } from './limits.ts';
import type { Reporting } from './reporting.ts';
import { Schedule } from './schedule.ts';
import type { PublishStatus } from './status.ts';

/** A DiscoveryConsumer of the cluster as it was seen last. */
export interface StatusTarget {
  readonly name: string;
  readonly resourceVersion: string;
  readonly generation: number | undefined;
  readonly status: unknown;
}

export interface StatusesOptions {
  readonly connection: KubeConnection;
  /** Of the collection: `/apis/linger.dev/v1alpha1/discoveryconsumers`. */
  readonly path: string;
  readonly limits: PublishLimits;
  readonly status: PublishStatus;
  readonly reporting: Reporting;
  readonly random: () => number;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  readonly epochSeconds: () => number;
}

/** What has been told by a status; kept, as reading one takes a schema. */
interface Told {
  readonly resourceVersion: string;
  readonly view: ConsumerView | undefined;
  readonly observed: number | undefined;
}

/** After somebody else has changed the object: until the watch has brought that. */
const CHANGED_MEANWHILE_MS = 5_000;

/**
 * Writes the status of DiscoveryConsumers, for as long as this replica leads: each at most once a minute, when there is
 * something new to say; one at a time, over one connection.
 */
export class ConsumerStatuses {
  readonly #options: StatusesOptions;
  readonly #agent: ReturnType<typeof newAgent>;
  readonly #begunAt: number;
  readonly #schedule: Schedule;
  readonly #told = new Map<string, Told>();
  /** Until when each is left alone; milliseconds of the monotonic clock. */
  readonly #notBefore = new Map<string, number>();
  readonly #writtenAt = new Map<string, number>();

  constructor(options: StatusesOptions) {
    const { connection, limits, clock, random } = options;
    this.#options = options;
    this.#agent = newAgent(connection);
    this.#begunAt = clock();
    this.#schedule = new Schedule({ everyMs: 0, ...limits }, this.#begunAt, random);
  }

  /** Writes the status of the one that has waited longest, if any has something new. Never throws. */
  async tick(
    views: readonly ConsumerView[],
    targets: readonly StatusTarget[],
    lead: Lead,
    signal: AbortSignal,
  ): Promise<void> {
    const { clock, limits, reporting } = this.#options;
    this.#forgetOthers(targets);
    if (!this.#schedule.due(clock())) return;
    const next = this.#next(views, targets);
    if (next === undefined || !lead.holds()) return;
    const { name } = next.target;
    try {
      await this.#write(next.target, next.view, signal);
      const now = clock();
      this.#writtenAt.set(name, now);
      this.#notBefore.set(name, now + limits.toldEveryMs);
      this.#schedule.done(now);
      reporting.succeeded('status');
    } catch (thrown) {
      if (!signal.aborted) this.#failed(name, thrown);
    }
  }

  close(): void {
    this.#agent.destroy();
  }

  #next(views: readonly ConsumerView[], targets: readonly StatusTarget[]) {
    const byName = new Map(views.map((view) => [view.name, view]));
    const due = targets.flatMap((target) => {
      const view = byName.get(target.name);
      const ripe = this.#options.clock() >= (this.#notBefore.get(target.name) ?? 0);
      return view !== undefined && ripe && this.#hasNews(target, view) ? [{ target, view }] : [];
    });
    const writtenAt = ({ target }: (typeof due)[number]) => this.#writtenAt.get(target.name) ?? 0;
    return due.toSorted((a, b) => writtenAt(a) - writtenAt(b))[0];
  }

  #hasNews(target: StatusTarget, view: ConsumerView): boolean {
    const { view: told, observed } = this.#toldOf(target);
    if (told === undefined || observed !== target.generation || isNews(view, told)) return true;
    const { clock, limits } = this.#options;
    const writtenAt = this.#writtenAt.get(target.name) ?? this.#begunAt;
    const isNewer = (view.lastSample ?? 0) - (told.lastSample ?? 0) >= 1;
    return isNewer && clock() - writtenAt >= limits.statusAgainMs;
  }

  #toldOf({ name, resourceVersion, status }: StatusTarget): Told {
    const kept = this.#told.get(name);
    if (kept?.resourceVersion === resourceVersion) return kept;
    const told = { resourceVersion, view: toldByStatus(name, status), observed: observedIn(status) };
    this.#told.set(name, told);
    return told;
  }

  async #write(target: StatusTarget, view: ConsumerView, signal: AbortSignal): Promise<void> {
    const { connection, path, limits, epochSeconds, status } = this.#options;
    const { name, resourceVersion, generation } = target;
    const told = this.#toldOf(target).view?.condition;
    // It has lasted since the leader before said so, or the one before that.
    const since = told?.status === view.condition.status ? told.since : view.condition.since;
    const lasting = { ...view, condition: { ...view.condition, since } };
    const object = {
      // Of two leaders, or beside an author who changes the spec, one fails.
      metadata: { resourceVersion },
      status: statusOf(lasting, generation, target.status),
    };
    await requestObject(connection, {
      method: 'PATCH',
      path: `${path}/${name}/status`,
      object,
      agent: this.#agent,
      signal,
      withinMs: limits.requestMs,
    });
    status.published.status.writes += 1;
    status.published.status.writtenAt = epochSeconds();
  }

  #failed(name: string, thrown: unknown): void {
    const { clock, reporting } = this.#options;
    const failure = asObjectFailure(thrown);
    const { reason } = failure;
    if (reason === 'Conflict' || reason === 'NotFound') {
      this.#notBefore.set(name, clock() + CHANGED_MEANWHILE_MS);
      return;
    }
    reporting.failed('status', failure, this.#schedule.failed(clock(), failure.retryAfterMs));
  }

  #forgetOthers(targets: readonly StatusTarget[]): void {
    if (this.#told.size <= targets.length) return;
    const names = new Set(targets.map(({ name }) => name));
    for (const kept of [this.#told, this.#notBefore, this.#writtenAt])
      for (const name of kept.keys()) if (!names.has(name)) kept.delete(name);
  }
}
