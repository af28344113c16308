import { hostname } from 'node:os';
import type { LagSource } from '../core/lag/distribution.ts';
import type { KubeConnection } from '../kube/connection.ts';
import type { Measurement } from '../measure/measurement.ts';
import type { ConsumersToTell } from '../publish/consumer-telling.ts';
import type { Lead } from '../publish/leadership.ts';
import { startPublishing } from '../publish/publishing.ts';
import type { WatchStats } from '../sources/kube/stats.ts';
import { pause } from '../sources/pause.ts';
import { followPublished } from '../sources/published.ts';
import type { Logger } from '../telemetry/logs.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { registerPublishMetrics } from '../telemetry/publish-metrics.ts';
import { planAlone } from './planning.ts';
import { watchReporting } from './watch-reporting.ts';

/** Where replicas share what they measure, and who this one is. */
export interface Place {
  /** Linger's own. */
  readonly namespace: string;
  readonly identity: string;
}

export interface SharingContext {
  readonly connection: KubeConnection;
  /** undefined: this replica is alone. */
  readonly place: Place | undefined;
  readonly measurement: Measurement;
  /** What is told of consumers, where replicas share. */
  readonly toTell: ConsumersToTell;
  /** Called with the planned lags whenever they have changed. */
  readonly onLags: (lags: LagSource) => void;
  /** Called whenever this replica is the one to measure what only one may: when it leads, or is alone. */
  readonly onLeading: (lead: Lead) => void;
  readonly logger: Logger;
  readonly metrics: Pick<Metrics, 'registry'>;
  readonly clock: () => number;
  readonly epochSeconds: () => number;
  readonly signal: AbortSignal;
}

/** Where the planned lags come from. */
export interface Sharing {
  /** Whether what earlier lives have left has been read, or has been waited for for long enough. */
  readonly warm: () => boolean;
  readonly watches: Readonly<Record<string, WatchStats>>;
  /** Gives the lead away; resolves once that is done, or cannot be: within 15 s. */
  readonly leave: () => Promise<void>;
  /** Resolves once the signal has aborted and nothing goes on any more. */
  readonly ended: Promise<unknown>;
}

/** How long a replica is not ready for want of what is published. Without it, it answers with `initial`. */
const WARM_WITHIN_MS = 5_000;

/**
 * Where Linger's own namespace is: named, or that of the ServiceAccount. A kubeconfig's namespace is that of the person
 * it belongs to; whoever tries Linger out by it against a cluster must not become its leader.
 */
export function placeOf(
  settings: Readonly<Record<'namespace' | 'identity' | 'kubeconfig', string | undefined>>,
  connection: KubeConnection,
): Place | undefined {
  const own = settings.kubeconfig === undefined ? connection.namespace : undefined;
  const namespace = settings.namespace ?? own;
  return namespace === undefined ? undefined : { namespace, identity: settings.identity ?? hostname() };
}

/** Lets the planned lags follow what is measured: by all replicas together, or by this one alone. */
export function startSharing(context: SharingContext): Sharing {
  const { place, measurement, onLags, epochSeconds, signal, logger } = context;
  if (place !== undefined) return shareIn(place, context);
  logger.info('no namespace of our own: waits follow what this replica alone measures');
  context.onLeading({ signal, holds: () => !signal.aborted });
  return {
    warm: () => true,
    watches: {},
    leave: () => Promise.resolve(),
    ended: planAlone(measurement, { signal, epochSeconds, onLags }),
  };
}

function shareIn({ namespace, identity }: Place, context: SharingContext): Sharing {
  const { connection, measurement, toTell, onLags, onLeading, logger, metrics } = context;
  const { clock, epochSeconds, signal } = context;
  const leaving = new AbortController();
  const publishing = startPublishing({
    connection,
    namespace,
    identity,
    measurement: {
      get table() {
        return measurement.table;
      },
      next: (table, now) => measurement.next(table, now),
      adopt: (table) => {
        measurement.adopt(table);
        onLags(measurement.lags());
      },
      snapshot: (characters, now) => measurement.snapshot(characters, now),
      restore: (json, now) => measurement.restore(json, now),
      restoreConsumers: (json) => measurement.restoreConsumers(json),
    },
    logger,
    time: { clock, random: Math.random, pause, wallMicroseconds: () => Math.round(epochSeconds() * 1e6) },
    epochSeconds,
    toTell,
    onLeading,
    signal: AbortSignal.any([signal, leaving.signal]),
  });
  registerPublishMetrics(metrics.registry, publishing.status);
  const handlers = { onPlanned: publishing.saw, ...watchReporting(logger, 'configmaps') };
  const published = followPublished(connection, namespace, handlers, { signal, clock, random: Math.random });

  let warm = false;
  const read = Promise.all([published.read, publishing.restored]);
  void Promise.race([read, pause(WARM_WITHIN_MS, signal)]).then(() => {
    warm = true;
  });
  return {
    warm: () => warm,
    watches: { configmaps: published.stats },
    leave: () => {
      leaving.abort();
      return publishing.ended;
    },
    ended: Promise.all([publishing.ended, published.ended]),
  };
}
