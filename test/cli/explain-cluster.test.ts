import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Explanation } from '../../src/core/decision/index.ts';
import { plannedToText } from '../../src/core/lag/index.ts';
import { explainReport } from '../../src/dashboard/index.ts';
import { textContent, withHold } from '../../src/leader/codec.ts';
import { ModelCluster, namespaceObject, nodeObject, serviceObject } from '../cluster/model-cluster.ts';
import { holdSupply } from '../core/decision/sample-hold.ts';
import { fleet } from '../core/decision/sample-snapshot.ts';
import { historyOf, tableOf } from '../core/lag/sample-table.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { emptyDirectory, linger, shipped } from './linger.ts';
import { DEPLOYMENT, POLICY } from './manifests.ts';

const atEnd = atEndOfFile();
const DAY = 86_400;

/** Without a port or probe: only a Service makes it serve. */
const QUIET = DEPLOYMENT.replace(/ {10}ports:\n.*\n/, '');
const SERVICE = `---\n${JSON.stringify({ apiVersion: 'v1', kind: 'Service', ...serviceObject('shop', 'web') })}\n`;

async function cluster(): Promise<ModelCluster> {
  const model = await ModelCluster.start(atEnd);
  model.put('namespaces', namespaceObject('shop'));
  model.put('nodes', nodeObject('node-1', 'v1.36.3'));
  return model;
}

/** As the leader publishes it, with lags of 4.2 s. */
function publish(model: ModelCluster, namespace = 'linger', kept: { readonly kept?: true } = {}): void {
  const now = 20_000 * DAY;
  const measured = {
    cluster: historyOf([4.2], 812, now, 5 * DAY),
    consumers: new Map(
      ['cluster-ip', 'cluster-dns'].map((name) => [name, historyOf([0.01], 812, now, 5 * DAY)]),
    ),
  };
  const table = tableOf(measured, now);
  const metadata = {
    name: 'linger-planned',
    namespace,
    resourceVersion: '7',
    annotations: { 'linger.dev/format': '1' },
  };
  const path = `/api/v1/namespaces/${namespace}/configmaps/linger-planned`;
  model.single.set(path, {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata,
    ...textContent(
      'planned',
      plannedToText({ ...table, cluster: table.cluster && { ...table.cluster, ...kept } }),
    ),
  });
  putPolicies(model, namespace, {});
}

/** The policies that Linger's replicas follow. */
function putPolicies(model: ModelCluster, namespace: string, data: Readonly<Record<string, string>>): void {
  const metadata = { name: 'linger-policies', namespace, resourceVersion: '8' };
  const path = `/api/v1/namespaces/${namespace}/configmaps/linger-policies`;
  model.single.set(path, { apiVersion: 'v1', kind: 'ConfigMap', metadata, data });
}

async function kubeconfigOf({ kubeconfig }: ModelCluster): Promise<string> {
  const file = join(await emptyDirectory(atEnd), 'config');
  await writeFile(file, kubeconfig);
  return file;
}

async function explain(model: ModelCluster, stdin: string, ...args: string[]) {
  return linger(['explain', '--kubeconfig', await kubeconfigOf(model), ...args], { stdin });
}

async function planOf(
  model: ModelCluster,
  stdin: string,
  ...args: string[]
): Promise<Explanation | undefined> {
  const { stdout } = await explain(model, stdin, '--output', 'json', ...args);
  return (JSON.parse(stdout) as { plans: Explanation[] }).plans[0];
}

