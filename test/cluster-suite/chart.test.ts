import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { emptyDirectory, pathWithLinger, ROOT } from '../cli/linger.ts';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { CHART, helmOf, objectsIn } from './support/helm.ts';
import { lingerImageArchive } from './support/linger-image.ts';
import { type PodObject, pod } from './support/manifests.ts';
import { hookOf } from './support/outcome.ts';

const RELEASE = 'quiet';
const NAMESPACE = 'tools';
const IN_NAMESPACE = ['--namespace', NAMESPACE];

interface Manifest extends KubernetesObject {
  readonly webhooks?: readonly {
    readonly namespaceSelector: { readonly matchExpressions: { values: string[] }[] };
  }[];
}

/** What Helm makes of the chart, and a first installation. What takes minutes: test/scenarios/helm.test.ts. */
describe('the chart', async () => {
  const cluster: Cluster = await openCluster();
  const { helm, must } = helmOf(cluster);
  const kubectl = async (...args: string[]) => {
    const { code, stdout, stderr } = await cluster.kubectl(args, { timeoutMs: 120_000 });
    if (code !== 0) throw new Error(`kubectl ${args.join(' ')}: ${stderr}`);
    return stdout;
  };
  const set = (values: readonly string[]) => values.flatMap((each) => ['--set', each]);
  const template = (...values: string[]) => helm(['template', RELEASE, CHART, ...set(values)]);
  let namespace = '';

  beforeAll(async () => {
    // Builds it, where that has not been done.
    await must('version');
    if (!cluster.own) return;
    await cluster.importImages(await lingerImageArchive());
    namespace = await cluster.namespace('chart');
  }, 900_000);

  afterAll(async () => {
    if (cluster.own) {
      await helm(['uninstall', RELEASE, ...IN_NAMESPACE, '--ignore-not-found']);
      for (const plural of ['discoveryconsumers', 'clusterterminationpolicies', 'terminationpolicies'])
        await cluster.delete({
          apiVersion: 'apiextensions.k8s.io/v1',
          kind: 'CustomResourceDefinition',
          metadata: { name: `${plural}.linger.dev` },
        });
      await cluster.delete(
        { apiVersion: 'v1', kind: 'Namespace', metadata: { name: NAMESPACE } },
        { wait: true },
      );
    }
    await cluster.close();
  }, 180_000);

  const onOurOwn = it.runIf(cluster.own);

  it('has nothing that helm lint finds', { timeout: 60_000 }, async () => {
    expect(await must('lint', '--strict', CHART)).toContain('0 chart(s) failed');
  });

  it.each([
    ['kubectl apply --kustomize applies', [], 'resources: [DEPLOY]'],
    [
      'it applies with fail-closed',
      ['--set', 'failurePolicy=Fail'],
      'resources: [DEPLOY]\ncomponents: [DEPLOY/fail-closed]',
    ],
  ])('renders what %s', { timeout: 60_000 }, async (_, values, kustomization) => {
    const directory = mkdtempSync(join(tmpdir(), 'linger-kustomize-'));
    const deploy = relative(directory, join(ROOT, 'deploy'));
    writeFileSync(join(directory, 'kustomization.yaml'), kustomization.replaceAll('DEPLOY', deploy));
    const rendered = objectsIn(await must('template', 'linger', CHART, '--namespace', 'linger', ...values));
    const plain = objectsIn(await kubectl('kustomize', directory));
    rmSync(directory, { recursive: true });
    const named = (objects: readonly Manifest[]) =>
      new Map(objects.map((object) => [`${object.kind} ${object.metadata.name}`, object]));
    const [ours, theirs] = [named(rendered), named(plain)];
    theirs.delete('Namespace linger');
    expect([...ours.keys()].toSorted()).toEqual([...theirs.keys()].toSorted());
    for (const [name, object] of theirs)
      expect([name, comparable(ours.get(name))]).toEqual([name, comparable(object)]);
  });

  it.each([
    [['mode=Enfroce'], /mode/],
    [['replicas=two'], /replicas/],
    [['imagge.tag=1'], /imagge/],
    [['flags={drain}'], /flags/],
    [['failurePolicy=Maybe'], /failurePolicy/],
  ])('names a value that is wrong: %s', { timeout: 60_000 }, async (values, named) => {
    const { code, stderr } = await template(...values);
    expect(code).not.toBe(0);
    expect(stderr).toMatch(named);
  });

  it.each([
    ['mode', 'mode: Off'],
    ['policyReports', '--policy-reports='],
  ])('takes off without quotes, which is false in YAML: %s', { timeout: 60_000 }, async (value, text) => {
    const { code, stdout } = await template(`${value}=false`);
    expect(code).toBe(0);
    expect(stdout.includes(text)).toBe(value === 'mode');
    expect(stdout).not.toContain('mode: false');
    expect(stdout).not.toContain('linger-policy-reports');
  });

  it.each(Object.keys(parse(readFileSync(join(CHART, 'values.yaml'), 'utf8')) as object))(
    'without %s, as with the values of an older chart, renders or names it',
    { timeout: 60_000 },
    async (value) => {
      const { code, stdout, stderr } = await template(`${value}=null`);
      if (code !== 0) expect(stderr).toContain(`missing property '${value}'`);
      const text = JSON.stringify(objectsIn(stdout));
      expect(text).not.toMatch(/:null\b|"--[\w-]+="|no value/);
    },
  );

  it.each([
    [['existingSecret=mine'], /existingSecret: nobody would trust it/],
    [['existingSecret=mine', 'webhookAnnotations.team=shop'], /existingSecret: nobody would trust it/],
    [['caBundle=bWluZQ=='], /caBundle: only with certificates\.existingSecret/],
  ])('refuses certificates that nobody would trust: %s', { timeout: 60_000 }, async (values, named) => {
    const closed = 'failurePolicy=Fail';
    const { code, stderr } = await template(closed, ...values.map((each) => `certificates.${each}`));
    expect([code, stderr]).toEqual([1, expect.stringMatching(named)]);
  });

  it('leaves the authority to cert-manager', { timeout: 60_000 }, async () => {
    const annotation = 'certificates.webhookAnnotations.cert-manager\\.io/inject-ca-from=linger/linger';
    const { code, stdout } = await template('certificates.existingSecret=mine', annotation);
    const configuration = objectsIn(stdout).find(({ kind }) => kind === 'MutatingWebhookConfiguration');
    expect([code, configuration?.metadata.annotations]).toEqual([
      0,
      { 'cert-manager.io/inject-ca-from': 'linger/linger' },
    ]);
  });

  it('takes a certificate of one’s own, and monitoring', { timeout: 60_000 }, async () => {
    const { code, stdout: text } = await template(
      'certificates.existingSecret=mine',
      'certificates.caBundle=bWluZQ==',
      'serviceMonitor.enabled=true',
      'dashboard.enabled=true',
      'hold.enabled=false',
      'prometheusRule.enabled=true',
      'prometheusRule.labels.release=prometheus',
      'networkPolicy.enabled=false',
    );
    expect(code).toBe(0);
    const objects = objectsIn<Manifest>(text);
    const kinds = new Set(objects.map(({ kind }) => kind));
    expect(kinds).toContain('ServiceMonitor');
    const dashboard = objects.find(({ metadata }) => metadata.name === 'linger-dashboard');
    expect(dashboard).toMatchObject({ metadata: { labels: { grafana_dashboard: '1' } } });
    const { data } = dashboard as unknown as { data: Record<string, string> };
    expect(data['linger.json']).toBe(readFileSync(join(ROOT, 'deploy/dashboard.json'), 'utf8'));
    expect(text).toContain('--hold-port=0');
    expect(text).not.toContain('name: linger-hold');
    expect(kinds).toContain('PrometheusRule');
    expect(kinds).not.toContain('NetworkPolicy');
    expect(text).toContain('secretName: mine');
    expect(text).not.toMatch(/certs-secret|linger-certificates/);
  });

  it('post-renders with the plugin of the examples', { timeout: 60_000 }, async () => {
    const home = await emptyDirectory();
    const env = { HELM_DATA_HOME: join(home, 'data'), PATH: await pathWithLinger() };
    const withPlugin = (...args: string[]) => helm(args, env);
    expect(await withPlugin('plugin', 'install', join(ROOT, 'examples', 'helm-post-renderer'))).toMatchObject(
      { code: 0 },
    );
    expect(await withPlugin('create', join(home, 'web'))).toMatchObject({ code: 0 });
    const template = ['template', RELEASE, join(home, 'web'), '--post-renderer', 'linger'];
    const { stdout } = await withPlugin(...template, '--post-renderer-args=--namespace=shop');
    const plain = objectsIn((await withPlugin('template', RELEASE, join(home, 'web'))).stdout);
    const rendered = objectsIn(stdout);
    expect(rendered.map(({ kind }) => kind)).toEqual(plain.map(({ kind }) => kind));
    expect(
      rendered
        .filter((object) => JSON.stringify(object).includes('"preStop":{"sleep"'))
        .map(({ kind }) => kind),
    ).toEqual(['Deployment']);
    const failed = await withPlugin(...template, '--post-renderer-args=--policies=nowhere');
    expect(failed).toMatchObject({ code: 1, stdout: '' });
  });

  const isProtected = async (name: string) => {
    const { spec } = await cluster.create<PodObject>(pod(namespace, name, {}), { dryRun: true });
    return spec.containers.map(hookOf).join() !== '-';
  };

  onOurOwn('installs, upgrades and goes', { timeout: 240_000 }, async () => {
    const ready = () => kubectl(...IN_NAMESPACE, 'rollout', 'status', 'deployment/linger', '--timeout=100s');
    await must('install', RELEASE, CHART, ...IN_NAMESPACE, '--create-namespace');
    await ready();
    expect(await isProtected('audited')).toBe(false);
    const upgrade = ['upgrade', RELEASE, CHART, ...IN_NAMESPACE, '--reset-then-reuse-values'];
    // With a new flag, so that replicas do not wait for the kubelet to bring the policy.
    await must(...upgrade, ...set(['mode=Enforce', 'flags={--log-level=warn}']));
    await ready();
    // IPv4 is what everything else goes by.
    for (const port of [8443, 8080, 8081, 8445]) {
      const call = `net.connect(${port}, "::1").on("connect", () => process.exit()).on("error", (e) => { throw e })`;
      await kubectl(...IN_NAMESPACE, 'exec', 'deployment/linger', '--', '/bin/node', '--eval', call);
    }
    await waitUntil('a pod to be protected', () => isProtected('enforced'), { timeoutMs: 30_000 });
    // The drain of a node takes the only replica, too.
    await must(...upgrade, ...set(['replicas=1']));
    const allowed = [
      'get',
      'pdb',
      'linger',
      '--output=jsonpath={.status.expectedPods} {.status.disruptionsAllowed}',
    ];
    await waitUntil('one replica', async () => (await kubectl(...IN_NAMESPACE, ...allowed)) === '1 1');
    const [node = ''] = (await kubectl('get', 'nodes', '--output=name')).trim().split('\n');
    const drain = ['drain', node, '--pod-selector=app.kubernetes.io/name=linger', '--dry-run=server'];
    expect(await kubectl(...drain)).toMatch(/ drained \(server dry run\)/);
    await must('uninstall', RELEASE, ...IN_NAMESPACE);
    expect(await isProtected('afterwards')).toBe(false);
  });
});

/** Without what a release adds by itself. */
function comparable(object: Manifest | undefined): unknown {
  const copy = structuredClone(object) as unknown as {
    metadata: { annotations?: Record<string, string> };
    spec?: { template?: { spec?: { containers: { imagePullPolicy?: string }[] } } };
    webhooks?: { namespaceSelector: { matchExpressions: { values: string[] }[] } }[];
  };
  if (copy.metadata.annotations?.['helm.sh/resource-policy'] !== undefined) delete copy.metadata.annotations;
  for (const container of copy.spec?.template?.spec?.containers ?? []) delete container.imagePullPolicy;
  for (const { namespaceSelector } of copy.webhooks ?? [])
    for (const expression of namespaceSelector.matchExpressions)
      expression.values = expression.values.filter(
        (value) => value !== 'linger' || expression.values.length === 1,
      );
  return copy;
}
