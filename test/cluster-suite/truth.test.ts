import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { readKubeconfig } from '../../src/cluster/index.ts';
import {
  type Cluster,
  FakeNode,
  type FakePod,
  type KubernetesObject,
  openCluster,
  readAudit,
  waitUntil,
} from '../testbed/cluster.ts';
import { applicationDeployment, type DeploymentObject, isRolledOut } from '../testbed/workloads.ts';
import { type Agreement, agreement, lagOf, type Pairing, percentileOf } from './support/agreement.ts';
import { type TrueRemoval, trueRemovals } from './support/endpoint-history.ts';
import { Linger } from './support/linger.ts';
import { MeasuredCluster } from './support/measured-cluster.ts';
import { Standstills } from './support/standstills.ts';

/** What the lags may be off by, in milliseconds. */
const MEDIAN_MS = 20;
const P99_MS = 150;

/** Ends further apart than this are not of one withdrawal. */
const SAME_WITHDRAWAL_MS = 2_000;

/** A Service and how many pods stand behind it. `app` selects one kind of pods, `tier` several. */
interface Kind {
  readonly app: string;
  readonly pods: number;
}

/** 130 pods are more than one slice lists (100). */
const KINDS: readonly Kind[] = [
  { app: 'several-slices', pods: 130 },
  { app: 'cluster-ip', pods: 40 },
  { app: 'headless', pods: 30 },
];
const REAL_PODS = 12;
const NEVER_WITHDRAWN = 'never-withdrawn';

let cluster: Cluster;
let namespace: string;
let node: FakeNode;
/** The program itself, and what it does, where each sample can be looked at. */
let linger: Linger;
let measured: MeasuredCluster;
let pods: readonly FakePod[];

const service = (name: string, selector: object, spec: object = {}) => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { namespace, name },
  spec: { selector, ports: [{ port: 80, targetPort: 8080 }], ...spec },
});

beforeAll(async () => {
  cluster = await openCluster();
  if (!cluster.own) return;
  namespace = await cluster.namespace('truth');
  node = await FakeNode.start(cluster.api);
  for (const { app } of KINDS) {
    await cluster.create(service(app, { app }, app === 'cluster-ip' ? {} : { clusterIP: 'None' }));
  }
  await cluster.create(service('real', { app: 'real' }));
  // The pods of these are in two Services, and some in three.
  await cluster.create(service('both', { tier: 'both' }));
  await cluster.create(
    service(NEVER_WITHDRAWN, { app: 'headless' }, { clusterIP: 'None', publishNotReadyAddresses: true }),
  );
  pods = KINDS.flatMap(({ app, pods: count }) =>
    Array.from({ length: count }, (_, index) => ({
      namespace,
      name: `${app}-${index}`,
      labels: { app, tier: app === 'several-slices' ? 'one' : 'both' },
    })),
  );
  const deployment = applicationDeployment({ namespace, name: 'real', replicas: REAL_PODS });
  await Promise.all([node.run(pods), cluster.create(deployment)]);
  await cluster.waitFor<DeploymentObject>(deployment, (object) => isRolledOut(object, REAL_PODS));
  await waitUntil('all pods to be listed as ready', async () => (await listed()) === expectedListings());
  const { kubeconfig, nodeAddress: host } = cluster;
  linger = await Linger.start({ host, kubeconfig, directory: mkdtempSync(join(tmpdir(), 'linger-truth-')) });
  await waitUntil(
    'linger to follow all it follows',
    async () => (await linger.metric('linger_watch_current')) === 6,
  );
  measured = await MeasuredCluster.start(await readKubeconfig(kubeconfig));
});

afterAll(async () => {
  await measured?.stop();
  await linger?.stop();
  await node?.finishAll(namespace);
  await node?.remove();
  await cluster?.close();
});

/** Ready endpoints of all slices. */
async function listed(): Promise<number> {
  type Slice = KubernetesObject & { endpoints: { conditions: { ready: boolean } }[] | null };
  const slices = await cluster.list<Slice>({
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    namespace,
  });
  return slices.flatMap(({ endpoints }) => endpoints ?? []).filter(({ conditions }) => conditions.ready)
    .length;
}

/** Each pod once, those in `both` and in the Service that withdraws no pod once more. */
function expectedListings(): number {
  return pods.length + REAL_PODS + 40 + 30 + 30;
}

/** In an order in which kinds and Services mix, with more than one at a time now and then. */
async function terminateAll(): Promise<void> {
  const real = await cluster.list<KubernetesObject>({ apiVersion: 'v1', kind: 'Pod', namespace }, 'app=real');
  const every = Math.floor(pods.length / REAL_PODS);
  const deletions: Promise<unknown>[] = [];
  for (const [index, pod] of shuffled(pods).entries()) {
    deletions.push(node.terminate(pod));
    const { metadata } = (index % every === 0 ? real.pop() : undefined) ?? {};
    if (metadata !== undefined) {
      deletions.push(
        cluster.delete({ apiVersion: 'v1', kind: 'Pod', metadata: { namespace, name: metadata.name } }),
      );
    }
    if (index % 3 !== 0) await sleep(200);
  }
  await Promise.all(deletions);
}

