import { createHash, randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ANNOTATION, HOLD_HELPER, HOLD_MOUNT, HOLD_VOLUME, holdKey } from '../../src/core/api/index.ts';
import { timelineReport } from '../../src/dashboard/index.ts';
import { readHelperObject } from '../../src/hold/index.ts';
import { sharedCertificates } from '../cli/certificates.ts';
import { emptyDirectory, type LogLine, linger, ROOT, type Serving, serving } from '../cli/linger.ts';
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
import { appContainer, type Json, pod, service } from './support/manifests.ts';
import { startPod, type Termination } from './support/termination.ts';

const PORTS = { 'linger-a': 18_445, 'linger-b': 18_446 } as const;
const MAX = 60;
/** The kubelet notices a deletion, starts the helper and sends SIGTERM; a machine that does other things is slower. */
const SLACK_SECONDS = 3;
const certs = sharedCertificates();
const atEnd: AtEnd = atEndOfFile();

let cluster: Cluster;
let namespace = '';
/** Where helpers call: a ClusterIP in front of both replicas. */
let address = '';
/** What was seen of the first pod. */
let calm: Termination;
const outside: ObjectReference[] = [];
const replicas: Partial<Record<keyof typeof PORTS, Serving>> = {};

beforeAll(async () => {
  cluster = await openCluster();
  namespace = await cluster.namespace('hold');
  await cluster.create({ apiVersion: 'v1', kind: 'ServiceAccount', metadata: { namespace, name: 'linger' } });
  for (const file of ['rbac.yaml', 'rbac-hold.yaml', 'role-publish.yaml', 'role-pods.yaml'])
    outside.push(...(await installRights(cluster, namespace, file)));
  await cluster.create(readHelperObject().manifest(namespace) as NewObject);
  address = `${await holdAddress()}:8445`;
  const kubeconfig = join(await emptyDirectory(atEnd), 'kubeconfig');
  await writeFile(kubeconfig, await kubeconfigOf(cluster, namespace, 'linger'));
  for (const identity of ['linger-a', 'linger-b'] as const) {
    const port = String(PORTS[identity]);
    const flags = [
      '--host',
      cluster.nodeAddress,
      '--canary-every',
      '0',
      '--drain',
      '1s',
      '--hold-port',
      port,
    ];
    const where = ['--kubeconfig', kubeconfig, '--namespace', namespace, '--identity', identity];
    const replica = await serving(certs(), [...where, ...flags], { atEnd, main: join(ROOT, 'src/main.ts') });
    if (identity === 'linger-a')
      await waitUntil('it to lead', async () => (await replica.count('linger_leader')) === 1);
    replicas[identity] = replica;
  }
  await cluster.create(service(namespace, 'web'));
}, 120_000);

afterAll(async () => {
  for (const object of outside) await cluster.delete(object);
  await cluster?.close();
}, 60_000);

const seconds = (milliseconds: number | undefined) => (milliseconds ?? Number.NaN) / 1000;
const sigtermAfter = ({ containers, deletedAt }: Termination) =>
  seconds((containers.app?.sigtermAt ?? Number.NaN) - deletedAt);
const releases = (name: string): readonly LogLine[] =>
  Object.values(replicas).flatMap(({ logs }) =>
    logs().filter((line) => line.pod === name && 'seconds' in line),
  );

it('SIGTERM comes once the pod has been withdrawn and its consumers have let go', {
  timeout: 60_000,
}, async () => {
  const of = await (await held('calm', { initial: 3 })).terminate();
  calm = of;
  const [released] = releases('calm');
  // Nothing is measured of kube-proxy here: it is given `initial`.
  expect(released).toMatchObject({ reason: 'Gone' });
  expect(sigtermAfter(of)).toBeGreaterThanOrEqual(3);
  expect(sigtermAfter(of)).toBeLessThanOrEqual(3 + SLACK_SECONDS);
});

it('an Event of the pod says why', { timeout: 30_000 }, async () => {
  const path = `/api/v1/namespaces/${namespace}/events?fieldSelector=involvedObject.name%3Dcalm`;
  await waitUntil('the Event', async () => {
    const { items } = await cluster.api.call<{ items: { reason: string }[] }>('GET', path);
    return items.some(({ reason }) => reason === 'HoldGone');
  });
});

