import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { MAIN } from '../cli/linger.ts';
import { Installation } from '../cluster-suite/support/installation.ts';
import { type PodObject, workload } from '../cluster-suite/support/manifests.ts';
import { hookOf } from '../cluster-suite/support/outcome.ts';
import { clusterPolicy } from '../cluster-suite/support/policies.ts';
import { isReady } from '../cluster-suite/support/termination.ts';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { must } from '../testbed/command.ts';
import { LONG } from './form.ts';

const FAIL_CLOSED = join(import.meta.dirname, '..', '..', 'deploy', 'fail-closed', 'webhook.yaml');
const LINGER = {
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name: 'linger', namespace: 'linger' },
};
const REPLICAS = 2;
const WITHOUT_PODS = '--controllers=*,-replicaset-controller,-daemonset-controller';

type Workload = KubernetesObject & {
  readonly status: { readonly conditions?: readonly { readonly message?: string }[] };
};

// Every run checks what the webhook refuses and lets through while Linger is down (availability.test.ts).
describe.runIf(LONG)('a cluster that starts from nothing, without Linger', () => {
  it.each(['Ignore', 'Fail'] as const)('failurePolicy: %s', { timeout: 600_000 }, async (failurePolicy) => {
    const cluster = await openCluster();
    if (!cluster.own) return cluster.close();
    const policies = JSON.stringify(clusterPolicy('base', { mode: 'Enforce' }));
    const kubectl = async (...args: string[]) => {
      const { code, stderr } = await cluster.kubectl(args, { timeoutMs: 60_000 });
      expect([code, code === 0 ? '' : stderr]).toEqual([0, '']);
    };
    const installation = await Installation.create(cluster, { policies });
    try {
      const namespace = await cluster.namespace('cold');
      const web = workload('Deployment', namespace, 'web', { replicas: REPLICAS });
      const network = workload('DaemonSet', namespace, 'network');
      const dns = workload(
        'Deployment',
        namespace,
        'dns',
        {},
        { priorityClassName: 'system-cluster-critical' },
      );
      if (failurePolicy === 'Fail')
        await kubectl(
          'patch',
          'mutatingwebhookconfiguration',
          'linger',
          '--type=json',
          '--patch-file',
          FAIL_CLOSED,
        );
      for (const object of [web, network, dns]) await cluster.create(object);
      /** The hooks of all expected pods, once they are ready. A status may be older than the restart. */
      const hooksOf = (app: string, count: number, where = namespace, label = 'app') =>
        waitUntil(
          `${count} pods of ${app}`,
          async () => {
            const pods = await cluster.list<PodObject>(
              { apiVersion: 'v1', kind: 'Pod', namespace: where },
              `${label}=${app}`,
            );
            return pods.length === count && pods.every(isReady)
              ? pods.map(({ spec }) => spec.containers.map(hookOf).join())
              : undefined;
          },
          { timeoutMs: 180_000, intervalMs: 500 },
        );
      expect(await hooksOf('web', REPLICAS)).toEqual(['sleep 30', 'sleep 30']);

      await cluster.patch(LINGER, { spec: { replicas: 0 } });
      await kubectl('--namespace', 'linger', 'delete', 'pods', '--all', '--grace-period=1');
      // Nothing recreates pods before everything else is down as well.
      await cluster.restart('kube-controller-manager', [WITHOUT_PODS]);
      await kubectl('--namespace', namespace, 'delete', 'pods', '--all', '--grace-period=0', '--force');
      for (const app of ['web', 'network', 'dns']) await hooksOf(app, 0);

      const begun = performance.now();
      const since = () => `${((performance.now() - begun) / 1000).toFixed(1)} s`;
      await restartEverything(cluster);
      await Promise.all([hooksOf('network', 1), hooksOf('dns', 1)]);
      console.log(
        `${failurePolicy}: DaemonSet and system-cluster-critical are up ${since()} after the beginning`,
      );
      if (failurePolicy === 'Fail') {
        const isRefused = ({ status }: Workload) =>
          status.conditions?.some(({ message }) =>
            message?.includes('failed calling webhook "pods.linger.dev"'),
          ) === true;
        await cluster.waitFor<Workload>(web, isRefused, { timeoutMs: 120_000 });
        await hooksOf('web', 0);
      } else expect(await hooksOf('web', REPLICAS)).toEqual(['-', '-']);

      await cluster.patch(LINGER, { spec: { replicas: REPLICAS } });
      await hooksOf('linger', REPLICAS, 'linger', 'app.kubernetes.io/name');
      console.log(`${failurePolicy}: Linger is up ${since()} after the beginning`);
      const hooks = await hooksOf('web', REPLICAS);
      console.log(`${failurePolicy}: the workload is up ${since()} after the beginning`);
      if (failurePolicy === 'Fail') expect(hooks).toEqual(['sleep 30', 'sleep 30']);
      else {
        const audit = [
          process.execPath,
          MAIN,
          'audit',
          '--kubeconfig',
          cluster.kubeconfig,
          '--namespace',
          namespace,
          '-o',
          'json',
        ];
        const found = await waitUntil('audit to read the policy in force', async () => {
          const { findings } = JSON.parse(await must(audit)) as {
            findings: { kind: string; name: string; reason: string }[];
          };
          return findings.filter(({ reason }) => reason.split(',').includes('NotInjected'));
        });
        expect(found.map(({ kind, name }) => `${kind}/${name}`)).toContain('Deployment/web');
      }
    } finally {
      await installation.remove();
      await cluster.close();
    }
  });
});

/** As after a loss of power, but for the state that etcd keeps. */
async function restartEverything(cluster: Cluster): Promise<void> {
  for (const component of [
    'etcd',
    'kube-apiserver',
    'containerd',
    'kube-controller-manager',
    'kube-scheduler',
    'kubelet',
    'kube-proxy',
  ] as const)
    await cluster.restart(component);
}
