import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import net from 'node:net';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { HOLD_HELPER, HOLD_MOUNT, HOLD_VOLUME } from '../../src/api/index.ts';
import { readHelperObject } from '../../src/hold/index.ts';
import { MAIN } from '../cli/linger.ts';
import { type Cluster, images, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { run } from '../testbed/command.ts';
import { Installation } from './support/installation.ts';
import {
  appContainer,
  type Json,
  type PodObject,
  pod,
  RESTRICTED,
  service,
  workload,
} from './support/manifests.ts';
import { planOf } from './support/outcome.ts';
import { clusterPolicy, policyFile } from './support/policies.ts';
import { startPod } from './support/termination.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const HELPER = readHelperObject();
const TOKEN = 'AAAAAAAAAAAAAAAAAAAAAA';
const UNUSED = 'linger.dev/unused=true';
const TRIED = 'linger.dev/hold-tried';

type EventObject = KubernetesObject & {
  readonly reason: string;
  readonly message: string;
  readonly involvedObject: { readonly kind: string; readonly name: string };
};
type ConfigMap = KubernetesObject & { readonly binaryData: Readonly<Record<string, string>> };

const cluster: Cluster = await openCluster();
afterAll(() => cluster.close());

const configMapIn = (namespace: string) =>
  cluster.get<ConfigMap>({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { namespace, name: HELPER.name } });

const kubectl = (args: readonly string[], stdin = '') => cluster.mustKubectl(args, { stdin });

/** A namespace that enforces Pod Security "restricted". */
async function restricted(name: string): Promise<string> {
  const namespace = await cluster.namespace(name);
  await kubectl(['label', 'namespace', namespace, 'pod-security.kubernetes.io/enforce=restricted']);
  return namespace;
}

/** `linger hold manifest | kubectl apply` */
async function bringHelper(namespace: string): Promise<void> {
  const command = ['src/main.ts', 'hold', 'manifest', '--namespace', namespace];
  const text = execFileSync(process.execPath, command, { cwd: ROOT, encoding: 'utf8' });
  await kubectl(['apply', '--filename', '-'], text);
}

/** The application alone in its image, as nobody, on a read-only file system; its hook is the helper. */
function heldPod(namespace: string, name: string, hook: readonly string[]) {
  const { securityContext } = RESTRICTED as { securityContext: Json };
  const container = appContainer('app', {
    image: images.appDistroless,
    securityContext: { ...securityContext, readOnlyRootFilesystem: true },
    lifecycle: { preStop: { exec: { command: [HOLD_HELPER, ...hook] } } },
    volumeMounts: [{ name: HOLD_VOLUME, mountPath: HOLD_MOUNT, readOnly: true }],
  });
  const items = [{ key: `hold-${process.arch === 'arm64' ? 'arm64' : 'amd64'}`, path: 'hold' }];
  const configMap = { name: HELPER.name, defaultMode: 0o555, optional: true, items };
  return pod(namespace, name, { containers: [container], volumes: [{ name: HOLD_VOLUME, configMap }] });
}

/** What calls on the node's address meet. */
async function holdServer(meet: (socket: net.Socket) => void) {
  const lines: string[] = [];
  const server = net.createServer((socket) => {
    let rest = '';
    socket.on('data', (bytes) => {
      const all = (rest + bytes.toString('latin1')).split('\n');
      rest = all.pop() ?? '';
      lines.push(...all);
    });
    socket.on('error', () => undefined);
    meet(socket);
  });
  server.listen(0, cluster.nodeAddress);
  await once(server, 'listening');
  const { port } = server.address() as net.AddressInfo;
  return { address: `${cluster.nodeAddress}:${port}`, lines, close: () => server.close() };
}

describe('a pod under Pod Security "restricted", with nothing but its application in its image', () => {
  it('is held for as long as its server holds, and tells who connects', { timeout: 120_000 }, async () => {
    const namespace = await restricted('held');
    await bringHelper(namespace);
    let released = 0;
    const server = await holdServer((socket) => {
      socket.write('holding\n');
      setTimeout(() => {
        released = Date.now();
        socket.write('release\n');
      }, 6_500);
    });
    const running = await startPod(cluster, heldPod(namespace, 'held', [server.address, TOKEN, '2', '25']));
    const { podIP = '' } = (running.pod.status ?? {}) as { podIP?: string };
    const ended = running.terminate();
    await waitUntil('the helper to call', () => server.lines.length > 1);
    const clients = Array.from({ length: 5 }, () => net.connect(8080, podIP).on('error', () => undefined));
    await once(clients[0]!, 'connect');
    const address = clients[0]?.localAddress;
    const { containers, deletedAt } = await ended;
    for (const client of clients) client.destroy();
    server.close();
    const { sigtermAt = 0, exitCode } = containers.app ?? {};
    console.log(
      `held for ${(sigtermAt - deletedAt) / 1000} s, SIGTERM ${sigtermAt - released} ms after the release`,
    );
    expect(sigtermAt - released).toBeGreaterThanOrEqual(0);
    expect(sigtermAt - released).toBeLessThan(1_000);
    expect(exitCode).toBe(0);
    expect(server.lines[0]).toMatch(new RegExp(`^linger-hold/1 ${TOKEN} \\d+$`));
    const told = server.lines.slice(1).map((line) => line.split(' '));
    expect(told.length).toBeGreaterThan(8);
    expect(Math.max(...told.map(([, , , established]) => Number(established)))).toBeGreaterThanOrEqual(5);
    expect(told.flatMap((each) => (each[4] ?? '').split(','))).toContain(address);
    expect(Number(told.at(-1)?.[1]) - Number(told[0]?.[1])).toBeGreaterThanOrEqual(5);
  });

  it('waits for STATIC from its start where nothing answers', { timeout: 120_000 }, async () => {
    const namespace = await restricted('alone');
    await bringHelper(namespace);
    const calls: number[] = [];
    const server = await holdServer((socket) => {
      calls.push(Date.now());
      socket.destroy();
    });
    const running = await startPod(cluster, heldPod(namespace, 'alone', [server.address, TOKEN, '4', '20']));
    const { containers, deletedAt } = await running.terminate();
    server.close();
    const sigtermAt = containers.app?.sigtermAt ?? 0;
    expect(sigtermAt - deletedAt).toBeGreaterThanOrEqual(4_000);
    const heldMs = sigtermAt - (calls[0] ?? 0);
    expect(heldMs).toBeGreaterThanOrEqual(3_900);
    expect(heldMs).toBeLessThan(5_500);
  });

  it('starts, and ends at once, where the ConfigMap is missing', { timeout: 120_000 }, async () => {
    const namespace = await restricted('bare');
    const running = await startPod(cluster, heldPod(namespace, 'bare', ['192.0.2.1:8445', TOKEN, '4', '20']));
    const { containers, deletedAt } = await running.terminate();
    expect((containers.app?.sigtermAt ?? 0) - deletedAt).toBeLessThan(3_000);
  });
});

describe('the helper under a pod that mounts it', () => {
  it.runIf(cluster.own)(
    'is not deleted; where it was, a restart of the kubelet takes the pod’s hook away',
    { timeout: 300_000 },
    async () => {
      const namespace = await restricted('kept');
      await bringHelper(namespace);
      const policy = ['--filename', join(ROOT, 'deploy', 'hold-policy.yaml')];
      const remove = (...more: readonly string[]) =>
        kubectl(['--namespace', namespace, 'delete', 'configmap', HELPER.name, ...more]).catch(String);
      const hook = ['192.0.2.1:8445', TOKEN, '6', '20'];
      const waitOf = async (name: string, before: () => Promise<unknown>) => {
        await startPod(cluster, heldPod(namespace, name, hook));
        await before();
        await cluster.restart('kubelet');
        // A kubelet mounts anew what it finds when it starts.
        await new Promise((resolve) => setTimeout(resolve, 20_000));
        // Not by its log, whose stream has ended with the kubelet.
        const reference = { apiVersion: 'v1', kind: 'Pod', metadata: { namespace, name } };
        const deletedAt = Date.now();
        await cluster.delete(reference);
        await waitUntil('it to be gone', async () => !(await cluster.get(reference)), { timeoutMs: 60_000 });
        return Date.now() - deletedAt;
      };
      await kubectl(['apply', ...policy]);
      try {
        await waitUntil('the policy to be in force', async () =>
          (await remove('--dry-run=server')).includes('would lose their preStop hook'),
        );
        const kept = await waitOf('kept', async () =>
          expect(await remove()).toContain('linger.dev/unused=true'),
        );
        expect(
          await kubectl(['--namespace', namespace, 'delete', 'configmap', '--all']).catch(String),
        ).toContain('would lose their preStop hook');
        const lost = await waitOf('lost', async () => {
          await kubectl(['--namespace', namespace, 'annotate', 'configmap', HELPER.name, UNUSED]);
          expect(await remove()).toContain('deleted');
        });
        console.log(`with the helper kept: ${kept} ms, with the helper deleted: ${lost} ms`);
        expect(kept).toBeGreaterThanOrEqual(5_900);
        expect(lost).toBeLessThan(4_500);
      } finally {
        await kubectl(['delete', ...policy]);
      }
    },
  );
});

describe('a namespace with the helper, a held pod and the policy that keeps the helper', () => {
  it.runIf(cluster.own)('is deleted like any other', { timeout: 180_000 }, async () => {
    const namespace = await restricted('leaving');
    await bringHelper(namespace);
    const policy = ['--filename', join(ROOT, 'deploy', 'hold-policy.yaml')];
    await kubectl(['apply', ...policy]);
    try {
      await waitUntil('the policy to be in force', async () => {
        const remove = ['--namespace', namespace, 'delete', 'configmap', HELPER.name, '--dry-run=server'];
        return (await kubectl(remove).catch(String)).includes('would lose their preStop hook');
      });
      await startPod(cluster, heldPod(namespace, 'web', ['192.0.2.1:8445', TOKEN, '3', '20']));
      const begun = Date.now();
      await kubectl(['delete', 'namespace', namespace, '--timeout=60s']);
      console.log(`gone after ${Date.now() - begun} ms`);
      expect(
        await cluster.get({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } }),
      ).toBeUndefined();
    } finally {
      await kubectl(['delete', ...policy]);
    }
  });
});

