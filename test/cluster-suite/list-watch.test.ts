import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import {
  ask,
  type KubeConnection,
  type KubeFailure,
  kubeVersion,
  newAgent,
  type RawObject,
  type Resource,
  type ResourceEvent,
  readKubeconfig,
  readText,
  WATCH_LIMITS,
  type WatchLimits,
  watchResource,
} from '../../src/cluster/index.ts';
import {
  endpointSlicesResource,
  endpointsResource,
  namespacesResource,
  nodesResource,
  podsResource,
  servicesResource,
} from '../../src/informers/index.ts';
import type { Arena } from '../cluster/arena.ts';
import { Gateway } from '../cluster/gateway.ts';
import { itListsAndWatches } from '../cluster/list-watch-behaviours.ts';
import { seeded, soak } from '../cluster/soak.ts';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';

let cluster: Cluster;
let connection: KubeConnection;

beforeAll(async () => {
  cluster = await openCluster();
  connection = await readKubeconfig(cluster.kubeconfig);
});

afterAll(() => cluster?.close());

const configMap = (namespace: string, name: string, value: string) => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { namespace, name },
  data: { value },
});

/** The ConfigMaps of a namespace of its own, behind a gateway. */
async function openArena(): Promise<Arena> {
  const namespace = await cluster.namespace('list-watch');
  const reference = { apiVersion: 'v1', kind: 'ConfigMap', namespace };
  // Every namespace is given one; what comes later would be an event that no test expects.
  await waitUntil('the CA of the namespace', async () => (await cluster.list(reference)).length === 1);
  const gateway = await Gateway.start({ url: connection.server, ...(await connection.credentials()) });
  onTestFinished(() => gateway.close());
  return {
    gateway,
    path: `/api/v1/namespaces/${namespace}/configmaps`,
    put: async (name, value) => {
      const object = configMap(namespace, name, value);
      const { status } = await cluster.tryCreate(object);
      if (status === 409) await cluster.patch(object, { data: { value } });
    },
    remove: (name) => cluster.delete(configMap(namespace, name, '')),
    truth: async () => {
      type Versioned = KubernetesObject & { metadata: { resourceVersion: string } };
      const objects = await cluster.list<Versioned>(reference);
      return new Map(objects.map(({ metadata }) => [metadata.name, metadata.resourceVersion]));
    },
  };
}

/** Follows a collection of the cluster, without anything in between, until the test's end. */
function follow<T>(resource: Resource<T>, limits: Partial<WatchLimits> = {}) {
  const events: ResourceEvent<T>[] = [];
  const failures: KubeFailure[] = [];
  const stopping = new AbortController();
  const handlers = {
    onEvent: (event: ResourceEvent<T>) => void events.push(event),
    onFailure: (failure: KubeFailure) => void failures.push(failure),
    onHandlerError: (error: Error) => {
      throw error;
    },
  };
  const { signal } = stopping;
  const clock = () => performance.now();
  const watch = watchResource(resource, connection, handlers, { signal, clock, random: Math.random, limits });
  onTestFinished(() => {
    stopping.abort();
    return watch.ended;
  });
  const seen = (type: ResourceEvent<T>['type'], name: string) =>
    waitUntil(`${resource.path}: ${name} ${type}`, () =>
      events.find((event) => event.type === type && event.identity.name.startsWith(name)),
    );
  return { events, failures, seen, stats: watch.stats };
}

describe('against the real API server', () => {
  itListsAndWatches(openArena, false);

  it('sees what the server has after some seconds of random faults', async () => {
    const arena = await openArena();
    const outcome = await soak(arena, { durationMs: 6_000, changeMs: 20, faultMs: 150, random: seeded(7) });
    console.log(`random faults on the real API server: ${JSON.stringify(outcome)}`);
    expect(outcome.lists).toBeGreaterThan(1);
  });
});

it('reads a long list compressed, and short ones and others as they are', async () => {
  const namespace = await cluster.namespace('compressed');
  const path = `/api/v1/namespaces/${namespace}/configmaps`;
  const names = Array.from({ length: 10 }, (_, index) => `long-${index}`);
  for (const name of names) await cluster.create(configMap(namespace, name, name.repeat(4_000)));
  const encodingOf = async (compressed: boolean, limit: number) => {
    const agent = newAgent(connection);
    onTestFinished(() => agent.destroy());
    const { signal } = new AbortController();
    const request = { path: `${path}?limit=${limit}`, compressed, agent, signal, answerMs: 60_000 };
    const response = await ask(connection, request);
    const { items } = JSON.parse(await readText(response, 10_000_000, 60_000)) as { items: RawObject[] };
    return { encoding: response.headers['content-encoding'], items };
  };
  const whole = await encodingOf(true, 500);
  // Source: k8s.io/apiserver pkg/endpoints/handlers/responsewriters (128 KiB).
  expect([whole.encoding, whole.items.length]).toEqual(['gzip', 11]);
  expect(await encodingOf(false, 500)).toEqual({ encoding: undefined, items: whole.items });
  expect((await encodingOf(true, 1)).encoding).toBeUndefined();
  expect(connection.compressed).toBe(true);
  const { seen, failures } = follow({ path, project: ({ metadata }: RawObject) => metadata.name });
  for (const name of names) await seen('added', name);
  expect(failures).toEqual([]);
});

