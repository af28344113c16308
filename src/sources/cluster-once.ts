import { type Fleet, fleetOf } from '../core/cluster/fleet.ts';
import type { NamespaceRecord } from '../core/cluster/namespaces.ts';
import type { ServiceRecord } from '../core/cluster/services.ts';
import type { PlannedTable } from '../core/lag/planned.ts';
import type { KubeConnection } from '../kube/connection.ts';
import type { RestartReason } from '../kube/failure.ts';
import { ObjectFailure, requestObject } from '../kube/object-request.ts';
import { newAgent } from '../kube/request.ts';
import { kubeVersion } from '../kube/version.ts';
import { PUBLISHED_NAMES, readPlanned } from '../measure/publication.ts';
import { Backoff } from './kube/backoff.ts';
import { WATCH_LIMITS } from './kube/limits.ts';
import { namespacesResource } from './kube/namespaces.ts';
import { nodesResource } from './kube/nodes.ts';
import { listAll } from './kube/pages.ts';
import type { Resource } from './kube/resource.ts';
import { servicesResource } from './kube/services.ts';
import { pause } from './pause.ts';

/** What decisions read of a cluster, at one moment. */
export interface ClusterOnce {
  readonly namespaces: readonly NamespaceRecord[];
  /** All of them. */
  readonly services: readonly ServiceRecord[];
  readonly fleet: Fleet;
}

/** @throws WatchFailure when the cluster does not answer, or refuses; the signal's reason once that has aborted */
export async function readCluster(connection: KubeConnection, signal: AbortSignal): Promise<ClusterOnce> {
  const [namespaces, services, nodes, version] = await Promise.all([
    everyOne(namespacesResource(), connection, signal),
    everyOne(servicesResource(), connection, signal),
    everyOne(nodesResource(), connection, signal),
    kubeVersion(connection, signal),
  ]);
  return { namespaces, services, fleet: fleetOf(version, nodes) };
}

/** What a server that is well says now and then; all else will be the same a second later. */
const PASSING: ReadonlySet<RestartReason> = new Set(['Expired', 'Throttled', 'Cut']);

async function everyOne<T>(
  resource: Resource<T>,
  connection: KubeConnection,
  signal: AbortSignal,
): Promise<readonly T[]> {
  // By uid: a page that broke off is told again.
  const found = new Map<string, T>();
  await listAll(resource, connection, {
    limits: WATCH_LIMITS,
    signal,
    backoff: new Backoff(WATCH_LIMITS, Math.random),
    onBegin: () => found.clear(),
    onItems: (items) => {
      for (const item of items) found.set(item.metadata.uid, resource.project(item));
    },
    pause: async (failure, pauseMs) => {
      if (!PASSING.has(failure.reason)) throw failure;
      await pause(pauseMs, signal);
    },
  });
  return [...found.values()];
}

/** For one small object. */
const ANSWER_MS = 10_000;

/**
 * The planned lags that the replicas in a namespace decide with.
 * @returns why there are none, where there are none
 */
export async function readPlannedLags(
  connection: KubeConnection,
  namespace: string,
  signal: AbortSignal,
): Promise<PlannedTable | { readonly none: string }> {
  const name = `ConfigMap ${namespace}/${PUBLISHED_NAMES.planned}`;
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/configmaps/${PUBLISHED_NAMES.planned}`;
  const agent = newAgent(connection);
  try {
    const object = await requestObject(connection, {
      method: 'GET',
      path,
      agent,
      signal,
      withinMs: ANSWER_MS,
    });
    const planned = readPlanned(object);
    if (planned.outcome === 'read') return planned.value;
    return { none: planned.outcome === 'empty' ? `${name} is empty` : `${name}: ${planned.problem}` };
  } catch (error) {
    if (!(error instanceof ObjectFailure)) throw error;
    return { none: error.reason === 'NotFound' ? `there is no ${name}` : `${name}: ${error.message}` };
  } finally {
    agent.destroy();
  }
}
