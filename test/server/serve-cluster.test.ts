import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseReplicaStatus } from '../../src/core/api/index.ts';
import { sharedCertificates } from '../cli/certificates.ts';
import { emptyDirectory, linger, type Serving, serving, until } from '../cli/linger.ts';
import { reasonNow, waitNow } from '../cli/reviewing.ts';
import {
  ModelCluster,
  type ModelResource,
  namespaceObject,
  nodeObject,
  podObject,
  type Refusal,
  serviceObject,
  sliceObject,
} from '../cluster/model-cluster.ts';
import { atEndOfFile } from '../webhook/connection.ts';

const certs = sharedCertificates();
const atEnd = atEndOfFile();

/** A model that has what an ordinary cluster has. */
async function cluster(
  refuse: (what: ModelResource | 'version') => Refusal | undefined = () => undefined,
): Promise<ModelCluster> {
  const model = await ModelCluster.start(atEnd);
  model.refuse = refuse;
  model.put('namespaces', namespaceObject('shop'));
  model.put('nodes', nodeObject('node-1', 'v1.35.1'));
  return model;
}

async function kubeconfigOf({ kubeconfig }: ModelCluster): Promise<string> {
  const file = join(await emptyDirectory(atEnd), 'config');
  await writeFile(file, kubeconfig);
  return file;
}

async function following(model: ModelCluster, ...flags: string[]): Promise<Serving> {
  return serving(certs(), ['--kubeconfig', await kubeconfigOf(model), ...flags], { atEnd });
}

const messages = (server: Serving) => server.logs().map(({ msg }) => msg);
const ready = async (server: Serving) => (await server.get('/readyz')).status === 200;

