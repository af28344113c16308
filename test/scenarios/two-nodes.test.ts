import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AuditReport } from '../../src/core/judge/index.ts';
import { proveReport } from '../../src/prove/index.ts';
import { shipped } from '../cli/linger.ts';
import { Admissions } from '../cluster-suite/support/admissions.ts';
import { Installation } from '../cluster-suite/support/installation.ts';
import { type Json, type PodObject, pod, service, workload } from '../cluster-suite/support/manifests.ts';
import { planOf } from '../cluster-suite/support/outcome.ts';
import { clusterPolicy, fixedWait, policyFile } from '../cluster-suite/support/policies.ts';
import { ProveStage } from '../cluster-suite/support/prove.ts';
import { rollOver } from '../cluster-suite/support/rollout.ts';
import { isReady, startPod } from '../cluster-suite/support/termination.ts';
import { auditPosition } from '../testbed/audit.ts';
import { type Cluster, openCluster, readAudit, type SecondNode, waitUntil } from '../testbed/cluster.ts';
import { formatReport } from '../testbed/load/load.ts';
import { firstNode, secondNode } from '../testbed/network.ts';
import {
  applicationDeployment,
  applicationService,
  type DeploymentObject,
  isRolledOut,
} from '../testbed/workloads.ts';
import { LONG } from './form.ts';
import { duration, table } from './table.ts';

/*
 * An installed Linger on two real nodes, each with its own kubelet, containerd and kube-proxy: which node has which replica
 * is the scheduler's choice.
 */
const NODES = [firstNode.name, secondNode.name];
/** 50 pods a second. */
const ADMIT_EVERY_MS = 20;
/** Longer than the polling client's discovery interval of 10 s. */
const WAIT = '15s';
/** kube-proxy then follows a second change within it so much later. */
const SLOW = '--iptables-min-sync-period=5s';
const FLIPS = 8;
/** Pods in each of five rollouts: 50 terminations. */
const HELD_PODS = 10;
const HELD_ROLLOUTS = 5;
const BURST = 100;

const POLICIES = policyFile(
  clusterPolicy('base', { mode: 'Enforce', ...fixedWait(WAIT) }),
  clusterPolicy('held', {
    priority: 1,
    namespaceSelector: { matchLabels: { waiting: 'hold' } },
    hook: 'Hold',
    hold: { min: '0s', max: '60s' },
    wait: { from: 'Measured', initial: '10s' },
  }),
  clusterPolicy('usual-hold', {
    priority: 1,
    namespaceSelector: { matchLabels: { waiting: 'usual-hold' } },
    hook: 'Hold',
    hold: { max: '60s' },
    wait: { from: 'Measured', initial: '10s' },
  }),
);

type PlacedPod = PodObject & { readonly spec: { readonly nodeName?: string } };

/** The pods of an application over both nodes, half on each. */
const halfOnEach = (app: string): Json => ({
  topologySpreadConstraints: [
    {
      maxSkew: 1,
      topologyKey: 'kubernetes.io/hostname',
      whenUnsatisfiable: 'DoNotSchedule',
      nodeTaintsPolicy: 'Honor',
      labelSelector: { matchLabels: { app } },
      matchLabelKeys: ['pod-template-hash'],
    },
  ],
});

