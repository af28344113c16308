import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { percentileOf } from '../cluster-suite/support/agreement.ts';
import { Installation } from '../cluster-suite/support/installation.ts';
import { processesOf } from '../cluster-suite/support/installed-replicas.ts';
import { type ProgrammedChange, ProgrammedRules } from '../cluster-suite/support/programmed-rules.ts';
import { auditPosition } from '../testbed/audit.ts';
import {
  type Cluster,
  type KubernetesObject,
  openCluster,
  readAudit,
  waitUntil,
} from '../testbed/cluster.ts';
import { type DeploymentObject, isRolledOut } from '../testbed/workloads.ts';
import { byForm, LONG } from './form.ts';

const POLICY = JSON.stringify({
  apiVersion: 'linger.dev/v1alpha1',
  kind: 'ClusterTerminationPolicy',
  metadata: { name: 'base' },
  spec: { mode: 'Enforce' },
});
const POD = { apiVersion: 'v1', kind: 'Pod' };
const IN_LINGER = { namespace: 'linger' };
const ACCOUNT = 'system:serviceaccount:linger:linger';
const SERVICE = 'linger-canary';

/** The largest error of p50 and p90 over all flips. */
const WITHIN_SHARE = 0.1;
const WITHIN_SECONDS = 0.3;

interface Flip {
  readonly result: string;
  readonly pod: string;
  readonly attempts: number;
  readonly consumers: {
    readonly 'cluster-ip'?: {
      readonly removal?: number;
      readonly addition?: number;
      readonly trouble?: object;
    };
  };
}

let cluster: Cluster;
let linger: Installation;
let rules: ProgrammedRules;
const reading = new AbortController();
/** With the instant at which its line was read, which is after its end. */
const flips: (Flip & { readonly readAt: number })[] = [];

beforeAll(async () => {
  cluster = await openCluster();
  if (!cluster.own) return;
  const flags = ['--canary-every=1s', '--log-level=debug'];
  linger = await Installation.create(cluster, { policies: POLICY, flags });
  rules = new ProgrammedRules(cluster, 'linger', SERVICE);
  for (const { name } of await linger.replicas.list()) {
    const line = (text: string) => {
      if (text.includes('"canary flip"'))
        flips.push({ ...(JSON.parse(text) as Flip), readAt: performance.now() });
    };
    void cluster.followLogs('linger', name, 'linger', line, reading.signal).catch(() => undefined);
  }
}, 240_000);

afterAll(async () => {
  reading.abort();
  await rules?.stop();
  if (cluster?.own) {
    await cluster.restart('kube-proxy');
    await linger?.remove();
  }
  await cluster?.close();
}, 240_000);

/** The replica that leads, once one does. */
function leading(): Promise<string> {
  const look = async () =>
    [...(await linger.replicas.sums('linger_leader '))].find(([, leads]) => leads === 1)?.[0];
  return waitUntil('a replica to lead', look, { timeoutMs: 60_000 });
}

/** The flips that have measured since then, once there are this many. */
async function measured(count: number, since: number, timeoutMs: number) {
  const found = () => flips.filter(({ result, readAt }) => result === 'Measured' && readAt > since);
  await waitUntil(`${count} flips`, () => found().length >= count, { timeoutMs, intervalMs: 500 });
  return found();
}

interface Pair {
  /** Seconds. */
  readonly measured: number;
  readonly truth: number;
}

/** Each flip's sample beside the truth: the last change of the rules of that kind before the end of the flip. */
async function pairs(found: readonly (typeof flips)[number][], direction: ProgrammedChange['direction']) {
  const addresses = new Map((await linger.replicas.list()).map(({ name, address }) => [name, address]));
  return found.flatMap(({ pod, readAt, consumers }): Pair[] => {
    const lag = consumers['cluster-ip']?.[direction];
    const truth = rules.changes.findLast(
      (each) => each.direction === direction && each.address === addresses.get(pod) && each.at < readAt,
    );
    return lag === undefined || truth === undefined ? [] : [{ measured: lag, truth: truth.lag / 1000 }];
  });
}

