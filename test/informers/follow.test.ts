import { describe, expect, it, onTestFinished } from 'vitest';
import {
  type ClusterSnapshot,
  newSnapshotHolder,
  type SnapshotChange,
} from '../../src/core/decision/index.ts';
import type { ClusterEvent, EndpointsChoice } from '../../src/core/lag/index.ts';
import { type ClusterSource, followCluster } from '../../src/informers/follow.ts';
import { QUICK } from '../cluster/arena.ts';
import {
  ModelCluster,
  namespaceObject,
  nodeObject,
  podObject,
  serviceObject,
  sliceObject,
} from '../cluster/model-cluster.ts';
import { waitUntil } from '../testbed/waiting.ts';
import type { AtEnd } from '../webhook/connection.ts';

interface Followed {
  readonly source: ClusterSource;
  readonly model: ModelCluster;
  readonly snapshot: () => ClusterSnapshot;
  readonly snapshots: readonly SnapshotChange[];
  readonly events: readonly ClusterEvent[];
  /** `services Forbidden`, `services current`. */
  readonly said: readonly string[];
  readonly isSynced: () => boolean;
  readonly stop: () => Promise<void>;
}

/** Follows a model until the test's end. */
async function follow(
  prepare: (model: ModelCluster) => void = () => undefined,
  clock: () => number = () => performance.now(),
  endpoints: EndpointsChoice = 'Auto',
): Promise<Followed> {
  const model = await ModelCluster.start(onTestFinished as AtEnd);
  prepare(model);
  const stopping = new AbortController();
  const held = newSnapshotHolder('Enforce');
  const snapshots: SnapshotChange[] = [];
  const events: ClusterEvent[] = [];
  const said: string[] = [];
  const handlers = {
    onSnapshot: (event: SnapshotChange) => {
      snapshots.push(event);
      held.apply(event);
    },
    onEvent: (event: ClusterEvent) => void events.push(event),
    onFailure: (what: string, { reason }: { reason: string }) => void said.push(`${what} ${reason}`),
    onCurrent: (what: string) => void said.push(`${what} current`),
    onHandlerError: (what: string, error: Error) => void said.push(`${what} ${error.message}`),
  };
  const source = followCluster({ server: model.url, credentials: async () => ({}) }, handlers, {
    signal: stopping.signal,
    clock,
    random: Math.random,
    limits: QUICK,
    endpoints,
  });
  let synced = false;
  void source.synced.then(() => {
    synced = true;
  });
  const stop = () => {
    stopping.abort();
    return source.ended;
  };
  onTestFinished(stop);
  return { source, model, snapshot: held.current, snapshots, events, said, isSynced: () => synced, stop };
}

const soon = { intervalMs: 5, timeoutMs: 30_000 };
const current = ({ source }: Followed) =>
  waitUntil('every watch to be current', () => Object.values(source.watches).every((w) => w.current), soon);

const inIt = (model: ModelCluster) => {
  model.put(
    'namespaces',
    namespaceObject('shop', { annotations: { 'linger.dev/mode': 'Audit', other: 'x' } }),
  );
  model.put('services', serviceObject('shop', 'web'));
  model.put('nodes', nodeObject('node-1', 'v1.35.1'));
};
const namesIn = (snapshot: ClusterSnapshot, namespace = 'shop') =>
  snapshot.services.byNamespace.get(namespace)?.map(({ name }) => name);

