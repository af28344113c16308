import { setTimeout as sleep } from 'node:timers/promises';
import { Installation } from '../cluster-suite/support/installation.ts';
import { cronJob, silentContainer, workload } from '../cluster-suite/support/manifests.ts';
import { clusterPolicy, policyFile } from '../cluster-suite/support/policies.ts';
import { Gateways, namesOf } from '../scenarios/polling/gateways.ts';
import { allowReports, forbidReports } from '../scenarios/polling/report-access.ts';
import { Stand, type StandOptions } from '../scenarios/polling/stand.ts';
import { type Cluster, inParallel, type NewObject } from '../testbed/cluster.ts';
import { startClusterDns } from '../testbed/cluster-dns.ts';
import { startLoad } from '../testbed/load/load.ts';
import { clusterSettings } from '../testbed/settings.ts';

/*
 * What the demo is recorded on: a small shop behind gateways that poll, in a cluster whose controller-manager is throttled.
 * Everything in it is real: pods, gateways, requests and what is lost of them.
 */

/** As in the scenario `throttled`: a few requests a second for each controller. */
const THROTTLED = ['--kube-api-qps=5', '--kube-api-burst=5'];
const REPORTS_ADDRESS = '10.201.255.10';
const GATEWAY = 'edge';
const GATEWAY_INSTANCES = 3;
const POLL_MS = 10_000;
const PER_SECOND = 4;
/** From one rollout of an application to the next, give or take a half; or as long as it takes. */
const ROLL_EVERY_MS = 60_000;
/** Services whose slices and Endpoints are all written again, as by a resync. */
const CATALOG = 120;
const STORM_EVERY_MS = 80_000;
/** A busy machine under a throttled controller-manager, with waits of a minute. */
const ROLLOUT_MS = 400_000;

const served = { gateways: GATEWAY };
const NAMESPACES: Readonly<Record<string, { readonly labels: object; readonly annotations?: object }>> = {
  shop: { labels: served },
  payments: { labels: { ...served, waiting: 'hold' } },
  // Not enforced yet: its pods lose requests.
  media: { labels: served, annotations: { 'linger.dev/mode': 'Audit' } },
  catalog: { labels: {} },
  [GATEWAY]: { labels: { 'linger.dev/inject': 'false' } },
};

type Application = Pick<StandOptions, 'namespace' | 'name' | 'replicas' | 'sleepSeconds'>;

const APPLICATIONS: readonly Application[] = [
  { namespace: 'shop', name: 'web', replicas: 3 },
  // Its author's guess, shorter than the gateways' interval.
  { namespace: 'shop', name: 'cart', replicas: 2, sleepSeconds: 3 },
  { namespace: 'shop', name: 'search', replicas: 1 },
  { namespace: 'payments', name: 'api', replicas: 2 },
  { namespace: 'media', name: 'thumbnails', replicas: 2 },
];

const POLICIES = policyFile(
  clusterPolicy('base', {
    mode: 'Enforce',
    // The defaults ask for more than a recording has.
    wait: { minSamples: 20, minHistory: '10m', initial: '30s', max: '60s' },
  }),
  clusterPolicy('payments', {
    priority: 10,
    namespaceSelector: { matchLabels: { waiting: 'hold' } },
    hook: 'Hold',
    hold: { min: '2s', max: '120s' },
  }),
  {
    apiVersion: 'linger.dev/v1alpha1',
    kind: 'DiscoveryConsumer',
    metadata: { name: GATEWAY },
    spec: { appliesTo: { namespaceSelector: { matchLabels: served } }, measure: { reports: {} } },
  },
);

