import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { MAIN, ROOT } from '../cli/linger.ts';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { run } from '../testbed/command.ts';
import { bringHelper, HELPER, type HelperObject, UNUSED } from './support/hold-helper.ts';
import { Installation } from './support/installation.ts';
import { type Json, type PodObject, pod, service, workload } from './support/manifests.ts';
import { planOf } from './support/outcome.ts';
import { clusterPolicy, policyFile } from './support/policies.ts';

const TRIED = 'linger.dev/hold-tried';

type EventObject = KubernetesObject & {
  readonly reason: string;
  readonly message: string;
  readonly involvedObject: { readonly kind: string; readonly name: string };
};

const cluster: Cluster = await openCluster();
afterAll(() => cluster.close());

const configMapIn = (namespace: string) =>
  cluster.get<HelperObject>({
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { namespace, name: HELPER.name },
  });

const kubectl = (args: readonly string[]) => cluster.mustKubectl(args);

it.runIf(cluster.own)(
  'an installed Linger says wherever one looks that Hold cannot be had, and why',
  { timeout: 300_000 },
  async () => {
    const namespace = await cluster.namespace('refused');
    // As where a team has used up its quota: the helper cannot be delivered. kube-root-ca.crt is one.
    const hard = { 'count/configmaps': '1' };
    const quota = {
      apiVersion: 'v1',
      kind: 'ResourceQuota',
      metadata: { namespace, name: 'few' },
      spec: { hard },
    };
    await cluster.create(quota);
    const installation = await Installation.create(cluster, {
      policies: policyFile(clusterPolicy('base', { mode: 'Enforce' })),
      flags: [`--hold-address=${cluster.nodeAddress}:8445`, '--audit-every=5s'],
    });
    const linger = async (...args: string[]) => {
      const said = await run([process.execPath, MAIN, ...args, '--kubeconfig', cluster.kubeconfig]);
      return said.stdout + said.stderr;
    };
    try {
      const own = { metadata: { namespace, name: 'held' }, spec: { hook: 'Hold' } };
      await cluster.create({ apiVersion: 'linger.dev/v1alpha1', kind: 'TerminationPolicy', ...own });
      await waitUntil('the policy to be in force', async () => {
        const { spec } = await cluster.create<PodObject>(pod(namespace, 'asked', {}), { dryRun: true });
        return JSON.stringify(spec).includes('"sleep"');
      });
      // Commands ask what the leader knows.
      const published = {
        apiVersion: 'v1',
        kind: 'ConfigMap',
        metadata: { namespace: 'linger', name: 'linger-consumers' },
      };
      await waitUntil('the leader to publish it', () => cluster.get(published), { timeoutMs: 90_000 });
      await cluster.create(service(namespace, 'web'));
      await cluster.create(workload('Deployment', namespace, 'web', { replicas: 2 }));
      const why = `namespace ${namespace} has no ConfigMap ${HELPER.name}`;
      const [web] = await waitUntil('two pods', async () => {
        const pods = await cluster.list<PodObject>({ apiVersion: 'v1', kind: 'Pod', namespace });
        return pods.length === 2 ? pods : undefined;
      });
      for (const name of [`pod/${web?.metadata.name}`, 'deployment/web'])
        expect(await linger('explain', name, '--namespace', namespace)).toContain(why);
      const audit = await linger('audit', '--namespace', namespace);
      expect(audit).toContain('HoldUnavailable');
      expect(audit).toContain(why);
      expect(await linger('check', '--namespace', 'linger')).toContain(namespace);
      const of = { apiVersion: 'linger.dev/v1alpha1', kind: 'TerminationPolicy', ...own };
      const usable = await waitUntil('the condition', async () => {
        const held = await cluster.get<{ status?: { conditions?: readonly Json[] } }>(of);
        return held?.status?.conditions?.find(({ type }) => type === 'HoldUsable');
      });
      expect(usable).toMatchObject({
        status: 'False',
        reason: 'HoldUnavailable',
        message: expect.stringContaining(why),
      });
      const events = async () =>
        (await cluster.list<EventObject>({ apiVersion: 'v1', kind: 'Event', namespace })).filter(
          ({ reason }) => reason === 'HoldUnavailable',
        );
      await waitUntil('an Event', async () => (await events()).length > 0, { timeoutMs: 60_000 });
      // Two audits later there is still one, of the workload.
      await new Promise((resolve) => setTimeout(resolve, 12_000));
      const told = await events();
      expect(told.map(({ involvedObject: { kind, name } }) => `${kind}/${name}`)).toEqual(['Deployment/web']);
      expect(told[0]?.message).toContain(why);
      expect(await installation.replicas.sum('linger_notes_total', 'code="HoldUnavailable"')).toBeGreaterThan(
        1,
      );
    } finally {
      await installation.remove();
    }
  },
);

