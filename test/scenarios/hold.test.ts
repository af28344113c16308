import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { percentileOf } from '../cluster-suite/support/agreement.ts';
import { standIn } from '../cluster-suite/support/gateways.ts';
import { appContainer, type PodObject, pod } from '../cluster-suite/support/manifests.ts';
import { startPod, type Termination } from '../cluster-suite/support/termination.ts';
import {
  type Cluster,
  type NewObject,
  type ObjectReference,
  openCluster,
  waitUntil,
} from '../testbed/cluster.ts';
import { type ClusterDns, startClusterDns } from '../testbed/cluster-dns.ts';
import { type Gateway, haproxyInPod, startEnvoy, startHaproxy } from '../testbed/gateways.ts';
import { PodLives } from '../testbed/load/lives.ts';
import { formatReport, type Load, type LoadReport, startLoad } from '../testbed/load/load.ts';
import { network } from '../testbed/network.ts';
import { clusterSettings } from '../testbed/settings.ts';
import { byForm, LONG } from './form.ts';
import { startContour, startInPod } from './hold/gateway-pods.ts';
import { consumer, HoldSetting, type Waiting } from './hold/setting.ts';
import { type Ending, endingsOf, spread } from './hold/terminations.ts';
import { gatewayTarget, listed, PageWatch } from './hold/through.ts';
import { kubeProxyLag } from './polling/estimates.ts';
import { Gateways, namesOf } from './polling/gateways.ts';
import { monotonicMs } from './polling/monotonic.ts';
import { allowReports, forbidReports, type ReportAccess } from './polling/report-access.ts';
import { Stand } from './polling/stand.ts';
import { duration, table } from './table.ts';

/*
 * Hold beside what it replaces: real pods, real gateways, and clients that open a connection for each request to an
 * application that ends at SIGTERM at once, so that late senders are noticed. The short form has one gateway and
 * few pods, and times nothing.
 */
const REPORTS_ADDRESS = '10.201.255.10';
const INSPECT_EVERY_MS = 250;
const GATEWAY_NAMES = ['contour', 'envoy', 'haproxy'] as const;
const POD_PORT = 8080;
const MAX_SECONDS = 60;
/** Between two questions of a gateway to DNS, where nothing else is asked for. */
const RESOLVE_SECONDS = 2;
/** Through each gateway, and through the ClusterIP. */
const PER_SECOND = 20;

let cluster: Cluster;
let setting: HoldSetting | undefined;
let dns: ClusterDns | undefined;
let gatewayNamespace = '';
const running: { stop(): Promise<unknown> }[] = [];

const inspect = (gateway: string, page: { port: number; path: string; format: string }) => ({
  inspect: {
    instances: {
      namespaceSelector: { matchLabels: { gateways: 'here' } },
      podSelector: { matchLabels: { gateway } },
      port: page.port,
      path: page.path,
    },
    format: page.format,
    every: `${INSPECT_EVERY_MS}ms`,
  },
});

const PAGES = {
  envoy: { port: 18_901, path: '/clusters', format: 'Envoy' },
  haproxy: { port: 18_404, path: '/stats;csv', format: 'HAProxy' },
  contour: { port: 8_446, path: '/v1/uses', format: 'Witness' },
};

/** No one but these gateways asks DNS. */
const NO_DNS_CLIENTS = consumer('cluster-dns', { gateways: 'none' }, { declared: { lag: '5s' } });

const CONSUMERS = byForm(
  [
    NO_DNS_CLIENTS,
    // kube-proxy, whose measurement would take minutes.
    consumer('cluster-ip', { gateways: 'haproxy' }, { declared: { lag: '2s' } }),
    consumer('haproxy', { gateways: 'haproxy' }, inspect('haproxy', PAGES.haproxy)),
  ],
  [
    NO_DNS_CLIENTS,
    ...GATEWAY_NAMES.flatMap((name) => [
      consumer(name, { gateways: name }, inspect(name, PAGES[name])),
      consumer(`pollers-${name}`, { gateways: name }, { reports: {} }),
    ]),
  ],
);

