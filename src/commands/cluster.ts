import { defaultWait } from '../core/plan/default-wait.ts';
import type { KubeConnection } from '../kube/connection.ts';
import type { RestartReason } from '../kube/failure.ts';
import { Measurement } from '../measure/measurement.ts';
import { estimatesPage } from '../serve/estimates.ts';
import { type ClusterHandlers, type ClusterSource, followCluster } from '../sources/cluster.ts';
import { pause } from '../sources/pause.ts';
import { registerLagMetrics } from '../telemetry/lag-metrics.ts';
import type { Logger } from '../telemetry/logs.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { registerWatchMetrics } from '../telemetry/watch-metrics.ts';
import type { WorldHolder } from '../world/world.ts';
import { type Place, startSharing } from './sharing.ts';

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
  readonly signal: AbortSignal;
}

/** A server's connection to its cluster. */
export interface ClusterPart {
  /** Why the webhook should get no connections yet; undefined when it should. */
  readonly unready: () => string | undefined;
  /** What `/estimates` shows. */
  readonly estimates: () => unknown;
  /** Gives the lead away, if this replica has it; resolves once that is done, or cannot be. */
  readonly leave: () => Promise<void>;
  /** Resolves once the signal has aborted and nothing goes on any more. */
  readonly ended: Promise<unknown>;
}

const clock = () => performance.now();
const epochSeconds = () => Date.now() / 1000;

/** Follows the cluster and measures its lag, from now on until the signal aborts: worlds, metrics and log lines follow. */
export function startCluster(context: ClusterContext): ClusterPart {
  const { connection, world, metrics, signal } = context;
  const measurement = new Measurement({ clock, epochSeconds });
  const handlers: ClusterHandlers = {
    onWorld: (event) => world.apply(event),
    onEvent: (event) => measurement.apply(event),
    ...reporting(context.logger),
  };
  const source = followCluster(connection, handlers, { signal, clock, random: Math.random });
  const sync = followSync(source, context);

  const wait = () => defaultWait(world.current());
  const synced = () => sync.state === 'synced';
  const onLags = (lags: ReturnType<Measurement['lags']>) => world.apply({ kind: 'lags', lags });
  const sharing = startSharing({ ...context, measurement, onLags, clock, epochSeconds });
  const watches = { ...source.watches, ...sharing.watches };
  registerWatchMetrics(metrics.registry, { watches, synced, clock });
  const count = registerLagMetrics(metrics.registry, measurement, wait);
  measurement.onSample(count);

  const reading = () => sync.state === 'reading' || !sharing.warm();
  return {
    unready: () => (reading() ? 'the cluster is being read' : undefined),
    estimates: () => estimatesPage({ measurement, watches, synced: synced(), defaultWait: wait(), clock }),
    leave: sharing.leave,
    ended: Promise.all([source.ended, sharing.ended]),
  };
}

/** `late`: it takes too long to wait for; reviews are answered with what is known. */
interface Sync {
  readonly state: 'reading' | 'late' | 'synced';
}

function followSync(source: ClusterSource, { syncTimeout, logger, signal }: ClusterContext): Sync {
  const sync: { state: Sync['state'] } = { state: 'reading' };
  const begun = clock();
  const seconds = () => Math.round((clock() - begun) / 100) / 10;
  void source.synced.then(() => {
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

/** Says what goes wrong once for each kind of trouble, and when it is over: an outage is not a line a second. */
function reporting(logger: Logger): Pick<ClusterHandlers, 'onFailure' | 'onCurrent' | 'onHandlerError'> {
  const reported = new Map<string, RestartReason>();
  return {
    onFailure: (what, { reason, message }, pauseMs) => {
      if (reported.get(what) === reason) return;
      reported.set(what, reason);
      logger.warn(
        { what, reason, problem: message, pauseMs: Math.round(pauseMs) },
        'the cluster cannot be followed for now; what is known stays in force',
      );
    },
    onCurrent: (what) => {
      if (reported.delete(what)) logger.info({ what }, 'the cluster is followed again');
    },
    onHandlerError: (what, err) => {
      logger.error({ what, err }, 'an event of the cluster was left out: a mistake in Linger');
    },
  };
}
