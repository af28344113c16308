import type { Registry } from '@prometheus-io/client';
import { asFailure, type FailureReason, type KubeConnection, type KubeFailure } from '../cluster/index.ts';
import {
  CLUSTER_TERMINATION_POLICIES,
  DISCOVERY_CONSUMERS,
  TERMINATION_POLICIES,
} from '../informers/index.ts';
import {
  counterAtScrape,
  gaugeAtScrape,
  type Logger,
  LogOnce,
  numberAtScrape,
  samplesBy,
} from '../telemetry/index.ts';
import type { Schedule } from '../timing/index.ts';
import {
  bytesOf,
  type Content,
  type Refusal,
  type Refused,
  refused,
  SHARED_NAMES,
  type SharedObject,
} from './codec.ts';
import { ELECTION_LIMITS, type ElectionClock, type LeaseLeadership } from './election.ts';
import type { SharedStore, WriteOutcome } from './store.ts';

/** Milliseconds unless noted otherwise. */
export const PUBLISH_LIMITS = {
  election: ELECTION_LIMITS,
  /** How long a new leader waits to read what its predecessor has stored before it goes on without it. */
  takeOverMs: 30_000,
  tickMs: 1_000,
  /** Time between two computations of the curves. They are published at most every ten minutes, so this delays little. */
  stepMs: 30_000,
  /** If a leader dies, at most this much history is lost. */
  historyEveryMs: 600_000,
  firstHistoryMs: 60_000,
  /** The shortest time between two writes of the consumers' ConfigMap, or of one status. */
  consumersEveryMs: 60_000,
  /** How often the ConfigMap is written if nothing has changed, and a status if there are only new samples. */
  consumersAgainMs: 300_000,
  statusAgainMs: 600_000,
  /** How often the leader checks statuses for changes. */
  statusLookMs: 5_000,
  /** How many statuses of one kind are written per tick: 1,000 new policies get theirs in about three minutes. */
  statusesATick: 5,
  /** When consumers are first written in a term; before that, measuring has only begun. */
  firstConsumersMs: 15_000,
  /** The shortest time between two writes of shortfalls. Short, because an operator may be waiting for one to appear. */
  shortfallsEveryMs: 15_000,
  /** The pauses after failures. */
  firstPauseMs: 2_000,
  longestPauseMs: 300_000,
  requestMs: 10_000,
  /** The time for the statuses of one tick: the API server's own objective for a request is 1 s at the 99th percentile. */
  slowMs: 1_000,
  /** How long a leader that resigns may continue to write: well below the drain of 15 s and the remaining lease. */
  handOverMs: 4_000,
  /** Characters of the published curves: those of the cluster, 50 namespaces and 200 consumers take 250 kB. */
  plannedCharacters: 900_000,
};
export type PublishLimits = Readonly<typeof PUBLISH_LIMITS>;

/** The kinds whose statuses are written, by the value of a metric's label. */
export const STATUS_KINDS = {
  status: DISCOVERY_CONSUMERS,
  clusterPolicyStatus: CLUSTER_TERMINATION_POLICIES,
  policyStatus: TERMINATION_POLICIES,
} as const;
export type StatusObject = keyof typeof STATUS_KINDS;

export type PublishTarget = 'lease' | SharedObject | StatusObject;

/** What this replica knows of one kind of ConfigMap, or of the statuses of one kind of object. */
export interface PublishedState {
  /** When the content in use was written, by the clock of its writer. Seconds since the epoch. */
  writtenAt: number | undefined;
  bytes: number | undefined;
  /** How often this replica has written. */
  writes: number;
  /** Why the stored content is not used; undefined: it is used, or does not exist. */
  refusal: Refusal | undefined;
}

export interface PublishStatus {
  leading: boolean;
  /** The identity of the leader; empty if it is not known. */
  holder: string;
  /** The leader's address for relayed connections; undefined: not known. */
  address: string | undefined;
  /** The Lease's transitions, as last seen. */
  term: number | undefined;
  readonly failures: Record<PublishTarget, Partial<Record<FailureReason, number>>>;
  readonly published: Readonly<Record<Exclude<PublishTarget, 'lease'>, PublishedState>>;
}

