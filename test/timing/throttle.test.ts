import { beforeEach, expect, it, onTestFinished, vi } from 'vitest';
import { throttle } from '../../src/timing/pacing.ts';

beforeEach(() => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
});

/** Something that may be called every 100 ms; says at which milliseconds it was. */
function called() {
  const begun = Date.now();
  const stopping = new AbortController();
  const at: number[] = [];
  const now = () => Date.now() - begun;
  const ask = throttle(100, () => void at.push(now()), { clock: now, signal: stopping.signal });
  return { at, ask, stop: () => stopping.abort() };
}

it('calls soon after the first request', () => {
  const { at, ask } = called();
  vi.advanceTimersByTime(1_000);
  ask();
  vi.advanceTimersByTime(2);
  expect(at).toHaveLength(1);
});

it('makes one call of many requests', () => {
  const { at, ask } = called();
  for (let index = 0; index < 50; index += 1) ask();
  vi.advanceTimersByTime(1_000);
  expect(at).toHaveLength(1);
});

it('calls no more often than every 100 ms, and not without a request', () => {
  const { at, ask } = called();
  for (let index = 0; index < 350; index += 1) {
    ask();
    vi.advanceTimersByTime(1);
  }
  vi.advanceTimersByTime(1_000);
  expect(at).toHaveLength(5);
  for (const [index, instant] of at.slice(1).entries())
    expect(instant - (at[index] ?? 0)).toBeGreaterThanOrEqual(100);
});

it('does not lose the last request', () => {
  const { at, ask } = called();
  ask();
  vi.advanceTimersByTime(10);
  ask();
  vi.advanceTimersByTime(1_000);
  expect(at).toHaveLength(2);
});

it('calls no more once the signal has aborted', () => {
  const { at, ask, stop } = called();
  ask();
  stop();
  ask();
  vi.advanceTimersByTime(1_000);
  expect(at).toEqual([]);
});
