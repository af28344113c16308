import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chartSvg } from '../../src/core/timeline/index.ts';
import type { ProveReport } from '../../src/prove/index.ts';
import { standIn } from '../../test/cluster-suite/support/gateways.ts';
import { ProveStage } from '../../test/cluster-suite/support/prove.ts';
import { Fleet } from '../../test/scenarios/fleet.ts';
import { consumer, HoldSetting, type Waiting } from '../../test/scenarios/hold/setting.ts';
import { kubeProxyLag } from '../../test/scenarios/polling/estimates.ts';
import { kubernetesVersion } from '../../test/testbed/binaries.ts';
import {
  type Cluster,
  type NewObject,
  openCluster,
  type SecondNode,
  waitUntil,
} from '../../test/testbed/cluster.ts';
import { type ClusterDns, startClusterDns } from '../../test/testbed/cluster-dns.ts';
import { must } from '../../test/testbed/command.ts';
import { type GatewayProcess, startEnvoy } from '../../test/testbed/gateways.ts';
import { PodLives } from '../../test/testbed/load/lives.ts';
import { secondNode } from '../../test/testbed/network.ts';
import { clusterSettings } from '../../test/testbed/settings.ts';
import type { DrainSettings } from '../drain.ts';
import { describeMachine } from '../machine.ts';
import { settingsOnCluster } from '../on-cluster.ts';
import { accountOf, type Gone, goneIn, releaseText, since } from './losses.ts';
import { type Cell, CLIENTS, chartsOf, type Results, tablesOf } from './report.ts';

/* npm run bench:drain. Each cell is one run of the shipped `linger prove` through a Service, a gateway that polls,
 * and, unless --quick, Envoy and connections that stay open. */

const { quick, runs, only, strategies, own, out, resume } = settingsOnCluster<DrainSettings>();

const POLL_MS = 10_000;
const POD_PORT = 8080;
const REPLICAS = quick ? 3 : 4;
/** Services whose readiness flips are a backlog of a minute for a throttled controller-manager. */
const BACKLOG = 300;
const THROTTLED = ['--kube-api-qps=5', '--kube-api-burst=5'];
const USUAL = ['--kube-api-qps=20', '--kube-api-burst=30'];
// Six clients that are faster would leave two cores nothing for the pods.
const TRAFFIC = [
  '--rate',
  quick ? '50' : '20',
  '--timeout',
  '5s',
  '--quiet',
  '12s',
  ...(quick ? [] : ['--keep-alive']),
];
/** Where the gateway lists the pods that it sends to. */
const PAGE_PORT = 18_910;
/** Envoy asks DNS. */
const RESOLVE_SECONDS = 2;

interface Strategy {
  /** Whose decision the wait is. */
  readonly waiting: Waiting;
  /** Seconds of the application's own hook; its grace is that much longer. */
  readonly sleep?: number;
  /** How DiscoveryConsumers declare the gateways. Default: none does. */
  readonly declared?: 'interval' | 'page';
}

const STRATEGIES: Readonly<Record<string, Strategy>> = {
  nothing: { waiting: 'alone' },
  'sleep 5': { waiting: 'alone', sleep: 5 },
  'sleep 15': { waiting: 'alone', sleep: 15 },
  'sleep 30': { waiting: 'alone', sleep: 30 },
  'Linger Sleep': { waiting: 'sleep', declared: 'interval' },
  'Linger Hold': { waiting: 'undeclared' },
  'Linger Hold declared': { waiting: 'hold', declared: 'page' },
  ...(own !== undefined && { [own.name]: { waiting: 'alone' } as const }),
};
const NOT_QUICK: readonly string[] = ['sleep 30', 'Linger Sleep'];
const STRATEGY_NAMES =
  strategies.length > 0
    ? strategies
    : Object.keys(STRATEGIES).filter((name) => !quick || !NOT_QUICK.includes(name));

