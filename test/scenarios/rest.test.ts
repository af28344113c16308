import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Installation } from '../cluster-suite/support/installation.ts';
import { processesOf } from '../cluster-suite/support/installed-replicas.ts';
import { type Cluster, openCluster } from '../testbed/cluster.ts';
import { type ClusterDns, startClusterDns } from '../testbed/cluster-dns.ts';
import { clusterSettings } from '../testbed/settings.ts';
import { LONG } from './form.ts';
import { table } from './table.ts';

/*
 * What an installed Linger takes while nothing happens: two replicas, a cluster DNS, no scrapes. The canary flips as
 * often as it does by default once it has timed both of its consumers a hundred times.
 */
const KNOWN = '--canary-every=5m';
/** The start of both replicas, and what follows it, is over. */
const SETTLED_MS = 180_000;
/** With a flip or two of the canary. */
const WINDOWS = 8;
const WINDOW_MS = 60_000;
/** Thousandths of a core. The goal is 5 (docs/benchmarks.md), and machines differ by a factor of two; what is beyond this has become worse. */
const AT_REST = 12;

const POLICY = JSON.stringify({
  apiVersion: 'linger.dev/v1alpha1',
  kind: 'ClusterTerminationPolicy',
  metadata: { name: 'base' },
  spec: { mode: 'Audit' },
});

let cluster: Cluster;
let dns: ClusterDns | undefined;
let linger: Installation | undefined;

beforeAll(async () => {
  cluster = await openCluster();
  if (!LONG || !cluster.own) return;
  dns = await startClusterDns(clusterSettings(), { ttl: 5, cache: 5 });
  linger = await Installation.create(cluster, { policies: POLICY, flags: [KNOWN], dns: dns.server });
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

it('takes next to no processor time at rest', { timeout: 3_600_000 }, async ({ skip }) => {
  if (!LONG || !cluster.own || linger === undefined) return skip('the long form, in our own cluster');
  const { replicas } = linger;
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
