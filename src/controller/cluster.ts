import type { RequestListener } from 'node:http';
import { defaultWait } from '../core/plan/default-wait.ts';
import type { KubeConnection } from '../kube/connection.ts';
import { ConsumerViews } from '../measure/consumer-views.ts';
import { Measurement } from '../measure/measurement.ts';
import type { Lead } from '../publish/leadership.ts';
import { estimatesPage } from '../serve/estimates.ts';
import { type ClusterHandlers, type ClusterSource, followCluster } from '../sources/cluster.ts';
import type { ConsumersSource } from '../sources/consumers.ts';
import { DISCOVERY_CONSUMERS_PATH } from '../sources/kube/discovery-consumers.ts';
import { pause } from '../sources/pause.ts';
import { registerCanaryMetrics } from '../telemetry/canary-metrics.ts';
import { registerConsumerMetrics } from '../telemetry/consumer-metrics.ts';
import { registerLagMetrics } from '../telemetry/lag-metrics.ts';
import type { Logger } from '../telemetry/logs.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { registerWatchMetrics } from '../telemetry/watch-metrics.ts';
import type { WorldHolder } from '../world/world.ts';
import { type CanarySettings, type RunningCanary, startCanary } from './canary.ts';
import { measureConsumers } from './consumer-measuring.ts';
import { followDeclaredConsumers } from './declared-consumers.ts';
import { takeReports } from './report-taking.ts';
import { type Place, startSharing } from './sharing.ts';
import { watchesReporting } from './watch-reporting.ts';

/** What the connection to a cluster shares with the rest of a running server. */
export interface ClusterContext {
  readonly connection: KubeConnection;
  /** Seconds. */
  readonly syncTimeout: number;
  readonly logger: Logger;
  readonly metrics: Pick<Metrics, 'registry'>;
  readonly world: WorldHolder;
  /** Where replicas share what they measure; undefined: this one is alone. */
  readonly place: Place | undefined;
  /** undefined: there is no canary. */
  readonly canary: CanarySettings | undefined;
  /** Whom the tokens of those who report must have been made for. */
  readonly reportsAudience: string;
  readonly signal: AbortSignal;
}

/** A server's connection to its cluster. */
export interface ClusterPart {
  /** Why the webhook should get no connections yet; undefined when it should. */
  readonly unready: () => string | undefined;
  /** What `/estimates` shows. */
  readonly estimates: () => unknown;
  /** Answers what comes to `/v1`: reports of consumers. */
  readonly reports: RequestListener;
  /** Gives the lead away, if this replica has it; resolves once that is done, or cannot be. */
  readonly leave: () => Promise<unknown>;
  /** Resolves once the signal has aborted and nothing goes on any more. */
  readonly ended: Promise<unknown>;
}

const clock = () => performance.now();
const epochSeconds = () => Date.now() / 1000;

/** Follows the cluster and measures its lag, from now on until the signal aborts: worlds, metrics and log lines follow. */
export function startCluster(context: ClusterContext): ClusterPart {
  const { connection, world, metrics, signal } = context;
  const measurement = new Measurement({ clock, epochSeconds });
  const canary = canaryOf(context, measurement);
  const handlers: ClusterHandlers = {
    onWorld: (event) => world.apply(event),
    onEvent: (event) => {
      measurement.apply(event);
      canary?.observe(event);
    },
    ...watchesReporting(context.logger),
  };
  const source = followCluster(connection, handlers, { signal, clock, random: Math.random });
  const declared = followDeclaredConsumers({ ...context, clock });
  const sync = followSync(source, declared, context);

  const wait = () => defaultWait(world.current());
  const synced = () => sync.state === 'synced';
  const onLags = (lags: ReturnType<Measurement['lags']>) => world.apply({ kind: 'lags', lags });
  const views = new ConsumerViews(measurement.consumers);
  const consumerMetrics = registerConsumerMetrics(metrics.registry, { views: () => views.all, epochSeconds });
  measurement.consumers.onSample(({ consumer, direction, lag }) => {
    if (direction === 'removal') consumerMetrics.removal(consumer, lag);
  });
  const shown = { declared, views, metrics: consumerMetrics, epochSeconds };
  const measuring = measureConsumers({ ...context, measurement, canary, ...shown });
  const consumers = () => world.current().consumers;
  const audience = context.reportsAudience;
  const reports = takeReports({ ...context, consumers, measurement: measurement.consumers, audience, clock });
  const onLeading = (lead: Lead) => {
    measuring.lead(lead);
    reports.lead(lead);
  };
  const toTell = {
    views: () => views.all,
    since: views.since.bind(views),
    targets: declared.objects,
    path: DISCOVERY_CONSUMERS_PATH,
  };
  const sharing = startSharing({ ...context, measurement, toTell, onLags, onLeading, clock, epochSeconds });
  // A kind that is not served is not followed, and no watch that should be current.
  const ofConsumers = () => (declared.served() ? { discoveryconsumers: declared.stats } : {});
  const watches = () => ({ ...source.watches, ...sharing.watches, ...ofConsumers() });
  registerWatchMetrics(metrics.registry, { watches, synced, clock });
  const count = registerLagMetrics(metrics.registry, measurement, wait);
  measurement.onSample(count);

  const reading = () => sync.state === 'reading' || !sharing.warm();
  return {
    unready: () => (reading() ? 'the cluster is being read' : undefined),
    estimates: () =>
      estimatesPage({
        measurement,
        consumers: views.all,
        watches: watches(),
        synced: synced(),
        defaultWait: wait(),
        clock,
      }),
    reports: reports.listener,
    leave: () => Promise.all([sharing.leave(), measuring.left()]),
    ended: Promise.all([source.ended, declared.ended, sharing.ended, measuring.ended, reports.ended()]),
  };
}

/** @returns undefined where replicas share nothing: then there is no Service to take one out of */
function canaryOf(
  { connection, place, canary, world, metrics, logger }: ClusterContext,
  { consumers }: Measurement,
): RunningCanary | undefined {
  const count = registerCanaryMetrics(metrics.registry);
  if (place === undefined || canary === undefined) return undefined;
  const present = () => world.current().consumers;
  const { namespace } = place;
  return startCanary({ ...canary, connection, namespace, present, consumers, logger, count, clock });
}

/** `late`: it takes too long to wait for; reviews are answered with what is known. */
interface Sync {
  readonly state: 'reading' | 'late' | 'synced';
}

function followSync(
  source: ClusterSource,
  declared: ConsumersSource,
  { syncTimeout, logger, signal }: ClusterContext,
): Sync {
  const sync: { state: Sync['state'] } = { state: 'reading' };
  const begun = clock();
  const seconds = () => Math.round((clock() - begun) / 100) / 10;
  void Promise.all([source.synced, declared.read]).then(() => {
    sync.state = 'synced';
    const { namespaces, services, nodes } = source.watches;
    const objects = {
      namespaces: namespaces.objects,
      services: services.objects,
      nodes: nodes.objects,
    };
    logger.info({ seconds: seconds(), ...objects }, 'the cluster has been read');
  });
  void pause(syncTimeout * 1000, signal).then((elapsed) => {
    if (!elapsed || sync.state === 'synced') return;
    sync.state = 'late';
    logger.warn({ seconds: seconds() }, 'ready without having read the cluster; it goes on being tried');
  });
  return sync;
}
