import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Installation } from '../cluster-suite/support/installation.ts';
import { processesOf } from '../cluster-suite/support/installed-replicas.ts';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { type ClusterDns, startClusterDns } from '../testbed/cluster-dns.ts';
import { clusterSettings } from '../testbed/settings.ts';
import { LONG } from './form.ts';
import { table } from './table.ts';

/*
 * What an installed Linger takes while nothing happens: two replicas, a cluster DNS, no scrapes. The canary has timed both
 * of its consumers a hundred times, as it has after an hour and three quarters; here it takes ten minutes.
 */
const TIMED = 100;
/** The start of both replicas, and what follows it, is over. */
const SETTLED_MS = 180_000;
/** With two flips of the canary. */
const WINDOWS = 10;
const WINDOW_MS = 60_000;
/** The goal. Thousandths of a core. */
const AT_REST = 5;

const POLICY = JSON.stringify({
  apiVersion: 'linger.dev/v1alpha1',
  kind: 'ClusterTerminationPolicy',
  metadata: { name: 'base' },
  spec: { mode: 'Audit' },
});
const FASTER = '--canary-every=1s';

let cluster: Cluster;
let dns: ClusterDns | undefined;
let linger: Installation | undefined;

beforeAll(async () => {
  cluster = await openCluster();
  if (!LONG || !cluster.own) return;
  // A flip takes as long as DNS may answer with what it was.
  dns = await startClusterDns(clusterSettings(), { ttl: 1 });
  linger = await Installation.create(cluster, { policies: POLICY, flags: [FASTER], dns: dns.server });
}, 600_000);

afterAll(async () => {
  await linger?.remove();
  await dns?.stop();
  await cluster?.close();
}, 240_000);

/** On-CPU time of all threads of a process so far. Nanoseconds. Source: Linux, Documentation/scheduler/sched-stats.rst. */
function onProcessor(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`);
  const times = threads.map((thread) => readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8'));
  return times.reduce((sum, text) => sum + Number(text.split(' ')[0]), 0);
}

function residentMb(pid: number): number {
  const [, kilobytes] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
  return Number(kilobytes) / 1024;
}

/** How often each built-in consumer has been timed, as the leader says. */
async function timed(): Promise<number> {
  const { replicas } = linger as Installation;
  const counts = ['cluster-ip', 'cluster-dns'].map((consumer) =>
    replicas.sum('linger_consumer_samples', `consumer="${consumer}"`),
  );
  return Math.min(...(await Promise.all(counts)));
}

/** Rolls the replicas without the flag that made the canary fast. */
async function slowDown(): Promise<void> {
  const deployment = {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'linger', namespace: 'linger' },
  };
  type Template = { readonly template: { readonly spec: { readonly containers: { args: string[] }[] } } };
  const { spec } = (await cluster.get<KubernetesObject & { readonly spec: Template }>(deployment)) ?? {};
  const args = spec?.template.spec.containers[0]?.args.filter((arg) => arg !== FASTER);
  const patch = [{ op: 'replace', path: '/spec/template/spec/containers/0/args', value: args }];
  const where = ['--namespace', 'linger', 'deployment/linger'];
  const patched = await cluster.kubectl([
    'patch',
    ...where,
    '--type=json',
    `--patch=${JSON.stringify(patch)}`,
  ]);
  expect([patched.code, patched.stderr]).toEqual([0, '']);
  const rolled = await cluster.kubectl(['rollout', 'status', ...where, '--timeout=120s'], {
    timeoutMs: 130_000,
  });
  expect([rolled.code, rolled.stderr]).toEqual([0, '']);
}

it('takes next to no processor time at rest', { timeout: 3_600_000 }, async ({ skip }) => {
  if (!LONG || !cluster.own || linger === undefined) return skip('the long form, in our own cluster');
  const { replicas } = linger;
  const enough = async () => (await timed()) >= TIMED;
  await waitUntil(`${TIMED} flips`, enough, { timeoutMs: 1_800_000, intervalMs: 5_000 });
  dns = await startClusterDns(clusterSettings(), { ttl: 5, cache: 5 });
  await slowDown();
  await waitUntil('the next leader to know them', enough, { timeoutMs: 120_000, intervalMs: 1_000 });
  await sleep(SETTLED_MS);

  const leads = await replicas.sums('linger_leader');
  const flips = () => replicas.sum('linger_canary_flips_total');
  const before = await flips();
  const measured = (await replicas.list()).map(({ name, uid }) => {
    const [pid = 0] = processesOf(uid);
    return {
      role: leads.get(name) === 1 ? 'leader' : 'follower',
      pid,
      at: onProcessor(pid),
      windows: [] as number[],
    };
  });
  for (let window = 0; window < WINDOWS; window += 1) {
    await sleep(WINDOW_MS);
    for (const each of measured) {
      const now = onProcessor(each.pid);
      each.windows.push(((now - each.at) / (WINDOW_MS * 1e6)) * 1000);
      each.at = now;
    }
  }
  const rows = measured.map(({ role, pid, windows }) => {
    const mean = windows.reduce((sum, each) => sum + each, 0) / windows.length;
    const [least, most] = [Math.min(...windows), Math.max(...windows)];
    return [role, ...[mean, least, most].map((each) => each.toFixed(1)), residentMb(pid).toFixed(0)];
  });
  console.log(table(['', 'thousandths of a core', 'least', 'most, in a minute', 'MB'], rows));
  console.log(`${(await flips()) - before} flips in ${(WINDOWS * WINDOW_MS) / 60_000} minutes`);
  expect(rows.map(([role]) => role).toSorted()).toEqual(['follower', 'leader']);
  for (const [, mean] of rows) expect(Number(mean)).toBeLessThanOrEqual(AT_REST);
});
