import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { holdReport } from '../../src/dashboard/index.ts';
import { emptyDirectory, linger } from '../cli/linger.ts';
import { ModelCluster } from '../cluster/model-cluster.ts';
import { atEndOfFile } from '../webhook/connection.ts';

const atEnd = atEndOfFile();
const HELD = [
  {
    namespace: 'shop',
    pod: 'web-1',
    uid: 'u1',
    heldMs: 4_200,
    deleted: true,
    hooks: 2,
    maxSeconds: 60,
    cause: 'Deleted',
    leftMs: 55_800,
    open: 3,
    from: ['10.0.0.7'],
    waitingFor: [{ consumer: 'edge', instances: ['edge-1', 'edge-2'] }],
  },
  {
    namespace: 'pay',
    pod: 'api-1',
    uid: 'u2',
    heldMs: 900,
    deleted: false,
    hooks: 1,
    maxSeconds: 30,
    leftMs: 29_100,
    from: [],
    waitingFor: [{ consumer: 'API server (no deletion seen)' }],
  },
];

async function clusterOf(pods: readonly string[], leader?: string) {
  const model = await ModelCluster.start(atEnd);
  const ports = [{ name: 'admin', containerPort: 9_090 }];
  const items = pods.map((name) => ({
    metadata: { name },
    spec: { containers: [{ name: 'linger', ports }] },
  }));
  model.single.set('/api/v1/namespaces/linger/pods', {
    kind: 'PodList',
    apiVersion: 'v1',
    metadata: { resourceVersion: '1' },
    items,
  });
  if (leader !== undefined)
    model.single.set(`/api/v1/namespaces/linger/pods/${leader}:9090/proxy/holds`, HELD);
  const file = join(await emptyDirectory(), 'config');
  await writeFile(file, model.kubeconfig);
  const run = (...args: string[]) => linger(['hold', 'list', '--kubeconfig', file, ...args]);
  return Object.assign(run, { model });
}

it('shows the held pods and what they wait for, from the leader', async () => {
  const run = await clusterOf(['linger-a', 'linger-b'], 'linger-b');
  const { code, stdout, stderr } = await run();
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
    ['NAMESPACE', 'POD', 'WHY', 'HELD', 'LEFT', 'WAITING FOR', 'CONNECTIONS'],
    ['shop', 'web-1', 'deleted', '4.200s', '55.8s', 'edge edge-1 edge-2', '3 open, from 10.0.0.7'],
    ['pay', 'api-1', 'no deletion seen', '900ms', '29.1s', 'API server (no deletion seen)', '-'],
    [''],
  ]);
});

it('for programs, and for some namespaces alone', async () => {
  const run = await clusterOf(['linger-a'], 'linger-a');
  const { stdout } = await run('--namespace', 'pay', '--output', 'json');
  expect(JSON.parse(stdout)).toEqual({ held: [HELD[1]] });
  const all = await run('--output', 'json');
  expect(holdReport.parse(JSON.parse(all.stdout))).toEqual({ held: HELD });
  expect((await run('--namespace', 'other')).stdout).toBe('No pod is held in other.\n');
});

it('waits for the end of a handover, and says so', async () => {
  const run = await clusterOf(['linger-a'], 'linger-a');
  const path = '/api/v1/namespaces/linger/pods/linger-a:9090/proxy/holds';
  run.model.single.set(path, 503);
  setTimeout(() => run.model.single.set(path, []), 1_500);
  const { code, stdout, stderr } = await run();
  expect([code, stdout]).toEqual([0, 'No pod is held.\n']);
  expect(stderr).toContain('waiting for the handover');
});

it('says what is missing', async () => {
  const nobody = await (await clusterOf([]))();
  expect([nobody.code, nobody.stdout]).toEqual([1, '']);
  expect(nobody.stderr).toContain('no pod of Linger runs in namespace linger');
  const leaderless = await (await clusterOf(['linger-a']))();
  expect(leaderless.code).toBe(1);
  expect(leaderless.stderr).toContain('[cluster-unreachable]');
});

it('goes on watching when the API server was away for a moment, until Ctrl-C', async () => {
  const run = await clusterOf(['linger-a'], 'linger-a');
  const pods = '/api/v1/namespaces/linger/pods';
  const list = run.model.single.get(pods);
  const watching = run('--watch');
  await sleep(1_000);
  run.model.single.set(pods, 500);
  await sleep(2_000);
  run.model.single.set(pods, list);
  await sleep(2_500);
  process.emit('SIGINT');
  const { code, stdout, stderr } = await watching;
  expect([code, stderr]).toEqual([0, expect.stringContaining('request failed')]);
  expect(stdout.match(/^NAMESPACE /gm)?.length).toBeGreaterThan(1);
});