const inspected = (
  gateway: string,
  page: { readonly port: number; readonly path: string },
  format: string,
) => {
  const instances = {
    namespaceSelector: { matchLabels: { gateways: 'here' } },
    podSelector: { matchLabels: { gateway } },
    ...page,
  };
  return { inspect: { format, instances, every: '250ms' } };
};
const CONSUMERS = [
  // kube-proxy, whose measurement takes minutes.
  ...(quick ? [consumer('cluster-ip', { bench: 'drain' }, { declared: { lag: '2s' } })] : []),
  consumer('cluster-dns', { bench: 'none' }, { declared: { lag: '5s' } }),
  consumer(
    'poller-interval',
    { declared: 'interval' },
    { declared: { syncInterval: `${POLL_MS / 1_000}s` } },
  ),
  consumer('poller', { declared: 'page' }, inspected('poller', { port: PAGE_PORT, path: '/' }, 'Text')),
  ...(quick
    ? []
    : [
        consumer(
          'envoy',
          { declared: 'page' },
          inspected('envoy', { port: 18_901, path: '/clusters' }, 'Envoy'),
        ),
      ]),
];

interface Disturbance {
  readonly does: readonly string[];
  /** What the controller-manager is busy with meanwhile. */
  readonly flags?: readonly string[];
}
const DISTURBANCES: Readonly<Record<string, Disturbance>> = {
  rollout: { does: ['--rollout'] },
  scale: { does: ['--scale', '20,2'] },
  drain: { does: ['--drain', secondNode.name] },
  throttled: { does: ['--delete-one'], flags: THROTTLED },
  storm: { does: ['--delete-one'], flags: USUAL },
};

let cluster: Cluster;
let setting: HoldSetting | undefined;
let node: SecondNode | undefined;
let fleet: Fleet | undefined;
let dns: ClusterDns | undefined;
let flipped = true;

const results: Results =
  resume && existsSync(out)
    ? (JSON.parse(readFileSync(out, 'utf8')) as Results)
    : { machine: describeMachine(), kubernetes: kubernetesVersion, cells: [], accounts: [] };
const { cells, accounts } = results;
const stalls = monitorEventLoopDelay();
/** What is in the file already stays in the tables and the picture. */
const order = {
  disturbances: only,
  strategies: [...new Set([...STRATEGY_NAMES, ...cells.map(({ strategy }) => strategy)])],
};

