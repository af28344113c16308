import { beforeEach, expect, it, onTestFinished, vi } from 'vitest';
import { tick } from '../../src/timing/pause.ts';

const NEVER = new AbortController().signal;

beforeEach(() => {
  vi.useFakeTimers({ now: 0 });
  onTestFinished(() => void vi.useRealTimers());
});

/** When a tick that begins at this instant ends, by the process's clock. Milliseconds. */
async function endOf(begunAt: number, milliseconds: number): Promise<number> {
  await vi.advanceTimersByTimeAsync(begunAt - performance.now());
  let end = Number.NaN;
  void tick(milliseconds, NEVER).then(() => {
    end = performance.now();
  });
  await vi.advanceTimersByTimeAsync(milliseconds + 1_000);
  return end;
}

it.each([
  ['right after a beat, to the next', 1_000.2, 250, 1_250],
  ['a little before a beat, as a timer may fire, not to that one', 999.6, 250, 1_250],
  ['late after a beat, to the nearest', 1_200, 250, 1_500],
  ['a second, as many beats', 1_000.2, 1_000, 2_000],
  ['what is no whole number of beats, to the nearest', 1_000, 1_100, 2_000],
  ['a longer one', 1_000, 1_200, 2_250],
  ['a beat of its own where it is shorter than a beat', 1_030, 40, 1_070],
])('ends %s', async (_, begunAt, milliseconds, end) => {
  // Timers have whole milliseconds.
  expect(Math.abs((await endOf(begunAt, milliseconds)) - end)).toBeLessThan(1);
});

it('wakes all loops together, and keeps each at its pace', async () => {
  const ended = new AbortController();
  const wakes = new Map<number, number[]>();
  const intervals = [250, 500, 1_000, 1_000];
  for (const [index, every] of intervals.entries()) {
    await vi.advanceTimersByTimeAsync(37);
    void (async () => {
      while (await tick(every, ended.signal)) {
        const at = Math.round(performance.now());
        wakes.set(at, [...(wakes.get(at) ?? []), index]);
      }
    })();
  }
  await vi.advanceTimersByTimeAsync(10_000);
  ended.abort();
  expect([...wakes.keys()].every((at) => at % 250 === 0)).toBe(true);
  for (const [index, every] of intervals.entries()) {
    const own = [...wakes.values()].filter((loops) => loops.includes(index));
    expect(Math.abs(own.length - 10_000 / every)).toBeLessThanOrEqual(1);
  }
  expect(wakes.size).toBeLessThanOrEqual(41);
});

it('ends at once when the signal aborts, and alone', async () => {
  const stopping = new AbortController();
  const results: string[] = [];
  void tick(1_000, stopping.signal).then((elapsed) => results.push(`stopped ${elapsed}`));
  void tick(1_000, NEVER).then((elapsed) => results.push(`other ${elapsed}`));
  await vi.advanceTimersByTimeAsync(300);
  stopping.abort();
  await vi.advanceTimersByTimeAsync(0);
  expect(results).toEqual(['stopped false']);
  expect(await tick(1_000, stopping.signal)).toBe(false);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(results).toEqual(['stopped false', 'other true']);
});