describe('an installed Linger', () => {
  it.runIf(cluster.own)(
    'says wherever one looks that Hold cannot be had, and why',
    { timeout: 300_000 },
    async () => {
      const namespace = await cluster.namespace('refused');
      // As where a team has used up its quota: the helper cannot be delivered. kube-root-ca.crt is one.
      const hard = { 'count/configmaps': '1' };
      const quota = { apiVersion: 'v1', kind: 'ResourceQuota', metadata: { namespace, name: 'few' } };
      await cluster.create({ ...quota, ...{ spec: { hard } } });
      const installation = await Installation.create(cluster, {
        policies: policyFile(clusterPolicy('base', { mode: 'Enforce' })),
        flags: [`--hold-address=${cluster.nodeAddress}:8445`, '--audit-every=5s'],
      });
      const linger = async (...args: string[]) => {
        const said = await run([process.execPath, MAIN, ...args, '--kubeconfig', cluster.kubeconfig]);
        return said.stdout + said.stderr;
      };
      try {
        const own = { metadata: { namespace, name: 'held' }, spec: { hook: 'Hold' } };
        await cluster.create({ apiVersion: 'linger.dev/v1alpha1', kind: 'TerminationPolicy', ...own });
        await waitUntil('the policy to be in force', async () => {
          const { spec } = await cluster.create<PodObject>(pod(namespace, 'asked', {}), { dryRun: true });
          return JSON.stringify(spec).includes('"sleep"');
        });
        // Commands ask what the leader knows.
        const published = {
          apiVersion: 'v1',
          kind: 'ConfigMap',
          metadata: { namespace: 'linger', name: 'linger-consumers' },
        };
        await waitUntil('the leader to publish it', () => cluster.get(published), { timeoutMs: 90_000 });
        await cluster.create(service(namespace, 'web'));
        await cluster.create(workload('Deployment', namespace, 'web', { replicas: 2 }));
        const why = `namespace ${namespace} has no ConfigMap ${HELPER.name}`;
        const [web] = await waitUntil('two pods', async () => {
          const pods = await cluster.list<PodObject>({ apiVersion: 'v1', kind: 'Pod', namespace });
          return pods.length === 2 ? pods : undefined;
        });
        for (const name of [`pod/${web?.metadata.name}`, 'deployment/web'])
          expect(await linger('explain', name, '--namespace', namespace)).toContain(why);
        const audit = await linger('audit', '--namespace', namespace);
        expect(audit).toContain('HoldUnavailable');
        expect(audit).toContain(why);
        expect(await linger('check', '--namespace', 'linger')).toContain(namespace);
        const condition = '--output=jsonpath={.status.conditions[?(@.type=="HoldUsable")]}';
        const usable = await waitUntil('the condition', async () => {
          const text = await kubectl(['--namespace', namespace, 'get', 'tp', 'held', condition]);
          return text === '' ? undefined : (JSON.parse(text) as Json);
        });
        expect(usable).toMatchObject({
          status: 'False',
          reason: 'HoldUnavailable',
          message: expect.stringContaining(why),
        });
        const events = async () =>
          (await cluster.list<EventObject>({ apiVersion: 'v1', kind: 'Event', namespace })).filter(
            ({ reason }) => reason === 'HoldUnavailable',
          );
        await waitUntil('an Event', async () => (await events()).length > 0, { timeoutMs: 60_000 });
        // Two audits later there is still one, of the workload.
        await new Promise((resolve) => setTimeout(resolve, 12_000));
        const told = await events();
        expect(told.map(({ involvedObject: { kind, name } }) => `${kind}/${name}`)).toEqual([
          'Deployment/web',
        ]);
        expect(told[0]?.message).toContain(why);
        expect(
          await installation.replicas.sum('linger_notes_total', 'code="HoldUnavailable"'),
        ).toBeGreaterThan(1);
      } finally {
        await installation.remove();
      }
    },
  );

  it.runIf(cluster.own)(
    'tries the helper on the node, and brings it to the namespaces that ask for Hold',
    { timeout: 300_000 },
    async () => {
      const asking = await cluster.namespace('asking');
      const silent = await cluster.namespace('silent');
      const given = await cluster.namespace('given');
      const installation = await Installation.create(cluster, {
        policies: policyFile(clusterPolicy('base', { mode: 'Enforce' })),
        flags: [`--hold-address=${cluster.nodeAddress}:8445`],
      });
      try {
        const { replicas } = installation;
        expect(await configMapIn('linger')).toBeUndefined();
        await kubectl(['annotate', 'namespace', asking, 'linger.dev/hook=Hold']);
        await bringHelper(given);
        await waitUntil('the helper to be there', () => configMapIn(asking));
        await waitUntil('it to be tried', async () => {
          const passed = await replicas.each('linger_hold_node_kinds{result="passed"}');
          return passed.length === 2 && passed.every((count) => count === 1);
        });
        const tried = (await configMapIn('linger'))?.metadata.annotations?.[TRIED] ?? '';
        console.log(`tried: ${tried}`);
        expect(Object.values(JSON.parse(tried) as object)).toEqual(['']);
        const expected = (HELPER.manifest() as ConfigMap).binaryData;
        for (const namespace of [asking, given, 'linger'])
          expect((await configMapIn(namespace))?.binaryData).toEqual(expected);
        expect(await configMapIn(silent)).toBeUndefined();
        // Those of the tests before among them.
        const named = [
          '--all-namespaces',
          '--field-selector',
          `metadata.name=${HELPER.name}`,
          '--output',
          'name',
        ];
        const count = (await kubectl(['get', 'configmaps', ...named])).trim().split('\n').length;
        expect(count).toBeGreaterThanOrEqual(3);
        expect(await replicas.each('linger_hold_namespaces')).toEqual([count, count]);
        const admitted = await cluster.create<PodObject>(pod(asking, 'web', {}), { dryRun: true });
        expect(planOf(admitted)).toMatchObject({ v: 2, hook: 'Hold' });
        expect(JSON.stringify(admitted.spec)).toContain(`"name":"${HELPER.name}"`);
        const testPod = {
          apiVersion: 'v1',
          kind: 'Pod',
          metadata: { namespace: 'linger', name: 'linger-hold-test' },
        };
        await waitUntil('its pod to be gone', async () => !(await cluster.get<PodObject>(testPod)));
        // It comes back when it is deleted.
        await kubectl(['--namespace', asking, 'annotate', 'configmap', HELPER.name, UNUSED]);
        await cluster.delete({
          apiVersion: 'v1',
          kind: 'ConfigMap',
          metadata: { namespace: asking, name: HELPER.name },
        });
        await waitUntil('it to be there again', () => configMapIn(asking), { timeoutMs: 60_000 });
        const failures = await replicas.sum('linger_watch_restarts_total', 'reason="Forbidden"');
        expect(failures).toBe(0);
      } finally {
        await installation.remove();
      }
    },
  );
});
