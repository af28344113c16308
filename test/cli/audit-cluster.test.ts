import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { type Answer, AnsweringServer, type Answers, refused, well } from '../cluster/answers.ts';
import type { AtEnd } from '../webhook/connection.ts';
import { emptyDirectory, linger } from './linger.ts';

const atEnd = onTestFinished as AtEnd;

const items = (...objects: readonly unknown[]): Answer =>
  well({ metadata: { resourceVersion: '1' }, items: objects });
const named = (namespace: string, name: string, more = {}) => ({
  metadata: { namespace, name, uid: `${namespace}-${name}`, resourceVersion: '1', ...more },
});
const POD = { containers: [{ name: 'app', image: 'x', ports: [{ containerPort: 80 }] }] };
const pod = (name: string, namespace = 'shop', more = {}) => ({
  ...named(namespace, name, { labels: { app: 'web' }, ...more }),
  spec: POD,
});
const deployment = (name: string, replicas: number) => ({
  ...named('shop', name),
  spec: { replicas, template: { metadata: { labels: { app: 'web' } }, spec: POD } },
});

const CONFIGURATION = '/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/linger';
const WEBHOOK = {
  name: 'pods.linger.dev',
  rules: [{ apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['pods'] }],
  clientConfig: { url: 'https://192.0.2.1/mutate' },
};

function holding(bare: readonly ReturnType<typeof pod>[], more: Answers = {}): Answers {
  const single = bare.map((each) => {
    const { namespace, name } = each.metadata;
    const query = `fieldSelector=${encodeURIComponent(`metadata.name=${name}`)}&limit=250`;
    return [`/api/v1/namespaces/${namespace}/pods?${query}`, items(each)] as const;
  });
  return {
    '/version': well({ gitVersion: 'v1.36.3' }),
    '/api/v1/namespaces?limit=250': items(named('', 'shop'), named('', 'team')),
    '/api/v1/nodes?limit=250': items(),
    '/api/v1/services?limit=250': items(),
    '/apis/apps/v1/deployments?limit=250': items(),
    '/api/v1/pods?limit=250': items(...bare),
    [CONFIGURATION]: well({ metadata: { name: 'linger' }, webhooks: [WEBHOOK] }),
    ...Object.fromEntries(single),
    ...more,
  };
}

async function auditOf(answers: Answers, ...args: readonly string[]) {
  const server = await AnsweringServer.start(answers, atEnd);
  const file = join(await emptyDirectory(atEnd), 'kubeconfig');
  await writeFile(file, server.kubeconfig());
  const said = await linger([
    'audit',
    '--kubeconfig',
    file,
    '--linger-namespace',
    'linger',
    '-o',
    'json',
    ...args,
  ]);
  const { findings, noHooks } = JSON.parse(said.stdout || '{"findings":[]}') as {
    findings: readonly { kind: string; namespace: string; name: string; verdict: string; text: string }[];
    noHooks?: string;
  };
  const rows = [
    ...new Set(findings.map((each) => `${each.kind} ${each.namespace}/${each.name} ${each.verdict}`)),
  ];
  return { ...said, rows, findings, noHooks };
}

test('a Rollout is judged by the template that it refers to, and its emptied Deployment needs nothing', async () => {
  const rollout = {
    ...named('shop', 'web'),
    spec: { replicas: 1, workloadRef: { apiVersion: 'apps/v1', kind: 'Deployment', name: 'web' } },
  };
  const { rows, findings } = await auditOf(
    holding([], {
      '/apis/apps/v1/deployments?limit=250': items(deployment('web', 0)),
      '/apis/argoproj.io/v1alpha1/rollouts?limit=250': items(rollout, {
        ...named('shop', 'lost'),
        spec: { workloadRef: { kind: 'Deployment', name: 'gone' } },
      }),
    }),
  );
  expect(rows).toEqual([
    'Deployment shop/web skipped',
    'Rollout shop/web protected',
    'Rollout shop/lost unknown',
  ]);
  expect(findings.at(-1)?.text).toMatch(/ \(workloadRef\), which was not found$/);
});

