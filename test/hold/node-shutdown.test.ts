import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Registry } from '@prometheus-io/client';
import { beforeAll, expect, it, vi } from 'vitest';
import type { KubeConnection } from '../../src/cluster/index.ts';
import { nodeBudgetOf } from '../../src/core/decision/index.ts';
import { NodeShutdowns } from '../../src/hold/node-shutdown.ts';
import { createLogger } from '../../src/telemetry/index.ts';

import { atEndOfFile } from '../webhook/connection.ts';
import { until } from './arena.ts';

const atEnd = atEndOfFile();
// Which the first call would wait for: it takes a busy machine some seconds.
beforeAll(async () => void (await import('../../src/cluster/client-node.ts')), 60_000);
const node = (ready: boolean, labels = {}, why = 'node is shutting down') => ({
  metadata: { name: 'spot-1', uid: 'n', resourceVersion: '5', labels },
  status: {
    conditions: [
      {
        type: 'Ready',
        status: ready ? 'True' : 'False',
        message: ready ? 'kubelet is ready' : why,
      },
    ],
  },
});
const podOf = (name: string, more: object = {}) => ({
  metadata: { namespace: 'shop', name, uid: `${name}-uid`, ...more },
});
const PODS = [
  podOf('web-1'),
  podOf('agent', { ownerReferences: [{ kind: 'DaemonSet', name: 'agent', controller: true }] }),
  podOf('static', { annotations: { 'kubernetes.io/config.mirror': 'x' } }),
  podOf('going', { deletionTimestamp: '2026-11-22T10:00:00Z' }),
];

/** The part of an API server that this takes. */
async function clusterOf(first: object, refusals: readonly number[] = []) {
  const deleted: { readonly path: string; readonly uid: unknown }[] = [];
  const lists: string[] = [];
  const refuse = [...refusals];
  let watch: http.ServerResponse | undefined;
  const server = http.createServer(async (request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://model');
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const say = (code: number, body: object) =>
      void response.writeHead(code, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    const list = (items: readonly object[]) =>
      say(200, { kind: 'List', metadata: { resourceVersion: '9' }, items });
    if (request.method === 'DELETE') {
      const refusal = refuse.shift();
      if (refusal !== undefined) return say(refusal, { kind: 'Status', message: 'refused', code: refusal });
      deleted.push({ path: pathname, uid: JSON.parse(String(Buffer.concat(chunks))).preconditions?.uid });
      return say(200, {});
    }
    if (pathname === '/api/v1/pods') {
      lists.push(searchParams.get('fieldSelector') ?? '');
      return list(PODS);
    }
    if (searchParams.get('watch') === null) return list([first]);
    response.writeHead(200, { 'content-type': 'application/json' }).flushHeaders();
    watch = response;
  });
  server.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const ended = new AbortController();
  atEnd(() => {
    ended.abort();
    server.closeAllConnections();
    server.close();
  });
  const url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const connection = {
    server: url,
    credentials: async () => ({ headers: {} }),
    invalidate: () => undefined,
  } as unknown as KubeConnection;
  return {
    connection,
    deleted,
    /** The field selector of each list of pods. */
    lists,
    leadership: { signal: ended.signal, holds: () => !ended.signal.aborted },
    change: async (object: object) => {
      const open = await until('a watch', () => watch);
      open.write(`${JSON.stringify({ type: 'MODIFIED', object })}\n`);
    },
  };
}

function shutdownsIn(connection: KubeConnection, deletes: boolean) {
  const said: (readonly [string, number | undefined])[] = [];
  const shutdowns = new NodeShutdowns({
    connection,
    deletes,
    clock: () => performance.now(),
    random: Math.random,
    logger: createLogger('silent', process.stdout),
    onPod: (uid, budget) => said.push([uid, budget]),
  });
  const registry = new Registry();
  shutdowns.metrics(registry);
  /** The counter's values, by result. */
  const counts = async () => {
    const metrics = await registry.getSingleMetricAsString('linger_hold_node_shutdown_pods_total');
    return [...metrics.matchAll(/result="(\w+)"\} (\d+)/g)].map(([, result, count]) => `${result} ${count}`);
  };
  return { shutdowns, said, counts };
}

