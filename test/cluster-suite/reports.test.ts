import { readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseAllDocuments, stringify } from 'yaml';
import { LEADER_LABEL } from '../../src/leader/index.ts';
import { sharedCertificates } from '../cli/certificates.ts';
import { emptyDirectory, replaceFile, type Serving, serving } from '../cli/linger.ts';
import {
  type Cluster,
  type KubernetesObject,
  type NewObject,
  type ObjectReference,
  openCluster,
  waitUntil,
} from '../testbed/cluster.ts';
import { type AtEnd, atEndOfFile } from '../webhook/connection.ts';
import { installRights, kubeconfigOf } from './support/account.ts';
import { allowReports, sendReport, tokenOf } from './support/reports.ts';

const DEPLOY = join(import.meta.dirname, '..', '..', 'deploy');
const AUDIENCE = 'linger.dev/reports';
const certs = sharedCertificates();
const atEnd: AtEnd = atEndOfFile();

let cluster: Cluster;
let namespace = '';
let policies = '';
/** What lies in the cluster and not in the namespace. */
const outside: ObjectReference[] = [];
let replicas: Record<'linger-a' | 'linger-b', Serving>;

beforeAll(async () => {
  cluster = await openCluster();
  namespace = await cluster.namespace('reports');
  for (const account of ['linger', 'stranger']) await createAccount(account);
  for (const file of ['rbac.yaml', 'role-publish.yaml', 'role-pods.yaml'])
    outside.push(...(await installRights(cluster, namespace, file)));
  outside.push(...(await allowReports(cluster, namespace)));
  for (const name of ['linger-a', 'linger-b']) await cluster.create(replicaPod(name));
  const directory = await emptyDirectory(atEnd);
  policies = join(directory, 'policies');
  await mkdir(policies);
  await replaceFile(join(policies, 'consumers.yaml'), consumers('edge', 'inner'));
  const kubeconfig = join(directory, 'kubeconfig');
  await writeFile(kubeconfig, await kubeconfigOf(cluster, namespace, 'linger'));
  const start = (identity: string) =>
    serving(
      certs(),
      [
        '--kubeconfig',
        kubeconfig,
        '--namespace',
        namespace,
        '--identity',
        identity,
        '--policies',
        policies,
        '--canary-every',
        '0',
        '--drain',
        '5s',
      ],
      { atEnd },
    );
  const first = await start('linger-a');
  await waitUntil('linger-a to lead', async () => (await first.count('linger_leader')) === 1);
  replicas = { 'linger-a': first, 'linger-b': await start('linger-b') };
}, 120_000);

afterAll(async () => {
  for (const object of outside) await cluster.delete(object);
  await cluster?.close();
}, 60_000);

it('the leader’s pod is the one that the Service selects', async () => {
  const { spec } = parseAllDocuments(
    readFileSync(join(DEPLOY, 'service-reports.yaml'), 'utf8'),
  )[0]!.toJS() as {
    spec: { selector: Record<string, string> };
  };
  const selector = Object.entries(spec.selector)
    .map(([key, value]) => `${key}=${value}`)
    .join();
  await waitUntil('the label', async () => (await selected(selector)).join() === 'linger-a');
});

describe('a reporting client', () => {
  it.each<[string, () => Promise<string>, string, number, string]>([
    ['without a token', async () => '', 'edge', 401, 'NoToken'],
    ['with a token that nobody has signed', async () => 'made.up.token', 'edge', 401, 'TokenRefused'],
    ['with a token for the API server itself', () => token('gateway'), 'edge', 401, 'TokenRefused'],
    ['with a token for another audience', () => token('gateway', 'vault'), 'edge', 401, 'TokenRefused'],
    ['without the right', () => token('stranger', AUDIENCE), 'edge', 403, 'NotAllowed'],
    ['with the right for another consumer', () => token('gateway', AUDIENCE), 'inner', 403, 'NotAllowed'],
    ['with the right for a consumer that there is', () => token('gateway', AUDIENCE), 'edge', 200, ''],
  ])('%s', async (_, bearer, consumer, status, reason) => {
    const answer = await report(replicas['linger-a'], await bearer(), {}, consumer);
    expect([answer.status, answer.body.reason ?? '']).toEqual([status, reason]);
  });

  it('at a replica that does not lead, is sent elsewhere', async () => {
    const { status, body } = await report(replicas['linger-b'], 'any', {});
    expect([status, body.reason]).toEqual([503, 'NotLeader']);
  });

  it('with 10 MB, is refused before that is read', async () => {
    const bearer = await token('gateway', AUDIENCE);
    const { status, body } = await report(replicas['linger-a'], bearer, { cursor: 'x'.repeat(10_000_000) });
    expect([status, body.reason]).toEqual([413, 'TooLarge']);
  });
});

