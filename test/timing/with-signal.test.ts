import { getEventListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { withSignal } from '../../src/timing/index.ts';

/** Resolves with the signal's reason once it has aborted. */
const aborted = (signal: AbortSignal) =>
  new Promise<unknown>((resolve) => {
    if (signal.aborted) resolve(signal.reason);
    signal.addEventListener('abort', () => resolve(signal.reason));
  });

it('aborts with the given signal, for its reason', async () => {
  const outer = new AbortController();
  const work = withSignal({ signal: outer.signal }, aborted);
  outer.abort('over');
  expect(await work).toBe('over');
  expect(await withSignal({ signal: outer.signal }, aborted)).toBe('over');
});

it('aborts when it is told to, and after its time, and the given signal goes on', async () => {
  const { signal } = new AbortController();
  const told = withSignal({ signal }, (own, abort) => {
    setTimeout(abort, 1);
    return aborted(own);
  });
  expect(await told).toMatchObject({ name: 'AbortError' });
  expect(await withSignal({ signal, withinMs: 1 }, aborted)).toMatchObject({ name: 'AbortError' });
  expect(signal.aborted).toBe(false);
});

it('leaves nothing behind on the given signal, however the work ends', async () => {
  const { signal } = new AbortController();
  let own: AbortSignal | undefined;
  const kept = async (each: AbortSignal) => {
    own = each;
    expect(getEventListeners(signal, 'abort')).toHaveLength(1);
    return 'done';
  };
  expect(await withSignal({ signal, withinMs: 5 }, kept)).toBe('done');
  await expect(withSignal({ signal }, () => Promise.reject(new Error('no')))).rejects.toThrow('no');
  expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  await sleep(20);
  expect(own?.aborted).toBe(false);
});