export function newStatus(): PublishStatus {
  const nothing = () => ({ writtenAt: undefined, bytes: undefined, writes: 0, refusal: undefined });
  const objects = [...Object.keys(SHARED_NAMES), ...Object.keys(STATUS_KINDS)];
  const each = <T>(make: () => T) => Object.fromEntries(objects.map((object) => [object, make()]));
  return {
    leading: false,
    holder: '',
    address: undefined,
    term: undefined,
    failures: { lease: {}, ...each(() => ({})) } as PublishStatus['failures'],
    published: each(nothing) as PublishStatus['published'],
  };
}

export class Reporting {
  readonly status: PublishStatus = newStatus();
  readonly #logger: Logger;
  readonly #once: LogOnce;
  readonly #clock: () => number;
  readonly #epochSeconds: () => number;
  readonly #renewEveryMs: number;

  constructor(
    {
      logger,
      time,
      epochSeconds,
    }: Pick<PublishContext, 'time' | 'epochSeconds'> & { readonly logger: Logger },
    { election }: PublishLimits,
  ) {
    this.#logger = logger;
    this.#once = new LogOnce(logger);
    this.#clock = time.clock;
    this.#epochSeconds = epochSeconds;
    this.#renewEveryMs = election.renewEveryMs;
  }

  /** Writes an object, and schedules the next write depending on the outcome. Never rejects. */
  async attempt(
    object: SharedObject,
    schedule: Schedule,
    signal: AbortSignal,
    write: () => Promise<WriteOutcome | 'unsettled'>,
  ): Promise<void> {
    try {
      const outcome = await write();
      this.succeeded(object);
      // The next renewal raises this replica's term or ends it.
      if (outcome === 'outgrown') schedule.failed(this.#clock(), this.#renewEveryMs);
      else schedule.done(this.#clock());
      if (outcome === 'Newer' || outcome === 'Foreign') this.found(object, refused(outcome));
    } catch (thrown) {
      if (signal.aborted) return;
      const failure = asFailure(thrown, 'Malformed');
      this.failed(object, failure, schedule.failed(this.#clock(), failure.retryAfterMs));
    }
  }

  /** @param pauseMs until the next attempt */
  failed(target: PublishTarget, { reason, message: problem }: KubeFailure, pauseMs: number): void {
    const counts = this.status.failures[target];
    counts[reason] = (counts[reason] ?? 0) + 1;
    const members = { object: nameOf(target), reason, problem, pauseMs: Math.round(pauseMs) };
    this.#once.warn(target, members, 'publishing failed; retrying, the last published state stays in force');
  }

  succeeded(target: PublishTarget): void {
    this.#once.over(target, { object: nameOf(target) }, 'publishing recovered');
  }

  /** @param bytes the size of all its ConfigMaps; undefined for statuses */
  written(target: Exclude<PublishTarget, 'lease'>, bytes?: number, writes = 1): void {
    const state = this.status.published[target];
    state.refusal = undefined;
    state.writtenAt = this.#epochSeconds();
    state.bytes = bytes;
    state.writes += writes;
  }

  /** Records that the stored content has been read, and whether it can be used. */
  found(object: SharedObject, present: Refused | { readonly outcome: 'read' | 'empty' }): void {
    const state = this.status.published[object];
    const before = state.refusal;
    state.refusal = present.outcome === 'refused' ? present.refusal : undefined;
    if (present.outcome !== 'refused' || state.refusal === before) return;
    const members = { object: nameOf(object), reason: present.refusal, problem: present.problem };
    this.#logger.error(members, 'published state rejected; the last good state stays in force');
  }

  /** Reports that the CRD, of an older version, lacks some members of the status that was written. */
  olderCrd(target: StatusObject): void {
    const members = { object: nameOf(target) };
    this.#once.warn(
      `${target} CRD`,
      members,
      'CRD is older than this version; writing only conditions to statuses',
    );
  }

  broke(err: Error): void {
    this.#logger.error({ err }, 'internal error while publishing; restarting the term');
  }
}

export interface PublishContext {
  readonly leadership: LeaseLeadership;
  readonly connection: KubeConnection;
  readonly store: SharedStore;
  readonly reporting: Reporting;
  readonly limits: PublishLimits;
  readonly time: ElectionClock;
  readonly epochSeconds: () => number;
}

/**
 * Publishes content that fits into one ConfigMap. Never rejects.
 * @param contentOf returns undefined if there is nothing to store
 * @returns whether the current content is stored
 */
export async function publish(
  { leadership, store, reporting }: PublishContext,
  object: SharedObject,
  schedule: Schedule,
  signal: AbortSignal,
  contentOf: () => Promise<Content | undefined>,
): Promise<boolean> {
  let stored = false;
  await reporting.attempt(object, schedule, signal, async () => {
    const content = await contentOf();
    const outcome = content && (await store.write(SHARED_NAMES[object], content, leadership, signal));
    stored = outcome === undefined || outcome === 'written' || outcome === 'unchanged';
    if (stored && content !== undefined)
      reporting.written(object, bytesOf(content), Number(outcome === 'written'));
    return outcome ?? 'unchanged';
  });
  return stored;
}

function nameOf(target: PublishTarget): string {
  if (target === 'lease') return 'linger';
  return target in STATUS_KINDS
    ? `${STATUS_KINDS[target as StatusObject].path.split('/').at(-1)}/status`
    : SHARED_NAMES[target as SharedObject];
}

export function registerPublishMetrics(registry: Registry, status: PublishStatus): void {
  const { published } = status;
  const each = (value: (state: PublishedState) => number | undefined) =>
    samplesBy('object', published, value);
  numberAtScrape(registry, {
    name: 'linger_leader',
    help: '1 on the replica that leads and publishes, 0 on the others.',
    reference:
      '1 on the replica that leads and [publishes](operations.md#what-replicas-share), 0 on the others. The sum is 1, or 0 for a few seconds.',
    read: () => Number(status.leading),
  });
  numberAtScrape(registry, {
    name: 'linger_lease_transitions',
    help: 'How often the leader has changed, by the Lease; 0 until it has been read.',
    read: () => status.term ?? 0,
  });
  counterAtScrape(registry, {
    name: 'linger_publish_failures_total',
    help: 'Requests for the Lease, ConfigMaps (planned, history, consumers) and statuses that failed, by reason.',
    reference:
      'Requests that failed, by [reason](#why-publishing-fails): for the Lease (`lease`), ConfigMaps (`planned`, `history`, `consumers`, `shortfalls`), statuses of DiscoveryConsumers (`status`), ClusterTerminationPolicies (`clusterPolicyStatus`) and TerminationPolicies (`policyStatus`).',
    labelNames: ['object', 'reason'],
    read: () =>
      Object.entries(status.failures).flatMap(([object, counts]) =>
        Object.entries(counts).map(([reason, count]) => [{ object, reason }, count] as const),
      ),
  });
  counterAtScrape(registry, {
    name: 'linger_publish_writes_total',
    help: 'How often this replica has written a ConfigMap, or the status of a DiscoveryConsumer.',
    reference: 'How often this replica has written these ConfigMaps and statuses.',
    labelNames: ['object'],
    read: () => each(({ writes }) => writes),
  });
  gaugeAtScrape(registry, {
    name: 'linger_published_timestamp_seconds',
    help: 'When the state in use was written, by its writer’s clock.',
    labelNames: ['object'],
    read: () => each(({ writtenAt }) => (Number.isNaN(writtenAt) ? undefined : writtenAt)),
  });
  gaugeAtScrape(registry, {
    name: 'linger_published_bytes',
    help: 'Bytes of the contents. A ConfigMap may have 1 MiB.',
    labelNames: ['object'],
    read: () => each(({ bytes }) => bytes),
  });
  gaugeAtScrape(registry, {
    name: 'linger_published_refused',
    help: '1 while what a ConfigMap holds cannot be used, by reason.',
    reference:
      '1 while the contents of a ConfigMap cannot be used, by [reason](#why-what-is-published-is-refused). Only on the leader, except `planned`, which all replicas watch.',
    labelNames: ['object', 'reason'],
    read: () =>
      Object.entries(published).flatMap(([object, { refusal }]) => {
        // A follower watches only the curves. Of the other objects it knows only what it found when it led, or at its start.
        const known = object === 'planned' || status.leading;
        return known && refusal !== undefined ? [[{ object, reason: refusal }, 1] as const] : [];
      }),
  });
}
