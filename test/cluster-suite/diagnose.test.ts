import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { Diagnosis } from '../../src/cli/diagnose.ts';
import { emptyDirectory, shipped as linger, serving } from '../cli/linger.ts';
import { type Cluster, FakeNode, type FakePod, openCluster, waitUntil } from '../testbed/cluster.ts';
import type { AtEnd } from '../webhook/connection.ts';

/** The controller-manager of our own cluster is a process in its network, and so is this. */
const METRICS = 'https://127.0.0.1:10257/metrics';
const KCM = 'kube-controller-manager';
const RBAC_GROUP = 'rbac.authorization.k8s.io';
const RBAC = `${RBAC_GROUP}/v1`;
/** What no calm cluster has, however slow the machine. */
const NEVER_CALM = [
  'ClientThrottled',
  'StuckWorker',
  'QueueBacklog',
  'WriteStorm',
  'BatchPeriod',
  'NotLeading',
];

let cluster: Cluster;
let node: FakeNode;
let namespace: string;

beforeAll(async () => {
  cluster = await openCluster();
  node = await FakeNode.start(cluster.api);
  namespace = await cluster.namespace('diagnose');
});

afterAll(async () => {
  await node?.finishAll(namespace);
  await node?.remove();
  await cluster?.close();
});

const atEnd = onTestFinished as AtEnd;
const diagnose = (...args: readonly string[]) =>
  linger(['diagnose', '--kubeconfig', cluster.kubeconfig, ...args]);
const diagnosisOf = (stdout: string) => JSON.parse(stdout) as Diagnosis;

/** Services of one ready pod each, in slices and in Endpoints. */
async function startServices(prefix: string, count: number): Promise<readonly FakePod[]> {
  const pods = Array.from({ length: count }, (_, index) => {
    const name = `${prefix}-${index}`;
    return { namespace, name, labels: { app: name } };
  });
  for (const { name } of pods) {
    await cluster.api.call('POST', `/api/v1/namespaces/${namespace}/services`, {
      body: {
        metadata: { name },
        spec: { clusterIP: 'None', selector: { app: name }, ports: [{ port: 80 }] },
      },
    });
  }
  await node.run(pods);
  await waitUntil('every pod to be listed', () => listed(prefix, count), { timeoutMs: 120_000 });
  return pods;
}

/** Whether slices and Endpoints list the pods: two controllers write them. */
async function listed(prefix: string, count: number): Promise<boolean> {
  type Endpoints = { metadata: { name: string }; subsets?: readonly { addresses?: readonly object[] }[] };
  type Slice = {
    metadata: { name: string };
    endpoints: readonly { conditions: { ready?: boolean } }[] | null;
  };
  const own = async <T extends Endpoints | Slice>(api: string, resource: string) => {
    const path = `${api}/namespaces/${namespace}/${resource}`;
    const { items } = await cluster.api.call<{ items: T[] }>('GET', path);
    return items.filter(({ metadata }) => metadata.name.startsWith(`${prefix}-`));
  };
  const endpoints = await own<Endpoints>('/api/v1', 'endpoints');
  const slices = await own<Slice>('/apis/discovery.k8s.io/v1', 'endpointslices');
  const full = [
    endpoints.filter(({ subsets = [] }) => subsets.some(({ addresses = [] }) => addresses.length > 0)),
    slices.filter(({ endpoints: each }) => each?.some(({ conditions }) => conditions.ready === true)),
  ];
  return full.every(({ length }) => length === count);
}

/** Terminates one after the other until the work is done. */
async function whileTerminating<T>(pods: readonly FakePod[], work: Promise<T>): Promise<T> {
  let done = false;
  const terminating = async () => {
    for (const pod of pods) {
      if (done) return;
      await node.terminate(pod);
      await sleep(250);
    }
  };
  const [outcome] = await Promise.all([work.finally(() => (done = true)), terminating()]);
  return outcome;
}

/** A ClusterRoleBinding of a ClusterRole to one subject. */
function bound<T extends object>(binding: T, role: string, subject: object) {
  const roleRef = { apiGroup: RBAC_GROUP, kind: 'ClusterRole', name: role };
  return { ...binding, roleRef, subjects: [subject] };
}

