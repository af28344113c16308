import { pino } from 'pino';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { callApi, type KubeConnection, readKubeconfig } from '../../src/cluster/index.ts';
import { type ClusterEvent, HEARTBEAT_STREAMS, type HeartbeatStream } from '../../src/core/lag/index.ts';
import { WatchDelay } from '../../src/core/lag/watch-delay.ts';
import { followCluster } from '../../src/informers/index.ts';
import { sendHeartbeats } from '../../src/measurement/heartbeats.ts';
import { pause } from '../../src/timing/index.ts';
import { bearer } from '../cluster/bearer.ts';
import {
  type Cluster,
  type KubernetesObject,
  type NewObject,
  openCluster,
  waitUntil,
} from '../testbed/cluster.ts';
import { placeToPublish } from './support/replicas.ts';

let cluster: Cluster;
let admin: KubeConnection;

beforeAll(async () => {
  cluster = await openCluster();
  admin = await readKubeconfig(cluster.kubeconfig);
});
afterAll(() => cluster?.close());

it('with the rights of deploy/, heartbeats reach every stream in time, and disturb no Service', async () => {
  const { namespace, token } = await placeToPublish(cluster, 'role-publish.yaml', 'role-pods.yaml');
  const containers = [{ name: 'linger', image: 'linger' }];
  const spec = { nodeSelector: { 'linger.test/no': 'node' }, containers };
  await cluster.create({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { namespace, name: 'linger-0' },
    spec,
  } as NewObject);
  const linger: KubeConnection = {
    ...admin,
    credentials: async () => ({
      ...(await admin.credentials()),
      cert: undefined,
      key: undefined,
      ...bearer(token),
    }),
  };

  const ending = new AbortController();
  const { signal } = ending;
  const clock = () => performance.now();
  const watchDelay = new WatchDelay();
  const heartbeats: Extract<ClusterEvent, { type: 'Heartbeat' }>[] = [];
  const source = followCluster(
    admin,
    {
      onSnapshot: () => undefined,
      onEvent: (event) => {
        if (event.type !== 'Heartbeat') return;
        heartbeats.push(event);
        watchDelay.heartbeat(event.from, event.heartbeat, event.at, true);
      },
      onFailure: () => undefined,
      onCurrent: () => undefined,
      onHandlerError: (_, error) => {
        throw error;
      },
    },
    { signal, clock, random: Math.random, namespace },
  );
  await waitUntil('all watches to be current', () =>
    Object.values(source.watches).every(({ current }) => current),
  );

  const lines: string[] = [];
  const logger = pino({}, { write: (line: string) => void lines.push(line) });
  const place = { namespace, identity: 'linger-0' };
  const sendingHeartbeats = sendHeartbeats({
    connection: linger,
    place,
    leads: () => true,
    wanted: () => true,
    onWritten: () => undefined,
    signal,
    logger,
    clock,
    random: Math.random,
    pause,
  });
  const of = (stream: HeartbeatStream) => heartbeats.filter(({ from }) => from === stream);
  await waitUntil('five heartbeats on each stream', () =>
    HEARTBEAT_STREAMS.every((stream) => of(stream).length >= 5),
  );
  // Tests share the machine: it is the machine that may be slow here, not the streams.
  const lateness = HEARTBEAT_STREAMS.map((stream) => watchDelay.lateness(stream, of(stream)[1]!.at));
  console.log(
    `lateness of ${HEARTBEAT_STREAMS.join(', ')} in ms: ${lateness.map((ms) => Math.round(ms ?? -1)).join(', ')}`,
  );
  for (const ms of lateness) expect(ms).toBeLessThan(1_000);
  expect(lines).toEqual([]);

  const slices = await cluster.list<KubernetesObject>({
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    namespace,
  });
  expect(slices.map(({ metadata }) => metadata.name)).toEqual(['linger-heartbeat']);

  const body = { apiVersion: 'v1', kind: 'Endpoints', metadata: { name: 'other' } };
  const other = callApi(linger, 'CoreV1Api', { signal, withinMs: 5_000, patch: 'apply-patch' }, (core) =>
    core.patchNamespacedEndpoints({
      name: 'other',
      namespace,
      body,
      fieldManager: 'linger-heartbeat',
      force: true,
    }),
  );
  await expect(other).rejects.toMatchObject({ reason: 'Forbidden' });

  // Endpoints without a Service are deleted when the controller-manager starts: they come back with the next heartbeat.
  const reference = {
    apiVersion: 'v1',
    kind: 'Endpoints',
    metadata: { namespace, name: 'linger-heartbeat' },
  };
  await cluster.delete(reference);
  await waitUntil(
    'the Endpoints to be there again',
    async () => (await cluster.get(reference)) !== undefined,
  );
  ending.abort();
  await Promise.all([sendingHeartbeats, source.ended]);
}, 60_000);
