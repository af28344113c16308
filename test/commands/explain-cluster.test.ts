import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { exactly } from '../../src/core/lag/combine.ts';
import { NOTHING_PLANNED, nextPlanned } from '../../src/core/lag/planned.ts';
import { plannedToText } from '../../src/core/lag/published.ts';
import { plannedContent } from '../../src/measure/publication.ts';
import type { Explanation } from '../../src/render/explanation.ts';
import { atEndOfFile } from '../serve/connection.ts';
import { ModelCluster, namespaceObject, nodeObject, serviceObject } from '../sources/model-cluster.ts';
import { emptyDirectory, linger } from './linger.ts';
import { DEPLOYMENT } from './manifests.ts';

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
function publish(model: ModelCluster, namespace = 'linger'): void {
  const lag = {
    scope: 'cluster' as const,
    samples: 812,
    historySeconds: 5 * DAY,
    density: exactly(4.2),
    stages: [],
  };
  const candidates = { cluster: { lag, latest: DAY }, namespaces: new Map() };
  const text = plannedToText(nextPlanned(NOTHING_PLANNED, candidates, DAY), false);
  const metadata = {
    name: 'linger-planned',
    namespace,
    resourceVersion: '7',
    annotations: { 'linger.dev/format': '1' },
  };
  const path = `/api/v1/namespaces/${namespace}/configmaps/linger-planned`;
  model.single.set(path, { apiVersion: 'v1', kind: 'ConfigMap', metadata, ...plannedContent(text) });
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
  it('says which estimate stands behind the wait', async () => {
    const model = await cluster();
    publish(model);
    const { stdout, stderr } = await explain(model, DEPLOYMENT);
    expect(stderr).toBe('');
    expect(stdout).toContain('  wait      10s (measured)\n');
    expect(stdout).toMatch(
      /^ {2}estimate {2}p99 4\.\ds of 812 samples over 5 d, ×1\.5 → 10s, covers 100\.0 %$/m,
    );
    expect(await planOf(model, DEPLOYMENT)).toMatchObject({
      waitSeconds: 10,
      why: 'measured',
      estimate: { percentile: 99, samples: 812, enough: true, text: expect.stringContaining('→ 10s') },
    });
  });

  it('finds it where Linger runs', async () => {
    const model = await cluster();
    publish(model, 'platform');
    expect(await planOf(model, DEPLOYMENT)).toMatchObject({ why: 'initial', estimate: null });
    expect(await planOf(model, DEPLOYMENT, '--linger-namespace', 'platform')).toMatchObject({
      why: 'measured',
    });
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
    expect([code, stderr]).toEqual([0, expect.stringContaining(`no planned lags: ${why}`)]);
    expect(stdout).toContain('30s (initial: not enough has been measured yet)');
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

  it.each([
    ['refuses', 403, /^linger: .*"model".* \[cluster-denied\]\n$/],
    ['fails', 500, /^linger: .*"model".* cannot be asked: .* \[cluster-unreachable\]\n$/],
  ])('fails where the cluster %s', async (_what, status, message) => {
    const model = await cluster();
    model.refuse = () => status;
    const { code, stdout, stderr } = await explain(model, DEPLOYMENT);
    expect([code, stdout, stderr]).toEqual([1, '', expect.stringMatching(message)]);
  });
});
