import { createHash, randomBytes } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ANNOTATION, HOLD_HELPER, HOLD_MOUNT, HOLD_VOLUME, holdKey } from '../../src/core/api/index.ts';
import { readHelperObject } from '../../src/hold/index.ts';
import { sharedCertificates } from '../cli/certificates.ts';
import { emptyDirectory, ROOT, type Serving, serving } from '../cli/linger.ts';
import { installRights, kubeconfigOf } from '../cluster-suite/support/account.ts';
import { appContainer, pod, service } from '../cluster-suite/support/manifests.ts';
import { startPod } from '../cluster-suite/support/termination.ts';
import {
  type Cluster,
  type NewObject,
  type ObjectReference,
  openCluster,
  waitUntil,
} from '../testbed/cluster.ts';
import { type AtEnd, atEndOfFile } from '../webhook/connection.ts';
import { LONG } from './form.ts';

/*
 * A cluster that switches the Endpoints controller off (KEP-4974): the object that exists goes on listing the pods of that
 * day. A pod that it lists is held like any other.
 */
const HOLD_PORT = '18447';
const MAX = 60;
const INITIAL = 3;
/** The kubelet notices a deletion, starts the helper and sends SIGTERM. */
const SLACK_SECONDS = 3;
/** Slices change twice, this far apart, before Endpoints count as unmaintained. */
const SHOWN_AFTER_MS = 125_000;
/** Endpoints may change up to 10 s before the slices that they follow. */
const SETTLED_MS = 12_000;

const certs = sharedCertificates();
const atEnd: AtEnd = atEndOfFile();

let cluster: Cluster;
let namespace = '';
let linger: Serving;
const outside: ObjectReference[] = [];

beforeAll(async () => {
  cluster = await openCluster();
  if (!LONG || !cluster.own) return;
  namespace = await cluster.namespace('without-endpoints');
  await cluster.create({ apiVersion: 'v1', kind: 'ServiceAccount', metadata: { namespace, name: 'linger' } });
  for (const file of ['rbac.yaml', 'rbac-hold.yaml', 'role-publish.yaml', 'role-pods.yaml'])
    outside.push(...(await installRights(cluster, namespace, file)));
  await cluster.create(readHelperObject().manifest(namespace) as NewObject);
  const kubeconfig = join(await emptyDirectory(atEnd), 'kubeconfig');
  await writeFile(kubeconfig, await kubeconfigOf(cluster, namespace, 'linger'));
  const flags = [
    '--host',
    cluster.nodeAddress,
    '--canary-every',
    '0',
    '--drain',
    '1s',
    '--hold-port',
    HOLD_PORT,
  ];
  const where = ['--kubeconfig', kubeconfig, '--namespace', namespace, '--identity', 'linger-a'];
  linger = await serving(certs(), [...where, ...flags], { atEnd, main: join(ROOT, 'src/main.ts') });
  await waitUntil('it to lead', async () => (await linger.count('linger_leader')) === 1);
  await cluster.create(service(namespace, 'web'));
}, 120_000);

afterAll(async () => {
  if (cluster?.own && LONG) await cluster.restart('kube-controller-manager');
  for (const object of outside) await cluster.delete(object);
  await cluster?.close();
}, 60_000);

/** A pod as the webhook makes it for hook Hold, behind Service web. */
function start(name: string) {
  const token = randomBytes(16).toString('base64url');
  const command = [HOLD_HELPER, `${cluster.nodeAddress}:${HOLD_PORT}`, token, '2', String(MAX)];
  const plan = {
    v: 2,
    wait: 2,
    grace: 90,
    baseGrace: 30,
    hook: 'Hold',
    containers: ['app'],
    policy: 'test',
    why: 'initial',
    hold: { min: 0, max: MAX, percentile: 99, probes: 1, initial: INITIAL },
  };
  const items = [{ key: holdKey(process.arch === 'arm64' ? 'arm64' : 'amd64'), path: 'hold' }];
  const configMap = { name: readHelperObject().name, defaultMode: 0o555, optional: true, items };
  const volumeMounts = [{ name: HOLD_VOLUME, mountPath: HOLD_MOUNT, readOnly: true }];
  const spec = {
    terminationGracePeriodSeconds: 90,
    containers: [appContainer('app', { lifecycle: { preStop: { exec: { command } } }, volumeMounts })],
    volumes: [{ name: HOLD_VOLUME, configMap }],
  };
  const annotations = {
    [ANNOTATION.plan]: JSON.stringify(plan),
    [ANNOTATION.holdToken]: createHash('sha256').update(token).digest('hex'),
  };
  return startPod(cluster, pod(namespace, name, spec, { labels: { app: 'web' }, annotations }) as NewObject);
}

type Endpoints = {
  readonly subsets?: readonly {
    readonly addresses?: readonly { readonly targetRef: { readonly name: string } }[];
  }[];
};

async function listedByEndpoints(): Promise<readonly string[]> {
  const of = { apiVersion: 'v1', kind: 'Endpoints', metadata: { namespace, name: 'web' } };
  const { subsets = [] } = (await cluster.get<Endpoints>(of)) ?? {};
  return subsets.flatMap(({ addresses = [] }) => addresses.map(({ targetRef }) => targetRef.name));
}

async function sigtermAfter(running: Awaited<ReturnType<typeof start>>): Promise<number> {
  const { containers, deletedAt } = await running.terminate();
  return ((containers.app?.sigtermAt ?? Number.NaN) - deletedAt) / 1000;
}

const maintained = () => linger.count('linger_cluster_endpoints_maintained');

describe.runIf(LONG)('the Endpoints controller is switched off', { timeout: 600_000 }, () => {
  it('a pod that the stale Endpoints list is let go when the slices have withdrawn it', async ({ skip }) => {
    if (!cluster.own) return skip('components of a foreign cluster cannot be restarted');
    const [old, second] = await Promise.all([start('old'), start('second')]);
    await waitUntil('Endpoints to list them', async () => (await listedByEndpoints()).length === 2);
    expect(await maintained()).toBe(1);
    await cluster.restart('kube-controller-manager', ['--controllers=*,-endpoints-controller']);
    // A change of slices counts only some time after the last change of Endpoints.
    await sleep(SETTLED_MS);
    const third = await start('third');
    await sleep(SHOWN_AFTER_MS);
    expect(await maintained()).toBe(1);
    const fourth = await start('fourth');
    await waitUntil('Linger to see that', async () => (await maintained()) === 0);
    expect([...(await listedByEndpoints())].toSorted()).toEqual(['old', 'second']);
    const after = await sigtermAfter(old);
    console.log(`listed by stale Endpoints: SIGTERM after ${after} s`);
    expect(await listedByEndpoints()).toContain('old');
    expect(after).toBeGreaterThanOrEqual(INITIAL);
    expect(after).toBeLessThanOrEqual(INITIAL + SLACK_SECONDS);
    expect(await linger.count('linger_removals_unresolved{stage="Endpoints"}')).toBe(0);
    expect(linger.logs().filter(({ pod: name }) => name === 'old')).toContainEqual(
      expect.objectContaining({ reason: 'Gone' }),
    );

    await cluster.restart('kube-controller-manager');
    await waitUntil('Linger to see the controller again', async () => (await maintained()) === 1);
    const again = await sigtermAfter(second);
    expect(again).toBeLessThanOrEqual(INITIAL + SLACK_SECONDS);
    await Promise.all([third.terminate(), fourth.terminate()]);
  });
});