beforeAll(async () => {
  cluster = await openCluster();
  if (!cluster.own) return;
  // As a cluster has it whose controller-manager allocates ranges: the bridge's address is known by it.
  const spec = { podCIDR: network.podRange, podCIDRs: [network.podRange] };
  const nodePath = `/api/v1/nodes/${network.nodeName}`;
  const contentType = 'application/merge-patch+json';
  if (LONG) await cluster.api.call('PATCH', nodePath, { body: { spec }, contentType });
  dns = await startClusterDns(clusterSettings(), { ttl: 5 });
  setting = await HoldSetting.open(cluster, {
    max: MAX_SECONDS,
    addresses: { 'linger-reports': REPORTS_ADDRESS },
    consumers: CONSUMERS,
  });
  gatewayNamespace = await cluster.namespace('gateways', { gateways: 'here', 'linger.dev/inject': 'false' });
}, 400_000);

afterAll(async () => {
  for (const each of running.reverse()) await each.stop().catch(() => undefined);
  await dns?.stop();
  for (const name of GATEWAY_NAMES)
    if (LONG && setting !== undefined) await forbidReports(cluster, `pollers-${name}`);
  await setting?.close();
  await cluster?.close();
}, 240_000);

interface Place {
  readonly namespace: string;
  readonly stand: Stand;
}

/** An application behind a ClusterIP and, for those who ask DNS, a headless Service. */
async function place(
  waiting: Waiting,
  gateways: (typeof GATEWAY_NAMES)[number] | 'undeclared',
  replicas: number,
): Promise<Place> {
  const namespace = (await setting?.namespace(waiting, waiting, { gateways })) ?? '';
  const stand = new Stand({ cluster, namespace, name: 'web', replicas, onSigterm: 'exit' });
  const spec = { clusterIP: 'None', selector: { app: 'web' }, ports: [{ port: POD_PORT }] };
  const headless = { apiVersion: 'v1', kind: 'Service', metadata: { namespace, name: 'web-dns' }, spec };
  await cluster.create(headless);
  await stand.start();
  return { namespace, stand };
}

async function clusterIp(namespace: string): Promise<string> {
  const service = { apiVersion: 'v1', kind: 'Service', metadata: { namespace, name: 'web' } };
  const { spec } = (await cluster.get<{ spec: { clusterIP: string } }>(service)) ?? {};
  return spec?.clusterIP ?? '';
}

interface Pollers {
  readonly gateways: Gateways;
  readonly access: ReportAccess;
}

async function startPollers(name: string, { namespace, stand }: Place, intervalMs: number): Promise<Pollers> {
  const access = await allowReports({
    cluster,
    namespace,
    consumer: `pollers-${name}`,
    gateways: namesOf(3),
    address: REPORTS_ADDRESS,
    authority: setting?.linger.authority ?? '',
  });
  const options = { cluster, instances: 3, intervalMs, connectTimeoutMs: 5_000, reports: access };
  const gateways = await Gateways.start({ ...options, services: [stand.service] });
  running.push(gateways);
  await gateways.know(stand);
  return { gateways, access };
}

interface Rolled {
  readonly endings: readonly Ending[];
  readonly reports: readonly LoadReport[];
  /** By `address:port`, when the gateway's page did not show it any more. */
  readonly gone: ReadonlyMap<string, number>;
}

/** Lets pods of an application end while requests come through the gateway and, where there are pollers, in all three ways. */
async function underLoad(
  { namespace, stand }: Place,
  gateway: Gateway,
  pollers: Pick<Pollers, 'gateways'> | undefined,
  endPods: () => Promise<unknown>,
): Promise<Rolled> {
  const lives = new PodLives({ cluster, namespace, podSelector: stand.selector, container: 'app' });
  await lives.start();
  const pages = new PageWatch(gateway, POD_PORT);
  const address = await clusterIp(namespace);
  const others = ({ gateways }: Pick<Pollers, 'gateways'>) => [
    gateways.target(stand.service),
    { kind: 'clusterIP', address, port: 80 } as const,
  ];
  const targets = [gatewayTarget(gateway), ...(pollers === undefined ? [] : others(pollers))];
  const loads: Load[] = [];
  for (const [index, target] of targets.entries()) {
    const clientAddresses = cluster.clientAddresses.slice(index * 4, index * 4 + 4);
    const common = { cluster, namespace, podSelector: stand.selector, perSecond: PER_SECOND };
    loads.push(await startLoad({ ...common, target, clientAddresses, answerTimeoutMs: 10_000 }));
  }
  try {
    await sleep(1_000);
    await endPods();
    // Until every gateway knows that the last of them is gone.
    await sleep((pollers?.gateways.intervalMs ?? RESOLVE_SECONDS * 1_000) + 2_000);
  } finally {
    await pages.stop();
  }
  const reports = await Promise.all(loads.map((load) => load.stop()));
  await lives.stop();
  for (const report of reports) console.log(formatReport(report));
  return { endings: endingsOf(cluster, namespace, lives.all), reports, gone: pages.gone };
}

