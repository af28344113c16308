import { Registry } from '@prometheus-io/client';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { ClusterEvent } from '../../src/core/lag/index.ts';
import { Manager } from '../../src/manager/manager.ts';
import type { PodEvent, Runnable } from '../../src/manager/runnable.ts';
import { createLogger } from '../../src/telemetry/index.ts';

import { pause } from '../../src/timing/index.ts';

const EVENT: ClusterEvent = { type: 'StreamCurrent', at: 0, stream: 'pods' };
const POD = { type: 'deleted' } as PodEvent;
const broken = (): never => {
  throw new Error('broken');
};

function managing(...runnables: readonly Runnable[]) {
  const ending = new AbortController();
  onTestFinished(() => ending.abort());
  const lines: { msg: string; runnable?: string; call?: string; level: string }[] = [];
  const registry = new Registry();
  const manager = new Manager({
    registry,
    logger: createLogger('info', { write: (line) => void lines.push(JSON.parse(line)) }),
    clock: () => performance.now(),
    random: () => 0,
    signal: ending.signal,
  });
  manager.add(...runnables);
  const failures = async () => {
    const text = await registry.getSingleMetricAsString('linger_runnable_failures_total');
    return text.split('\n').filter((line) => line.startsWith('linger_'));
  };
  return { manager, ending, lines, failures };
}

/** A term that can be ended. */
function term() {
  const ending = new AbortController();
  onTestFinished(() => ending.abort());
  return { signal: ending.signal, holds: () => !ending.signal.aborted, end: () => ending.abort() };
}

const turns = () => pause(20, new AbortController().signal);

describe('events', () => {
  it('reach each runnable before the ones that it needs, whatever others throw', async () => {
    const heard: string[] = [];
    const { manager, failures, lines } = managing(
      { name: 'needed', onEvent: () => heard.push('needed') },
      { name: 'recorder', onEvent: () => heard.push('recorder'), onPod: () => heard.push('pods') },
      { name: 'first', onEvent: broken, onPod: broken },
    );
    manager.start();
    manager.pod(POD);
    for (let times = 0; times < 3; times += 1) manager.event(EVENT);
    expect(heard).toEqual(['pods', ...Array(3).fill(['recorder', 'needed']).flat()]);
    expect(await failures()).toEqual([
      'linger_runnable_failures_total{runnable="first",call="pod"} 1',
      'linger_runnable_failures_total{runnable="first",call="event"} 3',
    ]);
    // A storm of failures is one line.
    expect(lines.map(({ runnable, call, level }) => [runnable, call, level])).toEqual([
      ['first', 'pod', 'error'],
      ['first', 'event', 'error'],
    ]);
  });
});

describe('the work of a leader', () => {
  it('begins in each, though one throws and another never ends', async () => {
    const begun: string[] = [];
    const { manager, failures } = managing(
      { name: 'throws', lead: broken },
      { name: 'stuck', lead: () => new Promise(() => undefined) },
      { name: 'rejects', lead: () => Promise.reject(new Error('later')) },
      { name: 'works', lead: async () => void begun.push('works') },
    );
    manager.start();
    expect(manager.leads()).toBe(false);
    manager.lead(term());
    expect(manager.leads()).toBe(true);
    expect(begun).toEqual(['works']);
    await turns();
    expect(await failures()).toEqual([
      'linger_runnable_failures_total{runnable="throws",call="lead"} 1',
      'linger_runnable_failures_total{runnable="rejects",call="lead"} 1',
    ]);
  });

  it('is begun again after a failure, as long as the term lasts', async () => {
    let times = 0;
    const lead = () => {
      times += 1;
      if (times === 1) broken();
    };
    const { manager, lines } = managing({ name: 'fails once', lead });
    manager.lead(term());
    await pause(700, new AbortController().signal);
    expect(times).toBe(2);
    expect(lines.map(({ msg }) => msg)).toEqual(['runnable failed, restarting it; this is a bug in Linger']);
  });

  it('of two terms does not overlap', async () => {
    const said: string[] = [];
    let terms = 0;
    const { manager } = managing({
      name: 'label',
      lead: async ({ signal }) => {
        const number = ++terms;
        said.push(`on ${number}`);
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        await turns();
        said.push(`off ${number}`);
      },
    });
    const [one, two] = [term(), term()];
    manager.lead(one);
    one.end();
    manager.lead(two);
    two.end();
    await manager.idle();
    // The second had ended before the first had let go.
    expect(said).toEqual(['on 1', 'off 1']);
    expect(manager.leadsSince()).toBeUndefined();
  });
});

it('work from start to end is restarted where it throws, and ends with the process', async () => {
  let times = 0;
  const { manager, ending } = managing({
    name: 'loop',
    run: async (signal) => {
      times += 1;
      if (times === 1) broken();
      await pause(60_000, signal);
    },
  });
  manager.start();
  await pause(700, new AbortController().signal);
  expect(times).toBe(2);
  ending.abort();
  await turns();
  expect(times).toBe(2);
});

it('runnables are closed in reverse; one that fails keeps no other open', async () => {
  const closed: string[] = [];
  const closing = (name: string): Runnable => ({ name, close: () => void closed.push(name) });
  const { manager, failures } = managing(closing('a'), { name: 'b', close: broken }, closing('c'));
  await manager.close();
  expect(closed).toEqual(['c', 'a']);
  expect(await failures()).toEqual(['linger_runnable_failures_total{runnable="b",call="close"} 1']);
});

it('a listener that throws costs neither its caller nor other listeners anything', async () => {
  const { manager, failures } = managing();
  const listeners = manager.listeners<[number]>('measurement');
  const heard: number[] = [];
  listeners.add(broken);
  listeners.add((number) => void heard.push(number));
  listeners.call(7);
  expect(heard).toEqual([7]);
  expect(await failures()).toEqual([
    'linger_runnable_failures_total{runnable="measurement",call="listener"} 1',
  ]);
});
