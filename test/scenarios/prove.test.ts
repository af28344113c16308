import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { comparison } from '../../src/prove/index.ts';
import { emptyDirectory, environment, MAIN } from '../cli/linger.ts';
import { kubeconfigOf } from '../cluster-suite/support/account.ts';
import type { PollingGateway } from '../cluster-suite/support/polling-gateway.ts';
import { ProveStage } from '../cluster-suite/support/prove.ts';
import { type Cluster, type NewObject, openCluster, type SecondNode, waitUntil } from '../testbed/cluster.ts';
import { firstNode, secondNode } from '../testbed/network.ts';
import { type ApplicationOptions, applicationDeployment, applicationService } from '../testbed/workloads.ts';
import { LONG } from './form.ts';
import { consumer, HoldSetting } from './hold/setting.ts';

/* `linger prove` behind gateways that poll every 10 s, as those of S3 do. Its short form is test/cluster-suite/prove.test.ts. */

const REPLICAS = 4;
const POLL_MS = 10_000;
const RUN = ['deployment/web', '--rate', '100', '--timeout', '5s', '--quiet', '15s'];

let cluster: Cluster;
let setting: HoldSetting | undefined;
let node: SecondNode | undefined;
const gateways: PollingGateway[] = [];

beforeAll(async () => {
  cluster = await openCluster();
  if (!LONG || !cluster.own) return;
  node = await cluster.startNode();
  const consumers = [
    consumer('cluster-dns', { gateways: 'none' }, { declared: { lag: '5s' } }),
    consumer('cluster-ip', { gateways: 'here' }, { declared: { lag: '2s' } }),
  ];
  setting = await HoldSetting.open(cluster, { max: 60, consumers });
}, 300_000);

afterAll(async () => {
  for (const gateway of gateways) gateway.stop();
  await setting?.close();
  await node?.remove();
  await cluster?.close();
}, 240_000);

async function staged(waiting: 'alone' | 'undeclared', nodes = 1) {
  const namespace = (await setting?.namespace(waiting, `prove-${waiting}`, { gateways: 'here' })) ?? '';
  const stage = new ProveStage(cluster, namespace);
  await stage.deploy('web', REPLICAS, { nodes });
  const gateway = await stage.gateway('web', POLL_MS);
  gateways.push(gateway);
  return { stage, gateway, namespace };
}

/** The application as a StatefulSet, once its pods are ready. */
async function deploySet(
  stage: ProveStage,
  application: Required<Pick<ApplicationOptions, 'replicas'>> & ApplicationOptions,
) {
  const { spec, ...deployment } = applicationDeployment(application);
  const { strategy: _, ...common } = spec;
  const set = { ...deployment, kind: 'StatefulSet', spec: { ...common, serviceName: application.name } };
  await cluster.create(applicationService(application));
  await cluster.create(set as NewObject);
  const ready = async () => {
    const pods = (await stage.pods(`app=${application.name}`)).map((pod) => JSON.stringify(pod));
    return pods.filter((pod) => pod.includes('"ready":true')).length === application.replicas;
  };
  await waitUntil('its pods', ready);
}

/** The namespaces that `--compare` makes. */
const copies = () => cluster.list({ apiVersion: 'v1', kind: 'Namespace' }, 'linger.dev/prove');
const noCopies = async () => (await copies()).length === 0;

/** @returns the namespace of a copy as soon as the workload is there */
function copied(kind: 'Deployment' | 'StatefulSet'): Promise<string> {
  const look = async () => {
    const [copy] = await copies();
    const namespace = copy?.metadata.name ?? '-';
    return (await cluster.list({ apiVersion: 'apps/v1', kind, namespace })).length > 0 && namespace;
  };
  return waitUntil('a copy', look, { timeoutMs: 60_000 });
}

