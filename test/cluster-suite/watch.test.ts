import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { readKubeconfig } from '../../src/cluster/index.ts';
import { emptyDirectory, shipped as linger } from '../cli/linger.ts';
import { type ChangeJson, startWatching, type Watching, writeKubeconfig } from '../cli/watching.ts';
import { credential, pluginFiles } from '../cluster/credential-plugin.ts';
import { Gateway } from '../cluster/gateway.ts';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import {
  applicationDeployment,
  applicationService,
  type DeploymentObject,
  isRolledOut,
} from '../testbed/workloads.ts';
import type { AtEnd } from '../webhook/connection.ts';

let cluster: Cluster;

beforeAll(async () => {
  cluster = await openCluster();
});

afterAll(() => cluster?.close());

const atEnd = onTestFinished as AtEnd;
const REPLICAS = 4;

interface Slice {
  readonly endpoints?: readonly { readonly conditions?: { readonly ready?: boolean } }[];
}
interface Endpoints {
  readonly subsets?: readonly { readonly addresses?: readonly unknown[] }[];
}

/** A Deployment `web`, ready, behind the Service `web` and the headless `web-headless`. */
async function shop(): Promise<string> {
  const namespace = await cluster.namespace('watch');
  const application = {
    namespace,
    name: 'web',
    replicas: REPLICAS,
    podSpec: { terminationGracePeriodSeconds: 3 },
  };
  const service = applicationService(application);
  const headless = {
    ...service,
    metadata: { namespace, name: 'web-headless' },
    spec: { ...service.spec, clusterIP: 'None' },
  };
  const deployment = applicationDeployment(application);
  for (const object of [service, headless, deployment]) await cluster.create(object);
  const settled = (object: DeploymentObject) => isRolledOut(object, REPLICAS);
  await cluster.waitFor<DeploymentObject>(deployment, settled);
  // A Deployment is rolled out before everything that lists its pods has followed.
  const isListed = async () => {
    const slices = await cluster.list<Slice>({
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      namespace,
    });
    const objects = await cluster.list<Endpoints>({ apiVersion: 'v1', kind: 'Endpoints', namespace });
    const ready = slices
      .flatMap(({ endpoints = [] }) => endpoints)
      .filter(({ conditions }) => conditions?.ready === true);
    const subsets = objects.flatMap((object) => object.subsets ?? []);
    const addresses = subsets.flatMap((subset) => subset.addresses ?? []);
    return ready.length === 2 * REPLICAS && addresses.length === 2 * REPLICAS;
  };
  await waitUntil('the pods to be listed everywhere', isListed);
  return namespace;
}

async function podsOf(namespace: string): Promise<readonly KubernetesObject[]> {
  const kind = { apiVersion: 'v1', kind: 'Pod' };
  // The items of a list do not say what they are.
  return (await cluster.list({ ...kind, namespace })).map((pod) => ({ ...pod, ...kind }));
}

const watch = (...args: readonly string[]) => startWatching(cluster.kubeconfig, args, { atEnd });

/** An observation of its own, by other code: when each Endpoints object no longer lists a pod that it listed. */
async function withdrawalsSeen(namespace: string) {
  interface Addressed extends KubernetesObject {
    readonly subsets?: readonly {
      readonly addresses?: readonly { readonly targetRef?: { readonly name: string } }[];
    }[];
  }
  const listed = new Map<string, ReadonlySet<string>>();
  const seen = new Map<string, number>();
  const stopping = new AbortController();
  onTestFinished(() => stopping.abort());
  const take = ({ object }: { readonly object: Addressed }) => {
    const { name } = object.metadata;
    const addresses = (object.subsets ?? []).flatMap((subset) => subset.addresses ?? []);
    const now = new Set(addresses.map(({ targetRef }) => targetRef?.name ?? ''));
    for (const pod of listed.get(name) ?? []) if (!now.has(pod)) seen.set(`${name}/${pod}`, Date.now());
    listed.set(name, now);
  };
  const path = `/api/v1/namespaces/${namespace}/endpoints?watch=true`;
  cluster.api.watch<Addressed>(path, take, stopping.signal).catch(() => undefined);
  await waitUntil('both Endpoints', () => listed.size === 2);
  return seen;
}

