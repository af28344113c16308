import { expect, it, onTestFinished } from 'vitest';
import { followPublished } from '../../src/sources/published.ts';
import { waitUntil } from '../cluster/waiting.ts';
import { QUICK } from './kube/arena.ts';
import { openModel } from './kube/model-arena.ts';

it('tells how the planned lags stand, at first and whenever they change', async () => {
  const { arena, model } = await openModel();
  const seen: string[] = [];
  const stopping = new AbortController();
  const source = followPublished(
    { server: arena.gateway.url, credentials: async () => ({}) },
    'model',
    {
      onPlanned: (planned) => void seen.push('refusal' in planned ? planned.refusal : planned.outcome),
      onFailure: () => undefined,
      onCurrent: () => undefined,
      onHandlerError: (error) => {
        throw error;
      },
    },
    { signal: stopping.signal, clock: () => performance.now(), random: Math.random, limits: QUICK },
  );
  onTestFinished(() => {
    stopping.abort();
    return source.ended;
  });
  await source.read;
  expect(seen).toEqual(['empty']);
  await waitUntil('the watch', () => source.stats.current);
  model.put('linger-planned', 'somebody’s own');
  await waitUntil('the change', () => seen.length === 2);
  model.remove('linger-planned');
  await waitUntil('the deletion', () => seen.length === 3);
  expect(seen).toEqual(['empty', 'Foreign', 'empty']);
  const asked = arena.gateway.seen.map(({ parameters }) => parameters.get('fieldSelector'));
  expect(new Set(asked)).toEqual(new Set(['metadata.name=linger-planned']));
});