function startComparing(stage: ProveStage, args: readonly string[]) {
  const all = [...stage.arguments([...args, '--compare']), '--kubeconfig', cluster.kubeconfig];
  return spawn(process.execPath, [MAIN, ...all], { env: environment(), stdio: 'ignore' });
}

describe.runIf(LONG)('linger prove', () => {
  it('finds what an unprotected Deployment loses, and the wait that loses nothing', {
    timeout: 600_000,
  }, async ({ skip }) => {
    if (setting === undefined) return skip('only in our own cluster');
    const { stage, gateway } = await staged('alone');
    const { report, atGateway } = await stage.through(gateway, RUN);
    const edge = report.ways.find(({ name }) => name === 'edge');
    expect(atGateway).toBeGreaterThan(50);
    expect(Math.abs((edge?.lost ?? 0) - atGateway)).toBeLessThanOrEqual(0.03 * atGateway);
    expect(report.verdict).toMatch(/edge follows .* late, the wait was 0 s/);
    await stage.sleep('web', REPLICAS, report.advice?.wait ?? 0);
    const again = await stage.through(gateway, RUN);
    expect([again.report.lost, again.atGateway]).toEqual([0, 0]);
  });

  it('finds nothing lost with Hold, behind a gateway that was not declared', { timeout: 600_000 }, async ({
    skip,
  }) => {
    if (setting === undefined) return skip('only in our own cluster');
    const { stage, gateway } = await staged('undeclared');
    const { code, report, atGateway } = await stage.through(gateway, RUN);
    expect(report.pods.map(({ wait }) => wait)).toEqual(Array(REPLICAS).fill('Hold'));
    expect([code, report.lost, atGateway]).toEqual([0, 0, 0]);
    expect(report.atRisk).toBeGreaterThan(1_000);
  });

  it('scales down and back, drains a node, evicts, and tells connections that stay open from new ones', {
    timeout: 600_000,
  }, async ({ skip }) => {
    if (setting === undefined) return skip('only in our own cluster');
    const { stage, gateway, namespace } = await staged('alone', 2);
    const deployment = { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { namespace, name: 'web' } };
    const scaled = await stage.through(gateway, [...RUN, '--keep-alive', '--scale', '6,3']);
    const { report } = scaled;
    expect(report.senders).toBe(2);
    expect(report.nodes.toSorted()).toEqual([firstNode.name, secondNode.name]);
    expect(report.ways.map(({ name, keepAlive }) => [name, keepAlive])).toEqual([
      ['Service web', false],
      ['Service web (keep-alive)', true],
      ['edge', false],
      ['edge (keep-alive)', true],
    ]);
    expect(report.pods).toHaveLength(3);
    const [, kept, edge] = report.ways;
    // Only those that were new.
    expect(kept?.causes.late ?? 0).toBeLessThanOrEqual(kept?.kinds.refused ?? 0);
    expect(edge?.causes.late).toBeGreaterThan(50);
    type Scaled = { readonly spec: { readonly replicas: number } };
    expect((await cluster.get<Scaled>(deployment))?.spec.replicas).toBe(REPLICAS);

    await stage.settled('web', REPLICAS);
    const drained = await stage.through(gateway, [...RUN, '--drain', secondNode.name]);
    expect(drained.report.pods.length).toBeGreaterThan(0);
    for (const pod of drained.report.pods) expect(pod.node).toBe(secondNode.name);
    expect(drained.report.nodes).toEqual([firstNode.name]);
    expect(Math.abs((drained.report.ways[1]?.lost ?? 0) - drained.atGateway)).toBeLessThanOrEqual(
      0.03 * drained.atGateway + 1,
    );
    type Cordoned = { readonly spec: { readonly unschedulable?: boolean } };
    const after = await cluster.get<Cordoned>({
      apiVersion: 'v1',
      kind: 'Node',
      metadata: { name: secondNode.name },
    });
    expect(after?.spec.unschedulable).toBeUndefined();

    await stage.settled('web', REPLICAS);
    const evicted = await stage.through(gateway, [...RUN, '--evict', '--url-from', 'cluster']);
    expect(evicted.report.pods).toHaveLength(1);
    expect(evicted.report.ways.map(({ name }) => name)).toEqual(['Service web', 'edge']);
    expect(Math.abs((evicted.report.ways[1]?.lost ?? 0) - evicted.atGateway)).toBeLessThanOrEqual(
      0.03 * evicted.atGateway + 1,
    );
  });

  it('compares copies with and without waits, touches no original, and leaves nothing', {
    timeout: 600_000,
  }, async ({ skip }) => {
    if (setting === undefined) return skip('only in our own cluster');
    const namespace = await setting.namespace('undeclared', 'prove-compare', { gateways: 'here' });
    const stage = new ProveStage(cluster, namespace);
    const configMap = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { namespace, name: 'conf' } };
    await cluster.create({ ...configMap, data: { COLOUR: 'blue' } } as NewObject);
    const application = { namespace, name: 'web', replicas: 3 };
    const envFrom = [{ configMapRef: { name: 'conf' } }];
    await cluster.create(applicationService(application));
    await cluster.create(applicationDeployment({ ...application, container: { envFrom } }));
    const podSpec = { imagePullSecrets: [{ name: 'registry' }] };
    await cluster.create(applicationDeployment({ ...application, name: 'secret', podSpec }));
    await Promise.all([stage.settled('web', 3), stage.settled('secret', 3)]);
    const uids = async () => (await stage.pods('app=web')).map(({ metadata }) => metadata.uid).toSorted();
    const before = await uids();

    const secret = await stage.prove(['deployment/secret', '--compare']);
    expect(secret.stderr).toMatch(/without Secrets registry: --copy-secrets .*\[prove-refused\]\n$/);
    await cluster.create(applicationDeployment({ ...application, name: 'single', replicas: 1 }));
    await stage.settled('single', 1);
    const single = await stage.prove(['deployment/single', '--compare']);
    expect(single.stderr).toMatch(/Deployment \S+\/single has 1 ready pod: .*\[prove-refused\]\n$/);
    const run = ['deployment/web', '--compare', '--rate', '100', '--quiet', '3s', '-o', 'json'];
    const { code, stdout, stderr } = await stage.prove(run);
    console.log(stderr);
    const found = comparison.parse(JSON.parse(stdout));
    console.log(found.verdict);
    // On a busy machine kube-proxy may follow later than anything that is declared here.
    expect(found.with.lost).toBeLessThan(found.without.lost);
    expect(code).toBe(found.with.lost === 0 ? 0 : 3);
    expect(found.with.pods.map(({ wait }) => wait)).toEqual(Array(3).fill('Hold'));
    expect(found.without.pods.map(({ wait }) => wait)).toEqual(Array(3).fill(0));
    await waitUntil('the copies to be gone', noCopies, { timeoutMs: 60_000 });

    const child = startComparing(stage, ['deployment/web']);
    await copied('Deployment');
    child.kill('SIGKILL');
    await waitUntil('it to end by itself', noCopies, { timeoutMs: 120_000 });
    expect(await uids()).toEqual(before);
  });

  it('copies a StatefulSet with the Secrets that it names and no others, and removes all also when it is interrupted', {
    timeout: 900_000,
  }, async ({ skip }) => {
    if (setting === undefined) return skip('only in our own cluster');
    const namespace = await setting.namespace('undeclared', 'prove-secrets', { gateways: 'here' });
    const stage = new ProveStage(cluster, namespace);
    type Secret = NewObject & { readonly data: Readonly<Record<string, string>> };
    const data = { TOKEN: Buffer.from('s3cret').toString('base64') };
    for (const name of ['token', 'other'])
      await cluster.create({
        apiVersion: 'v1',
        kind: 'Secret',
        metadata: { namespace, name },
        data,
      } as Secret);
    const application = { namespace, name: 'web', replicas: 3 };
    // Without the Secret, these pods do not start.
    const container = { envFrom: [{ secretRef: { name: 'token' } }] };
    await deploySet(stage, { ...application, container });
    const uids = async () => (await stage.pods('app=web')).map(({ metadata }) => metadata.uid).toSorted();
    const before = await uids();
    const jobs = () => cluster.list({ apiVersion: 'batch/v1', kind: 'Job', namespace });

    const flags = ['--copy-secrets', '--rate', '50', '--calm', '3s', '--quiet', '3s', '-o', 'json'];
    const run = stage.prove(['statefulset/web', '--compare', ...flags]);
    const copy = await copied('StatefulSet');
    const secrets = await cluster.list<Secret>({ apiVersion: 'v1', kind: 'Secret', namespace: copy });
    expect(secrets.map((each) => [each.metadata.name, each.data])).toEqual([['token', data]]);
    const { stdout, stderr } = await run;
    if (stdout === '') throw new Error(stderr);
    const found = comparison.parse(JSON.parse(stdout));
    console.log(found.verdict);
    const waits = [found.with, found.without].map(({ pods }) => pods.map(({ wait }) => wait));
    expect(waits).toEqual([Array(3).fill('Hold'), Array(3).fill(0)]);
    await waitUntil('the copies to be gone', noCopies);

    const senders = async () => {
      const [{ metadata } = { metadata: { name: '-' } }] = await copies();
      const pods = { apiVersion: 'v1', kind: 'Pod', namespace: metadata.name };
      // One keeps the namespace.
      return (await cluster.list(pods, 'app.kubernetes.io/name=linger-prove')).length > 1;
    };
    const moments = { 'a namespace': async () => !(await noCopies()), 'its senders': senders };
    for (const [moment, reached] of Object.entries(moments)) {
      const child = startComparing(stage, ['statefulset/web', '--copy-secrets']);
      await waitUntil(moment, reached, { timeoutMs: 120_000, intervalMs: 20 });
      child.kill('SIGINT');
      expect(await once(child, 'exit')).toEqual([1, null]);
      await waitUntil('the copies to be gone', noCopies);
      expect(await jobs()).toEqual([]);
    }
    expect(await uids()).toEqual(before);
  });

  it('answers what a tired operator asks', { timeout: 600_000 }, async ({ skip }) => {
    if (setting === undefined) return skip('only in our own cluster');
    const namespace = await cluster.namespace('prove-tired', { 'linger.dev/inject': 'false' });
    const stage = new ProveStage(cluster, namespace);
    const services = (name: string, spec: object) => ({
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { namespace, name },
      spec,
    });
    await Promise.all(['web', 'paused', 'two', 'bare', 'names'].map((name) => stage.deploy(name, 2)));
    const selector = { app: 'two' };
    await cluster.create(services('wrong', { selector, ports: [{ port: 81, targetPort: 9 }] }) as NewObject);
    for (const name of ['bare', 'names'])
      await cluster.delete({ apiVersion: 'v1', kind: 'Service', metadata: { namespace, name } });
    await cluster.create(services('bare', { ports: [{ port: 80 }] }) as NewObject);
    const headless = { clusterIP: 'None', selector: { app: 'names' }, ports: [{ port: 8080 }] };
    await cluster.create(services('names', headless) as NewObject);
    const paused = { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { namespace, name: 'paused' } };
    await cluster.patch(paused, { spec: { paused: true } });

    const short = ['--calm', '3s', '--quiet', '3s', '--rate', '20'];
    const cases: readonly (readonly [readonly string[], RegExp])[] = [
      [['deployment/two'], /--service: expected one of two, wrong/],
      [['deployment/two', '--service', 'two:81'], /expected one of two:80, wrong:81, .* got "two:81"/],
      [['deployment/two', '--service', 'wrong'], /refused\) before anything was disturbed: check the port/],
      [['deployment/bare'], /no Service of this namespace selects these pods; --url names a gateway/],
      [['deployment/names'], /unreachable\) before anything .*: check whether the name resolves/],
      [['deployment/paused'], /not settled|paused/],
      [['deployment/none'], /there is no Deployment .*\/none; -n names another namespace/],
      [['deployment/web', '--image', 'registry.example/none:1'], /did not start within 60s: .*none:1/],
    ];
    for (const [args, expected] of cases) {
      const { code, stdout, stderr } = await stage.prove([...args, ...short]);
      expect
        .soft([args.join(' '), stdout, stderr])
        .toEqual([args.join(' '), '', expect.stringMatching(expected)]);
      expect.soft(code).toBeGreaterThan(0);
    }
    // As an autoscaler would.
    const run = stage.prove(['deployment/web', ...short, '-o', 'json']);
    await waitUntil(
      'its pod',
      async () => (await stage.pods('app.kubernetes.io/name=linger-prove')).length > 0,
    );
    const web = { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { namespace, name: 'web' } };
    await cluster.patch(web, { spec: { replicas: 3 } });
    const { stdout } = await run;
    expect(stdout).not.toContain('not quiet');
    expect(JSON.parse(stdout)).toMatchObject({ pods: expect.arrayContaining([expect.anything()]) });
    expect(await stage.pods('app.kubernetes.io/name=linger-prove')).toEqual([]);
  });

  it('sends from a namespace with Pod Security restricted, to a StatefulSet, with the rights that it names and no others', {
    timeout: 300_000,
  }, async ({ skip }) => {
    if (setting === undefined) return skip('only in our own cluster');
    const namespace = await cluster.namespace('prove-restricted', {
      'linger.dev/inject': 'false',
      'pod-security.kubernetes.io/enforce': 'restricted',
    });
    const stage = new ProveStage(cluster, namespace);
    const application = {
      namespace,
      name: 'web',
      replicas: 3,
      podSpec: {
        securityContext: {
          runAsNonRoot: true,
          runAsUser: 65_532,
          seccompProfile: { type: 'RuntimeDefault' },
        },
      },
      container: { securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } } },
    };
    await deploySet(stage, application);
    const run = ['statefulset/web', '--calm', '3s', '--quiet', '3s', '-o', 'json'];
    const prover = { namespace, name: 'prover' };
    await cluster.create({ apiVersion: 'v1', kind: 'ServiceAccount', metadata: prover });
    const kubeconfig = join(await emptyDirectory(), 'kubeconfig');
    writeFileSync(kubeconfig, await kubeconfigOf(cluster, namespace, prover.name));
    const denied = await stage.prove(run, kubeconfig);
    const [, named = ''] =
      /lack permissions in namespace \S+: (.*) \[cluster-denied\]/.exec(denied.stderr) ?? [];
    const rules = named.split(', ').map((right) => {
      const [verb = '', of = ''] = right.split(' ');
      const [resource, ...group] = of.split('.');
      return { verbs: [verb], resources: [resource], apiGroups: [group.join('.')] };
    });
    const role = { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: prover.name };
    const rbac = { apiVersion: `${role.apiGroup}/v1`, metadata: prover };
    await cluster.create({ ...rbac, kind: 'Role', rules } as NewObject);
    const subjects = [{ kind: 'ServiceAccount', ...prover }];
    await cluster.create({ ...rbac, kind: 'RoleBinding', roleRef: role, subjects } as NewObject);
    const { code, stdout, stderr } = await stage.prove(run, kubeconfig);
    expect(stderr).not.toMatch(/\[(prove-refused|cluster-denied)\]/);
    expect(JSON.parse(stdout)).toMatchObject({ pods: expect.any(Array) });
    expect(JSON.parse(stdout).pods).toHaveLength(3);
    expect([0, 3]).toContain(code);
  });
});