describe('with the controller-manager’s metrics', () => {
  it('a calm cluster: nothing holds withdrawals up, and removals are measured meanwhile', async ({
    skip,
  }) => {
    if (!cluster.own) return skip('who knows how calm a foreign cluster is, and where its controllers run');
    const pods = await startServices('calm', 60);
    await cluster.calm();
    const run = diagnose(
      '--controller-metrics',
      METRICS,
      '--output',
      'json',
      '--fail-on',
      NEVER_CALM.join(','),
    );
    const { code, stdout, stderr } = await whileTerminating(pods, run);
    const { facts, findings } = diagnosisOf(stdout);
    console.log(
      `calm: ${findings.map(({ code: each, text }) => `${each}: ${text}`).join(', ')}; ${JSON.stringify(facts.lag?.stages)}`,
    );
    expect([code, stderr]).toEqual([0, '']);
    expect(facts.controller?.queues.map(({ name }) => name)).toEqual([
      'endpoint_slice',
      'endpoint',
      'endpoint_slice_mirroring',
    ]);
    expect(facts.controller?.seconds).toBeGreaterThanOrEqual(10);
    expect(facts.cluster?.services).toBeGreaterThan(60);
    for (const { samples } of facts.lag?.stages ?? []) expect(samples).toBeGreaterThan(10);
    expect(facts.priority).toMatchObject({ level: 'workload-high' });
  });

  it('a throttled one: the limiter is named, and the flags to set', async ({ skip }) => {
    if (!cluster.own) return skip('components of a foreign cluster cannot be restarted');
    const pods = await startServices('throttled', 150);
    const flags = ['--kube-api-qps=5', '--kube-api-burst=5'];
    onTestFinished(() => cluster.restart(KCM));
    await cluster.restart(KCM, flags);
    // The sync of everything after a start writes nothing here, but has to be over.
    await sleep(5_000);
    await node.setReady(pods.slice(20), false);
    const args = ['--controller-metrics', METRICS, '--controller-flags', flags.join(' '), '--output', 'json'];
    const run = diagnose(...args, '--fail-on', 'ClientThrottled');
    const { code, stdout } = await whileTerminating(pods.slice(0, 20), run);
    expect(code).toBe(3);
    const { findings, facts } = diagnosisOf(stdout);
    expect(findings[0]).toMatchObject({ code: 'ClientThrottled', severity: 'critical' });
    expect(findings[0]?.cure.slice(0, 2)).toEqual(['--kube-api-qps=300', '--kube-api-burst=325']);
    expect(findings.map(({ code: each }) => each)).toContain('SlowWithdrawals');
    expect(findings.map(({ code: each }) => each)).not.toContain('ApiServerSlow');
    console.log(`throttled: ${findings[0]?.text}\n${findings[0]?.evidence.join('\n')}`);
    expect(facts.lag?.stages.some(({ oldestSeconds }) => (oldestSeconds ?? 0) > 1)).toBe(true);
  });

  it('a token that may read them is enough, one that may not gets a clear error', async ({ skip }) => {
    if (!cluster.own) return skip('where its controllers run is not known');
    const account = async (name: string) => {
      await cluster.create({ apiVersion: 'v1', kind: 'ServiceAccount', metadata: { namespace, name } });
      const { stdout } = await cluster.kubectl(['create', 'token', name, `--namespace=${namespace}`]);
      const file = join(await emptyDirectory(atEnd), name);
      await writeFile(file, stdout);
      return file;
    };
    const role = { apiVersion: RBAC, kind: 'ClusterRole', metadata: { name: `${namespace}-metrics` } };
    const binding = { ...role, kind: 'ClusterRoleBinding' };
    onTestFinished(() => Promise.all([cluster.delete(role), cluster.delete(binding)]).then(() => undefined));
    const subject = { kind: 'ServiceAccount', name: 'allowed', namespace };
    const granting = { ...role, rules: [{ nonResourceURLs: ['/metrics'], verbs: ['get'] }] };
    for (const object of [granting, bound(binding, role.metadata.name, subject)])
      await cluster.create(object);
    const ask = (file: string) =>
      linger([
        'diagnose',
        '--controller-metrics',
        METRICS,
        '--controller-metrics-token-file',
        file,
        '--interval',
        '0',
      ]);
    const allowed = await ask(await account('allowed'));
    expect([allowed.code, allowed.stderr]).toEqual([0, '']);
    const { code, stderr } = await ask(await account('refused'));
    expect(code).toBe(1);
    expect(stderr).toMatch(
      /403: forbidden: User "system:serviceaccount:\S+:refused" cannot get path "\/metrics"; asked with the token\..* \[metrics-unreadable\]\n$/,
    );
  });
});

