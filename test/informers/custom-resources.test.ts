import { describe, expect, it, onTestFinished } from 'vitest';
import type { Consumer } from '../../src/core/lag/index.ts';
import {
  type CustomKind,
  type CustomObjects,
  DISCOVERY_CONSUMERS,
  followCustomResources,
} from '../../src/informers/custom-resources.ts';
import { QUICK } from '../cluster/arena.ts';
import { ModelCluster, type ModelObject } from '../cluster/model-cluster.ts';
import { waitUntil } from '../testbed/waiting.ts';
import type { AtEnd } from '../webhook/connection.ts';

interface Followed<T = Consumer> {
  readonly model: ModelCluster;
  readonly source: CustomObjects<T>;
  /** Each time as the snapshot was told. */
  readonly snapshots: readonly (readonly T[])[];
  /** `served`, `gateway: spec…`, `Forbidden`. */
  readonly said: readonly string[];
  /** Milliseconds that the clock is ahead. */
  readonly ahead: { ms: number };
}

const follow = (prepare?: (model: ModelCluster) => void): Promise<Followed> =>
  followKind(DISCOVERY_CONSUMERS, prepare);

async function followKind<T>(
  kind: CustomKind<T>,
  prepare: (model: ModelCluster) => void = () => undefined,
  taken: () => Promise<void> | void = () => undefined,
): Promise<Followed<T>> {
  const model = await ModelCluster.start(onTestFinished as AtEnd);
  model.refuse = () => undefined;
  prepare(model);
  const stopping = new AbortController();
  const snapshots: (readonly T[])[] = [];
  const said: string[] = [];
  const ahead = { ms: 0 };
  const source = followCustomResources(
    kind,
    { server: model.url, credentials: async () => ({}) },
    {
      onValues: (consumers) => {
        snapshots.push(consumers);
        return taken();
      },
      onProblem: (name, problem) => void said.push(`${name}: ${problem ?? 'well'}`),
      onServed: (served) => void said.push(served ? 'served' : 'not served'),
      onFailure: ({ reason }) => void said.push(reason),
      onCurrent: () => undefined,
      onHandlerError: (error) => void said.push(error.message),
    },
    {
      signal: stopping.signal,
      clock: () => performance.now() + ahead.ms,
      random: Math.random,
      limits: QUICK,
    },
  );
  onTestFinished(() => {
    stopping.abort();
    return source.ended;
  });
  return { model, source, snapshots, said, ahead };
}

const consumer = (name: string, measure: unknown, uid = `uid-of-${name}`): ModelObject => ({
  metadata: { name, uid, generation: 1 },
  spec: { measure },
});
const declared = (name: string, lag: string) => consumer(name, { declared: { lag } });
const soon = { intervalMs: 5, timeoutMs: 30_000 };
const lagsOf = (consumers: readonly Consumer[] | undefined) => consumers?.map(({ lagKey }) => lagKey);

const gateways = (model: ModelCluster) => {
  model.put('discoveryconsumers', declared('b', '2s'));
  model.put('discoveryconsumers', declared('a', '1s'));
};
const current = ({ source }: Followed) => waitUntil('the watch', () => source.stats.current, soon);

describe('the consumers of the cluster', () => {
  it('have been read once the snapshot has taken them', async () => {
    const inForce = Promise.withResolvers<void>();
    const followed = await followKind(DISCOVERY_CONSUMERS, gateways, () => inForce.promise);
    let read = false;
    void followed.source.read.then(() => {
      read = true;
    });
    await current(followed);
    expect(read).toBe(false);
    inForce.resolve();
    await followed.source.read;
    expect(lagsOf(followed.snapshots[0])).toHaveLength(2);
  });

  it('are passed on as a whole once they have been read, by name, and whenever they change', async () => {
    const followed = await follow(gateways);
    const { source, snapshots, model, said } = followed;
    expect(source.known()).toBe(false);
    await source.read;
    expect(source.known()).toBe(true);
    expect(snapshots.map(lagsOf)).toEqual([['a={"lag":1}', 'b={"lag":2}']]);
    await current(followed);
    model.put('discoveryconsumers', declared('a', '3s'));
    model.remove('discoveryconsumers', declared('b', '2s'));
    await waitUntil('both changes', () => String(lagsOf(snapshots.at(-1))) === 'a={"lag":3}', soon);
    expect(said).toEqual(['served']);
  });

  it('are passed on once for many changes: one that is rewritten all the time costs little', async () => {
    const followed = await follow(gateways);
    const { source, snapshots, model } = followed;
    await current(followed);
    for (let lag = 1; lag <= 200; lag += 1) model.put('discoveryconsumers', declared('a', `${lag}s`));
    await waitUntil('the last', () => String(lagsOf(snapshots.at(-1))) === 'a={"lag":200},b={"lag":2}', soon);
    expect(source.stats.events).toBe(200);
    expect(snapshots.length).toBeLessThan(6);
  });

  it('are passed on when there are none, too', async () => {
    const { source, snapshots } = await follow();
    await source.read;
    expect(snapshots).toEqual([[]]);
  });

  it('are not passed on again for changes that decisions do not read: their status is written by Linger itself', async () => {
    const followed = await follow(gateways);
    const { source, snapshots, model } = followed;
    await current(followed);
    model.put('discoveryconsumers', { ...declared('a', '1s'), status: { samples: 1 } });
    await waitUntil('the status', () => source.objects()[0]?.status !== undefined, soon);
    expect(snapshots).toHaveLength(1);
  });
});

