import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pod, service } from '../cluster-suite/support/manifests.ts';
import { planOf } from '../cluster-suite/support/outcome.ts';
import { startPod } from '../cluster-suite/support/termination.ts';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import type { Logind } from '../testbed/logind.ts';
import { secondNode } from '../testbed/network.ts';
import { LONG } from './form.ts';
import { HoldSetting } from './hold/setting.ts';
import { duration, table } from './table.ts';

/*
 * The second node's kubelet learns from a stand-in for logind that its machine shuts down, and gives pods 15 s. It stops them
 * without deleting them, so slices list them until they have ended.
 */
const BUDGET = 15;
const SLOW_START = 3;
const RIGHTS = join(import.meta.dirname, '..', '..', 'deploy', 'rbac-node-shutdown.yaml');

interface NodeObject extends KubernetesObject {
  readonly status?: {
    readonly conditions?: readonly {
      readonly type: string;
      readonly status: string;
      readonly message?: string;
    }[];
  };
}

interface Slice extends KubernetesObject {
  readonly endpoints?:
    | readonly {
        readonly targetRef?: { readonly name?: string };
        readonly conditions?: { readonly ready?: boolean };
      }[]
    | null;
}

const cluster: Cluster = await openCluster();
afterAll(() => cluster.close());

// In the long form alone: a second node and three rollouts take six minutes.
describe.runIf(cluster.own && LONG)('a node that shuts down', () => {
  let setting: HoldSetting;
  let logind: Logind;
  const rows: (readonly (string | number)[])[] = [];

  beforeAll(async () => {
    // First, so that the replicas are on the other node.
    setting = await HoldSetting.open(cluster, { max: 60 });
    // So that the helper passes its test there, too: the second node does not have Linger's image.
    await setting.holds(await cluster.namespace('shutdown-first', { waiting: 'hold' }));
    const node = await cluster.startNode();
    logind = await node.withLogind({ all: 20, critical: 20 - BUDGET });
    await kubectl('label', 'node', secondNode.name, `linger.dev/node-budget=${BUDGET}`);
  }, 400_000);

  afterAll(async () => {
    console.log(table(['', 'endpoint gone', 'SIGTERM', 'left to the application'], rows));
    await cluster.kubectl(['delete', '--ignore-not-found', '--filename', RIGHTS]);
    logind?.stop();
    await setting?.close();
  }, 300_000);

  async function kubectl(...args: string[]): Promise<void> {
    const { code, stderr } = await cluster.kubectl(args, { timeoutMs: 200_000 });
    if (code !== 0) throw new Error(`kubectl ${args.join(' ')}: ${stderr}`);
  }

  /** Watches until the signal aborts. @returns when the condition was first met, in milliseconds since the epoch */
  function when<T extends KubernetesObject>(
    path: string,
    isMet: (object: T) => boolean,
    signal: AbortSignal,
  ) {
    const seen: { at?: number } = {};
    const take = ({ object }: { object: T }) => {
      if (isMet(object)) seen.at ??= Date.now();
    };
    void cluster.api.watch<T>(path, take, signal).catch(() => undefined);
    return seen;
  }

  /** Starts a pod on the node, shuts the node down, and brings it back. Instants are seconds since the announcement. */
  async function story(waiting: 'alone' | 'hold', what: string) {
    const namespace = await cluster.namespace(`shutdown-${waiting}`, {
      ...(waiting === 'alone' ? { 'linger.dev/inject': 'false' } : { waiting }),
    });
    if (waiting === 'hold') await setting.holds(namespace);
    await cluster.create(service(namespace, 'web') as never);
    const spec = {
      nodeSelector: { 'kubernetes.io/hostname': secondNode.name },
      terminationGracePeriodSeconds: 30,
    };
    const running = await startPod(cluster, pod(namespace, 'web', spec, { labels: { app: 'web' } }) as never);
    expect(planOf(running.pod)?.hook).toBe(waiting === 'hold' ? 'Hold' : undefined);
    const slices = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`;
    const isListed = ({ endpoints }: Slice) =>
      (endpoints ?? []).some(
        ({ targetRef, conditions }) => targetRef?.name === 'web' && conditions?.ready === true,
      );
    const list = async () => (await cluster.api.call<{ items: readonly Slice[] }>('GET', slices)).items;
    await waitUntil('the pod to be listed', async () => (await list()).some(isListed));
    const watching = new AbortController();
    const { signal } = watching;
    const dropped = when<Slice>(`${slices}?watch=true`, (each) => !isListed(each), signal);
    const announced = when<NodeObject>(
      `/api/v1/nodes?watch=true&fieldSelector=metadata.name%3D${secondNode.name}`,
      ({ status }) => status?.conditions?.some(({ message }) => message?.includes('shutting down')) === true,
      signal,
    );
    const end = await running.terminate(() => logind.shutDown());
    await waitUntil('the endpoint to go', () => dropped.at);
    watching.abort();
    logind.cancel();
    await cluster.waitFor<NodeObject>(
      { apiVersion: 'v1', kind: 'Node', metadata: { name: secondNode.name } },
      ({ status }) =>
        status?.conditions?.some(({ type, status: is }) => type === 'Ready' && is === 'True') === true,
      { timeoutMs: 120_000 },
    );
    const { sigtermAt = Number.NaN, exitCode } = end.containers.app ?? {};
    const since = (instant: number | undefined) => ((instant ?? Number.NaN) - end.deletedAt) / 1000;
    const told = {
      namespace,
      exitCode,
      announced: since(announced.at),
      dropped: since(dropped.at),
      sigterm: since(sigtermAt),
      left: BUDGET - since(sigtermAt),
    };
    rows.push([
      what,
      duration(told.dropped * 1000),
      duration(told.sigterm * 1000),
      duration(told.left * 1000),
    ]);
    return told;
  }

  it('without Linger: the application has all of the time', { timeout: 200_000 }, async () => {
    const { left, exitCode } = await story('alone', 'without Linger');
    expect(left).toBeGreaterThan(BUDGET - 3);
    expect(exitCode).toBe(0);
  });

  it('with Hold: it keeps two thirds of it', { timeout: 300_000 }, async () => {
    const { namespace, left, exitCode } = await story('hold', 'Hold');
    // Hold counts from the start of the hook, and a busy kubelet takes up to two seconds to start it.
    expect(left).toBeGreaterThan((BUDGET * 2) / 3 - SLOW_START);
    expect(exitCode).toBe(0);
    expect(await setting.releases(namespace)).toMatchObject([{ reason: 'NodeShutdown' }]);
  });

  it('with --delete-on-node-shutdown: its endpoint is gone within a second', {
    timeout: 400_000,
  }, async () => {
    await kubectl('apply', '--filename', RIGHTS);
    const patch = JSON.stringify([
      { op: 'add', path: '/spec/template/spec/containers/0/args/-', value: '--delete-on-node-shutdown' },
      { op: 'add', path: '/spec/template/spec/nodeSelector', value: { 'kubernetes.io/hostname': 'node-1' } },
    ]);
    await kubectl('patch', 'deployment', 'linger', '--namespace=linger', '--type=json', `--patch=${patch}`);
    await kubectl('rollout', 'status', 'deployment/linger', '--namespace=linger', '--timeout=150s');
    await waitUntil(
      'a replica to lead',
      async () => {
        const leaders = [...(await setting.linger.replicas.sums('linger_leader '))];
        return leaders.filter(([, leads]) => leads === 1).length === 1;
      },
      { timeoutMs: 60_000 },
    );
    const { dropped, announced, left, exitCode } = await story('hold', 'Hold, deleted by Linger');
    console.log(
      `node announced after ${announced.toFixed(2)} s, endpoint gone after ${dropped.toFixed(2)} s`,
    );
    expect(dropped - announced).toBeLessThan(1);
    expect(left).toBeGreaterThan((BUDGET * 2) / 3 - SLOW_START);
    expect(exitCode).toBe(0);
  });
});