/** Milliseconds since the epoch, of an instant of the gateways' clock. */
const epoch = (monotonic: number) => Date.now() - monotonicMs() + monotonic;

interface Judged extends Ending {
  /** Until when some consumer may have sent to it. */
  readonly usedUntil: number;
  /** When the last of its consumers had dropped it; for a poller, when it had the answer to its report of that. */
  readonly letGoAt: number;
  /**
   * When Linger could know: a gateway that heard of the withdrawal before Linger did acknowledges it with its next sync
   * only.
   */
  readonly knownAt: number;
  readonly releasedAt: number;
  readonly last: string;
}

/** Adds when Linger could know, by what consumers themselves say, and when it did. */
async function judge(
  { endings, gone }: Rolled,
  { namespace, stand }: Place,
  { gateways }: Pollers,
  kubeProxyMs: number,
): Promise<readonly Judged[]> {
  const { truth } = gateways;
  const lags = new Map(truth.lags('removed', stand.service).map((each) => [each.address, each]));
  const releases = new Map(((await setting?.releases(namespace)) ?? []).map((each) => [each.pod, each]));
  return endings.map((ending) => {
    const { withdrawnAt } = ending;
    const address = `${ending.address}:${POD_PORT}`;
    const others = [gone.get(address) ?? Number.NaN, withdrawnAt + kubeProxyMs];
    const { time = '', last = [] } = releases.get(ending.pod) ?? {};
    const { at, lagMs, toldMs } = lags.get(address) ?? { at: Number.NaN, lagMs: 0, toldMs: 0 };
    return {
      ...ending,
      usedUntil: Math.max(epoch(at + lagMs), ...others),
      letGoAt: Math.max(epoch(at + toldMs), ...others),
      knownAt: Math.max(epoch(truth.acknowledged(withdrawnAt - epoch(0))), ...others),
      releasedAt: Date.parse(time),
      last: last.join('; '),
    };
  });
}

const HEAD = [
  ...['waits by', 'terminations', 'wait', 'after the last had dropped it', 'early'],
  ...['after Linger could know', 'of that the kubelet', 'requests', 'lost'],
];

function row(name: string, judged: readonly Judged[], reports: readonly LoadReport[]) {
  const excess = excessOf(judged);
  const total = reports.map((each) => each.total).join(' + ');
  const lost = reports.map((each) => each.lost).join(' + ');
  const early = judged.filter(({ sigtermAt, usedUntil }) => sigtermAt < usedUntil).length;
  const kubelets = known(judged.map(({ sigtermAt, releasedAt }) => sigtermAt - releasedAt));
  const after = [spread(excess), early, spread(latenessOf(judged)), spread(kubelets)];
  return [name, judged.length, spread(waitsOf(judged)), ...after, total, lost];
}

/** Pod by pod, in milliseconds since its deletion: what a spread hides. */
function timeLines(judged: readonly Judged[]): string {
  const head = ['pod', 'withdrawn', 'dropped', 'known', 'released', 'SIGTERM', 'waited for last'];
  const rows = judged.map(({ pod, deletedAt, last, ...at }) => {
    const instants = [at.withdrawnAt, at.letGoAt, at.knownAt, at.releasedAt, at.sigtermAt];
    return [pod, ...instants.map((each) => Math.round(each - deletedAt)), last];
  });
  return table(head, rows);
}

/** Milliseconds by which SIGTERM came after `letGoAt`, of the pods for which that is known. */
const excessOf = (judged: readonly Judged[]) =>
  known(judged.map(({ sigtermAt, letGoAt }) => sigtermAt - letGoAt));

const latenessOf = (judged: readonly Judged[]) =>
  known(judged.map(({ sigtermAt, knownAt }) => sigtermAt - knownAt));

const known = (milliseconds: readonly number[]) => milliseconds.filter((each) => !Number.isNaN(each));

const waitsOf = (judged: readonly Judged[]) =>
  judged.map(({ sigtermAt, deletedAt }) => sigtermAt - deletedAt);