describe('one that cannot be read', () => {
  const later = (name: string) => consumer(name, { http: {} });

  it('keeps its last good spec, is reported, and changes nothing else', async () => {
    const followed = await follow(gateways);
    const { source, snapshots, model, said } = followed;
    await current(followed);
    model.put('discoveryconsumers', later('a'));
    model.put('discoveryconsumers', declared('b', '4s'));
    await waitUntil('the other change', () => snapshots.length === 2, soon);
    expect(lagsOf(snapshots[1])).toEqual(['a={"lag":1}', 'b={"lag":4}']);
    expect(said).toHaveLength(2);
    expect(said[1]).toMatch(/^a: spec\.measure/);
    expect(source.objects()[0]?.problem).toContain('spec.measure.http: unknown field');
    model.put('discoveryconsumers', declared('a', '5s'));
    const mended = 'a={"lag":5},b={"lag":4}';
    await waitUntil('it to be mended', () => String(lagsOf(snapshots.at(-1))) === mended, soon);
    expect(said.at(-1)).toBe('a: well');
  });

  it('and never could is left out', async () => {
    const { source, snapshots, said } = await follow((model) => {
      gateways(model);
      model.put('discoveryconsumers', later('c'));
    });
    await source.read;
    expect(lagsOf(snapshots[0])).toEqual(['a={"lag":1}', 'b={"lag":2}']);
    expect(said[0]).toContain('c: ');
    expect(source.objects().map(({ name }) => name)).toEqual(['a', 'b', 'c']);
  });

  it('does not inherit the spec of another of its name', async () => {
    const followed = await follow(gateways);
    const { snapshots, model } = followed;
    await current(followed);
    model.put('discoveryconsumers', consumer('a', { http: {} }, 'another'));
    await waitUntil('it to go', () => snapshots.length > 1, soon);
    expect(lagsOf(snapshots.at(-1))).toEqual(['b={"lag":2}']);
  });
});

it('a namespaced kind is followed the same way, each object by namespace and name', async () => {
  const policies: CustomKind<string> = {
    kind: 'TerminationPolicy',
    path: '/apis/linger.dev/v1alpha1/terminationpolicies',
    most: 10,
    toValue: ({ metadata, spec }) => JSON.stringify([metadata, spec]),
  };
  const policy = (namespace: string, spec: object): ModelObject => ({
    metadata: { name: 'web', namespace, uid: `uid-in-${namespace}` },
    spec,
  });
  const { model, source, snapshots, said } = await followKind(policies, (of) => {
    of.put('terminationpolicies', policy('shop', { mode: 'Audit' }));
    of.put('terminationpolicies', policy('blog', { mode: 'Off' }));
  });
  await source.read;
  const [blog, shop] = ['blog', 'shop'].map((namespace) => ({ name: 'web', namespace }));
  expect(snapshots).toEqual([
    [JSON.stringify([blog, { mode: 'Off' }]), JSON.stringify([shop, { mode: 'Audit' }])],
  ]);
  await waitUntil('the watch', () => source.stats.current, soon);
  model.put('terminationpolicies', policy('shop', { mode: 'Sometimes' }));
  await waitUntil('the problem', () => said.length === 2, soon);
  expect(said[1]).toMatch(/^shop\/web: spec\.mode/);
  model.remove('terminationpolicies', policy('blog', {}));
  await waitUntil('one to go', () => snapshots.length === 2, soon);
  expect(snapshots[1]).toEqual([JSON.stringify([shop, { mode: 'Audit' }])]);
});

const MOST_CONSUMERS = DISCOVERY_CONSUMERS.most;

