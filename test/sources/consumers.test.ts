import { describe, expect, it, onTestFinished } from 'vitest';
import type { Consumer } from '../../src/core/consumers/consumer.ts';
import { type ConsumersSource, followConsumers, MOST_CONSUMERS } from '../../src/sources/consumers.ts';
import { waitUntil } from '../cluster/waiting.ts';
import type { AtEnd } from '../serve/connection.ts';
import { QUICK } from './kube/arena.ts';
import { ModelCluster, type ModelObject } from './model-cluster.ts';

interface Followed {
  readonly model: ModelCluster;
  readonly source: ConsumersSource;
  /** Each time as the world was told. */
  readonly worlds: readonly (readonly Consumer[])[];
  /** `served`, `gateway: spec…`, `Forbidden`. */
  readonly said: readonly string[];
  /** Milliseconds that the clock is ahead. */
  readonly ahead: { ms: number };
}

async function follow(prepare: (model: ModelCluster) => void = () => undefined): Promise<Followed> {
  const model = await ModelCluster.start(onTestFinished as AtEnd);
  model.refuse = () => undefined;
  prepare(model);
  const stopping = new AbortController();
  const worlds: (readonly Consumer[])[] = [];
  const said: string[] = [];
  const ahead = { ms: 0 };
  const source = followConsumers(
    { server: model.url, credentials: async () => ({}) },
    {
      onWorld: (event) => void (event.kind === 'consumers' && worlds.push(event.consumers)),
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
  return { model, source, worlds, said, ahead };
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
  it('are told as a whole once they have been read, by name, and whenever they change', async () => {
    const followed = await follow(gateways);
    const { source, worlds, model, said } = followed;
    expect(source.known()).toBe(false);
    await source.read;
    expect(source.known()).toBe(true);
    expect(worlds.map(lagsOf)).toEqual([['a={"lag":1}', 'b={"lag":2}']]);
    await current(followed);
    model.put('discoveryconsumers', declared('a', '3s'));
    model.remove('discoveryconsumers', declared('b', '2s'));
    await waitUntil('both changes', () => worlds.length === 3, soon);
    expect(lagsOf(worlds[2])).toEqual(['a={"lag":3}']);
    expect(said).toEqual(['served']);
  });

  it('are told when there are none, too', async () => {
    const { source, worlds } = await follow();
    await source.read;
    expect(worlds).toEqual([[]]);
  });

  it('are not told anew for what decisions do not read: their status is written by Linger itself', async () => {
    const followed = await follow(gateways);
    const { source, worlds, model } = followed;
    await current(followed);
    model.put('discoveryconsumers', { ...declared('a', '1s'), status: { samples: 1 } });
    await waitUntil('the status', () => source.objects()[0]?.status !== undefined, soon);
    expect(worlds).toHaveLength(1);
  });
});

describe('one that cannot be read', () => {
  const later = (name: string) => consumer(name, { http: {} });

  it('keeps its last good spec, is reported, and changes nothing else', async () => {
    const followed = await follow(gateways);
    const { source, worlds, model, said } = followed;
    await current(followed);
    model.put('discoveryconsumers', later('a'));
    model.put('discoveryconsumers', declared('b', '4s'));
    await waitUntil('the other change', () => worlds.length === 2, soon);
    expect(lagsOf(worlds[1])).toEqual(['a={"lag":1}', 'b={"lag":4}']);
    expect(said).toHaveLength(2);
    expect(said[1]).toMatch(/^a: spec\.measure/);
    expect(source.objects()[0]?.problem).toContain('spec.measure.http: unknown field');
    model.put('discoveryconsumers', declared('a', '5s'));
    await waitUntil('it to be mended', () => said.at(-1) === 'a: well', soon);
    expect(lagsOf(worlds.at(-1))).toEqual(['a={"lag":5}', 'b={"lag":4}']);
  });

  it('and never could is left out', async () => {
    const { source, worlds, said } = await follow((model) => {
      gateways(model);
      model.put('discoveryconsumers', later('c'));
    });
    await source.read;
    expect(lagsOf(worlds[0])).toEqual(['a={"lag":1}', 'b={"lag":2}']);
    expect(said[0]).toContain('c: ');
    expect(source.objects().map(({ name }) => name)).toEqual(['a', 'b', 'c']);
  });

  it('does not inherit the spec of another of its name', async () => {
    const followed = await follow(gateways);
    const { worlds, model } = followed;
    await current(followed);
    model.put('discoveryconsumers', consumer('a', { http: {} }, 'another'));
    await waitUntil('it to go', () => worlds.length > 1, soon);
    expect(lagsOf(worlds.at(-1))).toEqual(['b={"lag":2}']);
  });
});

it('more than there may be are left out, and reported', async () => {
  const { source, worlds, said } = await follow((model) => {
    for (let index = 0; index <= MOST_CONSUMERS; index += 1)
      model.put('discoveryconsumers', declared(`c${index}`, '1s'));
  });
  await source.read;
  expect(worlds[0]).toHaveLength(MOST_CONSUMERS);
  expect(said.filter((text) => text.includes(`only ${MOST_CONSUMERS}`))).toHaveLength(1);
});

describe('without the CRD', () => {
  const absent = (model: ModelCluster) => {
    model.refuse = () => 404;
  };

  it('it is said once and is no failure; an answer there is, but certain it becomes only later', async () => {
    const followed = await follow(absent);
    const { source, worlds, said, ahead } = followed;
    await source.read;
    expect([source.known(), source.served()]).toEqual([false, false]);
    await waitUntil('some more answers', () => source.stats.restarts.NotServed > 3, soon);
    expect(source.known()).toBe(false);
    ahead.ms += 3_000;
    await waitUntil('certainty', () => source.known(), soon);
    expect([worlds, said]).toEqual([[], ['not served']]);
  });

  it('once it is installed, its objects are found', async () => {
    const { model, worlds, said } = await follow(absent);
    await waitUntil('the answer', () => said.length === 1, soon);
    gateways(model);
    model.refuse = () => undefined;
    await waitUntil('them', () => worlds.length > 0, soon);
    expect(lagsOf(worlds[0])).toEqual(['a={"lag":1}', 'b={"lag":2}']);
    expect(said).toEqual(['not served', 'served']);
  });

  it('any more: its objects are gone, but not at the first answer', async () => {
    const followed = await follow(gateways);
    const { model, source, worlds, ahead } = followed;
    await current(followed);
    absent(model);
    model.cut();
    await waitUntil('some answers', () => source.stats.restarts.NotServed > 2, soon);
    expect(worlds).toHaveLength(1);
    ahead.ms += 3_000;
    await waitUntil('them to go', () => worlds.length === 2, soon);
    expect(worlds[1]).toEqual([]);
  });
});

it('without the right to list them, there is an answer, a failure is told, and nothing is certain', async () => {
  const { source, said, worlds } = await follow((model) => {
    model.refuse = () => 403;
  });
  await source.read;
  expect(said).toContain('Forbidden');
  expect([source.known(), worlds]).toEqual([false, []]);
});