it('three gateways are measured, from the leader before to the leader after', {
  timeout: 120_000,
}, async () => {
  const pods = ['gw-1', 'gw-2', 'gw-3'];
  const bearers = new Map<string, string>();
  for (const pod of pods)
    bearers.set(pod, await tokenOf(cluster, namespace, 'gateway', { audience: AUDIENCE, pod }));
  const cursors = new Map<string, string>();
  const results: number[] = [];
  const post = async (server: Serving, pod: string, body: object) => {
    // Whatever name it sends, the instance is the pod of the token.
    const answer = await report(server, bearers.get(pod)!, { instance: 'constructor', ...body });
    results.push(answer.status);
    return answer.body.cursor ?? '';
  };
  const ask = async (server: Serving) => {
    for (const pod of pods) cursors.set(pod, await post(server, pod, {}));
  };
  const synced = async (server: Serving) => {
    for (const pod of pods) await post(server, pod, { cursor: cursors.get(pod) });
  };
  const live = (server: Serving) => server.count('linger_report_instances{consumer="edge"}');
  for (let count = 0; count < 3; count++) {
    await ask(replicas['linger-a']);
    await synced(replicas['linger-a']);
  }
  expect(results.every((status) => status === 200)).toBe(true);
  expect(await live(replicas['linger-a'])).toBe(3);
  expect(await live(replicas['linger-b'])).toBe(0);

  await ask(replicas['linger-a']);
  replicas['linger-a'].kill('SIGTERM');
  await waitUntil('linger-b to lead', async () => (await replicas['linger-b'].count('linger_leader')) === 1);
  await waitUntil(
    'the label to move',
    async () => (await selected(`${LEADER_LABEL}=true`)).join() === 'linger-b',
  );
  results.length = 0;
  // The cursors of the leader before count: both sign with the same key.
  await synced(replicas['linger-b']);
  expect(results).toEqual([200, 200, 200]);
  expect(await live(replicas['linger-b'])).toBe(3);
});

it('a deleted consumer is no longer measured, and reports for it are refused', {
  timeout: 60_000,
}, async () => {
  const bearer = await token('gateway', AUDIENCE);
  await replaceFile(join(policies, 'consumers.yaml'), consumers('inner'));
  const gone = async () => {
    const { status } = await report(replicas['linger-b'], bearer, {});
    return status === 404;
  };
  await waitUntil('404', gone, { intervalMs: 500 });
  await waitUntil('no instances', async () => {
    return !(await replicas['linger-b'].get('/metrics')).text.includes(
      'linger_report_instances{consumer="edge"}',
    );
  });
});

it('no right was missing, and nothing failed', () => {
  for (const { logs } of Object.values(replicas)) {
    const failed = logs().filter(({ level }) => level === 'error' || level === 'fatal');
    expect(failed).toEqual([]);
    expect(logs().filter((line) => /forbidden/i.test(JSON.stringify(line)))).toEqual([]);
  }
});

async function createAccount(name: string): Promise<void> {
  await cluster.create({ apiVersion: 'v1', kind: 'ServiceAccount', metadata: { namespace, name } });
}

function token(account: string, audience?: string): Promise<string> {
  return tokenOf(cluster, namespace, account, { audience });
}

/** A pod that no node runs: the process stands for it. */
function replicaPod(name: string): NewObject {
  const metadata = { namespace, name, labels: { 'app.kubernetes.io/name': 'linger' } };
  const spec = {
    nodeSelector: { 'linger.test/no': 'node' },
    containers: [{ name: 'linger', image: 'linger' }],
  };
  return { apiVersion: 'v1', kind: 'Pod', metadata, spec } as NewObject;
}

async function selected(selector: string): Promise<readonly string[]> {
  const pods = await cluster.list<KubernetesObject>({ apiVersion: 'v1', kind: 'Pod', namespace }, selector);
  return pods.map(({ metadata }) => metadata.name);
}

function consumers(...names: string[]): string {
  return names
    .map((name) =>
      stringify({
        apiVersion: 'linger.dev/v1alpha1',
        kind: 'DiscoveryConsumer',
        metadata: { name },
        spec: { measure: { reports: {} } },
      }),
    )
    .join('---\n');
}

function report({ port, ca }: Serving, bearer: string, body: object, consumer = 'edge') {
  return sendReport({ url: `https://127.0.0.1:${port}/v1/consumers/${consumer}/reports`, ca }, bearer, body);
}