describe.concurrent('linger explain with a cluster', () => {
  it('says that the history behind the waits was lost', async () => {
    const model = await cluster();
    publish(model, 'linger', { kept: true });
    const { code, stderr } = await explain(model, DEPLOYMENT);
    expect([code, stderr]).toEqual([0, expect.stringContaining('the history behind the waits was lost')]);
  });

  it('has no Rollout where that kind is not served', async () => {
    const { code, stderr } = await explain(await cluster(), '', 'rollout/web', '-n', 'shop');
    expect([code, stderr]).toEqual([1, expect.stringContaining('there is no Rollout web in namespace shop')]);
  });

  it.each([
    ['Hold is off', { why: 'Hold is off (--hold-port=0)' }, 'Hold is off (--hold-port=0)'],
    [
      'the namespace lacks the helper',
      holdSupply(fleet('v1.36.3', 'v1.36.3'), { namespaces: new Set(['pay']) }),
      'namespace shop has no ConfigMap linger-hold-0123456789abcdef',
    ],
  ])('says why a pod gets no Hold: %s', async (_, hold, why) => {
    const model = await cluster();
    publish(model);
    const holding = POLICY.replace('spec:', 'spec:\n  hook: Hold');
    putPolicies(model, 'linger', { 'base.yaml': holding });
    model.single.set('/api/v1/namespaces/linger/configmaps/linger-consumers', {
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name: 'linger-consumers', namespace: 'linger', resourceVersion: '9' },
      ...withHold({}, hold),
    });
    const plan = await planOf(model, DEPLOYMENT);
    expect(plan?.notes.map(({ code }) => code)).toContain('HoldUnavailable');
    expect(plan?.notes.find(({ code }) => code === 'HoldUnavailable')?.text).toContain(`: ${why}`);
  });

  it.each([
    ['asks', 'spec:\n  hook: Hold', true],
    ['does not ask', 'spec:', false],
  ])(
    'says that Hold is assumed where nothing is published yet, and a policy %s for it',
    async (_, spec, says) => {
      const model = await cluster();
      publish(model);
      putPolicies(model, 'linger', { 'base.yaml': POLICY.replace('spec:', spec) });
      const { code, stderr } = await explain(model, DEPLOYMENT);
      expect([code, stderr.includes('nothing is published about hook Hold')]).toEqual([0, says]);
    },
  );

  it('says that Hold is assumed where the leader’s word cannot be read', async () => {
    const model = await cluster();
    publish(model);
    model.single.set('/api/v1/namespaces/linger/configmaps/linger-consumers', 403);
    const { code, stderr } = await explain(model, DEPLOYMENT);
    expect([code, stderr]).toEqual([0, expect.stringContaining('; assuming that hook Hold is available')]);
  });

  it('says which estimate stands behind the wait', async () => {
    const model = await cluster();
    publish(model);
    const { stdout, stderr } = await explain(model, DEPLOYMENT);
    expect(stderr).toBe('');
    expect(stdout).toContain('  wait      10s (measured: 812 removals over 5 d)\n');
    expect(stdout).toMatch(
      /^ {2}estimate {2}p99 4\.\ds \(control plane 4\.\ds, cluster-ip 10ms, cluster-dns 10ms\) of 812 samples over 5 d, ×1\.5 → 10s, covers 100\.0 %$/m,
    );
    expect(await planOf(model, DEPLOYMENT)).toMatchObject({
      waitSeconds: 10,
      why: 'measured',
      estimate: { percentile: 99, samples: 812, enough: true, text: expect.stringContaining('→ 10s') },
    });
  });

  /** The floor as it is when it stands. */
  function standing(model: ModelCluster): void {
    const group = '/apis/admissionregistration.k8s.io/v1';
    const metadata = { name: 'linger-floor' };
    model.single.set(`${group}/mutatingadmissionpolicies/linger-floor`, { metadata });
    const paramRef = { name: 'linger-floor', namespace: 'linger' };
    const spec = { policyName: 'linger-floor', paramRef };
    model.single.set(`${group}/mutatingadmissionpolicybindings/linger-floor`, { metadata, spec });
    const data = { _: '45 45 300 Sleep Job ', _validUntil: '2199-01-01T00:00:00Z' };
    model.single.set('/api/v1/namespaces/linger/configmaps/linger-floor', { metadata, data });
  }
  const ENFORCED = POLICY.replace('spec:', 'spec:\n  mode: Enforce');

  it('says what pods get while Linger is down, where there is a floor', async () => {
    const model = await cluster();
    publish(model);
    putPolicies(model, 'linger', { 'base.yaml': ENFORCED });
    const without = await explain(model, DEPLOYMENT);
    expect(without.stdout).not.toContain('if Linger is down');
    expect(await planOf(model, DEPLOYMENT)).not.toHaveProperty('floor');
    standing(model);
    const { stdout, stderr } = await explain(model, DEPLOYMENT);
    expect(stderr).toBe(without.stderr);
    expect(stdout).toMatch(/^ {2}if Linger is down +Sleep 45s at most \(the floor\)$/m);
    const json = await explain(model, DEPLOYMENT, '--output', 'json');
    const report = explainReport.parse(JSON.parse(json.stdout));
    expect(report.plans[0]?.floor).toEqual({ hook: 'Sleep', waitSeconds: 45, laterSeconds: 45 });
  });

  it('and that they get nothing where they do not declare their traffic; nothing below Enforce', async () => {
    const model = await cluster();
    publish(model);
    standing(model);
    putPolicies(model, 'linger', { 'base.yaml': ENFORCED });
    const { stdout } = await explain(model, QUIET + SERVICE);
    expect(stdout).toMatch(/^ {2}if Linger is down +no hook$/m);
    putPolicies(model, 'linger', { 'base.yaml': ENFORCED.replace('Enforce', 'Audit') });
    expect((await explain(model, DEPLOYMENT)).stdout).not.toContain('if Linger is down');
  });

  it('finds it where Linger runs', async () => {
    const model = await cluster();
    publish(model, 'platform');
    expect(await planOf(model, DEPLOYMENT)).toMatchObject({ why: 'initial', estimate: null });
    expect(await planOf(model, DEPLOYMENT, '--linger-namespace', 'platform')).toMatchObject({
      why: 'measured',
    });
    // The namespace of the webhook's Service counts, unless --linger-namespace names another.
    const clientConfig = { service: { namespace: 'platform', name: 'linger' } };
    model.single.set('/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/linger', {
      metadata: { name: 'linger' },
      webhooks: [{ name: 'pods.linger.dev', clientConfig }],
    });
    expect(await planOf(model, DEPLOYMENT)).toMatchObject({ why: 'measured' });
    expect(await planOf(model, DEPLOYMENT, '--linger-namespace', 'linger')).toMatchObject({ why: 'initial' });
  });

  it.each([
    ['is missing', undefined, 'there is no ConfigMap linger/linger-planned'],
    [
      'is no such thing',
      { data: { 'planned.json': '[]' } },
      'ConfigMap linger/linger-planned: planned.json: ',
    ],
    ['is empty', {}, 'ConfigMap linger/linger-planned is empty'],
  ])('goes without where it %s, and says so', async (_what, object, why) => {
    const model = await cluster();
    const metadata = { name: 'linger-planned', resourceVersion: '1' };
    const path = '/api/v1/namespaces/linger/configmaps/linger-planned';
    if (object !== undefined) model.single.set(path, { metadata, ...object });
    const { code, stdout, stderr } = await explain(model, DEPLOYMENT);
    expect([code, stderr]).toEqual([0, expect.stringContaining(`no published lags (${why}`)]);
    expect(stdout).toContain('30s (assumed: nothing is measured yet, and 30s is built in)');
  });

  it('takes the cluster’s Services for all that there are, and those of the manifests for applied', async () => {
    const model = await cluster();
    expect(await planOf(model, QUIET)).toMatchObject({ outcome: 'skip', reason: 'NotServing' });
    expect(await planOf(model, QUIET + SERVICE)).toMatchObject({ outcome: 'inject' });
    model.put('services', serviceObject('shop', 'web'));
    expect(await planOf(model, QUIET)).toMatchObject({ outcome: 'inject' });
  });

  it('takes Namespaces and versions from the cluster', async () => {
    const model = await cluster();
    model.put('namespaces', namespaceObject('shop', { annotations: { 'linger.dev/mode': 'Audit' } }));
    model.put('nodes', nodeObject('node-2', 'v1.29.0'));
    expect(await planOf(model, DEPLOYMENT)).toMatchObject({ mode: 'Audit', hook: 'Exec' });
  });

  it('takes the policies that are objects of the cluster, and names one that cannot be read', async () => {
    const model = await cluster();
    model.refuse = () => undefined;
    publish(model);
    const policy = (name: string, spec: object, namespace?: string) => ({
      metadata: { name, uid: `uid-of-${name}`, ...(namespace === undefined ? {} : { namespace }) },
      spec,
    });
    model.put('clusterterminationpolicies', policy('all', { mode: 'Audit' }));
    model.put('clusterterminationpolicies', policy('later', { modes: 'Off' }));
    model.put('terminationpolicies', policy('shop', { wait: { from: 'Fixed', fixed: '17s' } }, 'shop'));
    const { stdout, stderr } = await explain(model, DEPLOYMENT, '--output', 'json');
    expect(JSON.parse(stdout).plans).toMatchObject([{ mode: 'Audit', waitSeconds: 17 }]);
    expect(stderr).toMatch(/ClusterTerminationPolicy later: spec\.modes: unknown field.*; ignored/);
  });

  it('takes the policies in force, unless others are given', async () => {
    const model = await cluster();
    putPolicies(model, 'linger', { 'base.yaml': POLICY.replace('spec:', 'spec:\n  mode: Audit') });
    expect(await planOf(model, DEPLOYMENT)).toMatchObject({ mode: 'Audit', waitSeconds: 45 });
    const given = join(await emptyDirectory(atEnd), 'mine.yaml');
    await writeFile(given, POLICY.replace('45s', '20s'));
    expect(await planOf(model, DEPLOYMENT, '--policies', given)).toMatchObject({
      mode: 'Enforce',
      waitSeconds: 20,
    });
  });

  it('takes what can be used of the policies in force, with care for what cannot', async () => {
    const model = await cluster();
    const broken = POLICY.replace('name: ', 'name: b').replace('spec:', 'spec:\n  mode: Enforced');
    putPolicies(model, 'linger', { 'base.yaml': `${POLICY}---\n${broken}`, 'README.md': 'a: [' });
    expect(await planOf(model, DEPLOYMENT)).toMatchObject({ mode: 'Audit', waitSeconds: 45 });
    const { code, stderr } = await explain(model, DEPLOYMENT);
    expect(code).toBe(0);
    expect(stderr).toMatch(
      /linger-policies base\.yaml.*"Enforced".*; replicas keep their last valid version/,
    );
    expect(stderr).not.toContain('README');
  });

  it.each([
    ['are none', undefined, /no policies found \(there is no ConfigMap linger\/linger-policies/],
    [
      'cannot be read',
      { 'a.yaml': 'a: [' },
      /linger-policies a\.yaml:1:4: .*; replicas keep their last valid/,
    ],
  ])('says so where policies in force %s', async (_what, data, message) => {
    const model = await cluster();
    if (data !== undefined) putPolicies(model, 'linger', data);
    const { code, stderr } = await explain(model, DEPLOYMENT);
    expect([code, stderr]).toEqual([0, expect.stringMatching(message)]);
  });

  it.each([
    ['refuses', 403, /^linger: .*"model".* \[cluster-denied\]\n$/],
    ['fails', 500, /^linger: .*"model".* request failed: .* \[cluster-unreachable\]\n$/],
  ])('fails where the cluster %s', async (_what, status, message) => {
    const model = await cluster();
    model.refuse = () => status;
    const { code, stdout, stderr } = await explain(model, DEPLOYMENT);
    expect([code, stdout, stderr]).toEqual([1, '', expect.stringMatching(message)]);
  });

  it('asks a busy cluster again, and its process lives until then', async () => {
    const model = await cluster();
    const { refuse } = model;
    let throttled = 0;
    model.refuse = (what) => (what === 'nodes' && ++throttled === 1 ? 429 : refuse(what));
    const args = ['explain', '--kubeconfig', await kubeconfigOf(model), '-'];
    const { code, stdout } = await shipped(args, { stdin: DEPLOYMENT });
    expect([code, throttled]).toEqual([0, 2]);
    expect(stdout).toContain('Deployment shop/web\n');
  });
});
