import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { WATCH_LIMITS } from '../../src/cluster/index.ts';
import { Backoff } from '../../src/timing/backoff.ts';

const pauses = (random: number, retryAfterMs: readonly (number | undefined)[]) => {
  const backoff = new Backoff(WATCH_LIMITS, () => random);
  return retryAfterMs.map((each) => backoff.next(each));
};

describe('pauses', () => {
  it.each([
    { name: 'the shortest', random: 0, expected: [250, 500, 1_000, 2_000, 4_000, 7_500, 7_500] },
    { name: 'the longest', random: 1, expected: [500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000] },
  ])('double up to a bound: $name', ({ random, expected }) => {
    expect(pauses(random, Array(7).fill(undefined))).toEqual(expected);
  });

  it.each([
    { name: 'is longer', retryAfterMs: 5_000, expected: 5_125 },
    { name: 'is shorter than the pause would be', retryAfterMs: 100, expected: 375 },
    { name: 'is absurd', retryAfterMs: 86_400_000, expected: 60_125 },
  ])('follow a Retry-After that $name', ({ retryAfterMs, expected }) => {
    expect(pauses(0.5, [retryAfterMs])).toEqual([expected]);
  });

  it('begin at the first again after a reset', () => {
    const backoff = new Backoff(WATCH_LIMITS, () => 0);
    for (let count = 0; count < 9; count++) backoff.next();
    backoff.reset();
    expect(backoff.next()).toBe(250);
  });

  it('are never shorter than what was asked for, never under the first, and differ from client to client', () => {
    const random = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
    fc.assert(
      fc.property(random, fc.array(fc.nat(100_000), { minLength: 1, maxLength: 40 }), (chance, asked) => {
        pauses(chance, asked).forEach((pause, index) => {
          expect(pause).toBeGreaterThanOrEqual(Math.min(asked[index] ?? 0, 60_000));
          expect(pause).toBeGreaterThanOrEqual(WATCH_LIMITS.firstPauseMs / 2);
        });
      }),
    );
    expect(pauses(0.1, [5_000])).not.toEqual(pauses(0.9, [5_000]));
  });
});
