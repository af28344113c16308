import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { emptyDirectory } from '../cli/linger.ts';
import { ensureReportCrd } from '../testbed/binaries.ts';
import {
  type Cluster,
  type KubernetesObject,
  type ObjectReference,
  openCluster,
  waitUntil,
} from '../testbed/cluster.ts';
import { clusterSettings } from '../testbed/settings.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { installRights, kubeconfigOf } from './support/account.ts';
import { Linger } from './support/linger.ts';
import { service, workload } from './support/manifests.ts';

const APIS = {
  'wgpolicyk8s.io': { apiVersion: 'wgpolicyk8s.io/v1alpha2', kind: 'PolicyReport', plural: 'policyreports' },
  'openreports.io': { apiVersion: 'openreports.io/v1alpha1', kind: 'Report', plural: 'reports' },
} as const;
type Api = keyof typeof APIS;
const GROUPS = Object.keys(APIS) as Api[];
/** What a replica that audits and writes reports is given in deploy/. */
const RIGHTS = ['role-publish.yaml', 'rbac.yaml', 'rbac-audit.yaml', 'rbac-policy-reports.yaml'];

interface Report extends KubernetesObject {
  readonly summary: Readonly<Record<string, number>>;
  readonly results: readonly {
    readonly rule: string;
    readonly result: string;
    readonly resources: readonly { readonly name: string }[];
  }[];
}

const atEnd = atEndOfFile();
let cluster: Cluster;
let namespace = '';
const replicas: Linger[] = [];
const outside: ObjectReference[] = [];

/** A replica in a namespace of its own, with no more rights than deploy/ gives it. */
async function start(group: Api): Promise<Linger> {
  const home = await cluster.namespace(`findings-${group.split('.')[0]}`);
  await cluster.create({
    apiVersion: 'v1',
    kind: 'ServiceAccount',
    metadata: { namespace: home, name: 'linger' },
  });
  for (const file of RIGHTS) outside.push(...(await installRights(cluster, home, file)));
  const directory = await emptyDirectory(atEnd);
  const kubeconfig = join(directory, 'config');
  await writeFile(kubeconfig, await kubeconfigOf(cluster, home, 'linger'));
  const flags = { 'audit-every': '1s', 'policy-reports': group, 'hold-port': '0', 'canary-every': '0' };
  return Linger.start({ host: cluster.nodeAddress, kubeconfig, directory, namespace: home, flags });
}

const report = (group: Api) =>
  cluster.get<Report>({ ...APIS[group], metadata: { name: 'linger', namespace } });

beforeAll(async () => {
  cluster = await openCluster();
  if (!cluster.own) return;
  namespace = await cluster.namespace('findings');
  for (const group of GROUPS) {
    const { code, stderr } = await cluster.kubectl([
      'apply',
      '-f',
      await ensureReportCrd(group, clusterSettings().cacheDir),
    ]);
    if (code !== 0) throw new Error(stderr);
    outside.push({
      apiVersion: 'apiextensions.k8s.io/v1',
      kind: 'CustomResourceDefinition',
      metadata: { name: `${APIS[group].plural}.${group}` },
    });
  }
  await cluster.create(workload('Deployment', namespace, 'web', { replicas: 2 }));
  await cluster.create(workload('Deployment', namespace, 'slow', { strategy: { type: 'Recreate' } }));
  await cluster.create(service(namespace, 'slow'));
  await cluster.create(workload('Deployment', namespace, 'cut', {}, { terminationGracePeriodSeconds: 0 }));
  replicas.push(...(await Promise.all(GROUPS.map(start))));
}, 120_000);

afterAll(async () => {
  await Promise.all(replicas.map((replica) => replica.stop()));
  for (const object of outside) await cluster.delete(object);
  await cluster?.close();
}, 60_000);

it('the leader says whose requests are lost: in metrics, Events and reports that the real CRDs take', {
  timeout: 120_000,
}, async ({ skip }) => {
  if (!cluster.own) return skip('only where CRDs may be installed');
  // No webhook is registered here, so no pod has a wait.
  const expected = [
    // Its port is declared, and no Service selects it: whether anything sends to it is not known.
    'cut NoService warn',
    'slow NoOtherEndpoint fail',
    'slow NotInjected fail',
    'web NotInjected fail',
  ];
  for (const group of GROUPS) {
    const found = await waitUntil(`the report of ${group}`, async () => {
      const present = await report(group);
      return present?.results.length === expected.length ? present : undefined;
    });
    const lines = found.results.map(
      ({ rule, result, resources }) => `${resources[0]?.name} ${rule} ${result}`,
    );
    expect(lines.toSorted()).toEqual(expected);
    expect(found.summary).toEqual({ pass: 0, fail: 3, warn: 1, error: 0, skip: 0 });
    const results = [{ ...found.results[0], result: 'perhaps' }];
    const judged = { ...APIS[group], metadata: { name: 'judged', namespace }, results };
    const { status } = await cluster.tryCreate(judged);
    expect(status).toBe(422);
  }
  const [replica] = replicas as [Linger];
  const series = `linger_findings{namespace="${namespace}",reason="NotInjected"}`;
  expect(await replica.metric(series)).toBe(2);

  type Event = {
    reason: string;
    type: string;
    message: string;
    involvedObject: { kind: string; name: string };
  };
  const events = async () => {
    const path = `/api/v1/namespaces/${namespace}/events`;
    const { items } = await cluster.api.call<{ items: Event[] }>('GET', path);
    return items.filter(
      ({ involvedObject }) => involvedObject.kind === 'Deployment' && involvedObject.name === 'web',
    );
  };
  const told = await waitUntil('the Event of web', async () =>
    (await events()).find(({ reason }) => reason === 'NotInjected'),
  );
  expect(told).toMatchObject({
    type: 'Warning',
    message: expect.stringMatching(/^2 of 2 pods have no wait/) as string,
  });

  for (const name of ['web', 'slow', 'cut'])
    await cluster.delete({ apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name, namespace } });
  for (const group of GROUPS)
    await waitUntil(`the report of ${group} to be gone`, async () => (await report(group)) === undefined);
});
