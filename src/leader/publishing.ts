import { randomUUID } from 'node:crypto';
import { asFailure, type KubeConnection } from '../cluster/index.ts';
import { asError } from '../core/api/index.ts';
import { NOTHING_PLANNED, type PlannedTable, plannedToText, shrunkTable } from '../core/lag/index.ts';
import type { Leadership } from '../manager/index.ts';
import type { Logger } from '../telemetry/index.ts';
import { Backoff, Schedule } from '../timing/index.ts';
import {
  type Forgotten,
  isKnown,
  readForgotten,
  readPlanned,
  readShortfalls,
  SHARED_NAMES,
  type SharedObject,
  textContent,
} from './codec.ts';
import { ConsumerPublisher, consumerStatuses, type PublishedConsumers } from './consumer-statuses.ts';
import { campaign, type ElectionClock, type ElectionEvents, type LeaseLeadership } from './election.ts';
import { HistoryObjects, type StoredHistory } from './history-objects.ts';
import { leaseStore } from './lease.ts';
import {
  PUBLISH_LIMITS,
  type PublishContext,
  type PublishLimits,
  type PublishStatus,
  publish,
  Reporting,
} from './publish-context.ts';
import { StatusPublisher, type StatusSource } from './status-publisher.ts';
import { type PublishedPlanned, SharedStore } from './store.ts';

/** What replicas share of their measurements. Calls are synchronous unless they say otherwise. */
export interface SharedMeasurement extends StoredHistory {
  readonly table: PlannedTable;
  /** The next curves to publish; the same object if there is nothing to publish. */
  next(table: PlannedTable, epochSeconds: number): Promise<PlannedTable>;
  /** Bases waits on these curves from now on. */
  adopt(table: PlannedTable): void;
  /** Removes a span from the history; idempotent. */
  forget(span: Pick<Forgotten, 'from' | 'to'>, scope: Pick<Forgotten, 'namespace' | 'consumer'>): unknown;
}

export interface PublishingOptions {
  readonly connection: KubeConnection;
  /** Linger's own. */
  readonly namespace: string;
  /** The name of this replica, such as its pod's. It is made unique for each run of the process. */
  readonly identity: string;
  /** The address on which this replica accepts relayed connections while it leads. */
  readonly address?: string | undefined;
  readonly measurement: SharedMeasurement;
  readonly logger: Logger;
  readonly time: ElectionClock;
  readonly epochSeconds: () => number;
  /** The consumers to publish; absent: none. */
  readonly consumers?: PublishedConsumers | undefined;
  /** Other kinds of objects whose statuses to write. */
  readonly statuses?: readonly StatusSource[] | undefined;
  readonly shortfalls?: SharedShortfalls | undefined;
  /** Whether this replica has read the cluster; until it has, it leaves the lead to others. Default: true. */
  readonly ready?: (() => boolean) | undefined;
  /** Called whenever this replica begins to lead, while what its predecessor has stored is still being read. */
  readonly onLeading: (lead: Leadership) => void;
  /** Default: {@link PUBLISH_LIMITS}. */
  readonly limits?: PublishLimits;
  /** Aborts when the process should end. A leader then writes once more and releases the lease. */
  readonly signal: AbortSignal;
}

/** The leader's record of how pods ended, which `linger audit --since` reads. */
export interface SharedShortfalls {
  /** The whole record; the same string while nothing is added. Empty: there has never been one. */
  readonly text: string;
  /** Merges the previous leader's record. @returns undefined for anything else */
  restore(json: unknown): true | undefined;
}

export interface Publishing {
  /** Updated in place. */
  readonly status: PublishStatus;
  /** Call this with each state of the published curves' ConfigMap that a watch shows. */
  readonly saw: (published: PublishedPlanned | undefined) => void;
  /**
   * Resolves once the stored history has been merged, or turned out not to exist. May never resolve without an API server.
   */
  readonly restored: Promise<void>;
  /** Resolves once the signal has aborted and the lease is released, or cannot be: within 15 s. Never rejects. */
  readonly ended: Promise<void>;
}

const LEASE_NAME = 'linger';

/**
 * Takes part in publishing until the signal aborts. One replica leads, by means of a Lease, and writes the curves and the
 * history into ConfigMaps. All replicas take their waits from there, and start with the history that they find.
 */
export function startPublishing(options: PublishingOptions): Publishing {
  return new Replica(options).start();
}

class Replica {
  readonly options: PublishingOptions & Omit<PublishContext, 'leadership'>;
  readonly history: HistoryObjects;
  readonly #identity: string;
  #publisher: Publisher | undefined;
  /** The latest published curves, on which waits are based while another replica leads. */
  #seen: PlannedTable | undefined;
  /** Spans that have been removed from the history. */
  forgotten: readonly Forgotten[] = [];