/** Starts a gateway for an application, and resolves when it knows its pods. */
async function startGateway(
  name: (typeof GATEWAY_NAMES)[number],
  at: Place,
  resolveSeconds: number,
): Promise<Gateway> {
  const settings = clusterSettings();
  const options = { namespace: at.namespace, service: 'web-dns', port: POD_PORT, resolveSeconds };
  const onNode = async (start: typeof startEnvoy) => {
    const process = await start(settings, { ...options, dns: `${dns?.server}:53` });
    running.push(process);
    await standIn(cluster, gatewayNamespace, name);
    return process;
  };
  const start = {
    contour: async () => {
      const contour = await startContour(cluster, gatewayNamespace, at.namespace);
      running.push(contour);
      return contour.gateway;
    },
    envoy: () => onNode(startEnvoy),
    haproxy: () => onNode(startHaproxy),
  }[name];
  const gateway = await start();
  await listed(gateway, await at.stand.endpoints(POD_PORT));
  return gateway;
}

/** HAProxy that resolves every 10 s, in a Deployment that is not declared to Linger. */
async function startUndeclared({ namespace }: Place): Promise<Gateway> {
  const options = { namespace, service: 'web-dns', port: POD_PORT, resolveSeconds: 10 };
  const inPod = await haproxyInPod(clusterSettings(), { ...options, dns: `${dns?.server}:53` });
  const where = await cluster.namespace('edge', { 'linger.dev/inject': 'false' });
  return startInPod(cluster, where, { name: 'edge' }, inPod);
}

async function isOwn(): Promise<boolean> {
  const opened = await openCluster();
  await opened.close();
  return opened.own;
}

const OWN = await isOwn();

describe.runIf(!LONG && OWN)('hook Hold, in short', () => {
  it('ends when HAProxy behind CoreDNS has let go, and not before', { timeout: 300_000 }, async () => {
    const at = await place('hold', 'haproxy', 2);
    const gateway = await startGateway('haproxy', at, RESOLVE_SECONDS);
    const rolled = await underLoad(at, gateway, undefined, () => at.stand.rollOver(2));
    const releases = new Map((await setting?.releases(at.namespace))?.map((each) => [each.pod, each]));
    const lastSent = new Map(gateway.sent().map((each) => [each.backend, each.at]));
    const rows = rolled.endings.map(({ pod, address, deletedAt, withdrawnAt, sigtermAt }) => {
      const lastAt = lastSent.get(`${address}:${POD_PORT}`) ?? Number.NaN;
      const [withdrawn, last, sigterm] = [withdrawnAt, lastAt, sigtermAt].map((at) => at - deletedAt);
      return { pod, withdrawn, last, sigterm, release: releases.get(pod) };
    });
    console.log(rows.map((each) => JSON.stringify(each)).join('\n'));
    expect(rolled.reports.map(({ total, lost }) => [total > 0, lost])).toEqual([[true, 0]]);
    expect(rows.map(({ release }) => release?.reason)).toEqual(Array.from({ length: 4 }, () => 'Gone'));
    // By the gateway's own log. A pod of the first rollout may be gone before the gateway has resolved it at all.
    const used = rows.filter(({ last = Number.NaN }) => !Number.isNaN(last));
    expect(used.length).toBeGreaterThanOrEqual(2);
    for (const { last, sigterm } of used) expect(sigterm).toBeGreaterThan(last ?? Number.NaN);
  });
});