describe.concurrent('a server that follows a cluster', () => {
  it('is ready once it has read what decisions read, and not before', async () => {
    let refusal: Refusal | undefined = 503;
    const model = await cluster((what) => (what === 'services' ? refusal : undefined));
    const server = await following(model, '--sync-timeout', '10m');
    await until(async () => (await server.count('linger_watch_current{resource="pods"}')) === 1);
    expect(await server.get('/readyz')).toEqual({ status: 503, text: 'the cluster is being read\n' });
    expect(await server.count('linger_cluster_synced')).toBe(0);
    refusal = undefined;
    await until(() => ready(server));
    expect(await server.count('linger_cluster_synced')).toBe(1);
    await server.logged('initial sync done');
    await waitNow(server, atEnd);
    const { text } = await server.get('/status');
    const status = parseReplicaStatus(text);
    // What the schema does not know would be left out by those who read it.
    expect(status).toEqual(JSON.parse(text));
    expect(status).toMatchObject({ synced: true, watches: { pods: true, services: true } });
    expect(status?.decisions).toMatchObject({ outcomes: { inject: 1 }, skips: {} });
    // It shares nothing with other replicas: it holds no pod, and has no canary.
    expect(status).toMatchObject({ held: null, flips: null });
  });

  it('does without the CRDs: no trouble, and no watch that should be current', async () => {
    const server = await following(
      await cluster((what) => (/consumers|policies/.test(what) ? 404 : undefined)),
    );
    await until(() => ready(server));
    await server.logged('CRD not installed; only objects from files count', 3);
    await server.logged('initial sync done');
    // On a busy machine the event loop may have been blocked, whatever the cluster has.
    const lines = server.logs().filter(({ msg }) => msg !== 'event loop blocked; reviews delayed');
    expect(lines.filter(({ level }) => level === 'warn' || level === 'error')).toEqual([]);
    const { text } = await server.get('/metrics');
    expect(text).toContain('linger_watch_current{resource="pods"}');
    expect(text).not.toMatch(/resource="(discoveryconsumers|.*policies)"/);
  });

  it('shows that it may not read policies, unlike those of a kind that is not installed', async () => {
    const server = await following(
      await cluster((what) => (what === 'terminationpolicies' ? 403 : undefined)),
    );
    await until(() => ready(server));
    expect(await server.count('linger_watch_current{resource="terminationpolicies"}')).toBe(0);
    const refused = 'linger_watch_restarts_total{resource="terminationpolicies",reason="Forbidden"}';
    await until(async () => (await server.count(refused)) > 1);
  });

  it('takes policies of the cluster: by name before those of files; of a bad one the last good spec', async () => {
    const model = await cluster();
    const directory = await emptyDirectory(atEnd);
    const fixed = (name: string, wait: string, priority: number) => ({
      apiVersion: 'linger.dev/v1alpha1',
      kind: 'ClusterTerminationPolicy',
      metadata: { name },
      spec: { priority, wait: { from: 'Fixed', fixed: wait } },
    });
    const files = [fixed('base', '11s', 0), fixed('other', '12s', -1)];
    await writeFile(
      join(directory, 'policies.yaml'),
      files.map((each) => JSON.stringify(each)).join('\n---\n'),
    );
    const server = await following(model, '--policies', directory);
    await until(() => ready(server));
    expect(await waitNow(server, atEnd)).toBe(11);
    const kinds = ['clusterterminationpolicies', 'terminationpolicies'] as const;
    await until(async () => kinds.every((kind) => model.isWatched(kind)));

    model.put('clusterterminationpolicies', fixed('base', '21s', 0));
    const begun = performance.now();
    await until(async () => (await waitNow(server, atEnd)) === 21);
    // Within 2 s on an idle machine; other tests run beside this one.
    expect(performance.now() - begun).toBeLessThan(5_000);

    const own = { metadata: { name: 'own', namespace: 'shop' } };
    model.put('terminationpolicies', { ...own, spec: { wait: { from: 'Fixed', fixed: '22s' } } });
    await until(async () => (await waitNow(server, atEnd)) === 22);

    model.put('terminationpolicies', { ...own, spec: { wait: { from: 'Fixed', fixed: 'soon' } } });
    expect(await server.logged('object rejected')).toMatchObject([
      {
        kind: 'TerminationPolicy',
        name: 'shop/own',
        problem: expect.stringContaining('spec.wait.fixed: expected a duration'),
      },
    ]);
    expect(await waitNow(server, atEnd)).toBe(22);
    const refused = () => server.count('linger_watch_refused_objects{resource="terminationpolicies"}');
    expect(await refused()).toBe(1);

    model.remove('terminationpolicies', own);
    await until(async () => (await waitNow(server, atEnd)) === 21);
    expect(await refused()).toBe(0);
    model.remove('clusterterminationpolicies', { metadata: { name: 'base' } });
    await until(async () => (await waitNow(server, atEnd)) === 11);
  });

  it('names those of its objects for which there is no room', async () => {
    const model = await cluster();
    for (let index = 100; index <= 300; index += 1)
      model.put('discoveryconsumers', {
        metadata: { name: `c${index}` },
        spec: { measure: { declared: { lag: '1s' } } },
      });
    const server = await following(model);
    await until(() => ready(server));
    expect(JSON.parse((await server.get('/estimates')).text).policyProblems).toContain(
      'no room for these discoveryconsumers: c300',
    );
  });

  it('is not ready before the policies of the cluster have been read: one of them may say Audit', async () => {
    let refusal: Refusal | undefined = 503;
    const model = await cluster((what) => (what === 'clusterterminationpolicies' ? refusal : undefined));
    const server = await following(model, '--sync-timeout', '10m');
    await until(async () => (await server.count('linger_watch_current{resource="services"}')) === 1);
    expect((await server.get('/readyz')).status).toBe(503);
    refusal = undefined;
    await until(() => ready(server));
  });

  it('does not wait for what only measuring needs', async () => {
    const model = await cluster((what) => (what === 'pods' ? 'silence' : undefined));
    const server = await following(model, '--sync-timeout', '10m');
    await until(() => ready(server));
    expect(await server.count('linger_watch_current{resource="pods"}')).toBe(0);
  });

  it('is ready after --sync-timeout with what is known, and goes on trying', async () => {
    let refusal: Refusal | undefined = 503;
    const model = await cluster(() => refusal);
    const server = await following(model, '--sync-timeout', '300ms');
    await until(() => ready(server));
    await server.logged('initial sync timed out; serving anyway and retrying');
    expect(await server.count('linger_cluster_synced')).toBe(0);
    expect(await reasonNow(server, atEnd)).toBe('Injected');
    refusal = undefined;
    await until(async () => (await server.count('linger_cluster_synced')) === 1);
    await server.logged('watch recovered');
  });

  it('stays ready and answers from memory when the API server goes away', async () => {
    const model = await cluster();
    const server = await following(model);
    await until(() => ready(server));
    await model.stop();
    const failures = 'linger_watch_restarts_total{resource="pods",reason="Unreachable"}';
    await until(async () => (await server.count(failures)) > 0);
    expect([await ready(server), await reasonNow(server, atEnd)]).toEqual([true, 'Injected']);
    const said = messages(server).filter(
      (msg) => msg === 'watch failed; the last known state stays in force',
    );
    // Once for each of nine kinds and reason, however often it is tried.
    expect(said.length).toBeLessThanOrEqual(18);
  });

  it('shows the backlog in the next scrape, and what was measured', async () => {
    const model = await cluster();
    model.put('services', serviceObject('shop', 'web'));
    const left = ['a', 'b', 'c', 'd', 'e', 'f'];
    const putPod = (name: string, terminating: boolean) => {
      const { metadata, ...pod } = podObject('shop', name, terminating);
      model.put('pods', { ...pod, metadata: { ...metadata, labels: { app: 'web' } } });
    };
    for (const pod of left) putPod(pod, false);
    model.put('endpointslices', sliceObject('shop', 'web', ...left));
    const server = await following(model);
    await until(async () => (await server.count('linger_cluster_synced')) === 1);
    const open = () => server.count('linger_removals_unresolved{stage="EndpointSlice"}');
    const measured = () => server.count('linger_removal_lag_seconds_count{stage="EndpointSlice"}');
    // On a busy machine a server stands still while it starts, and what ends soon after that is not measured.
    while ((await measured()) === 0 && left.length > 0) {
      const pod = left.shift() as string;
      putPod(pod, true);
      await until(async () => (await open()) === 1);
      const { status, text } = await server.get('/estimates');
      expect(status).toBe(200);
      expect(JSON.parse(text)).toMatchObject({
        synced: true,
        defaultWait: { seconds: 30, why: 'initial' },
        planned: { cluster: null },
        unresolved: {
          byStage: { EndpointSlice: { count: 1 } },
          oldest: [{ namespace: 'shop', name: 'web', count: 1 }],
        },
        watches: { pods: { current: true, objects: 6 } },
      });
      model.put('endpointslices', sliceObject('shop', 'web', ...left));
      await until(async () => (await open()) === 0);
    }
    expect(await measured()).toBe(1);
    await until(async () => (await server.count('linger_lag_planned_samples')) === 1);
    expect(JSON.parse((await server.get('/estimates')).text)).toMatchObject({
      planned: { cluster: { samples: 1 } },
      week: { samples: 1 },
      now: { samples: 1, stages: { EndpointSlice: { samples: 1 } } },
    });
  });

  it('ends on SIGTERM', async () => {
    const server = await following(await cluster(), '--drain', '0s');
    await until(() => ready(server));
    server.kill('SIGTERM');
    expect(await server.exited).toBe(0);
  });
});

