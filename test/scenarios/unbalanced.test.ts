import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { readKubeconfig, WATCH_LIMITS, type WatchLimits } from '../../src/cluster/index.ts';
import { type Agreement, agreement, percentileOf } from '../cluster-suite/support/agreement.ts';
import { trueRemovals } from '../cluster-suite/support/endpoint-history.ts';
import { MeasuredCluster } from '../cluster-suite/support/measured-cluster.ts';
import { ownConnection } from '../testbed/api.ts';
import {
  ApiClient,
  type ApiServer,
  Balancer,
  type Cluster,
  FakeNode,
  type NewObject,
  openCluster,
  readAudit,
  waitUntil,
} from '../testbed/cluster.ts';
import { network } from '../testbed/network.ts';
import { startChurn } from './churn.ts';
import { compactEtcd, losePackets } from './faults.ts';
import { byForm } from './form.ts';
import { watchForStalls } from './stalls.ts';
import { duration, table } from './table.ts';

/*
 * S2, unbalanced: clients of several API servers stay with the first one that they reach. Ours must not, must survive
 * whatever happens to the servers, and must not turn it into samples.
 */

/** The long form uses the product's; those of the short one are shorter, so that a minute shows what takes five. */
const LIMITS: Partial<WatchLimits> = byForm(
  { watchSeconds: [8, 12], silenceMs: 10_000, answerMs: 10_000, healthyMs: 4_000 },
  {},
);
const { watchSeconds, silenceMs, answerMs, longestPauseMs } = { ...WATCH_LIMITS, ...LIMITS };

/** The longest life of a watch, and as much again as the five minutes leave. */
const SPREAD_MS = byForm(20_000, 300_000);
const CHURN_MS = byForm(45_000, 600_000);
const GOAWAY = ['--goaway-chance=0.02'];
const CHURN_EVERY_MS = 150;
const SERVICES = 20;

/**
 * The error that a sample may have: a stream is current when it is behind by at most 250 ms and one request, ends may come
 * 250 ms before their starts, and servers that boot on the same two processors make everything late.
 */
const BOUND_MS = 1_000;

let cluster: Cluster;
let servers: ApiServer[];
/** One for each kind of client, so that connections can be distinguished. */
let balancer: Balancer;
let controllers: Balancer;
let clients: Balancer;
let api: ApiClient;
let measured: MeasuredCluster;

beforeAll(async () => {
  cluster = await openCluster();
  if (!cluster.own) return;
  // Clients with HTTP/2, such as the controllers, get GOAWAY occasionally. Ours speaks HTTP/1.1 and never does.
  await cluster.restart('kube-apiserver', GOAWAY);
  servers = await Promise.all([cluster.startApiServer(GOAWAY), cluster.startApiServer(GOAWAY)]);
  const own = { name: 'kube-apiserver', host: network.nodeAddress, port: network.apiPort };
  const targets = [...servers, own];
  balancer = await Balancer.start(network.nodeAddress, targets);
  controllers = await Balancer.start(network.nodeAddress, targets);
  clients = await Balancer.start(network.nodeAddress, targets);
  api = new ApiClient({ ...ownConnection(cluster.kubeconfig), url: urlOf(clients) });
  await cluster.restart('kube-controller-manager', [
    `--kubeconfig=${controllersKubeconfig(urlOf(controllers))}`,
  ]);
  const connection = await readKubeconfig(cluster.kubeconfig);
  measured = await MeasuredCluster.start({ ...connection, server: urlOf(balancer) }, LIMITS);
});

afterAll(async () => {
  await measured?.stop();
  if (cluster?.own === true) {
    await cluster.restart('kube-apiserver');
    await cluster.restart('kube-controller-manager');
  }
  api?.close();
  for (const each of [balancer, controllers, clients]) await each?.close();
  await cluster?.close();
});

function urlOf({ address: { host, port } }: Balancer): URL {
  return new URL(`https://${host}:${port}`);
}

/** The controller-manager's own, with another server. */
function controllersKubeconfig(server: URL): string {
  const own = readFileSync(join(dirname(cluster.kubeconfig), 'controller-manager.kubeconfig'), 'utf8');
  const document = JSON.parse(own) as { clusters: { cluster: { server: string } }[] };
  for (const each of document.clusters) each.cluster.server = server.href;
  const file = join(mkdtempSync(join(tmpdir(), 'linger-s2-')), 'kubeconfig');
  writeFileSync(file, JSON.stringify(document), { mode: 0o600 });
  return file;
}

const counts = (all: Readonly<Record<string, number>>) => Object.values(all).join('/');

/** Waits until a server has had connections for two consecutive seconds: that of a list lasts for a moment. */
async function untilUsed(through: Balancer, server: ApiServer, timeoutMs: number): Promise<number> {
  const begun = performance.now();
  let since: number | undefined;
  await waitUntil(
    `connections to ${server.name}`,
    () => {
      const now = performance.now();
      if ((through.open[server.name] ?? 0) === 0) since = undefined;
      else since ??= now;
      return since !== undefined && now - since >= 2_000;
    },
    { timeoutMs },
  );
  return (since ?? 0) - begun;
}

/** Makes the endpoint controllers write, 20 times a second, until it is stopped. */
async function keepControllersBusy(signal: AbortSignal): Promise<void> {
  const namespace = await cluster.namespace('s2-busy');
  const metadata = { namespace, name: 'busy' };
  const service = {
    apiVersion: 'v1',
    kind: 'Service',
    metadata,
    spec: { ports: [{ port: 80 }], selector: { app: 'none' } },
  };
  await cluster.create(service as NewObject);
  for (let round = 0; !signal.aborted; round++) {
    // An API server may be restarting.
    await cluster.patch(service, { metadata: { labels: { round: String(round) } } }).catch(() => undefined);
    await sleep(50);
  }
}

