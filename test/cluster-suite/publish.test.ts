import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type KubeConnection, readKubeconfig } from '../../src/cluster/index.ts';
import { quantileOf } from '../../src/core/lag/index.ts';
import { PLANNED_KEY } from '../../src/leader/codec.ts';
import { ELECTION_LIMITS } from '../../src/leader/election.ts';
import { microTimeOf } from '../../src/leader/lease.ts';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { type ClusterReplica, placeToPublish, startClusterReplica } from './support/replicas.ts';

let cluster: Cluster;
let connection: KubeConnection;

beforeAll(async () => {
  cluster = await openCluster();
  connection = await readKubeconfig(cluster.kubeconfig);
});

afterAll(() => cluster?.close());

interface Lease extends KubernetesObject {
  readonly spec: {
    readonly holderIdentity: string;
    readonly leaseDurationSeconds: number;
    readonly leaseTransitions: number;
    readonly acquireTime: string;
    readonly renewTime: string;
  };
}
type ConfigMap = KubernetesObject & {
  readonly data?: Record<string, string>;
  readonly binaryData?: Record<string, string>;
};

const soon = <T>(what: string, look: () => Promise<T | undefined | false> | T | undefined | false) =>
  waitUntil(what, look, { intervalMs: 20 });
const seconds = (milliseconds: number) => Math.round(milliseconds) / 1000;

/** A namespace, with a Lease that nobody holds: the first replica need not wait. */
async function open() {
  const place = await placeToPublish(cluster);
  const { namespace } = place;
  const reference = {
    apiVersion: 'coordination.k8s.io/v1',
    kind: 'Lease',
    metadata: { namespace, name: 'linger' },
  };
  await cluster.create({ ...reference, spec: { leaseDurationSeconds: 1 } } as never);
  const configMap = (name: string) =>
    cluster.get<ConfigMap>({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { namespace, name } });
  return {
    place,
    start: (identity: string, ...rest: [ClusterReplica['measured']?]) =>
      startClusterReplica(connection, place, identity, ...rest),
    lease: async () => (await cluster.get<Lease>(reference))!,
    planned: () => configMap('linger-planned'),
    history: () => configMap('linger-history'),
    deletePlanned: () =>
      cluster.delete({
        apiVersion: 'v1',
        kind: 'ConfigMap',
        metadata: { namespace, name: 'linger-planned' },
      }),
  };
}

/** Two replicas; the first leads, and has measured lags of 4 s. */
async function openWithTwo() {
  const opened = await open();
  const leader = await opened.start('first');
  leader.measured.record(4);
  await soon('the first to lead', () => leader.status.leading);
  const other = await opened.start('second');
  await soon('the second to follow', () => other.status.holder === leader.status.holder);
  await soon('both to have its table', () => {
    const { cluster: row } = other.measured.table;
    return row !== undefined && other.measured.inForce === leader.measured.inForce;
  });
  return { ...opened, leader, other };
}

const failuresOf = ({ status }: ClusterReplica) => Object.values(status.failures).flatMap(Object.keys);

it('one of two leads; both have exactly its planned lags; no right is missing', async () => {
  const { leader, other, lease, planned, history } = await openWithTwo();
  const { metadata, data } = (await planned())!;
  expect(data).toEqual({ [PLANNED_KEY]: other.measured.inForce });
  const { holderIdentity, leaseTransitions, acquireTime, renewTime, leaseDurationSeconds } = (await lease())
    .spec;
  expect(holderIdentity).toBe(leader.status.holder);
  expect(metadata.annotations).toMatchObject({
    'linger.dev/writer': holderIdentity,
    'linger.dev/term': String(leaseTransitions),
    'linger.dev/format': '2',
  });
  expect(leaseDurationSeconds).toBe(15);
  expect(microTimeOf(renewTime)! - microTimeOf(acquireTime)!).toBeGreaterThanOrEqual(0);
  await leader.stop();
  expect((await history())?.binaryData).toHaveProperty(['cluster.json.gz']);
  expect([...failuresOf(leader), ...failuresOf(other)]).toEqual([]);
  const watches = [leader, other].flatMap((each) => each.watches);
  expect(watches.map(({ restarts }) => restarts.Forbidden)).toEqual([0, 0]);
});

it('without a lease, one leads after the time for which an earlier one could have been held', async () => {
  const place = await placeToPublish(cluster);
  const begun = performance.now();
  const replica = await startClusterReplica(connection, place, 'alone');
  await soon('it to lead', () => replica.status.leading);
  const tookMs = performance.now() - begun;
  console.log(`first ever leader after ${seconds(tookMs)} s`);
  expect(tookMs).toBeGreaterThan(ELECTION_LIMITS.durationMs);
  expect(tookMs).toBeLessThan(ELECTION_LIMITS.durationMs + 5_000);
  expect(failuresOf(replica)).toEqual([]);
});

