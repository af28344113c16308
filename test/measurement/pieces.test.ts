import { setImmediate as turn } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { inPieces } from '../../src/timing/index.ts';

/** Each step takes 2 ms by this clock. */
function work(steps: number) {
  let now = 0;
  let taken = 0;
  function* all(): Generator<undefined, string> {
    for (; taken < steps; taken += 1) {
      now += 2;
      yield;
    }
    return 'done';
  }
  return { steps: all(), clock: () => now, taken: () => taken };
}

it('takes all steps, and lets others have their turn every few milliseconds', async () => {
  const { steps, clock, taken } = work(100);
  let ended = false;
  const working = inPieces(steps, clock).finally(() => {
    ended = true;
  });
  const seen: number[] = [];
  while (!ended) {
    seen.push(taken());
    await turn();
  }
  expect(await working).toBe('done');
  expect(taken()).toBe(100);
  const between = seen.slice(1).map((count, index) => count - (seen[index] ?? 0));
  expect(Math.max(...between)).toBeLessThan(10);
});

it('what is quick is done at once', async () => {
  const { steps, clock, taken } = work(2);
  const working = inPieces(steps, clock);
  expect(taken()).toBe(2);
  expect(await working).toBe('done');
});

it('rejects with what a step throws', async () => {
  function* failing(): Generator<undefined, never> {
    yield;
    throw new Error('broken');
  }
  await expect(inPieces(failing(), () => 0)).rejects.toThrow('broken');
});
