import { isRecord, LingerError, serviceIndex } from '../api/index.ts';
import {
  asFailure,
  CLUSTER_TERMINATION_POLICIES,
  type CustomKind,
  type CustomObject,
  customResource,
  DISCOVERY_CONSUMERS,
  type FailureReason,
  type KubeConnection,
  KubeFailure,
  kubeVersion,
  listAll,
  namespacesResource,
  nodesResource,
  type Resource,
  servicesResource,
  TERMINATION_POLICIES,
  WATCH_LIMITS,
} from '../cluster/index.ts';
import { type ClusterView, type Documents, fleetOf, NO_DOCUMENTS } from '../decision/index.ts';
import type { PlannedTable, ToldConsumers } from '../lag/index.ts';
import { readConfigMap, readConsumers, readPlanned, SHARED_NAMES } from '../leader/index.ts';
import { readManifests, sortDocuments } from '../manifest/index.ts';
import { Backoff, pause } from '../timing/index.ts';
import { nameOf } from './connect.ts';

/** What decisions read of a cluster, at one moment. */
export type ClusterOnce = Required<Pick<ClusterView, 'namespaces' | 'services' | 'fleet'>>;

/** @throws KubeFailure when the cluster does not answer, or refuses; the signal's reason once that has aborted */
export async function readCluster(connection: KubeConnection, signal: AbortSignal): Promise<ClusterOnce> {
  const [namespaces, services, nodes, version] = await Promise.all([
    everyOne(namespacesResource(), connection, signal),
    everyOne(servicesResource(), connection, signal),
    everyOne(nodesResource(), connection, signal),
    kubeVersion(connection, signal),
  ]);
  return {
    namespaces: new Map(namespaces.map((each) => [each.name, each])),
    services: serviceIndex(services, true),
    fleet: fleetOf(version, nodes),
  };
}

/** What a healthy server answers now and then; any other failure would be the same a second later. */
const PASSING: ReadonlySet<FailureReason> = new Set(['Expired', 'Throttled', 'Cut']);