it('tells Hold of the pods of a node that shuts down, and deletes none without leave', async () => {
  const cluster = await clusterOf(node(true));
  const { shutdowns, said } = shutdownsIn(cluster.connection, false);
  expect(shutdowns.budgetOf('spot-1')).toBe('unread');
  void shutdowns.lead(cluster.leadership);
  await cluster.change(node(false, { 'linger.dev/node-budget': '45' }));
  await until('all pods', () => said.length === 4);
  expect(said[0]).toEqual(['web-1-uid', 45]);
  expect(cluster.deleted).toEqual([]);
  expect([shutdowns.budgetOf('spot-1'), shutdowns.budgetOf('other')]).toEqual([45, undefined]);
  await cluster.change(node(true));
  await until('the node to be back', () => shutdowns.budgetOf('spot-1') === undefined);
  // They run on, and their deletion some other day is no shutdown.
  expect(said.slice(4)).toEqual(PODS.map(({ metadata: { uid } }) => [uid, undefined]));
});

it('deletes them with leave: by uid, and not those that would come back on the same node', async () => {
  const cluster = await clusterOf(node(false), [500]);
  const { shutdowns, said, counts } = shutdownsIn(cluster.connection, true);
  expect(await counts()).toEqual(['deleted 0', 'failed 0']);
  void shutdowns.lead(cluster.leadership);
  // The first request is refused, so all is done once more.
  await until('a deletion', () => cluster.deleted.length > 0);
  expect(cluster.deleted).toEqual([{ path: '/api/v1/namespaces/shop/pods/web-1', uid: 'web-1-uid' }]);
  expect(said).toContainEqual(['web-1-uid', 15]);
  expect(cluster.lists).toEqual(
    Array.from({ length: 2 }, () => 'spec.nodeName=spot-1,status.phase!=Succeeded,status.phase!=Failed'),
  );
  await vi.waitFor(async () => expect(await counts()).toEqual(['deleted 1', 'failed 1']));
});

it.each([
  ['is gone', 404, 'deleted 1'],
  ['has given its name to another', 409, 'deleted 0'],
])('a pod that %s needs no further request', async (_, refusal, deleted) => {
  const cluster = await clusterOf(node(false), [refusal]);
  const { shutdowns, said, counts } = shutdownsIn(cluster.connection, true);
  void shutdowns.lead(cluster.leadership);
  await until('all pods', () => said.length === 4);
  await sleep(1_500);
  expect([cluster.lists.length, cluster.deleted]).toEqual([1, []]);
  expect(await counts()).toEqual([deleted, 'failed 0']);
});

it('takes a node that is not ready for another reason for none, and passes over the pods once', async () => {
  const cluster = await clusterOf(node(false, {}, 'container runtime is down'));
  const { shutdowns, said } = shutdownsIn(cluster.connection, false);
  void shutdowns.lead(cluster.leadership);
  await cluster.change(node(false, {}, 'PLEG is not healthy'));
  await sleep(300);
  expect([cluster.lists, shutdowns.budgetOf('spot-1')]).toEqual([[], undefined]);
  await cluster.change(node(false));
  await cluster.change(node(false, { changed: 'yes' }));
  await until('all pods', () => said.length === 4);
  await sleep(300);
  expect([said.length, cluster.lists.length]).toEqual([4, 1]);
});

it.each([
  [{ 'cloud.google.com/gke-spot': 'true' }, 15],
  [{ 'kubernetes.azure.com/scalesetpriority': 'spot' }, 30],
  [{ 'karpenter.sh/capacity-type': 'spot' }, 120],
  [{ 'karpenter.sh/capacity-type': 'on-demand' }, undefined],
  [{ 'karpenter.sh/capacity-type': 'spot', 'linger.dev/node-budget': '20' }, 20],
  [{ 'linger.dev/node-budget': '-1' }, undefined],
  [{}, undefined],
])('a node with labels %j leaves its pods %s s', (labels, budget) => {
  expect(nodeBudgetOf(labels)).toBe(budget);
});