const seconds = (value: number) => `${value.toFixed(3)} s`;

function compare(what: string, compared: readonly Pair[]): void {
  const off = compared.map((pair) => Math.abs(pair.measured - pair.truth));
  const line = [50, 90].map((percentile) => {
    const [own, truth] = [
      percentileOf(
        compared.map((pair) => pair.measured),
        percentile,
      ),
      percentileOf(
        compared.map((pair) => pair.truth),
        percentile,
      ),
    ];
    expect.soft(Math.abs(own - truth)).toBeLessThan(Math.max(WITHIN_SHARE * truth, WITHIN_SECONDS));
    return `p${percentile} ${seconds(own)} (truth ${seconds(truth)})`;
  });
  const spread = `single flips off by ${seconds(percentileOf(off, 50))} (median), ${seconds(Math.max(...off))} (most)`;
  console.log(`${what}, ${compared.length} flips: ${line.join(', ')}; ${spread}`);
}

/** In a foreign cluster kube-proxy can neither be replaced nor inspected. */
async function isOwn(): Promise<boolean> {
  const opened = await openCluster();
  await opened.close();
  return opened.own;
}

const READS = new Set(['get', 'list', 'watch']);
const writesSince = (position: number) =>
  readAudit(cluster.auditLog!, 'linger', position).filter(({ verb }) => !READS.has(verb));

