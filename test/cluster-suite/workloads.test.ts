import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { shipped as linger } from '../cli/linger.ts';
import { type NewObject, waitUntil } from '../testbed/cluster.ts';
import {
  cronJob,
  job,
  type PodObject,
  pod,
  service,
  sidecar,
  silentContainer,
  workload,
} from './support/manifests.ts';
import { hookOf, planOf } from './support/outcome.ts';
import { clusterPolicy, fixedWait, knownService, policyFile } from './support/policies.ts';
import { openStage, type Stage } from './support/stage.ts';
import { isReady } from './support/termination.ts';

const WAITS = { hooks: ['sleep 5'], grace: 35 };
const UNTOUCHED = { hooks: ['-'], grace: 30 };

interface Case {
  readonly it: string;
  readonly objects: (namespace: string) => readonly NewObject[];
  readonly pods: number;
  readonly expect: { readonly hooks: readonly string[]; readonly grace: number };
}

const silent = { containers: [silentContainer('app')] };
const noHeadless = { serviceName: 'none' };

/** One workload each, all called `app`, as their authors wrote them. */
const cases: readonly Case[] = [
  {
    it: 'bare pod',
    objects: (ns) => [pod(ns, 'app', {}, { labels: { app: 'app' } })],
    pods: 1,
    expect: WAITS,
  },
  {
    it: 'Deployment',
    objects: (ns) => [workload('Deployment', ns, 'app', { replicas: 2 })],
    pods: 2,
    expect: WAITS,
  },
  {
    it: 'ReplicaSet',
    objects: (ns) => [workload('ReplicaSet', ns, 'app', { replicas: 1 })],
    pods: 1,
    expect: WAITS,
  },
  {
    it: 'StatefulSet',
    objects: (ns) => [workload('StatefulSet', ns, 'app', { replicas: 2, ...noHeadless })],
    pods: 2,
    expect: WAITS,
  },
  { it: 'DaemonSet', objects: (ns) => [workload('DaemonSet', ns, 'app')], pods: 1, expect: UNTOUCHED },
  {
    it: 'DaemonSet that asks for it',
    objects: (ns) => [
      workload('DaemonSet', ns, 'app', {}, { metadata: { annotations: { 'linger.dev/inject': 'true' } } }),
    ],
    pods: 1,
    expect: WAITS,
  },
  { it: 'Job', objects: (ns) => [job(ns, 'app')], pods: 1, expect: UNTOUCHED },
  {
    it: 'Deployment with a native sidecar',
    objects: (ns) => [workload('Deployment', ns, 'app', {}, { initContainers: [sidecar('proxy', 8081)] })],
    pods: 1,
    expect: WAITS,
  },
  {
    it: 'Deployment that its template opts out',
    objects: (ns) => [
      workload('Deployment', ns, 'app', {}, { metadata: { labels: { 'linger.dev/inject': 'false' } } }),
    ],
    pods: 1,
    expect: UNTOUCHED,
  },
  {
    it: 'Deployment applied before its Service',
    objects: (ns) => [workload('Deployment', ns, 'app'), service(ns, 'app')],
    pods: 1,
    expect: WAITS,
  },
  {
    it: 'Deployment without port and probe, applied before its Service',
    objects: (ns) => [workload('Deployment', ns, 'app', {}, silent), service(ns, 'app')],
    pods: 1,
    expect: WAITS,
  },
];