/** As `waitUntil`; its error says what the program says at its end: why something that is waited for is missing. */
function untilPrinted<T>(watching: Watching, what: string, look: () => T | false): Promise<T> {
  return waitUntil(what, look).catch(async (error: unknown) => {
    watching.kill('SIGINT');
    await watching.exited;
    throw new Error(`${String(error)}\n${watching.stdout()}\n${watching.stderr()}`);
  });
}

function linesOf(watching: Watching, count: number, kept: (line: ChangeJson) => boolean) {
  return untilPrinted(watching, `${count} lines`, () => {
    const lines = watching.lines().filter(kept);
    return lines.length >= count && lines;
  });
}

const hasLag = ({ lagSeconds }: ChangeJson) => lagSeconds !== null;
const keyOf = ({ source, service, pod }: ChangeJson) => `${source} ${service}/${pod}`;

/** What a machine that is busy with other things adds. */
const BUSY_MS = 1_500;

/**
 * Where the machine is so busy that the process stands still, or the API server sends one watch a quarter of a second
 * later than another, there are removals without a lag, and the program says so.
 */
const RETRY = { retry: { count: 2, condition: /stood still|\d {2}Inversion/ } };

describe('linger watch, on the real controllers', RETRY, () => {
  it('tells each removal once for each Service and source, with the lag that was there', async () => {
    const namespace = await shop();
    const watching = await watch('-n', namespace, '--output', 'json');
    const seen = await withdrawalsSeen(namespace);
    const pods = await podsOf(namespace);
    const deletedAt = new Map<string, number>();
    for (const pod of pods) {
      deletedAt.set(pod.metadata.name, Date.now());
      await cluster.delete(pod);
    }
    const expected = pods.flatMap(({ metadata: { name } }) =>
      ['EndpointSlice', 'Endpoints'].flatMap((source) => [
        `${source} web/${name}`,
        `${source} web-headless/${name}`,
      ]),
    );
    await linesOf(watching, expected.length, hasLag);
    const gone = new Set(expected);
    await linesOf(watching, expected.length, (line) => line.change === 'removed' && gone.has(keyOf(line)));
    const lines = watching.lines();
    const measured = lines.filter(hasLag);
    expect(measured.map(keyOf).toSorted()).toEqual(expected.toSorted());
    for (const { pod, service, source, change, lagSeconds, time, ip, namespace: where } of measured) {
      expect([where, ip]).toEqual([namespace, expect.stringMatching(/^\d+\.\d+\.\d+\.\d+$/)]);
      expect(change).toBe(source === 'Endpoints' ? 'removed' : 'terminating');
      const until = Date.parse(time) - (deletedAt.get(pod ?? '') ?? 0);
      expect(until).toBeGreaterThanOrEqual(0);
      expect((lagSeconds ?? 0) * 1000).toBeLessThanOrEqual(until + 1);
      if (source === 'Endpoints') {
        const truth = seen.get(`${service}/${pod}`) ?? 0;
        expect(Math.abs(Date.parse(time) - truth)).toBeLessThan(BUSY_MS);
      }
    }
    for (const key of expected) {
      const changes = lines.filter((line) => keyOf(line) === key).map(({ change }) => change);
      expect(changes).toEqual(key.startsWith('Endpoints ') ? ['removed'] : ['terminating', 'removed']);
    }
    const lags = measured.map(({ lagSeconds }) => lagSeconds ?? 0).toSorted((a, b) => a - b);
    console.log(
      `lags of ${lags.length} removals: median ${lags[lags.length / 2]} s, longest ${lags.at(-1)} s`,
    );
  });

  it('tells of the pods that kubectl get -l lists, and of no others', async () => {
    const namespace = await shop();
    const pods = await podsOf(namespace);
    const [chosen, withdrawn, other] = pods.map(({ metadata }) => metadata.name);
    await cluster.kubectl(['label', 'pod', '-n', namespace, chosen!, withdrawn!, 'canary=yes']);
    const query = 'canary in (yes,very),app';
    const listed = await cluster.kubectl(['get', 'pods', '-n', namespace, '-l', query, '-o', 'name']);
    expect(listed.stdout.trim().split('\n').toSorted()).toEqual(
      [chosen, withdrawn].map((name) => `pod/${name}`).toSorted(),
    );
    const watching = await watch('-n', namespace, '--output', 'json', '-l', query);
    for (const name of [other, chosen])
      await cluster.delete(pods.find((each) => each.metadata.name === name)!);
    const hasGone = (name: string | undefined) => (line: ChangeJson) =>
      line.pod === name && line.change === 'removed';
    await linesOf(watching, 4, hasLag);
    await linesOf(watching, 4, hasGone(chosen));
    // It is selected no longer, neither here nor by the Services, and did not terminate.
    await cluster.kubectl(['label', 'pod', '-n', namespace, withdrawn!, 'canary-', 'app-']);
    await linesOf(watching, 4, hasGone(withdrawn));
    watching.kill('SIGINT');
    expect(await watching.exited).toBe(0);
    const lines = watching.lines();
    expect(new Set(lines.map(({ pod }) => pod))).toEqual(new Set([chosen, withdrawn]));
    expect(new Set(lines.filter(hasLag).map(keyOf))).toEqual(
      new Set(
        ['EndpointSlice', 'Endpoints'].flatMap((source) =>
          ['web', 'web-headless'].map((service) => `${source} ${service}/${chosen}`),
        ),
      ),
    );
  });

  it('ends at Ctrl-C with a summary of what it has printed', async () => {
    const namespace = await shop();
    const watching = await watch('-n', namespace, '--service', 'web');
    const [pod] = await podsOf(namespace);
    await cluster.delete(pod!);
    for (const line of [/removed +\d+\S+ {2}Endpoints/, /terminating +\d+\S+ {2}EndpointSlice/])
      await untilPrinted(watching, String(line), () => line.test(watching.stdout()));
    watching.kill('SIGINT');
    expect(await watching.exited).toBe(0);
    expect(watching.stdout()).not.toContain('web-headless');
    expect(watching.stdout()).toMatch(/\nLag of removals .+\n {2}EndpointSlice +1 .+\n {2}Endpoints +1 /);
    expect(watching.stdout()).toContain(`${namespace}/web  ${pod!.metadata.name}`);
    expect(watching.stderr()).toMatch(/^Watching .+ of https:.+ \(context ".+" of .+\): 1 Service\. /);
  });

  it('says when the API server was cut off, and measures again afterwards', async () => {
    const namespace = await shop();
    const { server, credentials } = await readKubeconfig(cluster.kubeconfig);
    const gateway = await Gateway.start({ url: server, ...(await credentials()) });
    onTestFinished(() => gateway.close());
    const kubeconfig = await writeKubeconfig(gateway.url, {}, atEnd);
    const args = ['-n', namespace, '--output', 'json', '--service', 'web'];
    const watching = await startWatching(kubeconfig, args, { atEnd });
    const [first, second] = await podsOf(namespace);
    gateway.refusing = true;
    gateway.cut();
    await waitUntil('the interruption', () =>
      watching.stderr().includes(`Endpoints in ${namespace}: interrupted: Cut: `),
    );
    await cluster.delete(first!, { wait: true });
    gateway.refusing = false;
    await waitUntil(
      'the watches',
      () => (watching.stderr().match(/current again after/g) ?? []).length === 4,
    );
    const before = await linesOf(
      watching,
      2,
      ({ pod, change }) => pod === first!.metadata.name && change === 'removed',
    );
    expect(before.filter(hasLag)).toEqual([]);
    await cluster.delete(second!);
    const after = await linesOf(watching, 2, (line) => line.pod === second!.metadata.name && hasLag(line));
    expect(after.map(({ source }) => source).toSorted()).toEqual(['EndpointSlice', 'Endpoints']);
    watching.kill('SIGINT');
    expect(await watching.exited).toBe(0);
    expect(watching.stderr()).toContain('Interruptions: changes during them have no lag');
  });

  it('needs no more than to list and watch four kinds in its namespace, and says what it lacks', async () => {
    const namespace = await shop();
    const kubeconfig = await kubeconfigOfViewer(namespace);
    const denied = await linger(['watch', '--kubeconfig', kubeconfig]);
    expect(denied.code).toBe(1);
    expect(denied.stderr).toMatch(
      / cannot list resource "pods" .+; --namespace asks for less \[cluster-denied\]\n$/,
    );
    const watching = await startWatching(kubeconfig, ['-n', namespace, '--output', 'json'], { atEnd });
    const [pod] = await podsOf(namespace);
    await cluster.delete(pod!);
    await linesOf(watching, 4, hasLag);
    watching.kill('SIGINT');
    expect(await watching.exited).toBe(0);
    expect(watching.stderr()).not.toContain('orbidden');
  });
});

