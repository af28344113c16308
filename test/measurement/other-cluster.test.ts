import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { emptyDirectory } from '../cli/linger.ts';
import { ModelCluster } from '../cluster/model-cluster.ts';
import type { AtEnd } from '../webhook/connection.ts';
import { leading } from './following.ts';

const clock = () => performance.now();
const WITHIN = { timeout: 30_000, interval: 20 };

/** A copier’s work: the copy of shop/web in the access cluster. */
const copy = (...addresses: readonly string[]) => ({
  metadata: { name: 'shop-web-1', namespace: 'access', labels: { 'kubernetes.io/service-name': 'shop-web' } },
  addressType: 'IPv4',
  endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: true } })),
});

async function following() {
  const there = await ModelCluster.start(onTestFinished as AtEnd);
  const folder = await emptyDirectory();
  await writeFile(join(folder, 'access'), there.kubeconfig);
  const endpoints = { kubeconfigFile: 'access', copies: 'access/{namespace}-{service}' };
  return { there, ...(await leading('access', { endpoints }, folder)) };
}

it('a pod is in use until its copy is gone: acknowledgement and sample', async () => {
  const { there, inspection, consumers, lags, lists, end } = await following();
  there.put('endpointslices', copy('10.0.0.1', '10.0.0.2'));
  lists('a', 'b');
  await vi.waitFor(
    () => expect(there.isWatched('endpointslices') && there.isWatched('endpoints')).toBe(true),
    WITHIN,
  );
  const at = end();
  const [name] = [there.url.host];
  const users = () => inspection.usersOf('access', 'a', at);
  await vi.waitFor(() => expect(users()).toEqual([name]), WITHIN);
  await new Promise((done) => setTimeout(done, 1_000));
  expect(users()).toEqual([name]);
  expect(lags).toEqual([]);
  // The slow copier follows.
  there.put('endpointslices', copy('10.0.0.2'));
  const copied = (clock() - at) / 1000;
  await vi.waitFor(() => expect(users()).toEqual([]), WITHIN);
  await vi.waitFor(() => expect(lags).toHaveLength(1), WITHIN);
  // What reads the copy has a second more.
  expect(lags[0]).toBeGreaterThanOrEqual(copied + 0.99);
  expect(consumers.state('access')?.trouble).toBeUndefined();
  // It is not what sends: no pod was expected to see connections from it.
  expect([...inspection.seenAmong([{ namespace: 'shop', name: 'web' }], ['10.9.9.9'])]).toEqual([]);
}, 60_000);

it('while the other cluster cannot be read, nothing is known, and the condition says why', async () => {
  const { there, inspection, consumers, lists, end } = await following();
  there.refuse = (what) => (what === 'endpointslices' ? 403 : undefined);
  lists('a', 'b');
  const at = end();
  await vi.waitFor(
    () =>
      expect(consumers.state('access')?.trouble).toEqual({
        reason: 'Unreachable',
        message: `The copies in ${there.url.host} cannot be read: watching EndpointSlice objects failed (Forbidden).`,
      }),
    WITHIN,
  );
  expect(inspection.usersOf('access', 'a', at)).toBe('unknown');
}, 60_000);
