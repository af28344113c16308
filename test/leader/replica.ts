import { onTestFinished } from 'vitest';
import { taken } from '../../src/core/api/index.ts';
import {
  BUILT_IN_ENOUGH,
  LagEstimator,
  NOTHING_PLANNED,
  nextPlanned,
  type PlannedTable,
  plannedLags,
  plannedToText,
} from '../../src/core/lag/index.ts';
import { type Forgotten, PLANNED_KEY, readForgotten, readPlanned } from '../../src/leader/codec.ts';
import type { PublishedConsumers } from '../../src/leader/consumer-statuses.ts';
import { PUBLISH_LIMITS, type PublishLimits } from '../../src/leader/publish-context.ts';
import {
  type Publishing,
  type PublishingOptions,
  type SharedMeasurement,
  startPublishing,
} from '../../src/leader/publishing.ts';
import type { StatusSource } from '../../src/leader/status-publisher.ts';
import { createLogger } from '../../src/telemetry/index.ts';
import { pause } from '../../src/timing/index.ts';
import { waitUntil } from '../testbed/waiting.ts';
import { ModelApi } from './model-api.ts';

const NAMESPACE = 'linger';
export const LEASE = `/apis/coordination.k8s.io/v1/namespaces/${NAMESPACE}/leases/linger`;
export const PLANNED = `/api/v1/namespaces/${NAMESPACE}/configmaps/linger-planned`;
export const HISTORY = `/api/v1/namespaces/${NAMESPACE}/configmaps/linger-history`;

const NOON = Date.UTC(2026, 10, 21, 12) / 1000;
/** Seconds since the epoch, for all replicas; tests move it on, and each begins at noon: files share their modules. */
export const wall = { now: NOON };

/** Quick where the real ones are patient. No lease expires, so that a slow machine changes no leader. */
export const QUICK: PublishLimits = {
  ...PUBLISH_LIMITS,
  election: {
    ...PUBLISH_LIMITS.election,
    durationMs: 600_000,
    leadMs: 300_000,
    renewEveryMs: 20,
    lookEveryMs: [10, 20],
    requestMs: 10_000,
    firstPauseMs: 10,
    longestPauseMs: 40,
    longestRetryAfterMs: 30_000,
  },
  tickMs: 5,
  stepMs: 5,
  firstHistoryMs: 0,
  historyEveryMs: 20,
  firstConsumersMs: 0,
  statusLookMs: 5,
  consumersEveryMs: 20,
  firstPauseMs: 10,
  longestPauseMs: 40,
  slowMs: 60_000,
};

/** What a replica measures: the estimator and the step, as they are. */
export class Measured implements SharedMeasurement {
  readonly estimator = new LagEstimator();
  table: PlannedTable = NOTHING_PLANNED;
  steps = 0;
  readonly #now: () => number;

  /** @param now seconds since the epoch */
  constructor(now = () => wall.now) {
    this.#now = now;
  }

  /** So many lags of this length, now. */
  record(seconds: number, count = 300, namespace = 'shop'): void {
    for (let index = 0; index < count; index++)
      this.estimator.record({ namespace, lag: seconds }, this.#now());
  }

  next(table: PlannedTable, epochSeconds: number): Promise<PlannedTable> {
    this.steps += 1;
    const { cluster, namespaces } = this.estimator;
    const measured = { cluster, namespaces, consumers: undefined };
    return Promise.resolve(taken(nextPlanned(table, measured, epochSeconds)));
  }

  adopt(table: PlannedTable): void {
    this.table = table;
  }

  parts(epochSeconds: number) {
    return this.estimator.parts(epochSeconds);
  }

  restorePart(json: unknown, epochSeconds: number): boolean {
    return this.estimator.restorePart(json, epochSeconds);
  }

  forget(span: Pick<Forgotten, 'from' | 'to'>, { namespace }: Pick<Forgotten, 'namespace'>): number {
    return this.estimator.forget(namespace, span);
  }

  /** What is in force, as text. */
  get inForce(): string {
    return plannedToText(this.table);
  }
}

export interface TestReplica extends Publishing {
  readonly measured: Measured;
  readonly lines: readonly { readonly msg: string; readonly [member: string]: unknown }[];
  readonly stop: () => Promise<void>;
}

/** An API server in which a lease is free to be taken. */
export async function openApi(): Promise<ModelApi> {
  const api = await ModelApi.start();
  onTestFinished(() => {
    wall.now = NOON;
    return api.close();
  });
  const spec = { holderIdentity: '', leaseDurationSeconds: 1, leaseTransitions: 4 };
  api.put(LEASE, { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: { name: 'linger' }, spec });
  return api;
}

/**
 * A replica until the test's end. It sees each change of the planned lags at once, as by a watch.
 * @param watching false: a watch that brings nothing
 */
export function startReplica(
  api: ModelApi,
  identity: string,
  limits: Partial<PublishLimits> = {},
  measured = new Measured(),
  consumers?: PublishedConsumers,
  watching = true,
  statuses: readonly StatusSource[] = [],
  more: Partial<Pick<PublishingOptions, 'onLeading'>> = {},
): TestReplica {
  const stopping = new AbortController();
  const lines: TestReplica['lines'][number][] = [];
  const publishing = startPublishing({
    connection: { server: api.url, credentials: async () => ({}) },
    namespace: NAMESPACE,
    identity,
    measurement: measured,
    consumers,
    statuses,
    onLeading: () => undefined,
    ...more,
    logger: createLogger('debug', { write: (line) => void lines.push(JSON.parse(line)) }),
    time: {
      clock: () => performance.now(),
      wallMicroseconds: () => Math.round(wall.now * 1e6),
      random: Math.random,
      pause,
    },
    epochSeconds: () => wall.now,
    limits: { ...QUICK, ...limits },
    signal: stopping.signal,
  });
  const look = () => {
    const object = api.objects.get(PLANNED);
    publishing.saw({ planned: readPlanned(object), forgotten: readForgotten(object) });
  };
  if (watching) look();
  const { onChange } = api;
  api.onChange = (path) => {
    onChange(path);
    if (watching && path === PLANNED && !stopping.signal.aborted) setImmediate(look);
  };
  const stop = () => {
    stopping.abort();
    return publishing.ended;
  };
  onTestFinished(stop);
  return { ...publishing, measured, lines, stop };
}

export const soon = <T>(what: string, look: () => T | undefined | false) =>
  waitUntil(what, look, { intervalMs: 5, timeoutMs: 20_000 });

export const leads = (replica: TestReplica) => soon('the replica to lead', () => replica.status.leading);

export const textOf = (api: ModelApi) =>
  (api.objects.get(PLANNED)?.data as Record<string, string> | undefined)?.[PLANNED_KEY];
export const annotationsOf = (api: ModelApi, path: string) =>
  api.objects.get(path)?.metadata.annotations ?? {};
export const p99 = ({ table }: Measured) =>
  plannedLags(table).planned('shop', [], BUILT_IN_ENOUGH).seen?.quantile(99);
export const msgs = (lines: readonly { readonly msg: string }[]) => lines.map(({ msg }) => msg);

/** A replica that leads and has published lags of 4 s. */
export async function withLeader(limits = {}) {
  const api = await openApi();
  const leader = startReplica(api, 'a', limits);
  leader.measured.record(4);
  await leads(leader);
  await soon('the lags to be in force', () => p99(leader.measured) !== undefined);
  return { api, leader };
}
