import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { spanOf } from '../../src/core/timeline/index.ts';
import {
  apiError,
  explanationReport,
  nowReport,
  timelineView,
  workloadsReport,
} from '../../src/dashboard/index.ts';
import { startDashboard } from '../cli/dashboards.ts';
import { emptyDirectory } from '../cli/linger.ts';
import { CHROMIUM, expectAccessible, startBrowser, tabTo, windowOf } from '../page/browser.ts';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import {
  applicationDeployment,
  applicationService,
  type DeploymentObject,
  isRolledOut,
} from '../testbed/workloads.ts';
import type { AtEnd } from '../webhook/connection.ts';
import { kubeconfigOf } from './support/account.ts';
import { Installation } from './support/installation.ts';
import { clusterPolicy, fixedWait, policyFile } from './support/policies.ts';

let cluster: Cluster;
let namespace = '';
let deployment: ReturnType<typeof applicationDeployment>;
const atEnd = onTestFinished as AtEnd;

beforeAll(async () => {
  cluster = await openCluster();
  namespace = await cluster.namespace('dashboard');
  const application = {
    namespace,
    name: 'web',
    replicas: 2,
    podSpec: { terminationGracePeriodSeconds: 5 },
  };
  await cluster.create(applicationService(application));
  deployment = applicationDeployment(application);
  await cluster.create(deployment);
  await cluster.waitFor<DeploymentObject>(deployment, (object) => isRolledOut(object, 2));
}, 120_000);

afterAll(() => cluster?.close());

const pods = async () =>
  (await cluster.list({ apiVersion: 'v1', kind: 'Pod', namespace })).map(
    (pod): KubernetesObject => ({ ...pod, apiVersion: 'v1', kind: 'Pod' }),
  );

const seconds = (milliseconds: number) => Math.round(milliseconds / 100) / 10;

/** What a machine that is busy with other things adds. */
const BUSY_MS = 1_500;

describe('linger dashboard, on a real cluster', () => {
  it('names the workload that loses requests, and explains it', async () => {
    const { get } = await startDashboard(['--kubeconfig', cluster.kubeconfig], atEnd);
    const { rows, summary } = workloadsReport.parse((await get('/workloads')).body);
    expect(rows.flatMap(({ findings }) => findings)).toContainEqual(
      expect.objectContaining({ kind: 'Deployment', namespace, name: 'web', verdict: 'unprotected' }),
    );
    expect(summary.workloads).toBeGreaterThan(0);
    const query = new URLSearchParams({ workload: `Deployment/${namespace}/web` });
    const { plan, charts } = explanationReport.parse((await get(`/explanation?${query}`)).body);
    expect(plan).toMatchObject({ namespace, name: 'web' });
    expect(charts.length).toBeGreaterThan(0);
    expect((await get('/explanation?workload=Deployment/none/none')).status).toBe(404);
  });

  it.runIf(CHROMIUM !== undefined)('one step from the command to the workload that loses most', async () => {
    const begun = performance.now();
    const { address } = await startDashboard(['--kubeconfig', cluster.kubeconfig], atEnd);
    const browser = await startBrowser();
    onTestFinished(() => browser.close());
    const { page } = await windowOf(browser);
    // The command opens this address in the browser: there is nothing to click.
    await page.goto(address);
    await page.getByRole('heading', { name: /lose.? requests when/ }).waitFor();
    console.log(`the worst workload is named ${seconds(performance.now() - begun)} s after the command`);
    expect(await page.title()).toBe('Now · Linger');
  });

  it.runIf(CHROMIUM !== undefined)('a pod that is deleted is on the page within 2 s', async () => {
    const { address, get } = await startDashboard(['--kubeconfig', cluster.kubeconfig], atEnd);
    const browser = await startBrowser();
    onTestFinished(() => browser.close());
    const { page, wrong } = await windowOf(browser);
    const at = new URL(address);
    at.pathname = '/now';
    await page.goto(at.href);
    await waitUntil('the watches', async () => {
      const { watched } = nowReport.parse((await get('/now')).body);
      return watched.since !== null;
    });
    const [pod] = await pods();
    const name = pod?.metadata.name ?? '';
    await page.getByText('No removal is under way.').waitFor();
    const begun = performance.now();
    if (pod !== undefined) await cluster.delete(pod);
    await page.getByText(name).first().waitFor();
    const tookMs = performance.now() - begun;
    console.log(`a deleted pod is on the page after ${seconds(tookMs)} s`);
    expect(tookMs).toBeLessThan(2_000 + BUSY_MS);
    await expectAccessible(page);
    // Without Linger in the cluster, that is said, and is no error of the page's.
    expect(wrong.filter((line) => !/502|status of 5/.test(line))).toEqual([]);
  });

  it('without any right, it says which one is missing', async () => {
    const metadata = { namespace, name: 'nobody' };
    await cluster.create({ apiVersion: 'v1', kind: 'ServiceAccount', metadata });
    const file = join(await emptyDirectory(atEnd), 'kubeconfig');
    await writeFile(file, await kubeconfigOf(cluster, namespace, 'nobody'));
    const { get } = await startDashboard(['--kubeconfig', file], atEnd);
    const report = workloadsReport.safeParse((await get('/workloads')).body);
    const said = report.success
      ? report.data.unseen.join('\n')
      : apiError.parse((await get('/workloads')).body).error.message;
    expect(said).toMatch(/cannot list resource "\w+" .*ClusterRole linger-view/);
    const { unseen } = nowReport.parse((await get('/now')).body);
    expect(unseen.join('\n')).toMatch(/removals: .*cannot list resource/);
  });
});