it('linger timeline tells the same as what was seen', { timeout: 60_000 }, async () => {
  const told = () => timelineOf('calm');
  await waitUntil('the leader to publish it', async () => (await told()) !== undefined, {
    timeoutMs: 40_000,
  });
  const found = await told();
  expect(found).toMatchObject({ hook: 'Hold', release: 'Gone', afterSigterm: 'unknown' });
  const { deletedAt, sigterm, gone, withdrawals } = found ?? {};
  // Sent a moment before the API server had it, and seen a moment after.
  expect(seconds((deletedAt ?? 0) * 1000 - calm.deletedAt)).toBeGreaterThanOrEqual(-0.1);
  expect(seconds((deletedAt ?? 0) * 1000 - calm.deletedAt)).toBeLessThanOrEqual(1);
  expect(sigtermAfter(calm) - (sigterm?.after ?? 0)).toBeGreaterThanOrEqual(-0.1);
  expect(sigtermAfter(calm) - (sigterm?.after ?? 0)).toBeLessThanOrEqual(SLACK_SECONDS);
  const end = seconds((calm.containers.app?.exitAt ?? Number.NaN) - calm.deletedAt);
  expect((gone ?? 0) - end).toBeGreaterThanOrEqual(-0.1);
  expect((gone ?? 0) - end).toBeLessThanOrEqual(2 * SLACK_SECONDS);
  expect(withdrawals?.map(({ source, service: of }) => `${source} ${of}`).toSorted()).toEqual([
    'EndpointSlice web',
    'Endpoints web',
  ]);
  for (const { after } of withdrawals ?? []) expect(after).toBeLessThanOrEqual(sigterm?.after ?? 0);
});

it('a container that restarts is let go within 2 s', { timeout: 60_000 }, async () => {
  const dying = {
    // Nothing listens there. A command that the image has not would be no failure for the kubelet, but an error.
    tcpSocket: { port: 1 },
    initialDelaySeconds: 4,
    periodSeconds: 1,
    failureThreshold: 1,
  };
  await cluster.create(
    holding('restarting', { initial: 30, wait: 20 }, 'web', { livenessProbe: dying }) as NewObject,
  );
  await waitUntil('it to be let go', async () => releases('restarting').length > 0, { timeoutMs: 40_000 });
  const [released] = releases('restarting');
  expect(released).toMatchObject({ reason: 'NotTerminating' });
  expect(released?.seconds).toBeLessThanOrEqual(2);
  await cluster.delete(reference('restarting'), { graceSeconds: 0 });
});

it('the application keeps its time where the grace is cut', { timeout: 60_000 }, async () => {
  const running = await held('cut', { initial: 40, wait: 30 });
  const terminating = running.terminate();
  await sleep(1_500);
  await cluster.delete(reference('cut'), { graceSeconds: 10 });
  expect(sigtermAfter(await terminating)).toBeLessThanOrEqual(5 + SLACK_SECONDS);
  // The helper of the first round may have been left by the kubelet; the hold is one.
  expect(releases('cut')).toMatchObject([{ reason: 'Max' }]);
});

it('a pod that has not been listed for as long as Linger looks back is released at once', {
  timeout: 60_000,
}, async () => {
  // What had withdrawn it before the replicas had read the cluster, they could not know: those are 10 s away by now.
  const idle = await held('idle', { initial: 10 }, 'nobody');
  const after = sigtermAfter(await idle.terminate());
  expect(releases('idle')).toMatchObject([{ reason: 'NotServing' }]);
  expect(after).toBeLessThanOrEqual(SLACK_SECONDS);
});

it('nothing is let go early when the leader dies', { timeout: 120_000 }, async () => {
  const running = await held('survivor', { initial: 25, wait: 2 });
  const terminating = running.terminate();
  await heldBy('linger-a', 1);
  process.kill(replicas['linger-a']?.pid ?? 0, 'SIGKILL');
  const after = sigtermAfter(await terminating);
  expect(after).toBeGreaterThanOrEqual(25);
  expect(after).toBeLessThanOrEqual(25 + SLACK_SECONDS);
  expect(releases('survivor')).toMatchObject([{ reason: 'Gone' }]);
  // As the endpoint controller does with a replica that is gone: of five calls within 3 s, all may else go there (1 in 32).
  await cluster.delete({ ...SLICE, metadata: { namespace, name: 'linger-a' } });
});