describe('more than there may be', () => {
  /** One more than there may be. */
  const crowd = (model: ModelCluster) => {
    for (let index = 0; index <= MOST_CONSUMERS; index += 1)
      model.put('discoveryconsumers', declared(`c${index}`, '1s'));
  };
  const last = `c${MOST_CONSUMERS}`;

  it('are left out, and reported once', async () => {
    const followed = await follow(crowd);
    const { source, snapshots, said, model } = followed;
    await source.read;
    expect(snapshots[0]).toHaveLength(MOST_CONSUMERS);
    expect(source.leftOut()).toEqual([last]);
    await current(followed);
    const before = source.stats.events;
    model.put('discoveryconsumers', declared(last, '2s'));
    await waitUntil('its change', () => source.stats.events > before, soon);
    model.rotate();
    await waitUntil('the next watch', () => source.stats.restarts.Ended > 0, soon);
    await current(followed);
    expect(source.stats.lists).toBe(1);
    expect(said.filter((text) => text.includes(`only ${MOST_CONSUMERS}`))).toHaveLength(1);
  });

  it('are taken in with the next watch once there is room', async () => {
    const followed = await follow(crowd);
    const { source, snapshots, said, model } = followed;
    await current(followed);
    model.remove('discoveryconsumers', declared('c0', '1s'));
    await waitUntil('the room', () => snapshots.at(-1)?.length === MOST_CONSUMERS - 1, soon);
    model.rotate();
    await waitUntil('it', () => snapshots.at(-1)?.length === MOST_CONSUMERS, soon);
    expect(source.objects().map(({ name }) => name)).toContain(last);
    expect(source.leftOut()).toEqual([]);
    expect(said.at(-1)).toBe(`${last}: well`);
  });

  it('and are deleted: nothing is left out any more', async () => {
    const followed = await follow(crowd);
    const { source, said, model } = followed;
    await current(followed);
    model.remove('discoveryconsumers', declared(last, '1s'));
    await waitUntil('it to go', () => source.leftOut().length === 0, soon);
    expect(said.at(-1)).toBe(`${last}: well`);
    expect(source.objects()).toHaveLength(MOST_CONSUMERS);
  });
});

describe('without the CRD', () => {
  const absent = (model: ModelCluster) => {
    model.refuse = () => 404;
  };

  it('it is said once and is no failure; an answer there is, but certain it becomes only later', async () => {
    const followed = await follow(absent);
    const { source, snapshots, said, ahead } = followed;
    await source.read;
    expect([source.known(), source.served()]).toEqual([false, false]);
    await waitUntil('some more answers', () => source.stats.restarts.NotServed > 3, soon);
    expect(source.known()).toBe(false);
    ahead.ms += 3_000;
    await waitUntil('certainty', () => source.known(), soon);
    expect([snapshots, said]).toEqual([[], ['not served']]);
  });

  it('once it is installed, its objects are found', async () => {
    const { model, snapshots, said } = await follow(absent);
    await waitUntil('the answer', () => said.length === 1, soon);
    gateways(model);
    model.refuse = () => undefined;
    await waitUntil('them', () => snapshots.length > 0, soon);
    expect(lagsOf(snapshots[0])).toEqual(['a={"lag":1}', 'b={"lag":2}']);
    expect(said).toEqual(['not served', 'served']);
  });

  it('any more: its objects are gone, but not at the first answer', async () => {
    const followed = await follow(gateways);
    const { model, source, snapshots, ahead } = followed;
    await current(followed);
    absent(model);
    model.cut();
    await waitUntil('some answers', () => source.stats.restarts.NotServed > 2, soon);
    expect(snapshots).toHaveLength(1);
    ahead.ms += 3_000;
    await waitUntil('them to go', () => snapshots.length === 2, soon);
    expect(snapshots[1]).toEqual([]);
  });

  it('while its server starts twice: its objects stay', async () => {
    const followed = await follow(gateways);
    const { model, source, snapshots, said, ahead } = followed;
    await current(followed);
    const answers = async (code: number, reason: string) => {
      const { restarts } = source.stats;
      const before = restarts[reason as keyof typeof restarts] ?? 0;
      model.refuse = () => code;
      model.cut();
      await waitUntil(reason, () => (restarts[reason as keyof typeof restarts] ?? 0) > before, soon);
    };
    await answers(404, 'NotServed');
    await answers(503, 'ServerError');
    ahead.ms += 60_000;
    await answers(404, 'NotServed');
    gateways(model);
    model.refuse = () => undefined;
    await waitUntil('it to be served again', () => said.at(-1) === 'served', soon);
    expect(snapshots.every((each) => each.length > 0)).toBe(true);
  });
});

it('without the right to list them, there is an answer, a failure is reported, and nothing is certain', async () => {
  const { source, said, snapshots } = await follow((model) => {
    model.refuse = () => 403;
  });
  await source.read;
  expect(said).toContain('Forbidden');
  expect([source.known(), snapshots]).toEqual([false, []]);
});