describe.runIf(LONG)('two nodes', async () => {
  if (!LONG) return;
  const cluster: Cluster = await openCluster();
  const onOurOwn = it.runIf(cluster.own);
  let node: SecondNode;
  let linger: Installation;
  let web = '';
  /** A place in the audit log. */
  let installedAt = 0;
  const rows: (readonly (string | number)[])[] = [];

  beforeAll(async () => {
    if (!cluster.own) return;
    node = await cluster.startNode();
    web = await cluster.namespace('web');
    // Before there is a Linger.
    await cluster.create(workload('Deployment', web, 'early', { replicas: 2 }));
    await cluster.create(service(web, 'early') as never);
    await settled(web, 'early', 2);
    const flags = ['--canary-every=1s', '--audit-every=5s'];
    installedAt = auditPosition(cluster.auditLog!);
    linger = await Installation.create(cluster, { policies: POLICIES, flags });
    await cluster.create(workload('Deployment', web, 'lone', { strategy: { type: 'Recreate' } }));
    await cluster.create(service(web, 'lone') as never);
    const application = { namespace: web, name: 'web', replicas: 4, podSpec: halfOnEach('web') };
    await cluster.create(applicationDeployment(application));
    await cluster.create(applicationService(application));
    await cluster.create({
      apiVersion: 'policy/v1',
      kind: 'PodDisruptionBudget',
      metadata: { namespace: web, name: 'web' },
      spec: { minAvailable: 3, selector: { matchLabels: { app: 'web' } } },
    } as never);
    await settled(web, 'web', 4);
  }, 300_000);

  afterAll(async () => {
    if (rows.length > 0) console.log(table(['', 'measured', ''], rows));
    // Nothing else ends the pods of a node that hangs.
    await node?.remove();
    if (cluster.own) await cluster.restart('kube-proxy');
    await linger?.remove();
    await cluster.close();
  }, 300_000);

  async function kubectl(...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await cluster.kubectl(args, { timeoutMs: 300_000 });
    if (code !== 0) throw new Error(`kubectl ${args.join(' ')}: ${stderr}`);
    return stdout + stderr;
  }

  async function settled(namespace: string, name: string, replicas: number): Promise<void> {
    await cluster.waitFor<DeploymentObject>(
      { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { namespace, name } },
      (each) => isRolledOut(each, replicas),
      { timeoutMs: 180_000 },
    );
  }

  /** The pods of an application that do not terminate. */
  async function podsOf(namespace: string, selector: string): Promise<readonly PlacedPod[]> {
    const pods = await cluster.list<PlacedPod>({ apiVersion: 'v1', kind: 'Pod', namespace }, selector);
    return pods.filter(({ metadata }) => metadata.deletionTimestamp === undefined);
  }

  const LINGER = 'app.kubernetes.io/name=linger';
  const placesOf = async (namespace: string, selector: string) =>
    (await podsOf(namespace, selector)).map(({ spec }) => spec.nodeName ?? '').toSorted();

  /** The leader and its node, once there is exactly one. */
  async function leading(): Promise<{ readonly name: string; readonly on: string }> {
    return waitUntil('a replica to lead', async () => {
      const leaders = [...(await linger.replicas.sums('linger_leader '))].filter(([, leads]) => leads === 1);
      const [name] = leaders[0] ?? [];
      const found = (await podsOf('linger', LINGER)).find(({ metadata }) => metadata.name === name);
      return found === undefined || leaders.length !== 1
        ? undefined
        : { name: name!, on: found.spec.nodeName! };
    });
  }

  /** Has the replica on this node lead. */
  async function leadOn(wanted: string): Promise<void> {
    const { name, on } = await leading();
    if (on === wanted) return;
    await cluster.delete({ apiVersion: 'v1', kind: 'Pod', metadata: { namespace: 'linger', name } });
    await waitUntil('the other to lead', async () => (await leading()).on === wanted);
    await settled('linger', 'linger', 2);
    expect(await placesOf('linger', LINGER)).toEqual(NODES);
  }

  onOurOwn('the scheduler puts a replica on each', async () => {
    expect(await placesOf('linger', LINGER)).toEqual(NODES);
    expect(await placesOf(web, 'app=web')).toEqual([...NODES, ...NODES].toSorted());
  });

  /** What an audit finds in the namespace, by workload. */
  async function audited(): Promise<Readonly<Record<string, string>>> {
    const args = ['audit', '--kubeconfig', cluster.kubeconfig, '-o', 'json', '-n', web];
    const { stdout, stderr } = await shipped(args);
    expect(stdout, stderr).not.toBe('');
    const { findings } = JSON.parse(stdout) as AuditReport;
    return Object.fromEntries(
      Object.entries(Object.groupBy(findings, ({ name }) => name)).map(([name, of = []]) => [
        name,
        `${of[0]?.verdict} ${of.map(({ reason }) => reason).join()}`,
      ]),
    );
  }

  onOurOwn('an audit names what is unprotected', { timeout: 60_000 }, async () => {
    expect(await audited()).toEqual({
      early: 'unprotected NotInjected',
      lone: 'unprotected NoOtherEndpoint',
      web: 'protected Injected',
    });
  });

  /** Drains a node while pods are admitted, and says how it went. */
  async function drain(name: string) {
    const admissions = new Admissions(cluster, web, ADMIT_EVERY_MS);
    const watching = new AbortController();
    const ready = { linger: 2, web: 4 };
    const watched = (async () => {
      while (!watching.signal.aborted) {
        const [replicas, pods] = await Promise.all([podsOf('linger', LINGER), podsOf(web, 'app=web')]);
        ready.linger = Math.min(ready.linger, replicas.filter(isReady).length);
        ready.web = Math.min(ready.web, pods.filter(isReady).length);
        await sleep(100);
      }
    })();
    await sleep(2_000);
    const position = auditPosition(cluster.auditLog!);
    const begun = performance.now();
    await kubectl('drain', name, '--ignore-daemonsets', '--timeout=240s');
    const took = performance.now() - begun;
    await settled('linger', 'linger', 2);
    await settled(web, 'web', 4);
    await sleep(2_000);
    watching.abort();
    await watched;
    const evictions = readAudit(cluster.auditLog!, 'linger', position).filter(
      ({ objectRef }) => objectRef.subresource === 'eviction',
    );
    const refused = evictions.filter(({ responseStatus }) => responseStatus?.code === 429).length;
    return { took, ready, refused, evicted: evictions.length - refused, admitted: await admissions.end() };
  }

  onOurOwn(
    'drains respect the budgets, and every pod meanwhile has its hook',
    { timeout: 600_000 },
    async () => {
      // Without templates that spread them: then the second drain meets both replicas on its node.
      for (const [name, left] of [
        [firstNode.name, secondNode.name],
        [secondNode.name, firstNode.name],
      ] as const) {
        const drained = await drain(name);
        const { took, ready, refused, evicted, admitted } = drained;
        rows.push([
          `drain of ${name}`,
          duration(took),
          `${evicted} of Linger evicted, ${refused} refused; ${admitted.total} pods admitted, ${admitted.perSecond}/s, ` +
            `${admitted.missed} without a hook; least ready: ${ready.linger} of Linger, ${ready.web} of 4`,
        ]);
        expect(admitted.problems).toEqual([]);
        expect(admitted.missed).toBe(0);
        expect(ready.linger).toBeGreaterThanOrEqual(1);
        expect(ready.web).toBeGreaterThanOrEqual(3);
        expect(await placesOf('linger', LINGER)).toEqual([left, left]);
        if (name === secondNode.name) {
          expect(evicted).toBe(2);
          expect(refused).toBeGreaterThan(0);
        }
        await kubectl('uncordon', name);
      }
    },
  );

  onOurOwn('what the drains have moved is protected, for the audit, too', { timeout: 60_000 }, async () => {
    expect(await audited()).toMatchObject({ early: 'protected Injected', web: 'protected Injected' });
  });

  /** Restarts both Deployments; resolves when no pod terminates any more. */
  async function restart(): Promise<void> {
    for (const [namespace, name] of [
      ['linger', 'linger'],
      [web, 'web'],
    ] as const)
      await kubectl('--namespace', namespace, 'rollout', 'restart', `deployment/${name}`);
    await settled('linger', 'linger', 2);
    await settled(web, 'web', 4);
    await waitUntil('the old replicas to be gone', async () => {
      const pods = await cluster.list({ apiVersion: 'v1', kind: 'Pod', namespace: 'linger' }, LINGER);
      return pods.length === 2;
    });
  }

  onOurOwn('a rollout spreads them, wherever they were', { timeout: 600_000 }, async () => {
    // From both on one node, and then from one on each: pods of the revision that goes would count for the scheduler, too.
    for (const _ of [1, 2, 3, 4]) {
      await restart();
      expect(await placesOf('linger', LINGER)).toEqual(NODES);
      expect(await placesOf(web, 'app=web')).toEqual([...NODES, ...NODES].toSorted());
    }
  });

  /** The mean lag of `cluster-ip` that the replicas measure with the next flips. Seconds. */
  async function told(flips: number): Promise<number> {
    const metric = 'linger_consumer_lag_seconds';
    const read = async (part: string) => linger.replicas.sum(`${metric}_${part}`, 'consumer="cluster-ip"');
    const [sum, count] = [await read('sum'), await read('count')];
    await waitUntil(`${flips} flips`, async () => (await read('count')) >= count + flips, {
      timeoutMs: 240_000,
      intervalMs: 500,
    });
    return ((await read('sum')) - sum) / ((await read('count')) - count);
  }

  const slowDown = (name: string, flags: readonly string[]) =>
    name === node.name ? node.restart('kube-proxy', flags) : cluster.restart('kube-proxy', flags);

  onOurOwn(
    'without node timers the lag is that of the leader’s kube-proxy alone',
    { timeout: 600_000 },
    async () => {
      await leadOn(node.name);
      const before = await told(FLIPS);
      await slowDown(firstNode.name, [SLOW]);
      const blind = await told(FLIPS);
      await slowDown(firstNode.name, []);
      rows.push([
        'no node timers, leader on node-2',
        [before, blind].map((each) => duration(each * 1000)).join(', '),
        'both fast, the other slow',
      ]);
      expect(before).toBeLessThan(0.5);
      // docs/measuring.md, "Other nodes".
      expect(blind).toBeLessThan(0.5);
    },
  );

  /** What `linger consumers` says of cluster-ip. */
  async function limits(): Promise<string> {
    const args = ['consumers', '--kubeconfig', cluster.kubeconfig, '-o', 'json'];
    const { stdout } = await shipped(args);
    const { consumers = [] } = JSON.parse(stdout || '{}') as {
      consumers?: { name: string; limits: readonly string[] }[];
    };
    return consumers.find(({ name }) => name === 'cluster-ip')?.limits.join(' ') ?? '';
  }

  onOurOwn.each(NODES)(
    'with node timers the lag is that of the slowest node, named: the leader is on %s',
    { timeout: 900_000 },
    async (name) => {
      await linger.add('node-timer.yaml');
      await kubectl('--namespace', 'linger', 'rollout', 'status', 'daemonset/linger-node-timer');
      await leadOn(name);
      await waitUntil('both nodes to be timed', async () => (await limits()).includes('2 of 2 nodes'), {
        timeoutMs: 240_000,
        intervalMs: 2_000,
      });
      const other = NODES.find((each) => each !== name)!;
      const before = await told(FLIPS);
      await slowDown(other, [SLOW]);
      const elsewhere = await told(FLIPS);
      await waitUntil(
        'the slow node to be named',
        async () => (await limits()).includes(`slowest is ${other}:`),
        {
          timeoutMs: 120_000,
          intervalMs: 2_000,
        },
      );
      const named = await limits();
      await slowDown(other, []);
      await slowDown(name, [SLOW]);
      const own = await told(FLIPS);
      await slowDown(name, []);
      const after = await told(FLIPS);
      const measured = [before, elsewhere, own, after].map((each) => duration(each * 1000));
      rows.push([
        `node timers, leader on ${name}`,
        measured.join(', '),
        `both fast, the other slow, its own slow, both fast; ${named}`,
      ]);
      expect(before).toBeLessThan(0.5);
      expect(elsewhere).toBeGreaterThan(0.5);
      expect(own).toBeGreaterThan(0.5);
      // The same kube-proxy, seen through the node timer or by the leader itself.
      expect(Math.abs(elsewhere - own)).toBeLessThan(0.5 * Math.max(elsewhere, own));
      expect(after).toBeLessThan(0.5);
    },
  );

  onOurOwn(
    'pods are held until the slowest node has followed, and lose nothing',
    { timeout: 1_500_000 },
    async () => {
      await slowDown(node.name, [SLOW]);
      for (const [waiting, labels] of [
        ['usual-hold', { waiting: 'usual-hold' }],
        ['nothing', { 'linger.dev/inject': 'false' }],
      ] as const) {
        const namespace = await cluster.namespace(waiting, labels as Readonly<Record<string, string>>);
        const stage = new ProveStage(cluster, namespace);
        await stage.deploy('web', HELD_PODS, { nodes: 2 });
        const lost: number[] = [];
        const waits: number[] = [];
        let total = 0;
        for (let rollout = 0; rollout < (waiting === 'nothing' ? 1 : HELD_ROLLOUTS); rollout += 1) {
          const { stdout, stderr } = await stage.prove(['deployment/web', '--rate', '50', '-o', 'json']);
          if (stdout === '') throw new Error(stderr);
          const report = proveReport.parse(JSON.parse(stdout));
          console.log([report.verdict, ...report.notes].join('\n'));
          expect(report.nodes.toSorted()).toEqual(NODES);
          expect(report.pods).toHaveLength(HELD_PODS);
          lost.push(report.lost);
          total += report.sent;
          // When a held pod ended shows when its hold was released.
          for (const { deletedAt, endedAt } of report.pods)
            if (deletedAt !== null && endedAt !== null)
              waits.push(Date.parse(endedAt) - Date.parse(deletedAt));
        }
        const spread = [Math.min(...waits), Math.max(...waits)].map(duration).join(' to ');
        rows.push([
          `a slow node, ${waiting}`,
          `${lost.join(' + ')} of ${total} lost`,
          `ended after ${spread}`,
        ]);
        if (waiting === 'nothing') expect(lost[0]).toBeGreaterThan(0);
        else expect(lost).toEqual(Array(HELD_ROLLOUTS).fill(0));
      }
      await slowDown(node.name, []);
    },
  );

  onOurOwn.each([
    ['with', {}],
    ['without', { 'linger.dev/inject': 'false' }],
  ])('a rollout over both nodes %s Linger, under load', { timeout: 600_000 }, async (with_, labels) => {
    const namespace = await cluster.namespace(`over-${with_}`, labels as Readonly<Record<string, string>>);
    const { clusterIp, polling } = await rollOver(cluster, namespace, halfOnEach('web'));
    for (const report of [clusterIp, polling]) {
      console.log(`${with_} Linger: ${formatReport(report)}`);
      rows.push([`rollout ${with_} Linger`, `${report.lost} of ${report.total} lost`, report.client]);
      // Two generations of four.
      expect(Object.keys(report.byPod)).toHaveLength(8);
      if (with_ === 'with') expect(report.firstLosses).toEqual([]);
      else expect(report.lost).toBeGreaterThan(0);
    }
    expect(await placesOf(namespace, 'app=web')).toEqual([...NODES, ...NODES].toSorted());
  });

  onOurOwn(
    'the helper is tried once, as both nodes are of one kind, and holds on both',
    {
      timeout: 300_000,
    },
    async () => {
      const namespace = await cluster.namespace('held', { waiting: 'hold' });
      await cluster.create(service(namespace, 'web') as never);
      await waitUntil(
        'pods to be held',
        async () => {
          const created = await cluster.create<PodObject>(pod(namespace, 'newcomer', {}), { dryRun: true });
          return planOf(created)?.hook === 'Hold';
        },
        { timeoutMs: 120_000 },
      );
      const trials = readAudit(cluster.auditLog!, 'linger', installedAt).filter(
        ({ objectRef, verb, responseStatus }) =>
          objectRef.name === 'linger-hold-test' && verb === 'patch' && responseStatus?.code === 201,
      );
      expect(trials).toHaveLength(1);
      const labels = { app: 'web' };
      for (const name of NODES) {
        const spec = { nodeSelector: { 'kubernetes.io/hostname': name } };
        const object = pod(namespace, `on-${name}`, spec, { labels });
        // It stays, so the other is not the last endpoint.
        const beside = pod(namespace, `beside-${name}`, spec, { labels });
        await cluster.create(beside as never);
        await cluster.waitFor<PodObject>(beside, isReady);
        const {
          deletedAt,
          containers,
          pod: started,
        } = await (await startPod(cluster, object as never)).terminate();
        expect(planOf(started)?.hook).toBe('Hold');
        const after = ((containers.app?.sigtermAt ?? Number.NaN) - deletedAt) / 1000;
        const logs = [...(await linger.replicas.logs()).values()].join('\n').split('\n');
        const released = logs.filter(
          (line) => line.includes('pod released') && line.includes(`"on-${name}"`),
        );
        rows.push([`held on ${name}`, duration(after * 1000), 'from the deletion to SIGTERM']);
        expect(released.map((line) => (JSON.parse(line) as { reason: string }).reason)).toEqual(['Gone']);
        expect(after).toBeLessThan(30);
      }
    },
  );

  /**
   * More at once than the API server has open connections: it opens others, to any replica, and each pod takes the one
   * that is free first. @returns how many got no hook
   */
  async function burst(): Promise<number> {
    const created = await Promise.all(
      Array.from({ length: BURST }, (_, index) =>
        cluster.create<PodObject>(pod(web, `burst-${index}`, {}), { dryRun: true }),
      ),
    );
    return created.filter((each) => planOf(each) === undefined).length;
  }

  onOurOwn(
    'a node that hangs with the leader: the other leads, and pods are admitted',
    {
      timeout: 600_000,
    },
    async () => {
      await leadOn(secondNode.name);
      const [staying] = (await podsOf('linger', LINGER)).filter(
        ({ spec }) => spec.nodeName === firstNode.name,
      );
      const address = (await linger.replicas.list()).find(
        ({ name }) => name === staying?.metadata.name,
      )?.address;
      const leads = async () => {
        const text = await (await fetch(`http://${address}:8080/metrics`)).text();
        return /^linger_leader 1$/m.test(text);
      };
      expect(await leads()).toBe(false);
      const admissions = new Admissions(cluster, web, ADMIT_EVERY_MS);
      await sleep(2_000);
      const begun = performance.now();
      node.hang();
      await waitUntil('the other to lead', leads, { intervalMs: 100 });
      const led = performance.now() - begun;
      const during = await burst();
      await cluster.waitFor<
        { status: { conditions: { type: string; status: string }[] } } & DeploymentObject
      >(
        { apiVersion: 'v1', kind: 'Node', metadata: { name: node.name } },
        ({ status }) =>
          status.conditions.some(({ type, status: is }) => type === 'Ready' && is === 'Unknown'),
        { timeoutMs: 120_000 },
      );
      const noticed = performance.now() - begun;
      await waitUntil('its replica to be withdrawn', async () => (await burst()) === 0);
      const withdrawn = performance.now() - begun;
      const afterwards = await burst();
      const { total, perSecond, missed, problems } = await admissions.end();
      rows.push(['node-2 hangs with the leader', duration(led), 'until the other leads']);
      rows.push(['', duration(noticed), 'until the cluster takes the node for gone']);
      rows.push(['', duration(withdrawn), `until ${BURST} pods at once have their hooks, each`]);
      rows.push(['', `${missed} of ${total}`, `pods without a hook, at ${perSecond}/s`]);
      rows.push(['', `${during} of ${BURST}`, 'pods without a hook, at once, when the other led']);
      expect(problems).toEqual([]);
      // A follower counts 15 s from when it saw the last renewal, and looks within 2 s.
      expect(led).toBeLessThan(20_000);
      expect(withdrawn - noticed).toBeLessThan(15_000);
      expect(afterwards).toBe(0);
    },
  );
});