  constructor(options: PublishingOptions) {
    const { connection, namespace, epochSeconds, measurement, limits = PUBLISH_LIMITS } = options;
    // A restarted container has the same pod name, and a write of its earlier process may still be under way.
    this.#identity = `${options.identity}_${randomUUID().slice(0, 8)}`;
    const { requestMs } = limits;
    const identity = this.#identity;
    const store = new SharedStore({ connection, namespace, identity, requestMs, epochSeconds });
    this.options = { ...options, limits, store, reporting: new Reporting(options, limits) };
    this.history = new HistoryObjects(store, measurement);
  }

  start(): Publishing {
    const { connection, namespace, address, time, limits, reporting, ready, signal } = this.options;
    const closing = new AbortController();
    const call = { signal: closing.signal, withinMs: limits.election.requestMs };
    // The stored history is merged into what has been measured in the meantime, so no samples are lost.
    const restored = this.retry('history', signal, () => this.restore(signal)).then(() => undefined);
    const resigned = campaign({
      identity: this.#identity,
      address,
      store: leaseStore({ connection, namespace, name: LEASE_NAME }, call),
      limits: limits.election,
      time,
      events: this.#events(),
      ready,
      signal,
    });
    const ended = Promise.all([resigned, restored]).then(() => closing.abort());
    return {
      status: reporting.status,
      saw: (published) => this.#saw(published),
      restored,
      ended,
    };
  }

