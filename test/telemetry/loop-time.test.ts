import { setTimeout as sleep } from 'node:timers/promises';
import { Histogram, Registry } from '@prometheus-io/client';
import { expect, onTestFinished, test, vi } from 'vitest';
import { createLogger } from '../../src/telemetry/logs.ts';
import { onLoop, reportLoopTime, stepsOnLoop } from '../../src/telemetry/loop-time.ts';
import { tick } from '../../src/timing/index.ts';

/** Holds the event loop. */
function hold(milliseconds: number): void {
  const until = performance.now() + milliseconds;
  while (performance.now() < until);
}

function reporting(isAnswering: () => boolean) {
  const registry = new Registry();
  const lines: string[] = [];
  const logger = createLogger('info', { write: (line: string) => void lines.push(line) });
  const named = { name: 'blocked', help: 'blocked', labelNames: ['work'] as const, buckets: [0.25] };
  const ending = new AbortController();
  onTestFinished(() => ending.abort());
  const histogram = new Histogram({ ...named, registers: [registry] });
  reportLoopTime(histogram, logger, isAnswering, (ms) => tick(ms, ending.signal));
  return { registry, lines };
}

test('long work is counted, and logged where reviews had to wait; once for a while', async () => {
  let isAnswering = false;
  const { registry, lines } = reporting(() => isAnswering);

  // Before a review can come, none is delayed.
  onLoop('policies', () => hold(260));
  expect(lines).toEqual([]);
  isAnswering = true;
  expect(onLoop('watch', () => 7)).toBe(7);
  onLoop('review', () => hold(20));
  expect(() =>
    onLoop('watch', () => {
      hold(260);
      throw new Error('of the work');
    }),
  ).toThrow('of the work');
  for (const _ of stepsOnLoop('watch', steps())) expect(lines).toHaveLength(1);

  expect(lines.map((line) => JSON.parse(line))).toMatchObject([{ level: 'warn', work: 'watch' }]);
  const text = await registry.metrics();
  expect(text).toContain('blocked_count{work="review"} 1');
  expect(text).toContain('blocked_count{work="watch"} 2');
  expect(text).toContain('blocked_count{work="policies"} 1');
});

test('long work without a name is logged, too, and named work is not logged twice', async () => {
  const { lines } = reporting(() => true);
  const works = () => lines.map((line) => (JSON.parse(line) as { work: string }).work);
  onLoop('watch', () => hold(600));
  await sleep(300);
  expect(works()).toEqual(['watch']);
  hold(600);
  await vi.waitFor(() => expect(works()).toEqual(['watch', 'other']), 5_000);
});

function* steps(): Generator<void, void> {
  yield;
  hold(260);
  yield;
}