describe('bench:drain', () => {
  const disturbed = only.filter((name) => name in DISTURBANCES);
  const wanted = disturbed.flatMap((disturbance) =>
    STRATEGY_NAMES.flatMap((strategy) =>
      Array.from({ length: runs }, (_, run) => ({ disturbance, strategy, run, order: Math.random() })),
    ),
  );
  const isDone = ({ disturbance, strategy, run }: (typeof wanted)[number]) =>
    cells.some((each) => each.disturbance === disturbance && each.strategy === strategy && each.run === run);

  beforeAll(async () => {
    expect(disturbed).toEqual(only);
    // Figures of two versions do not belong into one table.
    expect(results.kubernetes).toBe(kubernetesVersion);
    for (const each of STRATEGY_NAMES) expect(Object.keys(STRATEGIES)).toContain(each);
    cluster = await openCluster();
    if (!cluster.own) throw new Error('bench:drain needs the cluster of npm run cluster:up');
    if (only.includes('drain')) node = await cluster.startNode();
    setting = await HoldSetting.open(cluster, { max: 150, consumers: CONSUMERS });
    const gateways = await cluster.namespace('gateways', { gateways: 'here', 'linger.dev/inject': 'false' });
    await standIn(cluster, gateways, 'poller');
    if (!quick) {
      dns = await startClusterDns(clusterSettings(), { ttl: 5 });
      await standIn(cluster, gateways, 'envoy');
    }
    if (STRATEGY_NAMES.includes('Linger Sleep')) await makeHistory();
    // It takes minutes; who brings a strategy need not wait for it.
    if (!quick && STRATEGY_NAMES.some((name) => STRATEGIES[name]?.waiting !== 'alone'))
      await kubeProxyLag(cluster);
    // Only now: Linger must not try its helper on the fake node.
    if (disturbed.some((name) => DISTURBANCES[name]?.flags !== undefined))
      fleet = await Fleet.start(cluster, { prefix: 'backlog', services: BACKLOG, victims: 0 });
  }, 1_200_000);

  afterAll(async () => {
    if (cells.length > 0) {
      save();
      console.log(tablesOf(cells, order));
      writeFileSync(out.replace(/(\.json)?$/, '.svg'), chartSvg(chartsOf(cells, order)));
    }
    await setting?.close();
    await fleet?.remove();
    if (fleet !== undefined) await cluster.restart('kube-controller-manager');
    await dns?.stop();
    await node?.remove();
    await cluster?.close();
  }, 300_000);

  // Each cell once before any is run again: what is stopped early has compared them all.
  const random = wanted
    .filter((each) => !isDone(each))
    .toSorted((a, b) => a.run - b.run || a.order - b.order);
  it.each(random)('$disturbance, $strategy', { timeout: 900_000 }, async ({ disturbance, strategy, run }) => {
    const { waiting, sleep, declared = 'no' } = STRATEGIES[strategy]!;
    const { does, flags } = DISTURBANCES[disturbance]!;
    const namespace = await setting!.namespace(waiting, 'drain', { bench: 'drain', declared });
    const stage = new ProveStage(cluster, namespace);
    // The 99th percentile of the gateway alone is 9.9 s.
    if (waiting === 'sleep') await setting!.measured(namespace, 'web', 10);
    if (strategy === own?.name) await install(own.what, namespace);
    await stage.deploy('web', REPLICAS, { sleepSeconds: sleep, nodes: node === undefined ? 1 : 2 });
    const gateway = await stage.gateway('web', POLL_MS, { pagePort: PAGE_PORT });
    const envoy = dns && (await envoyOf(namespace, dns));
    if (declared === 'page') await pagesAreRead();
    const lives = new PodLives({ cluster, namespace, podSelector: 'app=web', container: 'app' });
    await lives.start();
    try {
      if (flags !== undefined) await cluster.restart('kube-controller-manager', flags);
      const through = envoy === undefined ? [] : ['--url', `envoy=http://${envoy.address}:${envoy.port}`];
      const busy = flags === undefined ? [] : ['--calm', '10s'];
      const args = ['deployment/web', ...TRAFFIC, ...does, ...busy, ...through];
      stalls.reset();
      stalls.enable();
      const [{ report: found, losses }] = await Promise.all([
        stage.through(gateway, args),
        flags === undefined ? undefined : flip(stage),
      ]);
      stalls.disable();
      await lives.stop();
      const gone = goneIn(found, lives.all, gateway);
      const [load = 0] = loadavg();
      const isHeld = waiting === 'hold' || waiting === 'undeclared';
      const released = isHeld ? await setting!.releases(namespace) : [];
      const of = { disturbance, strategy, run, load, released: released.map(releaseText) };
      cells.push(...cellsOf(of, found, gone, envoy));
      if (found.lost > 0) {
        const stalledMs = stalls.max / 1e6;
        const account = accountOf({ report: found, gone, losses, released, stalledMs, load });
        console.log(account);
        accounts.push({ run: `${disturbance}, ${strategy}, run ${run}`, account });
      }
      save();
    } finally {
      gateway.stop();
      await envoy?.stop();
      if (flags !== undefined) {
        await cluster.restart('kube-controller-manager', ['--kube-api-qps=300', '--kube-api-burst=325']);
        await fleet?.settled(flipped ? BACKLOG : 0);
      }
      // Probes of what earlier runs left would be most of the machine's load after some dozens of them.
      await cluster.removeNamespace(namespace);
      await waitUntil('its pods to be gone', async () => (await stage.pods('')).length === 0);
    }
  });
});

/** Waits for the pages: a gateway whose page is not read would be waited for as if it had not been declared. */
async function pagesAreRead(): Promise<void> {
  const answering = ['poller', ...(quick ? [] : ['envoy'])].map(
    (consumer) => `linger_inspect_instances{consumer="${consumer}",state="answering"} 1`,
  );
  await waitUntil(
    'the pages of the gateways to be read',
    async () => {
      const samples = await setting!.linger.replicas.samples('linger_inspect_instances');
      const lines = [...samples.values()].flat();
      return answering.every((line) => lines.includes(line));
    },
    // What was refused is asked again once a minute while nothing terminates.
    { timeoutMs: 90_000 },
  );
}

/** Makes a backlog, as late as it can be done before the disturbance: it would be worked off by then. */
async function flip(stage: ProveStage): Promise<void> {
  const sends = async () =>
    JSON.stringify(await stage.pods('app.kubernetes.io/name=linger-prove')).includes('"phase":"Running"');
  await waitUntil('the senders to run', sends, { timeoutMs: 60_000 });
  flipped = !flipped;
  await fleet?.setReady(flipped);
}

