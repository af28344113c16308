import { randomUUID } from 'node:crypto';
import type { PlannedTable } from '../core/lag/planned.ts';
import type { KubeConnection } from '../kube/connection.ts';
import { asObjectFailure } from '../kube/object-request.ts';
import type { Published } from '../measure/publication.ts';
import type { Logger } from '../telemetry/logs.ts';
import { PublishedConfigMaps } from './config-map.ts';
import { type ConsumersToTell, ConsumerTelling } from './consumer-telling.ts';
import { campaign, type ElectionEvents } from './election.ts';
import { HistoryKeeper, type MeasuredHistories } from './history-keeper.ts';
import { LeaderTerm, type PlannedMeasurement } from './leader-term.ts';
import type { ElectionClock, Lead, Leadership } from './leadership.ts';
import { ApiLeaseStore } from './lease-store.ts';
import { PUBLISH_LIMITS, type PublishLimits } from './limits.ts';
import { Reporting } from './reporting.ts';
import { Schedule } from './schedule.ts';
import { newStatus, type PublishStatus } from './status.ts';

/** The Lease by which replicas choose who publishes, in their own namespace. */
export const LEASE_NAME = 'linger';

/** What replicas share of what is measured. All calls are synchronous. */
export type SharedMeasurement = MeasuredHistories & PlannedMeasurement;

export interface PublishingOptions {
  readonly connection: KubeConnection;
  /** Linger's own. */
  readonly namespace: string;
  /** Which replica this is, such as the pod's name; made unique for each life of the process. */
  readonly identity: string;
  readonly measurement: SharedMeasurement;
  readonly logger: Logger;
  readonly time: ElectionClock;
  readonly epochSeconds: () => number;
  /** What to tell of consumers while this replica leads; absent: nothing. */
  readonly toTell?: ConsumersToTell | undefined;
  /** Called whenever this replica leads and has taken over from the leader before. */
  readonly onLeading: (lead: Lead) => void;
  /** Default: {@link PUBLISH_LIMITS}. */
  readonly limits?: PublishLimits;
  /** Aborts when the process is to end: a leader publishes its last words and gives the lease back. */
  readonly signal: AbortSignal;
}

/** A replica's share in publishing. */
export interface Publishing {
  /** Grows as it goes on. */
  readonly status: PublishStatus;
  /** To be called with the ConfigMap of the planned lags as it is, whenever it has changed. */
  readonly saw: (planned: Published<PlannedTable>) => void;
  /** Resolves once an earlier life's histories have been taken in, or there are none. It may never, without a server. */
  readonly restored: Promise<void>;
  /** Resolves once the signal has aborted and the lease is given back, or cannot be: within 15 s. Never rejects. */
  readonly ended: Promise<void>;
}

/**
 * Takes part in publishing until the signal aborts: one replica leads, by a Lease, and writes the planned lags and the
 * histories into ConfigMaps; all take their waits from there, and every one begins with the histories that it finds.
 */
export function startPublishing(options: PublishingOptions): Publishing {
  return new Replica(options).start();
}

class Replica {
  readonly #options: PublishingOptions;
  readonly #limits: PublishLimits;
  readonly #status = newStatus();
  readonly #reporting: Reporting;
  readonly #identity: string;
  readonly #configMaps: PublishedConfigMaps;
  readonly #histories: HistoryKeeper;
  #term: LeaderTerm | undefined;
  /** The planned lags as they were seen last: what is in force wherever we do not lead. */
  #seen: PlannedTable | undefined;
  #troubleAt = Number.NEGATIVE_INFINITY;

