import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Registry } from '@prometheus-io/client';
import { expect, it, onTestFinished, vi } from 'vitest';
import { ObjectEvents } from '../../src/cluster/index.ts';
import { consumerOf } from '../../src/lag/index.ts';
import { Measurement, startInspecting } from '../../src/measurement/index.ts';
import { createLogger } from '../../src/telemetry/index.ts';
import { emptyDirectory } from '../cli/linger.ts';
import { ModelCluster } from '../cluster/model-cluster.ts';
import { EMPTY_SNAPSHOT } from '../decision/sample-snapshot.ts';
import type { AtEnd } from '../webhook/connection.ts';

const clock = () => performance.now();
const WITHIN = { timeout: 30_000, interval: 20 };

/** A copier’s work: the copy of shop/web in the access cluster. */
const copy = (...addresses: readonly string[]) => ({
  metadata: { name: 'shop-web-1', namespace: 'access', labels: { 'kubernetes.io/service-name': 'shop-web' } },
  addressType: 'IPv4',
  endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: true } })),
});

async function leading() {
  const [here, there] = await Promise.all([1, 2].map(() => ModelCluster.start(onTestFinished as AtEnd)));
  const folder = await emptyDirectory();
  await writeFile(join(folder, 'access'), there!.kubeconfig);
  const endpoints = { kubeconfigFile: 'access', copies: 'access/{namespace}-{service}' };
  const measured = [consumerOf('access', { measure: { endpoints } })];
  const ending = new AbortController();
  onTestFinished(() => ending.abort());
  const { signal } = ending;
  const logger = createLogger('silent', { write: () => undefined });
  const connection = { server: here!.url, credentials: async () => ({}) };
  const consumers = new Measurement({ clock, epochSeconds: () => Date.now() / 1000 }).consumers;
  consumers.keep(measured);
  const lags: number[] = [];
  consumers.onSample(({ lag }) => void lags.push(lag));
  const { inspection, runnable } = startInspecting({
    ...{ connection, logger, clock, signal, measurement: consumers, allowLinkLocal: false, files: folder },
    snapshot: { current: () => ({ ...EMPTY_SNAPSHOT, measured }) },
    metrics: { registry: new Registry() },
    events: new ObjectEvents({ connection, identity: 'linger-1', logger, clock, signal }),
  });
  void runnable.lead({ signal, holds: () => true } as Parameters<typeof runnable.lead>[0]);
  const lists = (...ready: readonly string[]) => {
    const slice = {
      namespace: 'shop',
      name: 'web-1',
      serviceName: 'web',
      addressType: 'IPv4',
      ports: [8080],
    };
    const states = ['a', 'b'].map((uid, index) => ({
      ...{ targetUid: uid, targetName: uid, addresses: [`10.0.0.${index + 1}`], ready: ready.includes(uid) },
    }));
    inspection.observe({ type: 'Slice', at: clock(), slice: { ...slice, endpoints: states } });
  };
  const pod = { uid: 'a', namespace: 'shop', name: 'a' };
  return { there: there!, inspection, consumers, lags, lists, pod };
}

it('a pod is in use until its copy is gone: acknowledgement and sample', async () => {
  const { there, inspection, consumers, lags, lists, pod } = await leading();
  there.put('endpointslices', copy('10.0.0.1', '10.0.0.2'));
  lists('a', 'b');
  await vi.waitFor(
    () => expect(there.isWatched('endpointslices') && there.isWatched('endpoints')).toBe(true),
    WITHIN,
  );
  inspection.want(pod);
  inspection.observe({ type: 'PodTerminating', at: clock(), pod });
  lists('b');
  const at = clock();
  inspection.removed({ uid: 'a', at });
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
  const { there, inspection, consumers, lists, pod } = await leading();
  there.refuse = (what) => (what === 'endpointslices' ? 403 : undefined);
  lists('a', 'b');
  inspection.want(pod);
  inspection.observe({ type: 'PodTerminating', at: clock(), pod });
  lists('b');
  const at = clock();
  inspection.removed({ uid: 'a', at });
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
