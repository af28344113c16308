import { LingerError } from '../core/catalog/errors.ts';
import { type Fleet, fleetOf } from '../core/cluster/fleet.ts';
import type { NamespaceRecord } from '../core/cluster/namespaces.ts';
import type { ServiceRecord } from '../core/cluster/services.ts';
import type { Consumer } from '../core/consumers/consumer.ts';
import type { ToldConsumers } from '../core/consumers/told.ts';
import type { PlannedTable } from '../core/lag/planned.ts';
import type { KubeConnection } from '../kube/connection.ts';
import { asFailure, type RestartReason } from '../kube/failure.ts';
import { ObjectFailure, requestObject } from '../kube/object-request.ts';
import { newAgent } from '../kube/request.ts';
import { kubeVersion } from '../kube/version.ts';
import { PUBLISHED_NAMES, readConsumers, readPlanned } from '../measure/publication.ts';
import { Backoff } from './kube/backoff.ts';
import { type ConsumerProjection, discoveryConsumersResource } from './kube/discovery-consumers.ts';
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
  try {
    const planned = readPlanned(await configMap(PUBLISHED_NAMES.planned, connection, namespace, signal));
    if (planned.outcome === 'read') return planned.value;
    return { none: planned.outcome === 'empty' ? `${name} is empty` : `${name}: ${planned.problem}` };
  } catch (error) {
    if (!(error instanceof ObjectFailure)) throw error;
    return { none: error.reason === 'NotFound' ? `there is no ${name}` : `${name}: ${error.message}` };
  }
}

/**
 * What the leader in a namespace tells of consumers.
 * @param cluster what people know it by
 * @throws LingerError `consumers-untold`, `cluster-denied`, `cluster-unreachable`
 */
export async function readToldConsumers(
  connection: KubeConnection,
  namespace: string,
  signal: AbortSignal,
  cluster: string,
): Promise<ToldConsumers> {
  const name = `ConfigMap ${namespace}/${PUBLISHED_NAMES.consumers}`;
  const untold = (why: string) =>
    new LingerError(
      'consumers-untold',
      `${cluster}: ${why}; does Linger run there, and lead? --linger-namespace says where`,
    );
  try {
    const told = readConsumers(await configMap(PUBLISHED_NAMES.consumers, connection, namespace, signal));
    if (told.outcome === 'read') return told.value;
    throw untold(told.outcome === 'empty' ? `${name} is empty` : `${name}: ${told.problem}`);
  } catch (error) {
    if (!(error instanceof ObjectFailure)) throw error;
    const { reason, message } = error;
    if (reason === 'NotFound') throw untold(`there is no ${name}`);
    const denied = reason === 'Forbidden' || reason === 'Unauthorized';
    throw new LingerError(denied ? 'cluster-denied' : 'cluster-unreachable', `${cluster}: ${message}`);
  }
}

async function configMap(
  name: string,
  connection: KubeConnection,
  namespace: string,
  signal: AbortSignal,
): Promise<unknown> {
  const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/configmaps/${name}`;
  const agent = newAgent(connection);
  try {
    return await requestObject(connection, { method: 'GET', path, agent, signal, withinMs: ANSWER_MS });
  } finally {
    agent.destroy();
  }
}

/**
 * The consumers that the cluster declares, by name; none where their CRD is not installed.
 * @returns with why some, or all, could not be read
 */
export async function readDeclaredConsumers(
  connection: KubeConnection,
  signal: AbortSignal,
): Promise<{ readonly consumers: readonly Consumer[]; readonly problems: readonly string[] }> {
  let declared: readonly ConsumerProjection[];
  try {
    declared = await everyOne(discoveryConsumersResource(), connection, signal);
  } catch (thrown) {
    signal.throwIfAborted();
    const { reason, message } = asFailure(thrown);
    return { consumers: [], problems: reason === 'NotServed' ? [] : [`DiscoveryConsumers: ${message}`] };
  }
  const sorted = declared.toSorted((a, b) => (a.name < b.name ? -1 : 1));
  return {
    consumers: sorted.flatMap(({ consumer }) => (consumer === undefined ? [] : [consumer])),
    problems: sorted.flatMap(({ name, problem }) =>
      problem === undefined ? [] : [`DiscoveryConsumer ${name}: ${problem}`],
    ),
  };
}