  constructor(options: PublishingOptions) {
    const { connection, namespace, logger, measurement, epochSeconds, limits = PUBLISH_LIMITS } = options;
    this.#options = options;
    this.#limits = limits;
    this.#reporting = new Reporting(logger, this.#status);
    // A container that is restarted has its pod's name, too; its earlier life might still be writing.
    this.#identity = `${options.identity}_${randomUUID().slice(0, 8)}`;
    const { requestMs, historyCharacters } = limits;
    this.#configMaps = new PublishedConfigMaps({
      connection,
      namespace,
      identity: this.#identity,
      requestMs,
    });
    this.#histories = new HistoryKeeper({
      configMaps: this.#configMaps,
      measurement,
      clock: options.time.clock,
      epochSeconds,
      status: this.#status,
      reporting: this.#reporting,
      characters: historyCharacters,
      onRestored: ({ writer, writtenAt }) => {
        const ageSeconds = Math.round(epochSeconds() - writtenAt);
        logger.info({ writer, ageSeconds }, 'history restored');
      },
    });
  }

  start(): Publishing {
    const { connection, namespace, time, signal } = this.#options;
    const { election } = this.#limits;
    const { requestMs } = election;
    const store = new ApiLeaseStore({ connection, namespace, name: LEASE_NAME, requestMs });
    const events = this.#events();
    const restored = this.#restore();
    const campaigned = campaign({ identity: this.#identity, store, limits: election, time, events, signal });
    const ended = Promise.all([campaigned, restored]).then(() => {
      store.close();
      this.#configMaps.close();
    });
    return { status: this.#status, saw: (planned) => this.#saw(planned), restored, ended };
  }

  #events(): ElectionEvents {
    return {
      onLeading: (leadership) => this.#lead(leadership),
      onFollowing: (holder) => this.#follow(holder),
      onHandOver: async () => this.#term?.finish(),
      onRequest: (record, tookMs) => {
        this.#status.term = record?.transitions;
        this.#reporting.succeeded('lease');
        if (tookMs > this.#limits.slowMs) this.#troubleAt = this.#options.time.clock();
      },
      onFailure: (failure, pauseMs) => {
        this.#troubleAt = this.#options.time.clock();
        this.#reporting.failed('lease', failure, pauseMs);
      },
    };
  }

  #lead(leadership: Leadership): void {
    const { measurement, logger, time, epochSeconds, onLeading } = this.#options;
    Object.assign(this.#status, { leading: true, holder: this.#identity });
    logger.info({ identity: this.#identity, term: leadership.term }, 'this replica leads: it publishes');
    this.#term = new LeaderTerm(leadership, {
      telling: this.#telling(leadership),
      configMaps: this.#configMaps,
      histories: this.#histories,
      measurement,
      status: this.#status,
      reporting: this.#reporting,
      limits: this.#limits,
      time,
      epochSeconds,
      calm: () => time.clock() - this.#troubleAt >= this.#limits.calmAfterMs,
      onTakenOver: onLeading,
    });
    this.#term.start();
  }

  #telling(leadership: Leadership): ConsumerTelling | undefined {
    const { toTell, connection, time, epochSeconds } = this.#options;
    return (
      toTell &&
      new ConsumerTelling(leadership, {
        connection,
        toTell,
        time,
        epochSeconds,
        configMaps: this.#configMaps,
        status: this.#status,
        reporting: this.#reporting,
        limits: this.#limits,
      })
    );
  }

  #follow(holder: string): void {
    const { measurement, logger } = this.#options;
    const led = this.#term !== undefined;
    this.#term = undefined;
    Object.assign(this.#status, { leading: false, holder });
    if (led) logger.info({ identity: this.#identity }, 'this replica leads no more');
    if (holder !== '') logger.info({ holder }, 'another replica leads');
    if (led && this.#seen !== undefined) measurement.adopt(this.#seen);
  }

  #saw(planned: Published<PlannedTable>): void {
    if (planned.outcome === 'refused') this.#reporting.refused('planned', planned.refusal, planned.problem);
    else this.#reporting.accepted('planned');
    const table = planned.outcome === 'read' ? planned.value : undefined;
    this.#seen = table ?? this.#seen;
    if (this.#term !== undefined) this.#term.saw(table);
    else if (planned.outcome === 'read') {
      const { bytes, stamp } = planned;
      Object.assign(this.#status.published.planned, { bytes, writtenAt: stamp.writtenAt });
      this.#options.measurement.adopt(planned.value);
    }
  }

  /** What is measured meanwhile is not lost: histories are added to it. */
  async #restore(): Promise<void> {
    const { time, signal } = this.#options;
    const tries = new Schedule({ everyMs: 0, ...this.#limits }, 0, time.random);
    while (!signal.aborted && !this.#histories.settled) {
      try {
        await this.#histories.look(signal);
        // What is left alone may be of use later; a leader looks again.
        return;
      } catch (thrown) {
        if (signal.aborted) return;
        const failure = asObjectFailure(thrown);
        const pauseMs = tries.failed(time.clock(), failure.retryAfterMs);
        this.#reporting.failed('history', failure, pauseMs);
        await time.pause(pauseMs, signal);
      }
    }
  }
}