describe.concurrent('which cluster', () => {
  const IN_POD = { KUBERNETES_SERVICE_HOST: '10.96.0.1', KUBERNETES_SERVICE_PORT: '443' };
  const start = (args: readonly string[], env: Readonly<Record<string, string>> = {}) =>
    linger(['serve', '--port', '0', '--admin-port', '0', '--certs', certs(), ...args], { env });

  it('none outside of a pod, without a word; and nothing is measured', async () => {
    const server = await serving(certs(), [], { atEnd });
    expect(messages(server)).toEqual(['listening']);
    expect(await server.get('/estimates')).toMatchObject({ status: 404 });
    expect((await server.get('/metrics')).text).not.toContain('linger_watch_');
  });

  it('none in a pod without a token, which is said', async () => {
    const server = await serving(certs(), [], { atEnd, env: IN_POD });
    expect(
      await server.logged('no cluster credentials; running without a cluster, measuring nothing'),
    ).toEqual([
      expect.objectContaining({
        why: expect.stringContaining('/var/run/secrets/kubernetes.io/serviceaccount'),
      }),
    ]);
    expect(await ready(server)).toBe(true);
  });

  it('none with --cluster off, whatever else is given', async () => {
    const server = await serving(certs(), ['--cluster', 'off', '--kubeconfig', '/nonexistent'], { atEnd });
    expect(await ready(server)).toBe(true);
  });

  it.each([
    ['--cluster required without credentials', ['--cluster', 'required'], 1, /\[NotInCluster\]$/],
    ['a kubeconfig that is not there', ['--kubeconfig', '/nonexistent'], 1, /\[KubeconfigUnreadable\]$/],
    ['--context without --kubeconfig', ['--context', 'a'], 2, /--context: .* \[settings-invalid\]$/],
  ])('%s: refuses to start', async (_what, args, exitCode, message) => {
    const { code, stderr } = await start(args);
    expect([code, stderr.trim()]).toEqual([exitCode, expect.stringMatching(message)]);
  });
});
