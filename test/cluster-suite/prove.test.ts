import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { emptyDirectory, environment, MAIN } from '../cli/linger.ts';
import { type Cluster, type NewObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { type AtEnd, atEndOfFile } from '../webhook/connection.ts';
import { kubeconfigOf } from './support/account.ts';
import { lingerImageArchive } from './support/linger-image.ts';
import type { PollingGateway } from './support/polling-gateway.ts';
import { ProveStage } from './support/prove.ts';

/* Without Linger in the cluster. Its long form is test/scenarios/prove.test.ts. */

const REPLICAS = 3;
/** By how much the gateway follows: one that polls would do so by chance. */
const LATE_SECONDS = 4;
const OUT_OF_REACH = 'images can be imported into our own cluster only';
const atEnd: AtEnd = atEndOfFile();

let cluster: Cluster;
let namespace = '';
let stage: ProveStage;
let gateway: PollingGateway | undefined;
/** When a run was killed, in milliseconds since the epoch. */
let killedAt = 0;

beforeAll(async () => {
  cluster = await openCluster();
  if (!cluster.own) return;
  namespace = await cluster.namespace('prove', { 'linger.dev/inject': 'false' });
  stage = new ProveStage(cluster, namespace);
  // So that each loss belongs to one pod: where delays overlap, the verdict can only bound them.
  const deployed = [
    stage.deploy('web', REPLICAS, { apart: LATE_SECONDS + 1 }),
    stage.deploy('single', 1),
    stage.deploy('stays', 2),
  ];
  await Promise.all([...deployed, lingerImageArchive().then((archive) => cluster.importImages(archive))]);
  gateway = await stage.gateway('web', 250, { delayMs: 1_000 * LATE_SECONDS });
}, 180_000);

afterAll(async () => {
  gateway?.stop();
  await cluster?.close();
});

const senders = () => stage.pods('app.kubernetes.io/name=linger-prove');

const running = async () => JSON.stringify(await senders()).split('"phase":"Running"').length - 1;

/** A run that would take a minute before it disturbs anything. @returns once its pod sends */
async function startRun() {
  const before = await running();
  const args = [
    ...stage.arguments(['deployment/stays', '--calm', '60s']),
    '--kubeconfig',
    cluster.kubeconfig,
  ];
  const child = spawn(process.execPath, [MAIN, ...args], {
    env: environment(),
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  atEnd(() => void child.kill('SIGKILL'));
  await waitUntil('its pod to run', async () => (await running()) > before);
  return child;
}

const jobs = () => cluster.list({ apiVersion: 'batch/v1', kind: 'Job', namespace });
const left = async () => [...(await jobs()), ...(await senders())].length;

it('removes what it made when it is interrupted', { timeout: 90_000 }, async ({ skip }) => {
  if (!cluster.own) return skip(OUT_OF_REACH);
  const child = await startRun();
  child.kill('SIGINT');
  expect(await once(child, 'exit')).toEqual([130, null]);
  expect(await left()).toBe(0);
});

it('is killed without a chance to clear up', { timeout: 90_000 }, async ({ skip }) => {
  if (!cluster.own) return skip(OUT_OF_REACH);
  (await startRun()).kill('SIGKILL');
  killedAt = Date.now();
  expect(await left()).toBe(2);
});

it('ends at once when it is interrupted twice', { timeout: 90_000 }, async ({ skip }) => {
  if (!cluster.own) return skip(OUT_OF_REACH);
  const child = await startRun();
  let said = '';
  child.stderr.on('data', (chunk) => {
    said += chunk;
  });
  child.kill('SIGINT');
  await waitUntil('its answer', () => said.includes('interrupt again'), { intervalMs: 10 });
  const [interruptedAt, exit] = [Date.now(), once(child, 'exit')];
  child.kill('SIGINT');
  expect(await exit).toEqual([130, null]);
  // Its pod takes longer to end, and is waited for otherwise.
  expect(Date.now() - interruptedAt).toBeLessThan(1_000);
});

it('refuses politely, and names what is missing', { timeout: 60_000 }, async ({ skip }) => {
  if (!cluster.own) return skip(OUT_OF_REACH);
  await cluster.create({
    apiVersion: 'v1',
    kind: 'ServiceAccount',
    metadata: { namespace, name: 'visitor' },
  });
  const kubeconfig = join(await emptyDirectory(atEnd), 'kubeconfig');
  writeFileSync(kubeconfig, await kubeconfigOf(cluster, namespace, 'visitor'));
  const budget = {
    apiVersion: 'policy/v1',
    kind: 'PodDisruptionBudget',
    metadata: { namespace, name: 'web' },
    spec: { selector: { matchLabels: { app: 'web' } }, minAvailable: REPLICAS },
  };
  await cluster.create(budget as NewObject);
  const [rights, single, evict, deleted] = await Promise.all([
    stage.prove(['deployment/web'], kubeconfig),
    stage.prove(['deployment/single']),
    stage.prove(['deployment/web', '--evict']),
    stage.prove(['deployment/web', '--delete-one']),
  ]);
  for (const each of [rights, single, evict, deleted]) expect(each).toMatchObject({ code: 1, stdout: '' });
  expect(rights.stderr).toContain(
    `lack permissions in namespace ${namespace}: get deployments.apps, list pods, watch pods, `,
  );
  expect(rights.stderr).toMatch(
    /create jobs\.batch.*get pods\/log, patch deployments\.apps \[cluster-denied\]\n$/,
  );
  expect(single.stderr).toMatch(/single has 1 ready pod: .*scale it to 2 or more \[prove-refused\]\n$/);
  for (const { stderr } of [evict, deleted])
    expect(stderr).toMatch(
      /disruption of pod web-\S+ is forbidden: .*disruption budget.* \[prove-refused\]\n$/,
    );
});

const RUN = ['deployment/web', '--rate', '40', '--timeout', '8s', '--calm', '3s', '--quiet', '6s'];

it('finds what is lost behind a late gateway, names it, and advises a wait that loses nothing', {
  timeout: 180_000,
}, async ({ skip }) => {
  if (gateway === undefined) return skip(OUT_OF_REACH);
  const svg = join(await emptyDirectory(atEnd), 'run.svg');
  const { code, report, atGateway } = await stage.through(gateway, [...RUN, '--svg', svg]);
  expect(readFileSync(svg, 'utf8')).toContain('class="cross"');
  const edge = report.ways.find(({ name }) => name === 'edge');
  expect(code).toBe(3);
  expect(atGateway).toBeGreaterThan(0);
  // Its client has more patience than it has, so that what it resets is what is lost.
  const { lost = 0, kinds = {} } = edge ?? {};
  expect(Math.abs(lost - (kinds.timeout ?? 0) - atGateway)).toBeLessThanOrEqual(0.03 * atGateway);
  expect(report.verdict).toMatch(/edge follows .* late, the wait was 0 s\b.* s would have covered it/);
  expect(report.pods).toHaveLength(REPLICAS);
  for (const { deletedAt, withdrawnAt, goneAt } of report.pods)
    expect([deletedAt, withdrawnAt, goneAt]).not.toContain(null);
  const wait = report.advice?.wait ?? 0;
  expect(wait).toBeGreaterThanOrEqual(LATE_SECONDS);
  expect(wait).toBeLessThanOrEqual(5 * LATE_SECONDS);

  await stage.sleep('web', REPLICAS, wait);
  const again = await stage.through(gateway, RUN);
  expect([again.code, again.report.lost, again.atGateway]).toEqual([0, 0, 0]);
  expect(again.report.atRisk).toBeGreaterThan(100);
  expect(again.report.pods.map((pod) => pod.wait)).toEqual(Array(REPLICAS).fill(wait));
});

it('leaves nothing behind, not even where it was killed', { timeout: 150_000 }, async ({ skip }) => {
  if (!cluster.own) return skip(OUT_OF_REACH);
  await waitUntil('all to be gone', async () => (await left()) === 0, {
    timeoutMs: killedAt + 120_000 - Date.now(),
  });
});
