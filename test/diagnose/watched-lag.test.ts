import { expect, it, onTestFinished } from 'vitest';
import type { EndpointSource } from '../../src/core/lag/index.ts';
import { watchLag } from '../../src/diagnose/lag-observation.ts';
import { podObject as anyPod, ModelCluster, serviceObject, sliceObject } from '../cluster/model-cluster.ts';
import { waitUntil } from '../testbed/waiting.ts';
import type { AtEnd } from '../webhook/connection.ts';

const soon = { intervalMs: 5, timeoutMs: 30_000 };

/** A pod that the Service selects. */
const podObject = (namespace: string, name: string, terminating?: boolean) => {
  const { metadata } = anyPod(namespace, name, terminating);
  return { metadata: { ...metadata, labels: { app: 'web' } } };
};

/** Pods that may terminate after the first one. */
const LATER = Array.from({ length: 300 }, (_, index) => `later-${index}`);

/** A Service and its pods, watched until the test's end; `stood` makes the process seem to have stood still. */
async function watched() {
  const model = await ModelCluster.start(onTestFinished as AtEnd);
  model.put('services', serviceObject('shop', 'web'));
  for (const pod of ['first', ...LATER]) model.put('pods', podObject('shop', pod));
  model.put('endpointslices', sliceObject('shop', 'web', 'first', ...LATER));
  const stopping = new AbortController();
  let stoodMs = 0;
  const clock = () => performance.now() + stoodMs;
  const connection = { server: model.url, credentials: async () => ({}) };
  const watch = watchLag(connection, { signal: stopping.signal, clock, random: Math.random });
  onTestFinished(async () => {
    stopping.abort();
    await watch.ended();
  });
  expect(await watch.current).toBe(true);
  const ended: { readonly stage: EndpointSource; readonly lag: number }[] = [];
  const samples = () => {
    ended.push(...watch.takeSamples());
    return ended;
  };
  const stood = (milliseconds: number) => {
    stoodMs += milliseconds;
  };
  return { model, watch, samples, stood };
}

it('samples a removal', async () => {
  const { model, watch, samples } = await watched();
  model.put('pods', podObject('shop', 'first', true));
  await waitUntil('the termination to show', () => watch.waiting().EndpointSlice.count === 1, soon);
  model.put('endpointslices', sliceObject('shop', 'web', ...LATER));
  await waitUntil('the sample', () => samples().length === 1, soon);
  expect(samples()[0]).toMatchObject({ stage: 'EndpointSlice' });
});

it('makes no lag of a standstill, and samples again when that is over', async () => {
  const { model, watch, samples, stood } = await watched();
  model.put('pods', podObject('shop', 'first', true));
  await waitUntil('the termination to show', () => watch.waiting().EndpointSlice.count === 1, soon);
  stood(5_000);
  model.put('endpointslices', sliceObject('shop', 'web', ...LATER));
  await waitUntil('its end to come late', () => watch.waiting().EndpointSlice.count === 0, soon);
  // Each is withdrawn when the next one terminates. Those that terminate too soon are not measured, and neither is one
  // during a real standstill of a busy machine; the first sample shows that instants are trusted again.
  const later = [...LATER];
  const removeOne = () => {
    model.put('endpointslices', sliceObject('shop', 'web', ...later));
    const next = later.shift();
    if (next !== undefined) model.put('pods', podObject('shop', next, true));
  };
  const removing = setInterval(removeOne, 100);
  await waitUntil('the samples', () => samples().length > 0, soon).finally(() => clearInterval(removing));
  expect(later.length).toBeLessThan(LATER.length - 10);
  for (const { lag } of samples()) expect(lag).toBeLessThan(5);
});
