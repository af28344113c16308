import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { inPieces, Slices } from '../../src/timing/index.ts';

/** Computations whose steps take 1 ms each, and turns of an event loop that come when the test says so. */
function loop() {
  let now = 0;
  const turns: (() => void)[] = [];
  const taken = new Map<string, number>();
  const slices = new Slices(
    () => now,
    (next) => void turns.push(next),
  );
  function* work(name: string, steps: number): Generator<undefined, string> {
    for (let at = 0; at < steps; at += 1) {
      now += 1;
      taken.set(name, (taken.get(name) ?? 0) + 1);
      yield;
    }
    return `${name} done`;
  }
  /** @returns the milliseconds of the next turn; undefined: there is nothing to do */
  const next = () => {
    const begun = now;
    const call = turns.shift();
    call?.();
    return call && now - begun;
  };
  return { slices, work, taken, next, turns };
}

describe('long computations', () => {
  it('together take a slice of each turn, however many there are, and none waits for the others', async () => {
    const { slices, work, taken, next } = loop();
    const names = Array.from({ length: 20 }, (_, index) => `w${index}`);
    const all = names.map((name) => slices.run(work(name, 30)));
    const spans: number[] = [];
    for (let turns = 0; turns < 10; turns += 1) spans.push(next() ?? 0);
    expect(new Set(taken.keys()).size).toBe(names.length);
    for (let span = next(); span !== undefined; span = next()) spans.push(span);
    expect(Math.max(...spans)).toBeLessThanOrEqual(6);
    expect(await Promise.all(all)).toEqual(names.map((name) => `${name} done`));
    expect([...taken.values()]).toEqual(names.map(() => 30));
  });

  it('that are quick are done at once, unless another goes on', async () => {
    const { slices, work, taken, turns, next } = loop();
    const quick = slices.run(work('quick', 2));
    expect(taken.get('quick')).toBe(2);
    expect(turns).toHaveLength(0);
    expect(await quick).toBe('quick done');
    void slices.run(work('long', 50));
    void slices.run(work('second', 1));
    expect(taken.get('second')).toBeUndefined();
    expect(turns).toHaveLength(1);
    next();
    expect(taken.get('second')).toBe(1);
  });

  it('may begin others, and fail alone', async () => {
    const { slices, work, next } = loop();
    let inner: Promise<string> | undefined;
    function* outer(): Generator<undefined, never> {
      inner = slices.run(work('inner', 3));
      yield;
      throw new Error('broken');
    }
    const failing = slices.run(outer());
    await expect(failing).rejects.toThrow('broken');
    while (next() !== undefined);
    expect(await inner).toBe('inner done');
  });
});

it('let the event loop turn', async () => {
  let now = 0;
  const slices = new Slices(() => now, setImmediate);
  function* busy() {
    for (; now < 100; now += 1) yield;
    return 'done';
  }
  let ended = false;
  const working = slices.run(busy()).finally(() => {
    ended = true;
  });
  const seen: number[] = [];
  while (!ended) {
    seen.push(now);
    await turn();
  }
  expect(await working).toBe('done');
  const between = seen.slice(1).map((count, index) => count - (seen[index] ?? 0));
  expect(Math.max(...between)).toBeLessThanOrEqual(2 * 6);
});

it('of this process all go on at once', async () => {
  function* one() {
    yield;
    return 1;
  }
  expect(await Promise.all([inPieces(one()), inPieces(one())])).toEqual([1, 1]);
});