test('of very many pods without a controller some of each namespace are judged, and that is a verdict of its own', async () => {
  const many = Array.from({ length: 250 }, (_, index) => pod(`many-${index}`));
  const ending = pod('ending', 'team', { deletionTimestamp: '2026-11-25T10:00:00Z' });
  const { rows, stderr, code } = await auditOf(
    holding([...many, pod('own', 'team'), ending]),
    '--fail-on=unknown',
  );
  expect(rows).toHaveLength(200);
  expect(rows.filter((row) => row.startsWith('Pod team/'))).toEqual(['Pod team/own unprotected']);
  expect(stderr).toContain(
    'audit incomplete; objects beyond the limit of their kind are left out: Pod without a controller (200)',
  );
  expect(code).toBe(3);
});

const CONFIGURATIONS = '/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations?limit=250';

test.each([
  [
    'has the webhook',
    items({ ...named('', 'linger'), webhooks: [{ name: 'pods.linger.dev' }] }),
    'protected',
  ],
  ['has none', items(), 'unprotected'],
  ['does not say', refused(403, 'mutatingwebhookconfigurations is forbidden'), 'unprotected'],
])('manifests beside a cluster that %s', async (_, configurations, verdict) => {
  const file = join(await emptyDirectory(atEnd), 'web.json');
  const object = { apiVersion: 'apps/v1', kind: 'Deployment', ...deployment('web', 2) };
  await writeFile(file, JSON.stringify(object));
  const { rows, stderr } = await auditOf(holding([], { [CONFIGURATIONS]: configurations }), '-f', file);
  expect(rows).toEqual([`Deployment shop/web ${verdict}`]);
  expect(stderr.includes('assuming that Linger’s webhook is not there')).toBe(configurations.status === 403);
});

test('what is assumed of the webhook is said', async () => {
  const forbidden = { [CONFIGURATIONS]: refused(403, 'mutatingwebhookconfigurations is forbidden') };
  const { rows, stderr } = await auditOf(
    holding([], { ...forbidden, '/apis/apps/v1/deployments?limit=250': items(deployment('web', 2)) }),
  );
  expect(rows).toEqual(['Deployment shop/web protected']);
  expect(stderr).toContain('assuming that Linger’s webhook is there');
});

test('a Linger that is scaled to 0 is said first, and new pods get no hook', async () => {
  const scaled = {
    '/apis/apps/v1/namespaces/linger/deployments/linger': well({ spec: { replicas: 0 } }),
    [`/api/v1/namespaces/linger/pods?labelSelector=${encodeURIComponent('app.kubernetes.io/name=linger')}&limit=250`]:
      items(),
  };
  const answers = { ...scaled, '/apis/apps/v1/deployments?limit=250': items(deployment('web', 2)) };
  const { rows, findings, noHooks } = await auditOf(holding([], answers));
  expect(rows).toEqual(['Deployment shop/web unprotected']);
  expect(noHooks).toMatch(/^New pods get no hook at this moment: the Deployment linger is scaled to 0/);
  expect(findings[0]?.text).toContain('new pods get no wait: the Deployment linger is scaled to 0');
});

test('kinds that may not be listed are left out, and named', async () => {
  const forbidden = refused(403, 'statefulsets.apps is forbidden');
  const related = '/apis/policy/v1/poddisruptionbudgets?limit=250';
  const { rows, stderr, code } = await auditOf(
    holding([], {
      '/apis/apps/v1/deployments?limit=250': items(deployment('web', 2)),
      '/apis/apps/v1/statefulsets?limit=250': forbidden,
      [related]: refused(403, 'poddisruptionbudgets.policy is forbidden'),
    }),
  );
  expect(rows).toEqual(['Deployment shop/web protected']);
  expect(stderr).toContain('statefulsets.apps is forbidden; workloads of this kind are not audited');
  expect(stderr).toContain('findings that need them are missing: PodDisruptionBudget');
  expect(code).toBe(0);
});