describe.runIf(await isOwn())('the canary', () => {
  it('times kube-proxy as its rules say, at its normal settings', { timeout: 660_000 }, async () => {
    const since = performance.now();
    const found = await measured(byForm(8, 60), since, byForm(150_000, 600_000));
    compare('removals', await pairs(found, 'removal'));
    compare('additions', await pairs(found, 'addition'));
  });

  it('writes the label twice a flip and nothing else, and opens a bounded number of connections', async () => {
    const position = auditPosition(cluster.auditLog!);
    const [connections, before] = [
      await linger.replicas.sums('linger_canary_connections_total'),
      flips.length,
    ];
    const since = performance.now();
    await measured(byForm(4, 6), since, 120_000);
    const made = [...(await linger.replicas.sums('linger_canary_connections_total'))].reduce(
      (sum, [name, count]) => sum + count - (connections.get(name) ?? 0),
      0,
    );
    // The flip that was under way at the beginning, and the one that is now.
    const [ended, most] = [flips.length - before, flips.length - before + 2];
    const events = writesSince(position);
    const own = events.filter(
      ({ user, objectRef }) => user.username === ACCOUNT && objectRef.resource === 'pods',
    );
    expect(new Set(own.map(({ verb }) => verb))).toEqual(new Set(['patch']));
    expect(own.length).toBeGreaterThanOrEqual(2 * (ended - 1));
    expect(own.length).toBeLessThanOrEqual(2 * most);
    const following = events.filter(
      ({ objectRef }) => /^endpoint/.test(objectRef.resource) && objectRef.name?.startsWith(SERVICE),
    );
    // The slices and the Endpoints of two Services, out and back.
    expect(following.length).toBeLessThanOrEqual(8 * most);
    expect(made / most).toBeLessThan(200);
    console.log(
      `a flip: ${own.length / ended} writes by Linger, ${following.length / ended} that follow, ${made / ended} connections`,
    );
  });

  it('leaves the webhook’s Service, the ReplicaSet and the budget alone', async () => {
    const names = (await linger.replicas.list()).map(({ name }) => name).toSorted();
    const position = auditPosition(cluster.auditLog!);
    await measured(3, performance.now(), 60_000);
    expect((await linger.replicas.list()).map(({ name }) => name).toSorted()).toEqual(names);
    const events = writesSince(position);
    const endpointsOfWebhook = events.filter(({ objectRef: { resource, name = '' } }) =>
      resource === 'endpoints' ? name === 'linger' : /^linger-[a-z0-9]{5}$/.test(name),
    );
    expect(endpointsOfWebhook).toEqual([]);
    expect(events.filter(({ verb, objectRef }) => objectRef.resource === 'pods' && verb !== 'patch')).toEqual(
      [],
    );
  });

  it('times it with one replica, where the kernel rejects one of forty connections a second', {
    timeout: 240_000,
  }, async () => {
    const deployment = {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: { ...IN_LINGER, name: 'linger' },
    };
    const scale = async (replicas: number) => {
      await cluster.patch(deployment, { spec: { replicas } });
      const settled = (object: DeploymentObject) => isRolledOut(object, replicas);
      await cluster.waitFor<DeploymentObject>(deployment, settled);
    };
    await scale(1);
    await leading();
    const since = performance.now();
    const found = await measured(3, since, 60_000);
    await scale(2);
    const troubles = found.flatMap(({ consumers }) => consumers['cluster-ip']?.trouble ?? []);
    expect(troubles).toEqual([]);
    for (const pair of await pairs(found, 'removal'))
      expect(Math.abs(pair.measured - pair.truth)).toBeLessThan(0.5);
    const took = (found.at(-1)?.readAt ?? Number.NaN) - since;
    console.log(`${found.length} flips with one replica within ${seconds(took / 1000)}`);
  });

  const outside = () => cluster.list({ ...POD, ...IN_LINGER }, 'linger.dev/canary=out');
  /** undefined: there is no such pod. */
  const labelOf = async (name: string) =>
    (await cluster.get({ ...POD, metadata: { ...IN_LINGER, name } }))?.metadata.labels?.['linger.dev/canary'];
  /** A replica that does not lead, as soon as it is out. */
  const midFlip = (leader: string) =>
    waitUntil(
      'another than the leader to be out',
      async () => (await outside()).find(({ metadata }) => metadata.name !== leader),
      { timeoutMs: 60_000, intervalMs: 10 },
    );
  const signalled = (uid: string, signal: NodeJS.Signals) => {
    for (const pid of processesOf(uid)) process.kill(pid, signal);
  };

  it.each<[string, (lost: KubernetesObject) => unknown]>([
    ['is killed', ({ metadata: { uid = '-' } }) => signalled(uid, 'SIGKILL')],
    [
      'stands still for 6 s',
      ({ metadata: { uid = '-' } }) => {
        signalled(uid, 'SIGSTOP');
        setTimeout(() => signalled(uid, 'SIGCONT'), 6_000);
      },
    ],
    ['is deleted', ({ metadata: { name } }) => cluster.delete({ ...POD, metadata: { ...IN_LINGER, name } })],
  ])(
    'goes on within half a minute where the replica that is out %s, and nothing of that flip counts',
    {
      timeout: 180_000,
    },
    async (what, lose) => {
      const lost = await midFlip(await leading());
      await lose(lost);
      const at = performance.now();
      const { name } = lost.metadata;
      const since = () => flips.filter(({ readAt }) => readAt > at);
      await waitUntil('the flip to end', () => since().length > 0, { timeoutMs: 5_000, intervalMs: 20 });
      const [ended] = since();
      expect(ended).toMatchObject({ result: 'ReplicaLost', pod: name, consumers: {} });
      expect([undefined, 'in']).toContain(await labelOf(name));
      const again = await measured(3, at, 30_000);
      const troubles = since().flatMap(({ consumers }) => consumers['cluster-ip']?.trouble ?? []);
      expect(troubles).toEqual([]);
      for (const pair of await pairs(again, 'removal'))
        expect(Math.abs(pair.measured - pair.truth)).toBeLessThan(0.5);
      const took = (instant = Number.NaN) => seconds((instant - at) / 1000);
      console.log(
        `a replica ${what} while it is out: the flip ends after ${took(ended?.readAt)}, the first that measures after ${took(again[0]?.readAt)} (${again[0]?.pod === name ? 'the same replica' : 'another replica'}); ${since()
          .map(({ result }) => result)
          .join(', ')}`,
      );
    },
  );

  it.runIf(LONG)('costs so much processor time', async () => {
    const leader = await leading();
    const cpu = await linger.replicas.sums('process_cpu_seconds_total');
    const [since, begun] = [performance.now(), flips.length];
    await measured(8, since, 120_000);
    const [after, spanSeconds] = [
      await linger.replicas.sums('process_cpu_seconds_total'),
      (performance.now() - since) / 1000,
    ];
    const used = (name: string) => (after.get(name) ?? 0) - (cpu.get(name) ?? 0);
    const other = [...after.keys()].find((name) => name !== leader)!;
    const count = flips.length - begun;
    const each = (name: string) => `${((used(name) / count) * 1000).toFixed(0)} ms`;
    console.log(
      `${count} flips in ${spanSeconds.toFixed(0)} s: the leader ${each(leader)} a flip, the other ${each(other)}, everything else that they do included`,
    );
    expect(used(leader)).toBeLessThan(spanSeconds);
  });

  const slow = byForm('5s', '10s');

  it(`times it where kube-proxy is slow on purpose: minSyncPeriod ${slow}`, {
    timeout: 1_800_000,
  }, async () => {
    await cluster.restart('kube-proxy', [`--iptables-min-sync-period=${slow}`]);
    const since = performance.now();
    const found = await measured(byForm(5, 60), since, byForm(400_000, 1_700_000));
    const compared = await pairs(found, 'removal');
    compare(`removals, minSyncPeriod ${slow}`, compared);
    // Otherwise it was not slow, and the test proves nothing.
    expect(Math.max(...compared.map(({ truth }) => truth))).toBeGreaterThan(2);
  });

  it('the next leader goes on, and no replica is left out', { timeout: 180_000 }, async () => {
    await cluster.restart('kube-proxy');
    const leader = await leading();
    await cluster.delete({ apiVersion: 'v1', kind: 'Pod', metadata: { namespace: 'linger', name: leader } });
    const count = async () =>
      [...(await linger.replicas.sums('linger_canary_flips_total{result="Measured"}'))].filter(
        ([name, flipped]) => name !== leader && flipped > 0,
      ).length;
    await waitUntil('another leader to flip', async () => (await count()) > 0, { timeoutMs: 120_000 });
    await waitUntil('nobody to be outside', async () => (await outside()).length === 0, {
      timeoutMs: 30_000,
    });
  });

  it.each(
    [
      ['the leader is', false],
      ['the leader and the replica that is out are', true],
    ].slice(byForm(1, 0)) as [string, boolean][],
  )(
    '%s killed in the middle of a flip: the replica is put back, and flips go on',
    {
      timeout: 240_000,
    },
    async (_, both) => {
      const leader = await leading();
      const lost = await midFlip(leader);
      const { name } = lost.metadata;
      const measuredBy = () => linger.replicas.sums('linger_canary_flips_total{result="Measured"}');
      const before = await measuredBy();
      const { uid = '-' } = (await linger.replicas.list()).find((each) => each.name === leader) ?? {};
      signalled(uid, 'SIGKILL');
      if (both) signalled(lost.metadata.uid ?? '-', 'SIGKILL');
      const at = performance.now();
      // Or it has been too late to leave anything behind.
      expect(await labelOf(name)).toBe('out');
      await waitUntil('its label to be back', async () => (await labelOf(name)) === 'in', {
        timeoutMs: 60_000,
      });
      const backAfter = performance.now() - at;
      // A replica that was killed counts from zero.
      const since = (each: string) =>
        each === leader || (both && each === name) ? 0 : (before.get(each) ?? 0);
      const again = async () => [...(await measuredBy())].some(([each, count]) => count > since(each));
      await waitUntil('flips to go on', again, { timeoutMs: 120_000 });
      const goneOn = performance.now() - at;
      console.log(
        `its label is back after ${seconds(backAfter / 1000)}, flips after ${seconds(goneOn / 1000)}`,
      );
    },
  );
});