describe('pods of a', () => {
  let stage: Stage;
  let known = '';
  const namespaces = new Map<string, string>();

  beforeAll(async () => {
    stage = await openStage(async (cluster) => {
      known = await cluster.namespace('workloads-known');
      for (const each of cases) namespaces.set(each.it, await cluster.namespace('workloads'));
      return policyFile(clusterPolicy('base', fixedWait('5s')), knownService(known, { app: 'selected' }));
    });
    // All at once: their tests then only look.
    await Promise.all(
      cases.map(async ({ it: name, objects }) => {
        for (const object of objects(namespaces.get(name) ?? '')) await stage.cluster.create(object);
      }),
    );
  });

  afterAll(() => stage?.close());

  /** The pods of a workload, when all of them exist and satisfy a condition. */
  const podsOf = (
    namespace: string,
    count: number,
    satisfied: (each: PodObject) => boolean,
    selector = 'app=app',
  ) =>
    waitUntil(
      `${count} pods in ${namespace}`,
      async () => {
        const pods = await stage.cluster.list<PodObject>(
          { apiVersion: 'v1', kind: 'Pod', namespace },
          selector,
        );
        return pods.length === count && pods.every(satisfied) ? pods : undefined;
      },
      { timeoutMs: 120_000 },
    );

  const seen = ({ spec }: PodObject) => ({
    hooks: spec.containers.map(hookOf),
    grace: spec.terminationGracePeriodSeconds,
  });

  const runs = (each: PodObject) => isReady(each) || each.status?.phase === 'Succeeded';

  it.each(cases)('$it: $expect.hooks, and they run', async ({ it: name, pods, expect: expected }) => {
    const found = await podsOf(namespaces.get(name) ?? '', pods, runs);
    expect(found.map(seen)).toEqual(Array.from({ length: pods }, () => expected));
    // The pods of one ReplicaSet must not differ.
    expect(new Set(found.map(({ metadata }) => metadata.annotations?.['linger.dev/plan'])).size).toBe(1);
    expect(planOf(found[0] as PodObject) !== undefined).toBe(expected === WAITS);
  });

  it('CronJob: untouched, and they end', async () => {
    const namespace = await stage.cluster.namespace('workloads-cron');
    await stage.cluster.create(cronJob(namespace, 'app'));
    const args = ['create', 'job', 'now', '--from=cronjob/app', '--namespace', namespace];
    expect(await stage.cluster.kubectl(args)).toMatchObject({ code: 0 });
    const [made] = await podsOf(namespace, 1, runs, 'job-name=now');
    expect(seen(made as PodObject)).toEqual(UNTOUCHED);
    expect(await stage.linger.decisions(namespace)).toEqual([]);
  });

  it('Deployment in a namespace whose Services are known, none of them its own: a port is enough', async () => {
    await stage.cluster.create(workload('Deployment', known, 'app'));
    const [made] = await podsOf(known, 1, () => true);
    expect(seen(made as PodObject)).toEqual(WAITS);
  });

  it('worker in the same namespace, without port and probe: untouched', async () => {
    await stage.cluster.create(workload('Deployment', known, 'worker', {}, silent));
    const [made] = await podsOf(known, 1, () => true, 'app=worker');
    expect(seen(made as PodObject)).toEqual(UNTOUCHED);
    const decisions = await stage.linger.decisions(known);
    expect(decisions.map(({ reason }) => reason)).toContain('NotServing');
  });

  describe('linger explain of what runs', () => {
    const explain = (...args: readonly string[]) =>
      linger(['explain', '--kubeconfig', stage.cluster.kubeconfig, ...args]);

    it('says what the pods of a Deployment carry, and what they would be given today', async () => {
      const namespace = namespaces.get('Deployment') ?? '';
      await podsOf(namespace, 2, () => true);
      const { stdout } = await explain('deployment.apps/app', '-n', namespace);
      // No policy is known to this command here, so it would be the built-in one's wait.
      expect(stdout).toMatch(
        /^Deployment \S+\n {2}pods 2 +2 with 5s \(Sleep, fixed; ClusterTerminationPolicy\/base\), grace 35s; the policy was different \([0-9a-f]{8}, now 00000000\)\n {2}outcome +inject\n {2}wait +30s/,
      );
    });

    it('of a Pod that carries a plan, as its author wrote it', async () => {
      const namespace = namespaces.get('bare pod') ?? '';
      const { stdout } = await explain('pod/app', '-n', namespace, '-o', 'json');
      const [plan] = (JSON.parse(stdout) as { plans: Record<string, unknown>[] }).plans;
      expect(plan).toMatchObject({
        kind: 'Pod',
        outcome: 'inject',
        waitSeconds: 30,
        baseGraceSeconds: 30,
        graceSeconds: 60,
        live: { pods: 1, withoutPlan: 0, plans: [{ pods: 1, wait: 5, grace: 35, hook: 'Sleep' }] },
      });
    });

    it('of pods without a plan', async () => {
      const { stdout } = await explain('ds/app', '-n', namespaces.get('DaemonSet') ?? '');
      expect(stdout).toMatch(/pods 1 +1 without a wait\n {2}outcome +skip: DaemonSet/);
    });

    it.each([
      [
        'deployment/nobody',
        /there is no Deployment nobody in namespace default; -n names another \[not-found\]/,
      ],
      ['service/web', /service\/web: expected one of pod, .*\[settings-invalid\]/],
    ])('%s: an error that says why', async (name, message) => {
      const { code, stderr } = await explain(name);
      expect(code).not.toBe(0);
      expect(stderr).toMatch(message);
    });
  });

  it('static pod: its mirror is untouched', async ({ skip }) => {
    const directory = stage.cluster.staticPodDirectory;
    if (directory === undefined) return skip('only where the kubelet’s directory of static pods is ours');
    const namespace = await stage.cluster.namespace('workloads-static');
    const file = join(directory, `${namespace}.json`);
    writeFileSync(file, JSON.stringify(pod(namespace, 'app', {}, { labels: { app: 'app' } })));
    try {
      const [mirror] = await podsOf(namespace, 1, isReady);
      expect(mirror?.metadata.annotations).toHaveProperty(['kubernetes.io/config.mirror']);
      expect(seen(mirror as PodObject)).toEqual(UNTOUCHED);
      expect(await stage.linger.decisions(namespace)).toEqual([]);
    } finally {
      rmSync(file);
    }
  });
});