describe.runIf(LONG && OWN)('hook Hold', () => {
  it.each([
    ['envoy', 9],
    // It watches, and a witness stands beside its Envoy, in its pod.
    ['contour', 9],
  ] as const)(
    'ends when the last consumer has let go, in a calm cluster: %s',
    { timeout: 900_000 },
    async (name, updates) => {
      const at = await place('hold', name, 6);
      const gateway = await startGateway(name, at, RESOLVE_SECONDS);
      const pollers = await startPollers(name, at, 2_000);
      const proxyMs = (await kubeProxyLag(cluster)).quantileMs(99);
      const rolled = await underLoad(at, gateway, pollers, () => at.stand.rollOver(updates));
      const judged = await judge(rolled, at, pollers, proxyMs);
      console.log(table(HEAD, [row(`Hold, ${gateway.name}`, judged, rolled.reports)]));
      console.log(timeLines(judged));
      console.log(
        `kube-proxy by its p99: ${proxyMs} ms, and afterwards ${(await kubeProxyLag(cluster)).quantileMs(99)} ms`,
      );
      expect(judged).toHaveLength(6 * updates);
      expect(rolled.reports.map(({ lost }) => lost)).toEqual([0, 0, 0]);
      // The page is read by a process other than Linger, and each reads it at its own time.
      expect(percentileOf(excessOf(judged), 0)).toBeGreaterThanOrEqual(-INSPECT_EVERY_MS);
      expect(percentileOf(excessOf(judged), 50)).toBeLessThanOrEqual(300 + INSPECT_EVERY_MS);
    },
  );

  it('waits for gateways that poll every 10 s, and not longer', { timeout: 900_000 }, async () => {
    const { at, gateway, pollers } = await slow();
    const proxyMs = (await kubeProxyLag(cluster)).quantileMs(99);
    const rolled = await underLoad(at, gateway, pollers, () => at.stand.rollOver(4));
    const judged = await judge(rolled, at, pollers, proxyMs);
    console.log(table(HEAD, [row(`Hold, ${gateway.name}`, judged, rolled.reports)]));
    console.log(timeLines(judged));
    expect(rolled.reports.map(({ lost }) => lost)).toEqual([0, 0, 0]);
    const sleeping = await place('sleep', 'haproxy', 1);
    const sleeps = (await setting?.measured(sleeping.namespace, 'web')) ?? 0;
    console.log(`Sleep would have waited ${sleeps} s`);
    expect(percentileOf(waitsOf(judged), 50)).toBeLessThanOrEqual(0.6 * 1_000 * sleeps);
  });

  it('finds undeclared gateways, with pod and owner', { timeout: 900_000 }, async () => {
    // Until all others are known, pods are held for `initial`.
    await kubeProxyLag(cluster);
    const at = await place('undeclared', 'undeclared', 6);
    const { namespace, stand } = at;
    const gateway = await startUndeclared(at);
    await listed(gateway, await at.stand.endpoints(POD_PORT));
    const lives = new PodLives({ cluster, namespace, podSelector: stand.selector, container: 'app' });
    await lives.start();
    const load = await startLoad({
      cluster,
      namespace,
      podSelector: stand.selector,
      perSecond: PER_SECOND,
      target: gatewayTarget(gateway),
      clientAddresses: cluster.clientAddresses.slice(0, 4),
      answerTimeoutMs: 10_000,
    });
    await sleep(3_000);
    await stand.rollOver(9);
    await sleep(1_000);
    const report = await load.stop();
    await lives.stop();
    console.log(formatReport(report));
    const endings = endingsOf(cluster, namespace, lives.all);
    const releases = new Map((await setting?.releases(namespace))?.map((each) => [each.pod, each]));
    const lastSent = new Map(gateway.sent().map((each) => [each.backend, each.at]));
    const seen = endings.map((ending) => {
      const { lag = Number.NaN, reason, time = '' } = releases.get(ending.pod) ?? {};
      const lastAt = lastSent.get(`${ending.address}:${POD_PORT}`) ?? Number.NaN;
      return {
        ...ending,
        lastAt,
        saidAt: ending.withdrawnAt + 1_000 * lag,
        reason,
        releasedAt: Date.parse(time),
      };
    });
    const sinceDeletion = ['withdrawn', 'last request', 'seen', 'released', 'SIGTERM'];
    const rows = seen.map(({ pod, deletedAt, reason = '–', ...each }) => {
      const instants = [each.withdrawnAt, each.lastAt, each.saidAt, each.releasedAt, each.sigtermAt];
      return [pod, reason, ...instants.map((instant) => duration(instant - deletedAt))];
    });
    console.log(table(['pod', 'reason', ...sinceDeletion], rows));
    const off = known(seen.map(({ lastAt, withdrawnAt, saidAt }) => saidAt - Math.max(lastAt, withdrawnAt)));
    console.log(`the last connection, as seen: off by ${spread(off)} (of ${off.length})`);
    console.log(
      `SIGTERM after the last request: ${spread(known(seen.map((each) => each.sigtermAt - each.lastAt)))}`,
    );
    const findings = (await setting?.findings(namespace)) ?? [];
    const undeclared = findings.filter(({ reason }) => reason === 'UndeclaredConsumer');
    const from = [...new Set(undeclared.flatMap((each) => each.from ?? []))];
    console.log(`${undeclared.length} findings, from ${from.join(', ')}`);
    const lags = seen.map(({ lastAt, deletedAt }) => (lastAt - deletedAt) / 1_000);
    // The leader publishes what it has measured some seconds later.
    const sleeps = (await setting?.measured(namespace, 'web', Math.max(...known(lags)))) ?? 0;
    console.log(
      `Sleep waits ${sleeps} s; the true lag was ${spread(known(lags.map((each) => 1_000 * each)))}`,
    );
    expect(report.lost).toBe(0);
    expect(endings.length).toBeGreaterThanOrEqual(50);
    expect(percentileOf(off.map(Math.abs), 100)).toBeLessThanOrEqual(1_200);
    // The kubelet's probes come from the node.
    const others = from.filter((each) => !/ \(node \S+\)$/.test(each));
    expect(others).toEqual([expect.stringMatching(/ \(edge-\S+\/edge-\S+ of Deployment\/edge\)$/) as string]);
  });

  it('leaves the application its time, whatever else befalls a pod', { timeout: 400_000 }, async () => {
    await interrupted(await slow());
  });
});