async function everyOne<T>(
  resource: Resource<T>,
  connection: KubeConnection,
  signal: AbortSignal,
): Promise<readonly T[]> {
  // By uid: a page that broke off comes again.
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
 * The curves that the replicas in a namespace decide with.
 * @returns why there are none, where there are none
 */
export async function readPlannedLags(
  connection: KubeConnection,
  namespace: string,
  signal: AbortSignal,
): Promise<PlannedTable | { readonly none: string }> {
  const name = `ConfigMap ${namespace}/${SHARED_NAMES.planned}`;
  try {
    const call = { signal, withinMs: ANSWER_MS };
    const present = await readConfigMap(connection, namespace, SHARED_NAMES.planned, call);
    if (present === undefined) return { none: `there is no ${name}` };
    const planned = readPlanned(present);
    if (planned.outcome === 'read') return planned.value;
    return { none: planned.outcome === 'empty' ? `${name} is empty` : `${name}: ${planned.problem}` };
  } catch (error) {
    if (!(error instanceof KubeFailure)) throw error;
    return { none: `${name}: ${error.message}` };
  }
}

/**
 * What the leader in a namespace has published of consumers.
 * @throws LingerError `not-published`, `cluster-denied`, `cluster-unreachable`
 */
export async function readToldConsumers(
  connection: KubeConnection,
  namespace: string,
  signal: AbortSignal,
): Promise<ToldConsumers> {
  const name = `ConfigMap ${namespace}/${SHARED_NAMES.consumers}`;
  const call = { signal, withinMs: ANSWER_MS };
  const present = await asked(connection, readConfigMap(connection, namespace, SHARED_NAMES.consumers, call));
  const read = readConsumers(present);
  if (read.outcome === 'read') return read.value;
  const why = read.outcome === 'empty' ? `${name} is empty` : `${name}: ${read.problem}`;
  throw new LingerError(
    'not-published',
    `${nameOf(connection)}: ${present === undefined ? `there is no ${name}` : why}; does Linger run there, and lead? --linger-namespace says where`,
  );
}

/** A request that a person waits for. @throws LingerError `cluster-denied`, `cluster-unreachable` */
export async function asked<T>(connection: KubeConnection, request: Promise<T>): Promise<T> {
  try {
    return await request;
  } catch (error) {
    if (!(error instanceof KubeFailure)) throw error;
    const { reason, message } = error;
    const denied = reason === 'Forbidden' || reason === 'Unauthorized';
    const code = denied ? 'cluster-denied' : 'cluster-unreachable';
    throw new LingerError(code, `${nameOf(connection)}: ${message}`);
  }
}

const POLICY_MAP = 'linger-policies';

/**
 * The policies that the replicas in a namespace follow, where they come from the ConfigMap that deploy/ installs.
 * @returns with why some, or all, could not be read
 */
export async function readPolicyMap(
  connection: KubeConnection,
  namespace: string,
  signal: AbortSignal,
): Promise<{ readonly documents: Documents; readonly problems: readonly string[] }> {
  const name = `ConfigMap ${namespace}/${POLICY_MAP}`;
  const none = (why: string) => ({
    documents: NO_DOCUMENTS,
    problems: [`no policies in force: ${why}; the built-in one is taken, unless --policies names some`],
  });
  try {
    const call = { signal, withinMs: ANSWER_MS };
    const map: unknown = await readConfigMap(connection, namespace, POLICY_MAP, call);
    if (map === undefined) return none(`there is no ${name}`);
    const data = isRecord(map) && isRecord(map.data) ? Object.entries(map.data) : [];
    const read = data.map(([file, text]) => readManifests(String(text), `${name} ${file}`));
    const problems = read.flatMap((each) => each.problems.map(({ message }) => `${message}; it is left out`));
    return { documents: sortDocuments(read.flatMap(({ objects }) => objects)), problems };
  } catch (error) {
    if (error instanceof LingerError) return none(error.message);
    if (!(error instanceof KubeFailure)) throw error;
    return none(`${name}: ${error.message}`);
  }
}

/** What the cluster declares by objects of Linger's own kinds. */
export type Declared = Required<Pick<ClusterView, 'consumers' | 'clusterPolicies' | 'policies'>>;

/**
 * The consumers and policies that the cluster declares; none of a kind whose CRD is not installed.
 * @returns with why some, or all of a kind, could not be read
 */
export async function readDeclared(
  connection: KubeConnection,
  signal: AbortSignal,
): Promise<{ readonly declared: Declared; readonly problems: readonly string[] }> {
  const [consumers, clusterPolicies, policies] = await Promise.all([
    objectsOf(DISCOVERY_CONSUMERS, connection, signal),
    objectsOf(CLUSTER_TERMINATION_POLICIES, connection, signal),
    objectsOf(TERMINATION_POLICIES, connection, signal),
  ]);
  return {
    declared: {
      consumers: consumers.values,
      clusterPolicies: clusterPolicies.values,
      policies: policies.values,
    },
    problems: [consumers, clusterPolicies, policies].flatMap(({ problems }) => problems),
  };
}

async function objectsOf<T>(
  kind: CustomKind<T>,
  connection: KubeConnection,
  signal: AbortSignal,
): Promise<{ readonly values: readonly T[]; readonly problems: readonly string[] }> {
  let objects: readonly CustomObject<T>[];
  try {
    objects = await everyOne(customResource(kind), connection, signal);
  } catch (thrown) {
    signal.throwIfAborted();
    const { reason, message } = asFailure(thrown);
    return { values: [], problems: reason === 'NotServed' ? [] : [`${kind.kind} objects: ${message}`] };
  }
  const nameOf = ({ namespace, name }: CustomObject<T>) => (namespace === '' ? name : `${namespace}/${name}`);
  const sorted = objects.toSorted((a, b) => (nameOf(a) < nameOf(b) ? -1 : 1));
  return {
    values: sorted.flatMap(({ value }) => (value === undefined ? [] : [value])),
    problems: sorted.flatMap((each) =>
      each.problem === undefined ? [] : [`${kind.kind} ${nameOf(each)}: ${each.problem}`],
    ),
  };
}