it.runIf(cluster.own)(
  'an installed Linger tries the helper on the node, and brings it to the namespaces that ask for Hold',
  { timeout: 300_000 },
  async () => {
    const asking = await cluster.namespace('asking');
    const silent = await cluster.namespace('silent');
    const given = await cluster.namespace('given');
    const installation = await Installation.create(cluster, {
      policies: policyFile(clusterPolicy('base', { mode: 'Enforce' })),
      flags: [`--hold-address=${cluster.nodeAddress}:8445`],
    });
    try {
      const { replicas } = installation;
      expect(await configMapIn('linger')).toBeUndefined();
      await kubectl(['annotate', 'namespace', asking, 'linger.dev/hook=Hold']);
      await bringHelper(cluster, given);
      await waitUntil('the helper to be there', () => configMapIn(asking));
      await waitUntil('it to be tried', async () => {
        const passed = await replicas.each('linger_hold_node_kinds{result="passed"}');
        return passed.length === 2 && passed.every((count) => count === 1);
      });
      const tried = (await configMapIn('linger'))?.metadata.annotations?.[TRIED] ?? '';
      console.log(`tried: ${tried}`);
      expect(Object.values(JSON.parse(tried) as object)).toEqual(['']);
      const expected = (HELPER.manifest() as HelperObject).binaryData;
      for (const namespace of [asking, given, 'linger'])
        expect((await configMapIn(namespace))?.binaryData).toEqual(expected);
      expect(await configMapIn(silent)).toBeUndefined();
      // Those of other tests among them.
      const named = [
        '--all-namespaces',
        '--field-selector',
        `metadata.name=${HELPER.name}`,
        '--output',
        'name',
      ];
      const count = (await kubectl(['get', 'configmaps', ...named])).trim().split('\n').length;
      expect(count).toBeGreaterThanOrEqual(3);
      expect(await replicas.each('linger_hold_namespaces')).toEqual([count, count]);
      const admitted = await cluster.create<PodObject>(pod(asking, 'web', {}), { dryRun: true });
      expect(planOf(admitted)).toMatchObject({ v: 2, hook: 'Hold' });
      expect(JSON.stringify(admitted.spec)).toContain(`"name":"${HELPER.name}"`);
      const testPod = {
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { namespace: 'linger', name: 'linger-hold-test' },
      };
      await waitUntil('its pod to be gone', async () => !(await cluster.get<PodObject>(testPod)));
      // It comes back when it is deleted.
      await kubectl(['--namespace', asking, 'annotate', 'configmap', HELPER.name, UNUSED]);
      await cluster.delete({
        apiVersion: 'v1',
        kind: 'ConfigMap',
        metadata: { namespace: asking, name: HELPER.name },
      });
      await waitUntil('it to be there again', () => configMapIn(asking), { timeoutMs: 60_000 });
      const failures = await replicas.sum('linger_watch_restarts_total', 'reason="Forbidden"');
      expect(failures).toBe(0);
    } finally {
      await installation.remove();
    }
  },
);

it.runIf(cluster.own)(
  'the Hold Service is not deleted by mistake; where it was, every command says whose hooks call the old address',
  { timeout: 300_000 },
  async () => {
    const namespace = await cluster.namespace('stale');
    const installation = await Installation.create(cluster, {
      policies: policyFile(clusterPolicy('base', { mode: 'Enforce' })),
      flags: ['--audit-every=5s'],
    });
    const linger = async (...args: string[]) => {
      const said = await run([process.execPath, MAIN, ...args, '--kubeconfig', cluster.kubeconfig]);
      return said.stdout + said.stderr;
    };
    const ofService = ['--namespace', 'linger', 'service', 'linger-hold'];
    const addressOf = async () =>
      (await kubectl(['get', ...ofService, '--output=jsonpath={.spec.clusterIP}'])).trim();
    try {
      await kubectl(['annotate', 'namespace', namespace, 'linger.dev/hook=Hold']);
      await waitUntil('pods to get Hold', async () => {
        const tried = await cluster.create<PodObject>(pod(namespace, 'tried', {}), { dryRun: true });
        return planOf(tried)?.hook === 'Hold';
      });
      await cluster.create(service(namespace, 'web'));
      await cluster.create(workload('Deployment', namespace, 'web', { replicas: 2 }));
      await kubectl(['--namespace', namespace, 'rollout', 'status', 'deployment/web', '--timeout=100s']);
      const before = await addressOf();
      const denied = await kubectl(['delete', ...ofService]).catch(String);
      expect(denied).toContain('running pods with hook Hold call the ClusterIP of this Service');
      expect(await linger('status')).not.toContain('call an address');

      await kubectl(['annotate', ...ofService, 'linger.dev/unused=true']);
      await kubectl(['delete', ...ofService]);
      await waitUntil('check to find it', async () =>
        /2 running pods with hook Hold call an address/.test(await linger('check')),
      );
      // Another Service has its address by now.
      const other = {
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { namespace, name: 'other' },
        spec: { clusterIP: before, ports: [{ port: 80 }] },
      };
      await cluster.create(other);
      await kubectl(['apply', '--filename', join(ROOT, 'deploy', 'service-hold.yaml')]);
      const after = await addressOf();
      expect(after).not.toBe(before);
      const why = `they call ${before}:8445, and the Hold Service is at ${after}:8445 now`;
      await waitUntil('the audit to find it', async () => (await linger('audit', '-A')).includes(why), {
        timeoutMs: 90_000,
      });
      expect(await linger('status')).toMatch(/2 running pods with hook Hold call an address/);
      expect(await linger('check')).toMatch(/HoldHelper +2 running pods with hook Hold call an address/);
      const events = () => cluster.list<EventObject>({ apiVersion: 'v1', kind: 'Event', namespace });
      await waitUntil('an Event', async () =>
        (await events()).some(
          ({ reason, message }) => reason === 'HoldUnreached' && message.includes('2 of 2 pods'),
        ),
      );
      await kubectl(['--namespace', namespace, 'rollout', 'restart', 'deployment/web']);
      await kubectl(['--namespace', namespace, 'rollout', 'status', 'deployment/web', '--timeout=100s']);
      await waitUntil(
        'the old pods to be gone',
        async () => !(await linger('status')).includes('call an address'),
      );
    } finally {
      await installation.remove();
    }
  },
);
