import { hostname } from 'node:os';
import { clusterAuditPart, terminationReviewPart } from '../audit/index.ts';
import { DeadWatches, type KubeConnection, ObjectEvents, registerWatchMetrics } from '../cluster/index.ts';
import { defaultWait } from '../core/decision/index.ts';
import { holdDeliveryPart, holdPart, nodeShutdownsPart } from '../hold/index.ts';
import { clusterPart, declaredPart, unreadProblems } from '../informers/index.ts';
import { builtInPolicyPart, floorPart, leaderLabelPart, publishingPart } from '../leader/index.ts';
import { type AnyPart, type OwnReplica, type PartContext, startParts } from '../manager/index.ts';
import {
  canaryPart,
  consumersPart,
  deregistrationPart,
  heartbeatsPart,
  inspectionPart,
  instancesPart,
  measurementPart,
  reportsPart,
} from '../measurement/index.ts';
import { pause } from '../timing/index.ts';
import { estimatesPage, reportEndpointPart } from '../webhook/index.ts';
import type { ServerContext } from './context.ts';
import type { ClusterOptions } from './options.ts';

/** The parts of a server with a cluster. Each starts after the parts that it needs; see `part.ts` in each room. */
export const PARTS: readonly AnyPart<ClusterOptions>[] = [
  clusterPart,
  declaredPart,
  measurementPart,
  consumersPart,
  inspectionPart,
  deregistrationPart,
  reportsPart,
  instancesPart,
  canaryPart,
  heartbeatsPart,
  publishingPart,
  leaderLabelPart,
  builtInPolicyPart,
  floorPart,
  holdDeliveryPart,
  nodeShutdownsPart,
  holdPart,
  terminationReviewPart,
  clusterAuditPart,
  reportEndpointPart,
];

/**
 * Linger's own namespace: that of the flag, or of the ServiceAccount. The namespace of a kubeconfig is not used, because it
 * belongs to a person, and a server that a person tries out must not become the cluster's leader.
 */
export function placeOf(
  options: Readonly<Record<'namespace' | 'identity' | 'kubeconfig', string | undefined>>,
  connection: KubeConnection,
): OwnReplica | undefined {
  const own = options.kubeconfig === undefined ? connection.namespace : undefined;
  const namespace = options.namespace ?? own;
  return namespace === undefined ? undefined : { namespace, identity: options.identity ?? hostname() };
}

export type RunningCluster = ReturnType<typeof startCluster>;

/** Follows the cluster and measures its lag until the signal aborts; snapshots, metrics and log lines follow. */
export function startCluster(
  { manager, logger, metrics: { registry }, snapshot, changePolicies, signal }: ServerContext,
  connection: KubeConnection,
  place: OwnReplica | undefined,
  options: ClusterOptions,
) {
  const clock = () => performance.now();
  const sync: { state: 'reading' | 'late' | 'synced' } = { state: 'reading' };
  const identity = place?.identity ?? hostname();
  const context: PartContext<ClusterOptions> = {
    options,
    connection,
    place,
    snapshot,
    changePolicies,
    sync,
    manager,
    events: new ObjectEvents({ connection, identity, logger, clock, signal }),
    registry,
    logger,
    clock,
    epochSeconds: () => (performance.timeOrigin + clock()) / 1000,
    random: Math.random,
    signal,
  };
  const { of, read } = startParts(PARTS, context);
  const cluster = of(clusterPart);
  const declared = of(declaredPart);
  const measurement = of(measurementPart);
  const consumers = of(consumersPart);
  const sharing = of(publishingPart);

  const begun = clock();
  const seconds = () => Math.round((clock() - begun) / 100) / 10;
  void read.then(() => {
    sync.state = 'synced';
    const { namespaces, services, nodes } = cluster.watches;
    const counts = { namespaces: namespaces.objects, services: services.objects, nodes: nodes.objects };
    logger.info({ seconds: seconds(), ...counts }, 'initial sync done');
  });
  void pause(options.syncTimeout * 1000, signal).then((elapsed) => {
    if (!elapsed || sync.state === 'synced') return;
    sync.state = 'late';
    logger.warn({ seconds: seconds() }, 'initial sync timed out; serving anyway and retrying');
  });

  const synced = () => sync.state === 'synced';
  registerWatchMetrics(registry, {
    watches: manager.watches,
    unread: cluster.unread,
    refused: declared.refused,
    synced,
    clock,
  });
  // There are no other replicas with which to share anything, or that could lead.
  if (place === undefined) manager.lead({ signal, holds: () => !signal.aborted });

  const deadWatches = new DeadWatches();
  return {
    dead: () => {
      const names = deadWatches.look(manager.watches(), clock());
      if (names.length === 0) return undefined;
      logger.error(
        { watches: names },
        'watches have stalled, failing the liveness probe; this is a bug in Linger',
      );
      return `watches have stalled: ${names.join(', ')}`;
    },
    unready: () => (sync.state === 'reading' || !sharing.warm() ? 'the cluster is being read' : undefined),
    problems: () => [
      ...declared.problems(),
      ...unreadProblems({ ...cluster.unread(), removals: measurement.leftOut }),
    ],
    /** What `/estimates` shows. */
    estimates: () =>
      estimatesPage({
        measurement,
        consumers: consumers.all,
        watches: manager.watches(),
        synced: synced(),
        defaultWait: defaultWait(snapshot.current()),
        clock,
      }),
    /** Answers requests to `/v1`: reports of consumers. */
    reports: of(reportEndpointPart),
    hold: of(holdPart),
    /** Gives up leading, if this replica leads; resolves within 15 s. */
    leave: () => Promise.all([sharing.leave(), manager.idle()]),
  };
}