describe('the snapshot', () => {
  it('is what the cluster has, once that has been read', async () => {
    const followed = await follow(inIt);
    await followed.source.synced;
    const { services, namespaces, fleet } = followed.snapshot();
    expect(services.complete).toBe(true);
    expect(namesIn(followed.snapshot())).toEqual(['web']);
    expect(namespaces.get('shop')?.annotations).toEqual({ 'linger.dev/mode': 'Audit' });
    expect(fleet).toMatchObject({
      apiServer: { major: 1, minor: 36 },
      oldestKubelet: { major: 1, minor: 35 },
    });
    expect(fleet?.nodes.map(({ name }) => name)).toEqual(['node-1']);
  });

  it('follows what changes', async () => {
    const followed = await follow(inIt);
    const { model, snapshot } = followed;
    await current(followed);
    model.put('services', serviceObject('shop', 'api'));
    await waitUntil('the Service to come', () => namesIn(snapshot())?.includes('api'), soon);
    model.remove('services', serviceObject('shop', 'web'));
    await waitUntil('the other to go', () => namesIn(snapshot())?.join() === 'api', soon);
    model.remove('services', serviceObject('shop', 'api'));
    await waitUntil('the last to go', () => namesIn(snapshot()) === undefined, soon);
    expect(snapshot().services.complete).toBe(true);
    const before = snapshot().namespaces;
    model.put('namespaces', namespaceObject('new'));
    await waitUntil('the Namespace to come', () => snapshot().namespaces.has('new'), soon);
    expect(before.has('new')).toBe(false);
    model.remove('namespaces', namespaceObject('new'));
    await waitUntil('it to go', () => !snapshot().namespaces.has('new'), soon);
  });

  it('is not rebuilt for what decisions do not read, and only once for many changes', async () => {
    const followed = await follow(inIt);
    const { model, snapshots, snapshot } = followed;
    await current(followed);
    const before = snapshots.length;
    const begun = performance.now();
    for (let index = 0; index < 200; index += 1) {
      model.put('services', { ...serviceObject('shop', 'web'), status: { index } });
      model.put('nodes', { ...nodeObject('node-1', 'v1.35.1'), spec: { index } });
    }
    for (let index = 0; index < 200; index += 1) model.put('services', serviceObject('shop', `s${index}`));
    await waitUntil('all of them', () => namesIn(snapshot())?.length === 201, soon);
    // At most one for each tenth of a second, and the first.
    expect(snapshots.length - before).toBeLessThanOrEqual(2 + (performance.now() - begun) / 100);
  });

  it('says nothing of the Services before all have been listed', async () => {
    const followed = await follow((model) => {
      inIt(model);
      model.refuse = (what) => (what === 'services' ? 500 : undefined);
    });
    const { model, snapshot, isSynced, said, source } = followed;
    await waitUntil(
      'everything else',
      () => snapshot().fleet !== undefined && snapshot().namespaces.size > 0,
      soon,
    );
    await waitUntil('the refusal', () => said.includes('services ServerError'), soon);
    expect([snapshot().services.complete, isSynced()]).toEqual([false, false]);
    model.refuse = () => undefined;
    await source.synced;
    expect(snapshot().services.complete).toBe(true);
  });

  it('stays as it is while the API server is away, and is right again afterwards', async () => {
    const followed = await follow(inIt);
    const { model, snapshot, said } = followed;
    await current(followed);
    model.refuse = () => 503;
    model.cut();
    await waitUntil(
      'the failures',
      () => said.filter((each) => each.endsWith('ServerError')).length >= 6,
      soon,
    );
    expect([snapshot().services.complete, namesIn(snapshot())]).toEqual([true, ['web']]);
    model.refuse = () => undefined;
    await current(followed);
    model.put('services', serviceObject('shop', 'api'));
    await waitUntil('the new Service', () => namesIn(snapshot())?.includes('api'), soon);
  });
});

describe('versions', () => {
  it.each([403, 404])('that the server will not tell (%d) do not count', async (status) => {
    const { source, snapshot } = await follow((model) => {
      inIt(model);
      model.refuse = (what) => (what === 'version' ? status : undefined);
    });
    await source.synced;
    expect(snapshot().fleet).toMatchObject({ apiServer: undefined, oldestKubelet: { major: 1, minor: 35 } });
  });

  it('that the server cannot tell now are asked for again', async () => {
    const { source, model, snapshot, said, isSynced } = await follow((model) => {
      inIt(model);
      model.refuse = (what) => (what === 'version' ? 503 : undefined);
    });
    await waitUntil('a failure', () => said.includes('version ServerError'), soon);
    expect(isSynced()).toBe(false);
    model.refuse = () => undefined;
    await source.synced;
    expect(snapshot().fleet?.apiServer).toEqual({ major: 1, minor: 36 });
    expect(said).toContain('version current');
  });
});

