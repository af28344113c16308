import { once } from 'node:events';
import net from 'node:net';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { HOLD_HELPER, HOLD_MOUNT, HOLD_VOLUME } from '../../src/core/api/index.ts';
import { type Cluster, images, openCluster, waitUntil } from '../testbed/cluster.ts';
import { bringHelper, HELPER, UNUSED } from './support/hold-helper.ts';
import { appContainer, type Json, pod, RESTRICTED } from './support/manifests.ts';
import { startPod } from './support/termination.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const TOKEN = 'AAAAAAAAAAAAAAAAAAAAAA';

const cluster: Cluster = await openCluster();
afterAll(() => cluster.close());

const kubectl = (args: readonly string[]) => cluster.mustKubectl(args);

/** A namespace that enforces Pod Security "restricted". */
async function restricted(name: string): Promise<string> {
  const namespace = await cluster.namespace(name);
  await kubectl(['label', 'namespace', namespace, 'pod-security.kubernetes.io/enforce=restricted']);
  return namespace;
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
    await bringHelper(cluster, namespace);
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
    await bringHelper(cluster, namespace);
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
      await bringHelper(cluster, namespace);
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
    await bringHelper(cluster, namespace);
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