const OWN = await (async () => {
  const opened = await openCluster();
  await opened.close();
  return opened.own;
})();

describe.runIf(OWN && CHROMIUM !== undefined)('with Linger in the cluster', () => {
  let installation: Installation;
  beforeAll(async () => {
    const policies = policyFile(clusterPolicy('base', { mode: 'Enforce', ...fixedWait('5s') }));
    installation = await Installation.create(cluster, { policies });
    // So that the pods have the hook.
    for (const pod of await pods()) await cluster.delete(pod);
    await waitUntil('only pods with the hook', async () => {
      const { status } = (await cluster.get<DeploymentObject>(deployment)) ?? {};
      const planned = (await pods()).map(
        (pod) => pod.metadata.annotations?.['linger.dev/plan'] !== undefined,
      );
      return status?.availableReplicas === 2 && planned.length === 2 && !planned.includes(false);
    });
  }, 300_000);
  afterAll(() => installation?.remove());

  const configMap = (name: string) =>
    cluster.get({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { namespace: 'linger', name } });

  it('by keyboard alone: each view has what replicas have measured, and axe finds nothing', {
    timeout: 240_000,
  }, async () => {
    // Before, nothing is published, and each view says so.
    for (const each of ['linger-planned', 'linger-consumers']) await waitUntil(each, () => configMap(each));
    const { address, get } = await startDashboard(['--kubeconfig', cluster.kubeconfig], atEnd);
    const browser = await startBrowser();
    onTestFinished(() => browser.close());
    const { page, wrong } = await windowOf(browser);
    await page.goto(address);
    const open = async (view: string, headline: string | RegExp) => {
      await tabTo(page, view);
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { level: 1, name: headline }).waitFor();
    };

    await open('A termination', /^No termination is known yet|the last \d+ pod/);
    const [pod] = await pods();
    const { name = '', uid } = pod?.metadata ?? {};
    const deletedAt = Date.now() / 1000;
    if (pod !== undefined) await cluster.delete(pod, { wait: true });
    const goneAfter = Date.now() / 1000 - deletedAt;
    // The leader publishes it some 15 s after its end, and the page finds it by itself.
    await page.getByRole('button', { name }).waitFor({ timeout: 60_000 });
    await tabTo(page, `${namespace}/${name}`);
    await page.keyboard.press('Enter');
    await page.locator('.timeline title', { hasText: 'hook Sleep' }).waitFor({ state: 'attached' });
    await tabTo(page, 'As a table');
    await page.keyboard.press('Enter');
    const { terminations } = timelineView.parse((await get('/timeline')).body);
    const seen = terminations.find((each) => each.uid === uid);
    expect(seen).toMatchObject({ owner: 'Deployment/web', sigterm: { after: 5, by: 'computed' } });
    expect(Math.abs((seen?.deletedAt ?? 0) - deletedAt)).toBeLessThan(BUSY_MS / 1000);
    expect(Math.abs((seen?.gone ?? 0) - goneAfter)).toBeLessThan(BUSY_MS / 1000);
    expect(seen?.withdrawals?.map(({ source }) => source).toSorted()).toEqual(['EndpointSlice', 'Endpoints']);
    for (const { source, service, after } of seen?.withdrawals ?? []) {
      expect(after).toBeLessThan(5);
      await page.getByRole('row', { name: `${source} ${service} ${spanOf(after ?? 0)}` }).waitFor();
    }
    expect(await page.locator('.timeline .lost').count()).toBe(0);
    await expectAccessible(page);

    // A leader that ends writes its history at once, and not after a minute.
    const replicas = { apiVersion: 'v1', kind: 'Pod', namespace: 'linger' };
    for (const { metadata } of await cluster.list(replicas, 'linger.dev/leader'))
      await cluster.delete({ apiVersion: 'v1', kind: 'Pod', metadata });
    await waitUntil('the history', () => configMap('linger-history'));

    const shown: Readonly<Record<string, string | RegExp>> = {
      Workloads: /^\d+ of \d+ loses? requests when/,
      Lag: /^Half of \d+ removals were complete within/,
      'What if': /workloads would be protected/,
      // The cluster has no DNS: by what the host's resolver answers, cluster-dns is in trouble or measured too early.
      Consumers: /^1 of 2 consumers in trouble$|^2 consumers, none in trouble$/,
      Now: /^\d+ of \d+ loses? requests when/,
    };
    for (const [view, headline] of Object.entries(shown)) {
      await open(view, headline);
      await expectAccessible(page);
      if (view === 'Consumers') expect(await page.getByRole('row', { name: /cluster-ip/ }).count()).toBe(1);
    }
    expect(wrong).toEqual([]);
  });
});
