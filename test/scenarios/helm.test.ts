import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { lingerImageArchive } from '../cluster-suite/support/linger-image.ts';
import { type PodObject, pod } from '../cluster-suite/support/manifests.ts';
import { hookOf } from '../cluster-suite/support/outcome.ts';
import { ensureHelm } from '../testbed/binaries.ts';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { run } from '../testbed/command.ts';
import { clusterSettings } from '../testbed/settings.ts';

import { LONG } from './form.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const CHART = join(ROOT, 'deploy', 'chart');
/** Neither is called linger. */
const RELEASE = 'quiet';
const NAMESPACE = 'tools';
const IN_NAMESPACE = ['--namespace', NAMESPACE];
const EVERY_MS = 50;

type Manifest = KubernetesObject & {
  readonly webhooks?: readonly {
    readonly namespaceSelector: { readonly matchExpressions: { values: string[] }[] };
  }[];
};

// Of every run are that the chart says what deploy/ says (test/deploy/chart.test.ts), and that deploy/ installs.
describe.runIf(LONG)('the chart', async () => {
  if (!LONG) return;
  const cluster: Cluster = await openCluster();
  let helmProgram = '';
  let namespace = '';

  const helm = async (...args: string[]) => {
    const env = { ...process.env, KUBECONFIG: cluster.kubeconfig };
    const { code, stdout, stderr } = await run([helmProgram, ...args], { env });
    return { code, stdout, stderr };
  };
  const must = async (...args: string[]) => {
    const { code, stdout, stderr } = await helm(...args);
    if (code !== 0) throw new Error(`helm ${args.join(' ')}: ${stderr}`);
    return stdout;
  };
  const kubectl = async (...args: string[]) => {
    const { code, stdout, stderr } = await cluster.kubectl(args, { timeoutMs: 120_000 });
    if (code !== 0) throw new Error(`kubectl ${args.join(' ')}: ${stderr}`);
    return stdout;
  };
  const objectsIn = (text: string) =>
    parseAllDocuments(text)
      .map((document) => document.toJS() as Manifest | null)
      .filter((object) => object !== null);

  beforeAll(async () => {
    helmProgram = await ensureHelm(clusterSettings().cacheDir, (line) => console.log(line));
    if (!cluster.own) return;
    await cluster.importImages(lingerImageArchive());
    namespace = await cluster.namespace('helm');
  }, 900_000);

  afterAll(async () => {
    if (cluster.own) {
      await helm('uninstall', RELEASE, ...IN_NAMESPACE, '--ignore-not-found');
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

  it('renders what kubectl apply --kustomize applies', { timeout: 60_000 }, async () => {
    const rendered = objectsIn(await must('template', 'linger', CHART, '--namespace', 'linger'));
    const plain = objectsIn(await kubectl('kustomize', join(ROOT, 'deploy')));
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
    const { code, stderr } = await helm(
      'template',
      RELEASE,
      CHART,
      ...values.flatMap((each) => ['--set', each]),
    );
    expect(code).not.toBe(0);
    expect(stderr).toMatch(named);
  });

  it('takes a certificate of one’s own, and monitoring', { timeout: 60_000 }, async () => {
    const values = [
      'certificates.existingSecret=mine',
      'serviceMonitor.enabled=true',
      'dashboard.enabled=true',
      'hold.enabled=false',
      'prometheusRule.enabled=true',
      'prometheusRule.labels.release=prometheus',
      'networkPolicy.enabled=false',
    ];
    const text = await must('template', RELEASE, CHART, ...values.flatMap((each) => ['--set', each]));
    const kinds = new Set(objectsIn(text).map(({ kind }) => kind));
    expect(kinds).toContain('ServiceMonitor');
    const dashboard = objectsIn(text).find(({ metadata }) => metadata.name === 'linger-dashboard');
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

  const protectedPod = async (name: string) => {
    const created = await cluster.create<PodObject>(pod(namespace, name, {}), { dryRun: true });
    return created.spec.containers.map(hookOf).join() !== '-';
  };

  onOurOwn(
    'helm install, under names of one’s own: the next pod is protected',
    { timeout: 240_000 },
    async () => {
      const begun = performance.now();
      await must('install', RELEASE, CHART, ...IN_NAMESPACE, '--create-namespace', '--set', 'mode=Enforce');
      await kubectl(...IN_NAMESPACE, 'rollout', 'status', 'deployment/linger', '--timeout=200s');
      const readyMs = performance.now() - begun;
      await waitUntil('a pod to be protected', () => protectedPod('first'), { timeoutMs: 30_000 });
      const protectedMs = performance.now() - begun;
      console.log(
        `ready after ${(readyMs / 1000).toFixed(1)} s, protected after ${(protectedMs / 1000).toFixed(1)} s`,
      );
      const pods = await cluster.list<PodObject>({ apiVersion: 'v1', kind: 'Pod', namespace: NAMESPACE });
      expect(pods).toHaveLength(2);
      // It leaves itself out, though its namespace has no label of ours.
      for (const { metadata } of pods) expect(metadata.annotations?.['linger.dev/plan']).toBeUndefined();
    },
  );

  onOurOwn('helm upgrade: no pod is created without a hook meanwhile', { timeout: 240_000 }, async () => {
    const before = await kubectl('get', 'mutatingwebhookconfiguration', 'linger', '--output', BUNDLE);
    expect(before).not.toBe('');
    const stop = new AbortController();
    const made: Promise<boolean>[] = [];
    const creating = (async () => {
      while (!stop.signal.aborted) {
        made.push(protectedPod(`during-${made.length}`));
        await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
      }
    })();
    const values = ['--set', 'mode=Enforce', '--set', 'flags={--log-level=debug}'];
    await must('upgrade', RELEASE, CHART, ...IN_NAMESPACE, ...values);
    await kubectl(...IN_NAMESPACE, 'rollout', 'status', 'deployment/linger', '--timeout=200s');
    stop.abort();
    await creating;
    const outcomes = await Promise.all(made);
    console.log(
      `${outcomes.length} pods during the upgrade, ${outcomes.filter((each) => !each).length} without a hook`,
    );
    expect(outcomes.every((each) => each)).toBe(true);
    expect(await kubectl('get', 'mutatingwebhookconfiguration', 'linger', '--output', BUNDLE)).toBe(before);
  });

  onOurOwn('helm uninstall leaves what the notes say, and no webhook', { timeout: 120_000 }, async () => {
    await must('uninstall', RELEASE, ...IN_NAMESPACE, '--wait');
    const left = await kubectl(
      'get',
      'mutatingwebhookconfigurations,clusterroles,clusterrolebindings,priorityclasses,customresourcedefinitions',
      '--selector=app.kubernetes.io/name=linger',
      '--output=name',
    );
    expect(left.trim().split('\n').toSorted()).toEqual(
      ['clusterterminationpolicies', 'discoveryconsumers', 'terminationpolicies'].map(
        (plural) => `customresourcedefinition.apiextensions.k8s.io/${plural}.linger.dev`,
      ),
    );
    expect(await protectedPod('afterwards')).toBe(false);
  });
});

const BUNDLE = 'jsonpath={.webhooks[0].clientConfig.caBundle}';

/** Without what a release adds. */
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
