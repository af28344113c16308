import { mkdtempSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { dnsServer } from '../measurement/dns-server.ts';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { type Gateway, startHaproxy } from '../testbed/gateways.ts';
import { clusterSettings } from '../testbed/settings.ts';
import { applicationDeployment, type DeploymentObject, isRolledOut } from '../testbed/workloads.ts';
import { standIn } from './support/gateways.ts';
import { Linger } from './support/linger.ts';
import { policyFile } from './support/policies.ts';
import type { Slice } from './support/programmed-rules.ts';

/** HAProxy as people run it, that finds pods through DNS every second: when it really sent its last request. */
const REPLICAS = 3;
const DELETIONS = 2;
const EVERY_MS = 200;
const REQUESTS_EVERY_MS = 20;
const SERVICE = 'web';
/** A page that is asked for may come late, and so may the request that was the last. */
const SLACK_MS = 500;

let cluster: Cluster;
let namespace = '';
let gateway: Gateway;
let linger: Linger;
let dns: Awaited<ReturnType<typeof dnsServer>>;
let requests: NodeJS.Timeout | undefined;
const ending = new AbortController();
let ready: ReadonlySet<string> = new Set();
/** By address: when the slice did not list it any more. Milliseconds since the epoch. */
const withdrawn = new Map<string, number>();

function listed({ endpoints }: Slice): void {
  const usable = (endpoints ?? []).filter(({ conditions }) => conditions.ready);
  const now = new Set(usable.flatMap(({ addresses }) => addresses));
  for (const address of ready) if (!now.has(address)) withdrawn.set(address, Date.now());
  ready = now;
}

async function followSlices(): Promise<void> {
  const path = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices?watch=1`;
  while (!ending.signal.aborted)
    await cluster.api
      .watch<Slice>(path, ({ object }) => listed(object), ending.signal)
      .catch((error: unknown) => {
        if (!ending.signal.aborted) throw error;
      });
}

beforeAll(async () => {
  cluster = await openCluster();
  if (!cluster.own) return;
  namespace = await cluster.namespace('inspect');
  const spec = { clusterIP: 'None', selector: { app: SERVICE }, ports: [{ port: 8080 }] };
  const headless = { apiVersion: 'v1', kind: 'Service', metadata: { namespace, name: SERVICE }, spec };
  await cluster.create(headless);
  void followSlices();
  const deployment = applicationDeployment({
    ...{ namespace, name: SERVICE, replicas: REPLICAS, podSpec: { terminationGracePeriodSeconds: 10 } },
    // It goes on answering while the gateway still sends.
    container: { lifecycle: { preStop: { sleep: { seconds: 5 } } } },
  });
  await cluster.create(deployment);
  dns = await dnsServer((_, type) => ({ addresses: type === 'A' ? [...ready] : [], ttl: 1 }));
  gateway = await startHaproxy(clusterSettings(), {
    ...{ namespace, service: SERVICE, port: 8080, dns: dns.server, resolveSeconds: 1 },
  });
  const { port, path, format } = gateway.page;
  const inspect = {
    instances: {
      namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': namespace } },
      podSelector: { matchLabels: { gateway: gateway.name } },
      ...{ port, path },
    },
    ...{ format, every: `${EVERY_MS}ms` },
  };
  const consumer = {
    ...{ apiVersion: 'linger.dev/v1alpha1', kind: 'DiscoveryConsumer', metadata: { name: gateway.name } },
    spec: { measure: { inspect } },
  };
  const { kubeconfig, nodeAddress: host } = cluster;
  const directory = mkdtempSync(join(tmpdir(), 'linger-inspect-'));
  const [started] = await Promise.all([
    Linger.start({ host, kubeconfig, directory, policies: policyFile(consumer) }),
    standIn(cluster, namespace, gateway.name),
    cluster.waitFor<DeploymentObject>(deployment, (object) => isRolledOut(object, REPLICAS)),
  ]);
  linger = started;
  const { address, port: entry } = gateway;
  requests = setInterval(() => {
    const options = { host: address, port: entry, agent: false, timeout: 5_000 };
    http.get(options, (response) => response.resume()).on('error', () => undefined);
  }, REQUESTS_EVERY_MS);
}, 60_000);

afterAll(async () => {
  clearInterval(requests);
  ending.abort();
  await linger?.stop();
  await gateway?.stop();
  dns?.close();
  await cluster?.close();
}, 60_000);

const lagOf = async (what: 'count' | 'sum') =>
  linger.metric(`linger_consumer_lag_seconds_${what}{consumer="${gateway.name}"}`);

/** A pod that the gateway sends to and that nobody has deleted. */
async function anyPod() {
  const pods = await cluster.list<KubernetesObject & { status: { podIP: string } }>(
    { apiVersion: 'v1', kind: 'Pod', namespace },
    `app=${SERVICE}`,
  );
  const used = new Set(gateway.sent().map(({ backend }) => backend));
  return pods.find(
    ({ metadata, status }) => metadata.deletionTimestamp === undefined && used.has(`${status.podIP}:8080`),
  );
}

async function isOwn(): Promise<boolean> {
  const opened = await openCluster();
  await opened.close();
  return opened.own;
}

describe.runIf(await isOwn())('HAProxy, asked what it uses', () => {
  it('is timed as its own log has it', { timeout: 60_000 }, async () => {
    const rows: { sample: number; truth: number }[] = [];
    for (let turn = 0; turn < DELETIONS; turn += 1) {
      const pod = await waitUntil('a pod with requests', anyPod);
      const [count, sum] = [await lagOf('count'), await lagOf('sum')];
      await cluster.delete({ apiVersion: 'v1', kind: 'Pod', metadata: pod.metadata });
      await waitUntil('the sample', async () => (await lagOf('count')) === count + 1, { intervalMs: 100 });
      const sample = 1_000 * ((await lagOf('sum')) - sum);
      const { podIP } = pod.status;
      const last = gateway.sent().findLast(({ backend }) => backend === `${podIP}:8080`);
      rows.push({ sample, truth: Math.max(0, (last?.at ?? Number.NaN) - (withdrawn.get(podIP) ?? 0)) });
    }
    const shown = rows.map(({ sample, truth }) => `${sample.toFixed(0)} ms (truth ${truth.toFixed(0)} ms)`);
    console.log(`let go after ${shown.join(', ')}`);
    for (const { sample, truth } of rows) {
      expect(sample).toBeGreaterThanOrEqual(truth - REQUESTS_EVERY_MS);
      expect(sample).toBeLessThanOrEqual(truth + EVERY_MS + SLACK_MS);
    }
    expect(await linger.metric(`linger_inspect_removals_lost_total{consumer="${gateway.name}"}`)).toBe(0);
  });
});