interface Slow {
  readonly at: Place;
  readonly gateway: Gateway;
  readonly pollers: Pollers;
}

let slowOnes: Promise<Slow> | undefined;

/** An application behind gateways that poll every 10 s. */
function slow(): Promise<Slow> {
  slowOnes ??= (async () => {
    const at = await place('hold', 'haproxy', 6);
    const gateway = await startGateway('haproxy', at, 10);
    return { at, gateway, pollers: await startPollers('haproxy', at, 10_000) };
  })();
  return slowOnes;
}

/** What else happens to held pods: the application keeps its own time, and no request is lost. */
async function interrupted({ at, gateway, pollers }: Slow): Promise<void> {
  const { namespace } = at;
  const flag = { conditionType: 'linger.test/in' };
  const ended: Termination[] = [];
  const gated = { readinessGates: [flag], containers: [appContainer('app')] };
  const cut = await startPod(
    cluster,
    pod(namespace, 'cut', { containers: gated.containers }, WEB) as NewObject,
  );
  const survivor = await startPod(
    cluster,
    pod(namespace, 'survivor', { containers: gated.containers }, WEB) as NewObject,
  );
  const object = pod(namespace, 'unready', gated, WEB) as NewObject;
  const ready = async (status: 'True' | 'False') => {
    const path = `/api/v1/namespaces/${namespace}/pods/unready/status`;
    const body = { status: { conditions: [{ type: flag.conditionType, status }] } };
    await cluster.api.call('PATCH', path, { body, contentType: 'application/strategic-merge-patch+json' });
  };
  const starting = startPod(cluster, object);
  await waitUntil(
    'the pod to be there',
    async () => (await cluster.get(object as ObjectReference)) !== undefined,
  );
  await ready('True');
  const unready = await starting;
  const addresses = [cut, survivor, unready].map((each) => `${podIp(each.pod)}:${POD_PORT}`);
  await listed(gateway, addresses);
  await sleep(pollers.gateways.intervalMs * 1.2);
  const outcome = await underLoad(at, gateway, pollers, async () => {
    const ofCut = cut.terminate();
    await sleep(500);
    // Half of what the pod was admitted with.
    const half = Math.floor(cut.pod.spec.terminationGracePeriodSeconds / 2);
    await cluster.delete(
      { apiVersion: 'v1', kind: 'Pod', metadata: { namespace, name: 'cut' } },
      { graceSeconds: half },
    );
    ended.push(await ofCut);
    const ofSurvivor = survivor.terminate();
    await sleep(3_000);
    await cluster.restart('kubelet');
    ended.push(await ofSurvivor);
    await ready('False');
    await sleep(3_000);
    ended.push(await unready.terminate());
  });
  const judged = new Map(
    (await judge(outcome, at, pollers, (await kubeProxyLag(cluster)).quantileMs(99))).map((each) => [
      each.pod,
      each,
    ]),
  );
  const rows = ended.map(({ pod: { metadata, spec }, containers, deletedAt }) => {
    const { letGoAt = Number.NaN, sigtermAt = Number.NaN } = judged.get(metadata.name) ?? {};
    const own = containers.app?.sigtermAt ?? Number.NaN;
    const cells = [own - deletedAt, letGoAt - deletedAt, sigtermAt - deletedAt].map(duration);
    return [metadata.name, spec.terminationGracePeriodSeconds, ...cells];
  });
  console.log(table(['pod', 'grace', 'SIGTERM', 'dropped', ''], rows));
  console.log(JSON.stringify(await setting?.releases(namespace)));
  expect(outcome.reports.map(({ lost }) => lost)).toEqual([0, 0, 0]);
}

const WEB = { labels: { app: 'web' } };

const podIp = ({ status }: PodObject) => (status as { podIP?: string } | undefined)?.podIP ?? '';