it('a credential plugin lets it in, with a client certificate, and is asked again when that has expired', async () => {
  const namespace = await shop();
  const { server, credentials } = await readKubeconfig(cluster.kubeconfig);
  const { ca = '', cert, key } = await credentials();
  const status = {
    clientCertificateData: String(cert),
    clientKeyData: String(key),
    expirationTimestamp: new Date(Date.now() - 1_000).toISOString(),
  };
  const parts = {
    server: server.href,
    cluster: { 'certificate-authority-data': Buffer.from(String(ca)).toString('base64') },
    output: credential(status),
  };
  const { kubeconfig, runs } = await pluginFiles(parts, atEnd);
  const watching = await startWatching(kubeconfig, ['-n', namespace, '--for', '4s', '--quiet'], {
    atEnd,
    ready: false,
  });
  await waitUntil('the table', () => watching.stdout().includes('TIME (UTC)'));
  expect(await watching.exited).toBe(0);
  const [first, ...again] = await runs();
  expect(again).not.toEqual([]);
  expect(first?.info.spec).toEqual({ interactive: false });
});

/** The rights that docs/reference/commands.md lists, given to a ServiceAccount of the namespace. */
async function kubeconfigOfViewer(namespace: string): Promise<string> {
  const metadata = { namespace, name: 'watcher' };
  const verbs = ['list', 'watch'];
  const rbac = 'rbac.authorization.k8s.io';
  await cluster.create({ apiVersion: 'v1', kind: 'ServiceAccount', metadata });
  const role = {
    apiVersion: `${rbac}/v1`,
    kind: 'Role',
    metadata,
    rules: [
      { apiGroups: [''], resources: ['pods', 'services', 'endpoints'], verbs },
      { apiGroups: ['discovery.k8s.io'], resources: ['endpointslices'], verbs },
    ],
  };
  const binding = {
    apiVersion: `${rbac}/v1`,
    kind: 'RoleBinding',
    metadata,
    roleRef: { apiGroup: rbac, kind: 'Role', name: 'watcher' },
    subjects: [{ kind: 'ServiceAccount', namespace, name: 'watcher' }],
  };
  for (const object of [role, binding]) await cluster.create(object);
  const { status } = await cluster.api.call<{ status: { token: string } }>(
    'POST',
    `/api/v1/namespaces/${namespace}/serviceaccounts/watcher/token`,
    { body: { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenRequest', spec: {} } },
  );
  const { server, credentials } = await readKubeconfig(cluster.kubeconfig);
  const { ca = '' } = await credentials();
  const file = join(await emptyDirectory(atEnd), 'config');
  const document = {
    'current-context': 'viewer',
    clusters: [
      {
        name: 'here',
        cluster: {
          server: server.href,
          'certificate-authority-data': Buffer.from(String(ca)).toString('base64'),
        },
      },
    ],
    users: [{ name: 'viewer', user: { token: status.token } }],
    contexts: [{ name: 'viewer', context: { cluster: 'here', user: 'viewer' } }],
  };
  writeFileSync(file, JSON.stringify(document));
  return file;
}