describe('by way of the API server', () => {
  it('no pod and no provider’s API: says which ways there are', async ({ skip }) => {
    if (!cluster.own) return skip('a foreign cluster may well have one');
    const { code, stdout } = await diagnose('--lag', 'off', '--interval', '0');
    expect(code).toBe(0);
    expect(stdout).toMatch(/^INFO ControllerNotSeen\n/);
    expect(stdout).toMatch(
      /container\/metrics: 404: 404 page not found\n +→ No pod in kube-system is labelled/,
    );
  });

  it('a controller-manager’s pod: its flags, and its metrics once the API server may read them', async ({
    skip,
  }) => {
    if (!cluster.own) return skip('the controller-manager of a foreign cluster is not ours to play');
    // Ours runs without a pod, and listens on the node's address: a pod of that address passes for it.
    const metadata = {
      namespace: 'kube-system',
      name: 'kube-controller-manager-node-1',
      labels: { component: KCM },
    };
    const pod = { apiVersion: 'v1', kind: 'Pod', metadata };
    const fake = {
      ...pod,
      spec: {
        nodeName: node.name,
        automountServiceAccountToken: false,
        containers: [
          { name: KCM, image: 'none', command: [KCM, '--kube-api-qps=20', '--kube-api-burst=30'] },
        ],
      },
    };
    await cluster.create(fake);
    onTestFinished(() => cluster.delete(pod, { graceSeconds: 0 }));
    await cluster.api.call('PATCH', `/api/v1/namespaces/kube-system/pods/${metadata.name}/status`, {
      body: {
        status: { phase: 'Running', podIP: cluster.nodeAddress, podIPs: [{ ip: cluster.nodeAddress }] },
      },
      contentType: 'application/merge-patch+json',
    });
    const refused = await diagnose('--lag', 'off', '--interval', '0');
    expect(refused.stdout).toMatch(/403: forbidden: User "system:anonymous" cannot get path "\/metrics"/);
    expect(refused.stdout).toMatch(
      /→ The API server’s proxy passes no credentials on,.*port-forward pod\/kube-controller-manager-node-1 10257/,
    );
    expect(refused.stdout).toContain('command line of pod kube-system/kube-controller-manager-node-1');

    const binding = {
      apiVersion: RBAC,
      kind: 'ClusterRoleBinding',
      metadata: { name: `${namespace}-anonymous` },
    };
    onTestFinished(() => cluster.delete(binding));
    const subject = { kind: 'User', name: 'system:anonymous', apiGroup: RBAC_GROUP };
    await cluster.create(bound(binding, 'system:monitoring', subject));
    const seen = await waitUntil('the metrics to be readable', async () => {
      const { stdout } = await diagnose('--lag', 'off', '--interval', '1s', '--output', 'json');
      const diagnosis = diagnosisOf(stdout);
      return diagnosis.facts.controller === null ? undefined : diagnosis;
    });
    expect(seen.facts.controller?.seconds).toBeGreaterThan(0.9);
    expect(seen.facts.flags).toMatchObject({ qps: 20, burst: 30, known: true });
  });
});

it('takes the lag from a Linger that measures', async () => {
  const certs = join(await emptyDirectory(atEnd), 'certs');
  const running = await serving(certs, ['--kubeconfig', cluster.kubeconfig], { atEnd });
  const url = `http://127.0.0.1:${running.adminPort}/metrics`;
  await waitUntil(
    'Linger to have read the cluster',
    async () => (await running.get('/readyz')).status === 200,
  );
  const pods = await startServices('measured', 30);
  const run = diagnose('--linger', url, '--interval', '6s', '--output', 'json');
  const { code, stdout, stderr } = await whileTerminating(pods, run);
  expect([code, stderr]).toEqual([0, '']);
  const { lag } = diagnosisOf(stdout).facts;
  expect(lag?.from).toBe(url);
  for (const { samples } of lag?.stages ?? []) expect(samples).toBeGreaterThan(5);
});

it('says for each place that it may not look', async () => {
  const account = { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { namespace, name: 'nobody' } };
  await cluster.create(account);
  const { stdout: token } = await cluster.kubectl(['create', 'token', 'nobody', `--namespace=${namespace}`]);
  const view = await cluster.kubectl(['config', 'view', '--raw', '--output=json']);
  const kubeconfig = JSON.parse(view.stdout) as { users: unknown; contexts: { context: { user: string } }[] };
  const file = join(await emptyDirectory(atEnd), 'kubeconfig');
  const users = kubeconfig.contexts.map(({ context }) => ({
    name: context.user,
    user: { token: token.trim() },
  }));
  await writeFile(file, JSON.stringify({ ...kubeconfig, users }));
  const { code, stdout } = await linger([
    'diagnose',
    '--kubeconfig',
    file,
    '--lag',
    'off',
    '--interval',
    '0',
  ]);
  expect(code).toBe(0);
  for (const what of ['pods', 'services', 'leases']) {
    expect(stdout).toMatch(
      new RegExp(`403: ${what}.* is forbidden: User "system:serviceaccount:${namespace}:nobody"`),
    );
  }
});