it('spreads over three API servers again after one was restarted', { timeout: 700_000 }, async ({ skip }) => {
  const [first] = servers ?? [];
  if (first === undefined) return skip('a foreign cluster cannot be given API servers');
  const idle = new AbortController();
  const busy = keepControllersBusy(idle.signal);
  const look = () => [counts(balancer.open), counts(controllers.open)];
  const before = look();
  await first.stop();
  const left = () => [balancer, controllers].every(({ open }) => open[first.name] === 0);
  await waitUntil('every connection to it to be closed', left);
  await measured.current();
  const without = look();
  await first.restart();
  const used = [balancer, controllers].map((through) => untilUsed(through, first, SPREAD_MS));
  const [ours = 0, theirs = 0] = await Promise.all(used).finally(() => idle.abort());
  await busy;
  const later = look();
  const rows = [
    [`Linger (HTTP/1.1, a new connection for each watch of ${watchSeconds.join(' to ')} s)`, duration(ours)],
    ['controller-manager (HTTP/2, --goaway-chance=0.02)', duration(theirs)],
  ];
  console.log(
    table(
      ['connections to each server', 'before', 'without the first', 'with it again', 'on it again after'],
      rows.map(([who = '', took = ''], index) => [
        who,
        ...[before, without, later].map((each) => each[index] ?? ''),
        took,
      ]),
    ),
  );
  expect(Object.values(balancer.open)).not.toContain(0);
});

/** The faults that hit the watches, one after the other, during the churn. */
function faults(): readonly (readonly [what: string, () => Promise<unknown>])[] {
  const [second, third] = servers;
  return [
    ['an API server is restarted', async () => second?.restart()],
    ['watches go silent behind the balancer', async () => balancer.freeze()],
    ['another API server is restarted', async () => third?.restart()],
    ['packets are lost', () => losePackets(balancer.clientPorts, silenceMs)],
    ['etcd is compacted and all API servers are restarted while no watch can be opened', outage],
  ];
}

/** What the watches held is then nowhere any more. */
async function outage(): Promise<void> {
  balancer.refusing = true;
  balancer.cut();
  await sleep(1_000);
  await compactEtcd();
  await Promise.all([
    ...servers.map((server) => server.restart()),
    cluster.restart('kube-apiserver', GOAWAY),
  ]);
  balancer.refusing = false;
}

async function sufferFaults(): Promise<void> {
  const all = faults();
  const begun = performance.now();
  for (const [index, [what, happen]] of all.entries()) {
    const due = begun + ((index + 0.5) / (all.length + 0.5)) * CHURN_MS;
    await sleep(Math.max(0, due - performance.now()));
    console.log(`${duration(performance.now() - begun)}: ${what}`);
    await happen();
  }
  await sleep(Math.max(0, begun + CHURN_MS - performance.now()));
}

function report(result: Agreement, removals: number, stalls: ReadonlyMap<string, number>): void {
  const off = result.pairs.map(({ difference }) => Math.abs(difference));
  const { discarded } = measured;
  const rows = Object.entries(measured.watches).map(([name, stats]) => {
    const restarts = Object.entries(stats.restarts).filter(([, count]) => count > 0);
    return [
      name,
      restarts.map(([reason, count]) => `${reason} ${count}`).join(', '),
      stats.lists,
      stats.stalls,
      duration(stalls.get(name) ?? 0),
    ];
  });
  console.log(
    `${removals} removals, ${result.pairs.length} sampled, ${result.missing.length} not; ` +
      `discarded: ${JSON.stringify(discarded)}\n` +
      `sample against truth: median ${duration(percentileOf(off, 50))}, p99 ${duration(percentileOf(off, 99))}, ` +
      `most ${duration(percentileOf(off, 100))}\n${table(['watch', 'ended', 'lists', 'stalls', 'longest without a sign'], rows)}`,
  );
}

it('makes no sample of what did not happen', { timeout: 1_200_000 }, async ({ skip }) => {
  const { auditLog } = cluster;
  if (auditLog === undefined) return skip('a foreign cluster cannot be given API servers');
  const namespace = await cluster.namespace('s2');
  const services = Array.from({ length: SERVICES }, (_, index) => `svc-${index}`);
  for (const name of services) {
    const spec = { clusterIP: 'None', selector: { app: name }, ports: [{ port: 80 }] };
    await cluster.create({
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { namespace, name },
      spec,
    } as NewObject);
  }
  const node = await FakeNode.start(api);
  const stalls = watchForStalls(measured.watches);
  const churn = startChurn({ node, namespace, services, everyMs: CHURN_EVERY_MS });
  await sufferFaults();
  await churn.stop();
  await measured.current();
  await waitUntil('every removal to have ended', () => measured.unresolved(namespace) === 0);
  const longest = stalls.stop();
  const samples = measured.samples.filter((sample) => sample.namespace === namespace);
  await node.finishAll(namespace);
  await node.remove();

  const logs = [auditLog, ...servers.map((server) => server.auditLog)];
  const removals = trueRemovals(logs.flatMap((file) => readAudit(file, namespace)));
  const result = agreement(samples, removals, BOUND_MS);
  report(result, removals.length, longest);
  expect(result.invented).toEqual([]);
  expect(result.pairs.filter(({ difference }) => Math.abs(difference) > BOUND_MS)).toEqual([]);
  expect(result.pairs.length).toBeGreaterThan(removals.length / 4);
  expect(Object.values(measured.watches).some(({ restarts }) => restarts.Expired > 0)).toBe(true);
  expect(Math.max(...longest.values())).toBeLessThan(Math.max(silenceMs, answerMs, longestPauseMs) + 2_000);
});