/** Sets the stage, and rolls its applications again and again until the signal aborts; then takes Linger away. */
export async function runStage(cluster: Cluster, signal: AbortSignal, ready: () => void): Promise<void> {
  const dns = await startClusterDns(clusterSettings(), { ttl: 5 });
  for (const [name, metadata] of Object.entries(NAMESPACES))
    await cluster.create({ apiVersion: 'v1', kind: 'Namespace', metadata: { name, ...metadata } });
  const linger = await Installation.create(cluster, {
    policies: POLICIES,
    flags: ['--canary-every=2s'],
    addresses: { 'linger-reports': REPORTS_ADDRESS },
    timeoutSeconds: 30,
    dns: dns.server,
  });
  const stands = APPLICATIONS.map(
    (each) => new Stand({ cluster, onSigterm: 'exit', timeoutMs: ROLLOUT_MS, ...each }),
  );
  for (const stand of stands) await stand.start();
  for (const object of OTHERS) await cluster.create(object);
  await inParallel(catalogOf(), (service) => cluster.create(service));
  const gateways = await startGateways(cluster, linger.authority, stands);
  const share = Math.floor(cluster.clientAddresses.length / stands.length);
  const loads = await Promise.all(
    stands.map(({ namespace, service, selector: podSelector }, index) => {
      const clientAddresses = cluster.clientAddresses.slice(index * share, (index + 1) * share);
      const common = { cluster, namespace, podSelector, clientAddresses, perSecond: PER_SECOND };
      return startLoad({ ...common, target: gateways.target(service) });
    }),
  );
  await cluster.restart('kube-controller-manager', THROTTLED);
  ready();
  await Promise.all([...stands.map((stand) => roll(stand, signal)), storms(cluster, signal)]);
  for (const load of loads) {
    const { total, lost } = await load.stop();
    console.log(`${total} requests, ${lost} lost`);
  }
  await gateways.stop();
  await forbidReports(cluster, GATEWAY);
  await cluster.restart('kube-controller-manager');
  await linger.remove();
  await dns.stop();
}

async function startGateways(cluster: Cluster, authority: string, stands: readonly Stand[]) {
  const gateways = namesOf(GATEWAY_INSTANCES);
  const access = { cluster, namespace: GATEWAY, consumer: GATEWAY, address: REPORTS_ADDRESS, authority };
  const reports = await allowReports({ ...access, gateways });
  const services = stands.map(({ service }) => service);
  const options = { cluster, intervalMs: POLL_MS, connectTimeoutMs: 5_000, services, reports };
  return Gateways.start({ ...options, instances: GATEWAY_INSTANCES });
}

async function roll(stand: Stand, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const next = paused(ROLL_EVERY_MS * (0.5 + Math.random()), signal);
    await stand.rollOver(1).catch((error: Error) => console.log(`${stand.service}: ${error.message}`));
    await next;
  }
}

/** Controllers copy labels of Services to slices and Endpoints: all are written again. */
async function storms(cluster: Cluster, signal: AbortSignal): Promise<void> {
  for (let storm = 1; await paused(STORM_EVERY_MS, signal); storm += 1)
    await inParallel(catalogOf(), (service) =>
      cluster.patch(service, { metadata: { labels: { resync: String(storm) } } }),
    );
}

const paused = (milliseconds: number, signal: AbortSignal) =>
  sleep(milliseconds, true, { signal }).catch(() => false);

function catalogOf() {
  return Array.from({ length: CATALOG }, (_, index) => {
    const name = `catalog-${index}`;
    const spec = { clusterIP: 'None', selector: { app: name }, ports: [{ port: 80 }] };
    return { apiVersion: 'v1', kind: 'Service', metadata: { namespace: 'catalog', name }, spec };
  });
}

/** Workloads that get no traffic, and one whose pods have names that stay. */
const OTHERS = [
  workload('StatefulSet', 'payments', 'ledger', { replicas: 2, serviceName: 'ledger' }),
  workload('DaemonSet', 'media', 'node-agent', {}, { containers: [silentContainer('agent')] }),
  workload('Deployment', 'media', 'transcoder', { replicas: 1 }, { containers: [silentContainer('app')] }),
  cronJob('shop', 'nightly-report'),
] as readonly NewObject[];
