import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { apiError, explanationReport, nowReport, workloadsReport } from '../../src/dashboard/index.ts';
import { startDashboard } from '../cli/dashboards.ts';
import { emptyDirectory } from '../cli/linger.ts';
import { CHROMIUM, expectAccessible, startBrowser, windowOf } from '../page/browser.ts';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import {
  applicationDeployment,
  applicationService,
  type DeploymentObject,
  isRolledOut,
} from '../testbed/workloads.ts';
import type { AtEnd } from '../webhook/connection.ts';
import { kubeconfigOf } from './support/account.ts';

let cluster: Cluster;
let namespace = '';
const atEnd = onTestFinished as AtEnd;

beforeAll(async () => {
  cluster = await openCluster();
  namespace = await cluster.namespace('dashboard');
  const application = {
    ...{ namespace, name: 'web', replicas: 2 },
    podSpec: { terminationGracePeriodSeconds: 5 },
  };
  await cluster.create(applicationService(application));
  const deployment = applicationDeployment(application);
  await cluster.create(deployment);
  await cluster.waitFor<DeploymentObject>(deployment, (object) => isRolledOut(object, 2));
}, 120_000);

afterAll(() => cluster?.close());

const pods = async () =>
  (await cluster.list({ apiVersion: 'v1', kind: 'Pod', namespace })).map(
    (pod): KubernetesObject => ({ ...pod, apiVersion: 'v1', kind: 'Pod' }),
  );

/** What a machine that is busy with other things adds. */
const BUSY_MS = 1_500;

describe('linger dashboard, on a real cluster', () => {
  it('names the workload that loses requests, and explains it', async () => {
    const { get } = await startDashboard(['--kubeconfig', cluster.kubeconfig], atEnd);
    const { findings, summary } = workloadsReport.parse((await get('/workloads')).body);
    expect(findings).toContainEqual(
      expect.objectContaining({ kind: 'Deployment', namespace, name: 'web', verdict: 'unprotected' }),
    );
    expect(summary.workloads).toBeGreaterThan(0);
    const query = new URLSearchParams({ kind: 'Deployment', namespace, name: 'web' });
    const { plan } = explanationReport.parse((await get(`/explanation?${query}`)).body);
    expect(plan).toMatchObject({ namespace, name: 'web' });
    expect((await get('/explanation?kind=Deployment&namespace=none&name=none')).status).toBe(404);
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
    expect(performance.now() - begun).toBeLessThan(2_000 + BUSY_MS);
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
