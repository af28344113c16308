import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Cluster, openCluster } from '../testbed/cluster.ts';
import { run } from '../testbed/command.ts';

const MAIN = join(import.meta.dirname, '..', 'conformance', 'main.ts');

let cluster: Cluster;

beforeAll(async () => {
  cluster = await openCluster();
});

afterAll(() => cluster?.close());

it('npm run conformance sees hooks and withdrawals work, and leaves no namespace', async () => {
  const { code, stdout, stderr } = await run([process.execPath, MAIN], { timeoutMs: 300_000 });
  const works = stdout.split('\n').flatMap((line) => /^yes +(.+?) {2,}/.exec(line)?.[1] ?? []);
  const expected = ['hook Sleep', 'hook Exec', 'hook Hold, delivery ConfigMap', 'EndpointSlices'];
  expect([works, stderr]).toEqual([expect.arrayContaining(expected), expect.any(String)]);
  expect(code).toBe(0);
  const left = await cluster.list(
    { apiVersion: 'v1', kind: 'Namespace' },
    'app.kubernetes.io/name=linger-conformance',
  );
  expect(left.filter(({ metadata }) => metadata.deletionTimestamp === undefined)).toEqual([]);
}, 320_000);