/** Removals enough for measured waits. */
async function makeHistory(): Promise<void> {
  const namespace = await setting!.namespace('alone', 'history');
  const stage = new ProveStage(cluster, namespace);
  await stage.deploy('web', 8);
  const deployment = { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { namespace, name: 'web' } };
  await cluster.delete(deployment);
  await waitUntil('the pods to be gone', async () => (await stage.pods('app=web')).length === 0);
}

/** Installs a strategy that the user brings: a manifest, or a command. */
async function install(what: string, namespace: string): Promise<void> {
  if (/\.(ya?ml|json)$/.test(what)) await cluster.mustKubectl(['apply', '-n', namespace, '-f', what]);
  else
    await must(['sh', '-c', what], {
      env: { ...process.env, KUBECONFIG: cluster.kubeconfig, NAMESPACE: namespace },
    });
}

async function envoyOf(namespace: string, { server }: ClusterDns): Promise<GatewayProcess> {
  const spec = { clusterIP: 'None', selector: { app: 'web' }, ports: [{ port: POD_PORT }] };
  const names = { apiVersion: 'v1', kind: 'Service', metadata: { namespace, name: 'names' }, spec };
  await cluster.create(names as NewObject);
  const found = { namespace, service: 'names', port: POD_PORT, resolveSeconds: RESOLVE_SECONDS };
  const envoy = await startEnvoy(clusterSettings(), { ...found, dns: `${server}:53` });
  const answers = async () => (await fetch(`http://${envoy.address}:${envoy.port}`)).ok;
  await waitUntil('Envoy to know the pods', answers, { timeoutMs: 30_000 });
  return envoy;
}

function cellsOf(
  of: Pick<Cell, 'disturbance' | 'strategy' | 'run' | 'load' | 'released'>,
  { ways, disturbedAt, verdict }: ProveReport,
  gone: readonly Gone[],
  envoy: GatewayProcess | undefined,
): readonly Cell[] {
  const known = (values: readonly number[]) => values.filter(Number.isFinite);
  const each = (of: (pod: Gone) => number) => gone.map((pod) => since(pod.deletedAt, of(pod)));
  // By another clock.
  const waits = known(each(({ sigtermAt }) => sigtermAt)).map((wait) => Math.max(0, wait));
  const withdrawal = each(({ withdrawnAt }) => withdrawnAt);
  const polled = each(({ letGoAt }) => letGoAt);
  const sent = envoy?.sent() ?? [];
  const asked = each(({ life }) => {
    const own = sent.filter(({ backend }) => backend === `${life.address}:${POD_PORT}`);
    return own.length === 0 ? Number.NaN : Math.max(...own.map(({ at }) => at));
  });
  const slowest = gone.map((_, index) =>
    Math.max(...known([withdrawal, polled, asked].map((lags) => lags[index] ?? Number.NaN))),
  );
  const took = since(Date.parse(disturbedAt), Math.max(...gone.map(({ goneAt }) => goneAt)));
  const clients: readonly (readonly [string, string, readonly number[]])[] = [
    [CLIENTS.service, 'Service web', withdrawal],
    [CLIENTS.keptService, 'Service web (keep-alive)', withdrawal],
    [CLIENTS.poller, 'edge', polled],
    [CLIENTS.keptPoller, 'edge (keep-alive)', polled],
    [CLIENTS.envoy, 'envoy', asked],
  ];
  return clients.flatMap(([client, name, lags]) => {
    const way = ways.find((each) => each.name === name);
    if (way === undefined) return [];
    const { sent, lost, slow } = way;
    return [
      { ...of, client, sent, lost, slow, waits, lags: known(lags), slowest: known(slowest), took, verdict },
    ];
  });
}

function save(): void {
  const { cells, accounts, ...head } = results;
  // A cell is a line.
  const lines = (all: readonly object[]) => `[\n${all.map((each) => JSON.stringify(each)).join(',\n')}\n]`;
  const start = JSON.stringify(head).slice(0, -1);
  writeFileSync(out, `${start},\n"cells": ${lines(cells)},\n"accounts": ${lines(accounts)}\n}\n`);
}