it('released, the lease is taken at once', { timeout: 120_000 }, async () => {
  const { leader, other, lease } = await openWithTwo();
  const before = (await lease()).spec;
  const began = performance.now();
  await leader.stop();
  await soon('the other to lead', () => other.status.leading);
  const [from = Number.NaN, until = Number.NaN] = [other.led[0]?.from, leader.led[0]?.until];
  console.log(`handed over in ${seconds(from - began)} s; nobody led for ${seconds(from - until)} s`);
  // Without the watch of the Lease it would be up to 2 s.
  expect(from - until).toBeLessThan(ELECTION_LIMITS.lookEveryMs[1] + 1_000);
  expect(leader.led[0]?.until).toBeLessThan(other.led[0]!.from);
  const after = (await lease()).spec;
  expect(after.holderIdentity).toBe(other.status.holder);
  expect(after.leaseTransitions).toBe(before.leaseTransitions + 1);
});

it('a leader that vanishes stops by itself; another leads after the lease’s duration', {
  timeout: 120_000,
}, async () => {
  const { leader, other, lease } = await openWithTwo();
  const { resourceVersion } = (await lease()).metadata as unknown as { resourceVersion: string };
  await soon('a renewal', async () => {
    const { metadata } = await lease();
    return (metadata as unknown as { resourceVersion: string }).resourceVersion !== resourceVersion;
  });
  const began = performance.now();
  leader.vanish();
  await soon('the other to lead', () => other.status.leading);
  const [lapsed, led] = [leader.led[0]?.until, other.led[0]!.from];
  console.log(
    `vanished: lapsed after ${seconds(lapsed! - began)} s, followed after ${seconds(led - began)} s`,
  );
  expect(lapsed! - began).toBeLessThan(ELECTION_LIMITS.leadMs + 1_000);
  expect(lapsed).toBeLessThan(led);
  expect(led - began).toBeGreaterThan(ELECTION_LIMITS.durationMs - ELECTION_LIMITS.renewEveryMs - 1_000);
  expect(led - began).toBeLessThan(ELECTION_LIMITS.durationMs + 4_000);
  expect(leader.measured.inForce).toBe(other.measured.inForce);
});

it('without the API server no replica leads and the waits stay; afterwards one leads again', {
  timeout: 120_000,
}, async () => {
  const { leader, other } = await openWithTwo();
  const { inForce } = other.measured;
  const replicas = [leader, other];
  for (const { balancer } of replicas) {
    balancer.refusing = true;
    balancer.cut();
  }
  await soon('nobody to lead', () => replicas.every(({ status }) => !status.leading));
  expect(replicas.map(({ measured }) => measured.inForce)).toEqual([inForce, inForce]);
  const back = performance.now();
  for (const { balancer } of replicas) balancer.refusing = false;
  await soon('one to lead', () => replicas.some(({ status }) => status.leading));
  console.log(`a leader ${seconds(performance.now() - back)} s after the server came back`);
  expect(replicas.filter(({ status }) => status.leading)).toHaveLength(1);
  expect(replicas.map(({ measured }) => measured.inForce)).toEqual([inForce, inForce]);
});

it('deleted objects are written again', async () => {
  const { leader, planned, deletePlanned } = await openWithTwo();
  const { metadata } = (await planned())!;
  await deletePlanned();
  const again = await soon('the ConfigMap', async () => {
    const now = await planned();
    return now?.metadata.uid === metadata.uid ? undefined : now;
  });
  expect(again.data).toEqual({ [PLANNED_KEY]: leader.measured.inForce });
});

describe('a restart', () => {
  it('changes p50 and p99 by less than 2 %, and no planned lag', async () => {
    const opened = await open();
    const before = await opened.start('web-1');
    for (let each = 0; each < 40; each++) before.measured.record(0.005 * 1.25 ** each, 40);
    await soon('it to publish', () => before.measured.table.cluster?.samples === 1_600);
    await before.stop();
    const after = await opened.start('web-1');
    await after.restored;
    await soon('the planned lags', () => after.measured.inForce === before.measured.inForce);
    for (const percentile of [50, 99]) {
      const [then, now] = [before, after].map(({ measured: { estimator } }) => {
        const lag = estimator.measured('shop', Date.now() / 1000)!;
        return quantileOf(lag.density, percentile);
      });
      console.log(`p${percentile}: ${then} s before, ${now} s after the restart`);
      expect(Math.abs(now! / then! - 1)).toBeLessThan(0.02);
    }
    const bytes = [(await opened.planned())?.data, (await opened.history())?.binaryData].map(
      (texts) => JSON.stringify(texts).length,
    );
    console.log(`stored: planned ${bytes[0]} and history ${bytes[1]} characters`);
    expect(failuresOf(after)).toEqual([]);
  });
});