/** 61 is prime, and no number of pods is a multiple of it: every pod comes once. */
function shuffled<T>(items: readonly T[]): readonly T[] {
  return items.map((_, index) => items[(index * 61) % items.length] as T);
}

function report(removals: readonly TrueRemoval[], { pairs, missing, invented }: Agreement): void {
  const off = pairs.map(({ difference }) => Math.abs(difference));
  const beyond = pairs.map((pair) => pair.beyond);
  const ms = (value: number) => `${value.toFixed(1)} ms`;
  const of = (values: readonly number[]) =>
    `median ${ms(percentileOf(values, 50))}, p99 ${ms(percentileOf(values, 99))}, most ${ms(percentileOf(values, 100))}`;
  console.log(
    `${removals.length} removals, ${pairs.length} samples that match, ${missing.length} missing, ${invented.length} invented\n` +
      `true lag: ${of(removals.map(lagOf))}\n` +
      `sample against truth: ${of(off)}\n` +
      `outside of what lies between request and answer: ${of(beyond)}`,
  );
}

/** Milliseconds by which a lag is off, whenever in a standstill of this process its start and its end arrived. */
function beyondDoubt({ sample: { lag, at }, truth }: Pairing, standstills: Standstills): number {
  const lagMs = lag * 1000;
  const [least, most] = truth.bounds;
  const longest = lagMs + standstills.doubt(at - lagMs);
  const shortest = lagMs - standstills.doubt(at);
  return Math.max(0, least - longest, shortest - Math.max(0, most));
}

/** How many removals the program has sampled, and how many it has discarded, beyond those that were here. */
async function countedMore(): Promise<{ readonly sampled: number; readonly discarded: number }> {
  const discardedHere = Object.values(measured.discarded).reduce((sum, count) => sum + count, 0);
  return {
    sampled: (await linger.metric('linger_removal_lag_seconds_count')) - measured.samples.length,
    discarded: (await linger.metric('linger_removals_discarded_total')) - discardedHere,
  };
}

it('measures every removal as the API server logs it', { timeout: 240_000 }, async ({ skip }) => {
  const { auditLog } = cluster;
  if (auditLog === undefined) return skip('the API server of a foreign cluster writes no log for us');
  const before = { ...measured.discarded };
  const counted = await countedMore();
  const expected = 2 * (pods.length + REAL_PODS + 70);
  const samples = () => measured.samples.filter((sample) => sample.namespace === namespace);
  const standstills = new Standstills(measured.clock);
  await terminateAll();
  // Where it does not come to that, the assertions below say what is missing.
  await waitUntil('every removal to be sampled', () => samples().length >= expected).catch(() => undefined);
  standstills.stop();
  const logged = () =>
    trueRemovals(readAudit(auditLog, namespace)).filter(({ service: name }) => name !== NEVER_WITHDRAWN);
  // A watch may bring what the log is still to say.
  const isWhole = () => logged().every(({ end }) => end !== undefined);
  await waitUntil('the log to say how each removal ended', isWhole).catch(() => undefined);
  const removals = logged();
  const result = agreement(samples(), removals, SAME_WITHDRAWAL_MS);
  report(removals, result);
  console.log(`this process, which measures, stood still for up to ${standstills.longestMs.toFixed(0)} ms`);

  expect(new Set(removals.map(({ pod }) => pod)).size).toBe(pods.length + REAL_PODS);
  // Everything else that happened in the cluster happened to both.
  const more = await waitUntil('the program to have counted as many', async () => {
    const now = await countedMore();
    return now.sampled + now.discarded === counted.sampled + counted.discarded ? now : undefined;
  });
  // One that gets no processor for 250 ms between two watches discards what they bring as an inversion.
  expect(more.sampled - counted.sampled).toBeGreaterThanOrEqual(-expected / 100);
  expect(removals.length).toBe(expected);
  expect(result.invented).toEqual([]);
  const { discarded } = measured;
  // A process that stands still for more than a second must not sample what it then learns late.
  expect(result.missing.length).toBeLessThanOrEqual(discarded.Reconnect - before.Reconnect);
  expect(result.pairs.length).toBeGreaterThanOrEqual(400);
  expect(discarded.NeverWithdrawn - before.NeverWithdrawn).toBe(2 * 30);
  expect(discarded.Inversion - before.Inversion).toBe(0);
  expect(discarded.Relisted - before.Relisted).toBe(0);
  const off = result.pairs.map(({ difference }) => Math.abs(difference));
  expect(percentileOf(off, 50)).toBeLessThanOrEqual(MEDIAN_MS);
  // Where the processors are busy with something else, the log itself is not sure by more than that, and neither is this
  // process where it stood still.
  const beyond = result.pairs.map((pair) => beyondDoubt(pair, standstills));
  console.log(`the same beyond standstills: p99 ${percentileOf(beyond, 99).toFixed(1)} ms`);
  expect(percentileOf(beyond, 99)).toBeLessThanOrEqual(P99_MS);
});