it('follows every kind that Linger needs, from beginning to end', async () => {
  const namespace = await cluster.namespace('kinds');
  const followed = {
    pods: follow(podsResource(`/api/v1/namespaces/${namespace}/pods`)),
    services: follow(servicesResource(`/api/v1/namespaces/${namespace}/services`)),
    slices: follow(
      endpointSlicesResource(`/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`),
    ),
    endpoints: follow(endpointsResource(`/api/v1/namespaces/${namespace}/endpoints`)),
    namespaces: follow(namespacesResource()),
    nodes: follow(nodesResource()),
  };
  const all = Object.values(followed);
  await waitUntil('every watch to be current', () => all.every(({ stats }) => stats.current));
  const metadata = { namespace, name: 'web' };
  const labels = { app: 'web' };
  const service = {
    apiVersion: 'v1',
    kind: 'Service',
    metadata,
    spec: { selector: labels, ports: [{ port: 80 }] },
  };
  // It is not scheduled, so it has no grace: one DELETED event.
  const spec = { schedulerName: 'nobody', containers: [{ name: 'app', image: 'none' }] };
  const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { ...metadata, labels }, spec };
  await cluster.create(service);
  await cluster.create(pod);

  const { pods, services, slices, endpoints, namespaces, nodes } = followed;
  expect(await pods.seen('added', 'web')).toMatchObject({ object: { namespace, labels } });
  expect(await services.seen('added', 'web')).toMatchObject({
    object: { selector: labels, externalName: false },
  });
  expect(await slices.seen('added', 'web')).toMatchObject({
    object: { serviceName: 'web', managedBy: 'endpointslice-controller.k8s.io', addressType: 'IPv4' },
  });
  expect(await endpoints.seen('added', 'web')).toMatchObject({ object: { overCapacity: false } });
  expect(await namespaces.seen('added', namespace)).toMatchObject({
    object: { labels: { 'kubernetes.io/metadata.name': namespace } },
  });
  expect(nodes.events[0]).toMatchObject({ object: { kubeletVersion: expect.stringMatching(/^v1\./) } });

  await cluster.delete(pod);
  await cluster.delete(service);
  expect(await pods.seen('deleted', 'web')).toMatchObject({ relist: false });
  for (const each of [services, slices, endpoints]) await each.seen('deleted', 'web');
  expect(all.flatMap(({ failures }) => failures)).toEqual([]);
});

it('sees in metadata alone that a pod terminates', async () => {
  const namespace = await cluster.namespace('terminating');
  const { seen, failures, events } = follow(podsResource(`/api/v1/namespaces/${namespace}/pods`));
  const metadata = { namespace, name: 'web', finalizers: ['linger.dev/test'], labels: { app: 'web' } };
  const spec = { schedulerName: 'nobody', containers: [{ name: 'app', image: 'none' }] };
  const pod = { apiVersion: 'v1', kind: 'Pod', metadata, spec };
  await cluster.create(pod);
  await seen('added', 'web');
  await cluster.delete(pod);
  expect(await seen('modified', 'web')).toMatchObject({
    object: {
      labels: { app: 'web' },
      deletionTimestamp: expect.stringMatching(/Z$/),
      deletionGracePeriodSeconds: 0,
    },
  });
  await cluster.patch(pod, { metadata: { finalizers: null } });
  await seen('deleted', 'web');
  expect(events.filter(({ type }) => type === 'deleted')).toHaveLength(1);
  expect(failures).toEqual([]);
});

it('is sent a bookmark within the time that a watch may be silent, while objects of the kind change', async () => {
  const [quiet, busy] = [await cluster.namespace('quiet'), await cluster.namespace('busy')];
  const path = `/api/v1/namespaces/${quiet}/configmaps`;
  const { stats, failures } = follow({ path, metadataOnly: true, project: () => undefined });
  await waitUntil('the watch to be current', () => stats.current);
  const began = performance.now();
  // Without a change anywhere there would be nothing to mark.
  let count = 0;
  const look = async () => {
    await cluster.tryCreate(configMap(busy, `change-${count++}`, ''));
    return stats.bookmarks > 0;
  };
  await waitUntil('a bookmark', look, { timeoutMs: 2 * WATCH_LIMITS.silenceMs, intervalMs: 1_000 });
  console.log(`the first bookmark of a quiet watch came after ${Math.round(performance.now() - began)} ms`);
  expect(failures).toEqual([]);
  expect(stats.restarts.Silent).toBe(0);
});

it('is ended by the server at its timeout, and goes on', async () => {
  const namespace = await cluster.namespace('timeout');
  const path = `/api/v1/namespaces/${namespace}/configmaps`;
  const { stats, failures } = follow(
    { path, project: () => undefined },
    { watchSeconds: [1, 1], healthyMs: 500 },
  );
  await waitUntil('three watches to have ended', () => stats.restarts.Ended === 3, { intervalMs: 20 });
  await waitUntil('the next to be current', () => stats.current);
  expect(failures).toEqual([]);
  expect(stats.lists).toBe(1);
});

it('asks the API server for its version', async () => {
  const { gitVersion } = await cluster.api.call<{ gitVersion: string }>('GET', '/version');
  expect(await kubeVersion(connection, AbortSignal.timeout(10_000))).toBe(gitVersion);
});
