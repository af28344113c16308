import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Shortfall } from '../../src/audit/index.ts';
import { shipped as command } from '../cli/linger.ts';
import { samplePlan } from '../core/decision/sample-plan.ts';
import {
  type Cluster,
  FakeNode,
  type FakePod,
  type KubernetesObject,
  openCluster,
  readAudit,
  waitUntil,
} from '../testbed/cluster.ts';
import { trueRemovals } from './support/endpoint-history.ts';
import { Linger } from './support/linger.ts';

/** S0 in small: a controller-manager that may write five times a second, and a backlog of ten seconds and more. */
const THROTTLED = ['--kube-api-qps=5', '--kube-api-burst=5'];
const CROWD = 70;

/** Waits of those that are deleted behind the backlog, by name: by plan, by an author's own sleep, or none. */
const PODS = {
  'plan-3': { plan: 3 },
  'plan-120': { plan: 120 },
  'own-2': { sleep: 2 },
  'own-100': { sleep: 100 },
  'no-hook': {},
  unreadable: { command: ['wait-for-it'] },
} as const;
type Name = keyof typeof PODS;

let cluster: Cluster;
let node: FakeNode;
let linger: Linger;
let namespace: string;
let home: string;

const service = (name: string) => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { namespace, name },
  spec: { clusterIP: 'None', selector: { app: name }, ports: [{ port: 80 }] },
});

const crowd = (): FakePod[] =>
  Array.from({ length: CROWD }, (_, index) => ({
    namespace,
    name: `crowd-${index}`,
    labels: { app: `crowd-${index}` },
  }));

beforeAll(async () => {
  cluster = await openCluster();
  if (!cluster.own) return;
  namespace = await cluster.namespace('afterwards');
  home = await cluster.namespace('afterwards-home');
  node = await FakeNode.start(cluster.api);
  for (const { name } of crowd()) await cluster.create(service(name));
  await cluster.create(service('web'));
  await node.run(crowd());
  await node.run(
    Object.entries(PODS).map(([name, given]) => ({
      namespace,
      name,
      labels: { app: 'web' },
      ...('plan' in given && {
        annotations: { 'linger.dev/plan': samplePlan({ wait: given.plan, grace: 300 }) },
      }),
      ...(preStopOf(given) && { lifecycle: { preStop: preStopOf(given) } }),
    })),
  );
  const { kubeconfig, nodeAddress: host } = cluster;
  const directory = mkdtempSync(join(tmpdir(), 'linger-afterwards-'));
  linger = await Linger.start({ host, kubeconfig, directory, namespace: home });
  await waitUntil('linger to lead', async () => (await linger.metric('linger_leader')) === 1);
  await waitUntil(
    'every pod to be listed',
    async () => (await listed()).size === CROWD + Object.keys(PODS).length,
  );
}, 240_000);

afterAll(async () => {
  if (cluster?.own === true) await cluster.restart('kube-controller-manager');
  await linger?.stop();
  await node?.finishAll(namespace);
  await node?.remove();
  await cluster?.close();
}, 120_000);

function preStopOf(given: (typeof PODS)[Name]) {
  if ('sleep' in given) return { sleep: { seconds: given.sleep } };
  return 'command' in given ? { exec: { command: given.command } } : undefined;
}

async function listed(): Promise<ReadonlySet<string>> {
  type Slice = KubernetesObject & {
    endpoints: { conditions: { ready: boolean }; targetRef?: { name: string } }[] | null;
  };
  const reference = { apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice', namespace };
  const slices = await cluster.list<Slice>(reference);
  const ready = slices
    .flatMap(({ endpoints }) => endpoints ?? [])
    .filter(({ conditions }) => conditions.ready);
  return new Set(ready.map(({ targetRef }) => targetRef?.name ?? ''));
}

it('names every pod that was stopped before it was withdrawn, by how much, and no other', {
  timeout: 240_000,
}, async ({ skip }) => {
  const { auditLog } = cluster;
  if (auditLog === undefined) return skip('only where the controller-manager and the audit log are ours');
  await cluster.restart('kube-controller-manager', THROTTLED);
  // So slow, it is ready seconds before its controllers are; what they find as they start, they do in any order.
  const [first, ...others] = crowd();
  await node.setReady([first!], false);
  await waitUntil('its controllers to work', async () => !(await listed()).has(first!.name), {
    timeoutMs: 60_000,
  });
  await node.setReady(others, false);
  const names = Object.keys(PODS) as Name[];
  await Promise.all(names.map((name) => node.terminate({ namespace, name, labels: {} }, 300)));
  const withdrawn = async () => {
    const present = await listed();
    return !names.some((name) => present.has(name));
  };
  await waitUntil('all to be withdrawn', withdrawn, { timeoutMs: 120_000 });

  const told = async () => {
    const args = ['audit', '--since', '1h', '--kubeconfig', cluster.kubeconfig, '--linger-namespace', home];
    const { stdout } = await command([...args, '-n', namespace, '-o', 'json']);
    return stdout === '' ? [] : (JSON.parse(stdout) as { shortfalls: readonly Shortfall[] }).shortfalls;
  };
  await waitUntil('the leader to have written them', async () => (await told()).length >= 3, {
    timeoutMs: 60_000,
  });
  const shortfalls = await told();
  expect(shortfalls.map(({ pod }) => pod).toSorted()).toEqual(['no-hook', 'own-2', 'plan-3']);

  const removals = Map.groupBy(trueRemovals(readAudit(auditLog, namespace)), ({ pod }) => pod);
  for (const { pod, wait, seconds, services } of shortfalls) {
    const ends = removals.get(pod)?.map(({ start, end = Number.NaN }) => (end - start) / 1000) ?? [];
    const truth = Math.max(...ends) - wait;
    console.log(`${pod}: told ${seconds.toFixed(2)} s, true ${truth.toFixed(2)} s`);
    expect(Math.abs(seconds - truth)).toBeLessThan(0.3);
    expect(services).toEqual(['web']);
  }

  type Event = { reason: string; involvedObject: { name: string }; message: string };
  const { items } = await cluster.api.call<{ items: Event[] }>(
    'GET',
    `/api/v1/namespaces/${namespace}/events`,
  );
  const events = items.filter(({ reason }) => reason === 'StoppedTooEarly');
  expect(events.map(({ involvedObject }) => involvedObject.name).toSorted()).toEqual([
    'no-hook',
    'own-2',
    'plan-3',
  ]);
  expect(events.find(({ involvedObject }) => involvedObject.name === 'plan-3')?.message).toMatch(
    /^Pod plan-3 got SIGTERM after 3s, but web listed it for \d+(\.\d)?s: requests may have been lost for \d+(\.\d)?s\.$/,
  );
  // Nothing is measured of the cluster's DNS here, so no wait is called enough.
  const outcome = (name: string) => linger.metric(`linger_terminations_total{outcome="${name}"}`);
  expect([await outcome('TooEarly'), await outcome('Unknown')]).toEqual([3, 3]);
});
