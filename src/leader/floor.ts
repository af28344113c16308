import { Gauge, type Registry } from '@prometheus-io/client';
import { asFailure, callApi, type KubeConnection, unlessNotFound } from '../cluster/index.ts';
import { FLOOR } from '../core/api/index.ts';
import {
  atLeast,
  type ClusterSnapshot,
  FLOOR_VERSIONS,
  type Floor,
  floorData,
  floorOf,
} from '../core/decision/index.ts';
import type { Leadership, OwnReplica } from '../manager/index.ts';
import { type Logger, LogOnce } from '../telemetry/index.ts';
import { inPieces, Schedule } from '../timing/index.ts';
import type { ElectionClock } from './election.ts';
import { FIELD_MANAGER } from './status-publisher.ts';

export interface FloorOptions extends Pick<ElectionClock, 'clock' | 'random' | 'pause'> {
  readonly connection: KubeConnection;
  readonly place: OwnReplica;
  readonly logger: Logger;
  readonly epochSeconds: () => number;
  /** undefined: too little of the cluster has been read to write anything. */
  readonly snapshot: () => ClusterSnapshot | undefined;
}

/** At most one write in ten seconds: a changed policy matters to the floor only once Linger is down. */
const PACE = { everyMs: 10_000, firstPauseMs: 2_000, longestPauseMs: 300_000 };
const TICK_MS = 1_000;
const REQUEST_MS = 10_000;

/**
 * How long the written data count as up to date. Longer than a restart of Linger, and still short, because curves may rise
 * every ten minutes.
 */
export const FLOOR_LIFE_SECONDS = 3_600;

/** How often the ConfigMap is restored in case something else has changed it, since it is not watched. */
const RESTORE_SECONDS = 60;

/** The number of namespaces by what their pods get while Linger is down. */
type FloorCounts = Readonly<Record<'wait' | 'none' | 'dropped', number>>;

/** @param counts undefined: this replica does not lead */
export function registerFloorMetrics(registry: Registry, counts: () => FloorCounts | undefined): void {
  const gauge = new Gauge({
    name: 'linger_published_floor_namespaces',
    help: 'Namespaces by what their pods get while Linger is down: a wait, none, or dropped: none, because the ConfigMap is full.',
    reference:
      'Namespaces by what the ConfigMap `linger-floor` says of their pods [while Linger is down](../when-linger-is-down.md): `wait`, `none`, or `dropped`: none, because it is full. Only on the leader.',
    labelNames: ['floor'] as const,
    registers: [registry],
    collect: () => {
      gauge.reset();
      for (const [floor, count] of Object.entries(counts() ?? {})) gauge.set({ floor }, count);
    },
  });
}

/** Writes what pods get while Linger is down, to be read by the policy in the API server. */
export class FloorWriter {
  readonly name = 'floor';
  readonly #options: FloorOptions;
  readonly #once: LogOnce;
  #written: { readonly text: string; readonly until: number; readonly at: number } | undefined;
  #counts: FloorCounts | undefined;

  constructor(options: FloorOptions) {
    this.#options = options;
    this.#once = new LogOnce(options.logger);
  }

  metrics(registry: Registry): void {
    registerFloorMetrics(registry, () => this.#counts);
  }

  /**
   * Writes when something has changed, and at half of the life of the data. Also writes the same again every minute, which
   * has an effect only if something else has changed or deleted it. Resolves at the end of the term.
   */
  async lead(leadership: Leadership): Promise<void> {
    const { clock, random, pause, snapshot, epochSeconds } = this.#options;
    const schedule = new Schedule(PACE, clock(), random);
    // The previous leader may have written something else, so write at first.
    this.#written = undefined;
    let seen: ClusterSnapshot | undefined;
    do {
      const current = leadership.holds() && schedule.due(clock()) ? snapshot() : undefined;
      if (current === undefined || !isServed(current)) continue;
      if (current === seen && !this.#isToRestore(epochSeconds())) continue;
      const floor = await inPieces(floorOf(current));
      if (await this.#write(floor, leadership, schedule)) seen = current;
    } while (await pause(TICK_MS, leadership.signal));
    this.#counts = undefined;
  }

  #isHalfOver(now: number): boolean {
    return now >= (this.#written?.until ?? 0) - FLOOR_LIFE_SECONDS / 2;
  }

  #isToRestore(now: number): boolean {
    return now >= (this.#written?.at ?? 0) + RESTORE_SECONDS;
  }

  /** @returns whether the current data are stored */
  async #write(floor: Floor, leadership: Leadership, schedule: Schedule): Promise<boolean> {
    const { connection, place, clock, epochSeconds, logger } = this.#options;
    const now = epochSeconds();
    const until = (this.#isHalfOver(now) ? undefined : this.#written?.until) ?? now + FLOOR_LIFE_SECONDS;
    const { data, dropped } = floorData(floor, until);
    const text = JSON.stringify(data);
    if (text === this.#written?.text && !this.#isToRestore(now)) {
      schedule.done(clock());
      return true;
    }
    if (!leadership.holds()) return false;
    const { namespace } = place;
    const named = { name: FLOOR.configMap, namespace, fieldManager: FIELD_MANAGER };
    const call = { signal: leadership.signal, withinMs: REQUEST_MS };
    try {
      // Replaces the data as a whole, because an apply would leave lines that something else has added. Equal data are not
      // stored again.
      const replacing = callApi(connection, 'CoreV1Api', { ...call, patch: 'json-patch' }, (api) =>
        api.patchNamespacedConfigMap({ ...named, body: [{ op: 'add', path: '/data', value: data }] }),
      );
      const metadata = { name: FLOOR.configMap, namespace, labels: LABELS };
      const body = { apiVersion: 'v1', kind: 'ConfigMap', metadata, data };
      // With server-side apply, which RBAC can limit to one name.
      const creating = () =>
        callApi(connection, 'CoreV1Api', { ...call, patch: 'apply-patch' }, (api) =>
          api.patchNamespacedConfigMap({ ...named, body, force: true }),
        );
      if ((await unlessNotFound(replacing)) === undefined) await creating();
    } catch (thrown) {
      if (leadership.signal.aborted) return false;
      const { reason, message: problem, retryAfterMs } = asFailure(thrown);
      const pauseMs = Math.round(schedule.failed(clock(), retryAfterMs));
      this.#once.warn(
        FLOOR.configMap,
        { object: FLOOR.configMap, reason, problem, pauseMs },
        'writing the floor failed; retrying, while Linger is down pods get what was written last',
      );
      return false;
    }
    schedule.done(clock());
    this.#once.over(FLOOR.configMap, { object: FLOOR.configMap }, 'floor written again');
    if (this.#written === undefined) logger.info({ bytes: text.length, dropped }, 'floor written');
    if (dropped > 0)
      logger.warn(
        { dropped },
        'no room in the floor for all namespaces; while Linger is down their pods get no wait',
      );
    this.#written = { text, until, at: now };
    const waits = [...floor.byNamespace.values()].filter((entry) => entry !== undefined).length;
    this.#counts = { wait: waits - dropped, none: floor.byNamespace.size - waits, dropped };
    return true;
  }
}

const LABELS = { 'app.kubernetes.io/name': 'linger', 'app.kubernetes.io/managed-by': 'linger' };

function isServed({ fleet }: ClusterSnapshot): boolean {
  return fleet?.apiServer !== undefined && atLeast(fleet.apiServer, FLOOR_VERSIONS.oldest);
}