it('without Linger the static wait counts, or 30 s from its loss', { timeout: 120_000 }, async () => {
  const running = await held('alone', { initial: 50, wait: 3 });
  const terminating = running.terminate();
  await heldBy('linger-b', 1);
  await sleep(1_000);
  const lostAt = Date.now();
  process.kill(replicas['linger-b']?.pid ?? 0, 'SIGKILL');
  const uncalled = await held('uncalled', { initial: 50, wait: 3 });
  const [late, early] = await Promise.all([terminating, uncalled.terminate()]);
  const afterLoss = seconds((late.containers.app?.sigtermAt ?? Number.NaN) - lostAt);
  expect(afterLoss).toBeGreaterThanOrEqual(29);
  expect(afterLoss).toBeLessThanOrEqual(31.5);
  expect(sigtermAfter(early)).toBeGreaterThanOrEqual(3);
  expect(sigtermAfter(early)).toBeLessThanOrEqual(3 + SLACK_SECONDS);
});

/** What `linger timeline` says of it; undefined: nothing yet. */
async function timelineOf(name: string) {
  const where = ['--kubeconfig', cluster.kubeconfig, '--linger-namespace', namespace, '-n', namespace];
  const { stdout } = await linger(['timeline', `pod/${name}`, ...where, '-o', 'json'], { atEnd });
  if (!stdout.startsWith('{')) return undefined;
  return timelineReport.parse(JSON.parse(stdout)).terminations[0];
}

const heldBy = (identity: keyof typeof PORTS, count: number) =>
  waitUntil(
    `${identity} to hold it`,
    async () => (await replicas[identity]?.count('linger_hold_pods')) === count,
  );

const SLICE = { apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice' };

const reference = (name: string) => ({ apiVersion: 'v1', kind: 'Pod', metadata: { namespace, name } });

function held(name: string, terms: Json & { wait?: number }, app = 'web') {
  return startPod(cluster, holding(name, terms, app) as NewObject);
}

/** A pod as the webhook makes it for hook Hold. */
function holding(name: string, terms: Json & { wait?: number }, app: string, container: Json = {}) {
  const { wait = 2, ...rest } = terms;
  const token = randomBytes(16).toString('base64url');
  const command = [HOLD_HELPER, address, token, String(wait), String(MAX)];
  const mount = { name: HOLD_VOLUME, mountPath: HOLD_MOUNT, readOnly: true };
  const plan = {
    v: 2,
    wait,
    grace: 90,
    baseGrace: 30,
    hook: 'Hold',
    containers: ['app'],
    policy: 'test',
    why: 'initial',
    hold: { min: 0, max: MAX, percentile: 99, probes: 1, ...rest },
  };
  const items = [{ key: holdKey('amd64'), path: 'hold' }];
  const configMap = { name: readHelperObject().name, defaultMode: 0o555, optional: true, items };
  const lifecycle = { preStop: { exec: { command } } };
  return pod(
    namespace,
    name,
    {
      terminationGracePeriodSeconds: 90,
      containers: [appContainer('app', { lifecycle, volumeMounts: [mount], ...container })],
      volumes: [{ name: HOLD_VOLUME, configMap }],
    },
    {
      labels: { app },
      annotations: {
        [ANNOTATION.plan]: JSON.stringify(plan),
        [ANNOTATION.holdToken]: createHash('sha256').update(token).digest('hex'),
      },
    },
  );
}

/** Both replicas are processes of this machine, so their Service has no selector. @returns its ClusterIP */
async function holdAddress(): Promise<string> {
  const ports = [{ name: 'hold', port: 8445 }];
  const created = await cluster.create<KubernetesObject & { spec: { clusterIP: string } }>({
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { namespace, name: 'linger-hold' },
    spec: { ports },
  } as NewObject);
  for (const [name, port] of Object.entries(PORTS))
    await cluster.create({
      ...SLICE,
      metadata: { namespace, name, labels: { 'kubernetes.io/service-name': 'linger-hold' } },
      addressType: 'IPv4',
      endpoints: [{ addresses: [cluster.nodeAddress], conditions: { ready: true } }],
      ports: [{ name: 'hold', port, protocol: 'TCP' }],
    } as NewObject);
  return created.spec.clusterIP;
}