  #events(): ElectionEvents {
    const { reporting } = this.options;
    return {
      onLeading: (leadership) => this.#lead(leadership),
      onFollowing: (holder) => this.#follow(holder),
      onHandOver: async () => this.#publisher?.finish(),
      onSeen: (record) => {
        reporting.status.term = record?.transitions;
        reporting.status.address = record?.holder ? record.address : undefined;
      },
      onRequest: () => reporting.succeeded('lease'),
      onFailure: (failure, pauseMs) => reporting.failed('lease', failure, pauseMs),
    };
  }

  #lead(leadership: LeaseLeadership): void {
    const { logger, reporting, onLeading } = this.options;
    Object.assign(reporting.status, { leading: true, holder: this.#identity });
    logger.info({ identity: this.#identity, term: leadership.term }, 'lease acquired, leading');
    this.#publisher = new Publisher(leadership, this);
    onLeading(leadership);
  }

  #follow(holder: string): void {
    const { measurement, logger, reporting } = this.options;
    const led = this.#publisher !== undefined;
    this.#publisher = undefined;
    Object.assign(reporting.status, { leading: false, holder });
    if (led) logger.info({ identity: this.#identity }, 'lease lost, stepping down');
    if (holder !== '') logger.info({ holder }, 'following the leader');
    if (led && this.#seen !== undefined) measurement.adopt(this.#seen);
  }

  #saw({ planned, forgotten }: PublishedPlanned = { planned: { outcome: 'empty' }, forgotten: [] }): void {
    const { reporting, measurement } = this.options;
    reporting.found('planned', planned);
    const table = planned.outcome === 'read' ? planned.value : undefined;
    this.#seen = table ?? this.#seen;
    const forgets = this.forget(forgotten);
    if (this.#publisher !== undefined) this.#publisher.saw(table, forgets);
    else if (planned.outcome === 'read') {
      const { bytes, stamp } = planned;
      Object.assign(reporting.status.published.planned, { bytes, writtenAt: stamp.writtenAt });
      measurement.adopt(planned.value);
    }
  }

  /** @returns whether any of these spans is new */
  forget(forgotten: readonly Forgotten[]): boolean {
    const added = forgotten.filter((each) => !isKnown(each, this.forgotten));
    this.forgotten = [...this.forgotten, ...added];
    const { measurement, logger } = this.options;
    for (const each of added) {
      measurement.forget(each, each);
      const span = { from: new Date(each.from * 1000), to: new Date(each.to * 1000) };
      logger.info({ ...each, ...span }, 'span removed from the history');
    }
    return added.length > 0;
  }

  /** @throws KubeFailure */
  async restore(signal: AbortSignal): Promise<void> {
    const { measurement, epochSeconds, logger, reporting } = this.options;
    const { stamp, bytes, refused, forgotten } = await this.history.restore(epochSeconds(), signal);
    // The leader that wrote the history may not have known all of these spans.
    for (const each of this.forgotten) if (!isKnown(each, forgotten)) measurement.forget(each, each);
    reporting.found('history', refused ?? { outcome: 'read' });
    if (stamp === undefined) return;
    Object.assign(reporting.status.published.history, { writtenAt: stamp.writtenAt, bytes });
    const ageSeconds = Math.round(epochSeconds() - stamp.writtenAt);
    logger.info({ writer: stamp.writer, ageSeconds }, 'history restored');
  }

  /** @returns whether it succeeded before the signal aborted */
  async retry(object: SharedObject, signal: AbortSignal, work: () => Promise<void>): Promise<boolean> {
    const { limits, reporting, time } = this.options;
    const backoff = new Backoff(limits, time.random);
    while (!signal.aborted) {
      try {
        await work();
        reporting.succeeded(object);
        return true;
      } catch (thrown) {
        if (signal.aborted) break;
        const failure = asFailure(thrown, 'Malformed');
        const pauseMs = backoff.next(failure.retryAfterMs);
        reporting.failed(object, failure, pauseMs);
        await time.pause(pauseMs, signal);
      }
    }
    return false;
  }
}

/**
 * What a leader does from the beginning of a term to its end: it computes the curves, and publishes them and the history.
 *
 * Waits are based on what is published, even on the leader itself: curves apply only once they have been written. So all
 * replicas give the same answer, and a leader that cannot write leaves the last curves as they are.
 */
class Publisher {
  readonly #context: PublishingOptions & PublishContext;
  readonly #replica: Replica;
  /**
   * All publishers except those of the curves, the history and the record of terminations, which are written once more at
   * the end.
   */
  readonly #publishers: readonly { tick(signal: AbortSignal): Promise<void> }[];
  readonly #stopping = new AbortController();
  readonly #planned: Schedule;
  readonly #history: Schedule;
  readonly #shortfalls: Schedule;
  /** The stored text; undefined: it has not been read in this term. */
  #shortfallsText: string | undefined;
  #working: PlannedTable = NOTHING_PLANNED;
  /** The working curves, if they have been published; undefined: others may see different ones. */
  #published: PlannedTable | undefined;
  #publishedText = '';
  /** What has been read in this term; nothing else may be overwritten. */
  readonly #readOf = { planned: false, history: false };
  #nextStep = Number.NEGATIVE_INFINITY;
  readonly #running: Promise<void>;

  constructor(leadership: LeaseLeadership, replica: Replica) {
    const context = { ...replica.options, leadership };
    const { limits, time, reporting, consumers, statuses = [] } = context;
    const now = time.clock();
    const schedule = (everyMs: number, firstAt = now) =>
      new Schedule({ ...limits, everyMs }, firstAt, time.random);
    this.#context = context;
    this.#replica = replica;
    this.#planned = schedule(0);
    this.#history = schedule(limits.historyEveryMs, now + limits.firstHistoryMs);
    this.#shortfalls = schedule(limits.shortfallsEveryMs);
    const consumersAt = now + limits.firstConsumersMs;
    this.#publishers = [
      consumers && new ConsumerPublisher(context, consumers),
      consumers && new StatusPublisher(context, consumerStatuses(consumers), consumersAt),
      ...statuses.map((each) => new StatusPublisher(context, each, now)),
    ].filter((each) => each !== undefined);
    this.#running = this.#run().catch((error: unknown) => {
      reporting.broke(asError(error));
      // With the next renewal, a new term starts.
      leadership.end();
    });
  }

  /**
   * @param table what other replicas see; undefined: nothing. If it differs from what this leader has written, that is
   * written again
   * @param forgets whether something has been removed from the history
   */
  saw(table: PlannedTable | undefined, forgets: boolean): void {
    if (table === undefined || plannedToText(table) !== this.#publishedText) this.#published = undefined;
    if (!forgets) return;
    // Makes the next publication due now, instead of in up to ten minutes.
    this.#working = { ...this.#working, at: Number.NEGATIVE_INFINITY };
    this.#nextStep = Number.NEGATIVE_INFINITY;
    this.#history.hasten();
  }

  /** Writes once more; called before the lease is released. */
  async finish(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
    const { limits, leadership, time } = this.#context;
    const signal = AbortSignal.any([AbortSignal.timeout(limits.handOverMs), leadership.signal]);
    if (this.#readOf.planned) await this.#step(time.clock());
    if (this.#hasPlanned) await this.#publishPlanned(signal);
    if (this.#hasHistory) await this.#publishHistory(signal);
    if (this.#hasShortfalls) await this.#publishShortfalls(signal);
  }

  async #run(): Promise<void> {
    const { limits, time, leadership, logger } = this.#context;
    const signal = AbortSignal.any([leadership.signal, this.#stopping.signal]);
    const reading = this.#takeOver(signal);
    await Promise.race([reading, time.pause(limits.takeOverMs, signal)]);
    if (signal.aborted) return;
    for (const object of ['planned', 'history'] as const)
      if (!this.#readOf[object])
        logger.warn(
          { object: SHARED_NAMES[object] },
          'stored state unreadable; leading without it, not overwriting it, and retrying',
        );
    do await this.#tick(signal);
    while (await time.pause(limits.tickMs, signal));
  }

  /** Reads what the previous leader has stored. What has not been read is never overwritten. */
  async #takeOver(signal: AbortSignal): Promise<void> {
    const replica = this.#replica;
    const read = this.#readOf;
    await Promise.all([
      replica.retry('planned', signal, () => this.#readPlanned(signal)).then((done) => (read.planned = done)),
      replica.retry('history', signal, () => replica.restore(signal)).then((done) => (read.history = done)),
    ]);
  }

  async #readPlanned(signal: AbortSignal): Promise<void> {
    const { store, reporting, measurement } = this.#context;
    const present = await store.read(SHARED_NAMES.planned, signal);
    this.#replica.forget(readForgotten(present));
    const planned = readPlanned(present);
    reporting.found('planned', planned);
    // If it is missing or unreadable, go on from the latest curves that this replica has seen.
    this.#working = measurement.table;
    if (planned.outcome !== 'read') return;
    this.#working = planned.value;
    this.#published = planned.value;
    this.#publishedText = plannedToText(planned.value);
    // Adopt it here: the watch may lag behind the lease, and a leader does not adopt what the watch delivers.
    measurement.adopt(planned.value);
  }

  async #tick(signal: AbortSignal): Promise<void> {
    const now = this.#context.time.clock();
    if (this.#readOf.planned && now >= this.#nextStep) await this.#step(now);
    if (this.#hasPlanned && this.#planned.due(now)) await this.#publishPlanned(signal);
    if (this.#hasHistory && this.#history.due(now)) await this.#publishHistory(signal);
    for (const each of this.#publishers) await each.tick(signal);
    if (this.#hasShortfalls && this.#shortfalls.due(now)) await this.#publishShortfalls(signal);
  }

  async #step(now: number): Promise<void> {
    const { measurement, epochSeconds, limits } = this.#context;
    const working = this.#working;
    const next = await measurement.next(working, epochSeconds());
    // If something has been forgotten in the meantime, these curves may still contain it; the next tick computes them again.
    if (this.#working !== working) return;
    this.#working = next;
    this.#nextStep = now + limits.stepMs;
  }

  get #hasShortfalls(): boolean {
    const { shortfalls } = this.#context;
    return shortfalls !== undefined && shortfalls.text !== this.#shortfallsText;
  }

  /** First merges the stored record of the previous leader. */
  async #publishShortfalls(signal: AbortSignal): Promise<void> {
    const { store, reporting, shortfalls } = this.#context;
    if (shortfalls === undefined) return;
    let text = '';
    const stored = await publish(this.#context, 'shortfalls', this.#shortfalls, signal, async () => {
      if (this.#shortfallsText === undefined) {
        const present = await store.read(SHARED_NAMES.shortfalls, signal);
        reporting.found('shortfalls', readShortfalls(present, shortfalls.restore));
      }
      ({ text } = shortfalls);
      return text === '' ? undefined : textContent('shortfalls', text);
    });
    if (stored) this.#shortfallsText = text;
  }

  get #hasPlanned(): boolean {
    return this.#readOf.planned && this.#working !== this.#published;
  }

  get #hasHistory(): boolean {
    const { planned, history } = this.#readOf;
    return history && (this.#working !== NOTHING_PLANNED || !planned);
  }

  async #publishPlanned(signal: AbortSignal): Promise<void> {
    const working = this.#working;
    if (working === NOTHING_PLANNED) return;
    const table = shrunkTable(working, this.#context.limits.plannedCharacters);
    const text = plannedToText(table);
    const contentOf = async () => textContent('planned', text);
    // Set before the response: while it is under way, the watch may already show what another replica has written after it.
    this.#published = working;
    this.#publishedText = text;
    const stored = await publish(this.#context, 'planned', this.#planned, signal, contentOf);
    if (stored) this.#context.measurement.adopt(table);
    else this.#published = undefined;
  }

  async #publishHistory(signal: AbortSignal): Promise<void> {
    const { reporting, leadership, epochSeconds } = this.#context;
    const { history } = this.#replica;
    await reporting.attempt('history', this.#history, signal, async () => {
      // It was refused when this term began, but its owner may have removed the cause since.
      if (!history.settled) await this.#replica.restore(signal);
      if (!history.settled) return 'unsettled';
      const { forgotten } = this.#replica;
      const written = await history.write(leadership, forgotten, epochSeconds(), signal);
      const { outcome, bytes, writes } = written;
      if (outcome === 'written') reporting.written('history', bytes, writes);
      return outcome;
    });
  }
}
