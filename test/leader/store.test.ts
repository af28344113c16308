import { expect, it, onTestFinished } from 'vitest';
import { followPublished } from '../../src/leader/store.ts';
import { QUICK } from '../cluster/arena.ts';
import { openModel } from '../cluster/model-arena.ts';
import { waitUntil } from '../testbed/waiting.ts';

it('sees the published curves and what is forgotten, at first and whenever they change', async () => {
  const { arena, model } = await openModel();
  const seen: string[] = [];
  const stopping = new AbortController();
  const source = followPublished(
    { server: arena.gateway.url, credentials: async () => ({}) },
    'model',
    {
      onObject: (published) => {
        if (published === undefined) return void seen.push('nothing');
        const { planned, forgotten } = published;
        const outcome = 'refusal' in planned ? planned.refusal : planned.outcome;
        seen.push(`${outcome} ${forgotten.length}`);
      },
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
  expect(seen).toEqual(['nothing']);
  await waitUntil('the watch', () => source.stats.current);
  model.put('linger-planned', 'somebody’s own');
  await waitUntil('the change', () => seen.length === 2);
  model.remove('linger-planned');
  await waitUntil('the deletion', () => seen.length === 3);
  expect(seen).toEqual(['nothing', 'Foreign 0', 'nothing']);
  const asked = arena.gateway.seen.map(({ parameters }) => parameters.get('fieldSelector'));
  expect(new Set(asked)).toEqual(new Set(['metadata.name=linger-planned']));
});