describe('events for the recorder', () => {
  it('are those of its four streams, each in order', async () => {
    const followed = await follow((model) => {
      inIt(model);
      model.put('pods', podObject('shop', 'a'));
      model.put('endpointslices', sliceObject('shop', 'web', 'a'));
      model.put('endpoints', { metadata: { namespace: 'shop', name: 'web' } });
    });
    const { model, events } = followed;
    await current(followed);
    model.put('pods', podObject('shop', 'a', true));
    model.put('endpointslices', sliceObject('shop', 'web'));
    model.remove('pods', podObject('shop', 'a', true));
    const slices = () => events.filter(({ type }) => type === 'Slice');
    await waitUntil(
      'the end',
      () => slices().length === 2 && events.some(({ type }) => type === 'PodDeleted'),
      soon,
    );
    const ofStream = (name: string, ...types: string[]) =>
      events
        .filter((event) => ('stream' in event ? event.stream === name : types.includes(event.type)))
        .map(({ type }) => type);
    const listed = (...types: string[]) => ['ListBegins', ...types, 'ListEnds', 'StreamCurrent'];
    expect(ofStream('pods', 'PodTerminating', 'PodDeleted')).toEqual([
      ...listed(),
      'PodTerminating',
      'PodDeleted',
    ]);
    expect(ofStream('services', 'Service')).toEqual(listed('Service'));
    expect(ofStream('EndpointSlice', 'Slice')).toEqual([...listed('Slice'), 'Slice']);
    expect(ofStream('Endpoints', 'Endpoints')).toEqual(listed('Endpoints'));
  });
});

it('tells what each watch has seen', async () => {
  const followed = await follow(inIt);
  await current(followed);
  const { watches } = followed.source;
  expect(Object.keys(watches)).toEqual([
    'namespaces',
    'services',
    'nodes',
    'pods',
    'endpointslices',
    'endpoints',
  ]);
  expect([watches.services.objects, watches.pods.objects]).toEqual([1, 0]);
});

it('ends when its signal aborts, with every connection closed', async () => {
  const followed = await follow(inIt);
  await current(followed);
  await followed.stop();
  expect(Object.values(followed.source.watches).map(({ state }) => state)).toEqual(Array(6).fill('ended'));
});

it('after a standstill of this process, events count as late until the backlog must have been read', async () => {
  let stoodMs = 0;
  const followed = await follow(inIt, () => performance.now() + stoodMs);
  const { model, events, source } = followed;
  await current(followed);
  const before = events.length;
  stoodMs += 5_000;
  model.put('endpointslices', sliceObject('shop', 'web'));
  const told = () => events.slice(before);
  await waitUntil('the slice to come', () => told().some(({ type }) => type === 'Slice'), soon);
  const slice = told().findIndex(({ type }) => type === 'Slice');
  const broken = told().slice(0, slice);
  expect(broken.map((each) => 'stream' in each && `${each.type} ${each.stream}`).toSorted()).toEqual([
    'StreamBroken EndpointSlice',
    'StreamBroken Endpoints',
    'StreamBroken pods',
    'StreamBroken services',
  ]);
  for (const { at } of broken) expect(told()[slice]!.at - at).toBeGreaterThan(4_000);
  expect(source.watches.endpointslices.current).toBe(true);
  const trusted = () => told().filter(({ type }) => type === 'StreamCurrent');
  await waitUntil('the streams to be trusted again', () => trusted().length === 4, soon);
  for (const { at } of trusted()) expect(at - told()[slice]!.at).toBeGreaterThan(1_500);
});

it('with Ignore, Endpoints are not asked for', async () => {
  const followed = await follow(undefined, undefined, 'Ignore');
  await current(followed);
  expect(Object.keys(followed.source.watches)).toContain('endpointslices');
  expect(Object.keys(followed.source.watches)).not.toContain('endpoints');
  expect(followed.events.some((event) => 'stream' in event && event.stream === 'Endpoints')).toBe(false);
});
