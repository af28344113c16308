import { Histogram, Registry } from '@prometheus-io/client';
import { expect, test } from 'vitest';
import { createLogger } from '../../src/telemetry/logs.ts';
import { onLoop, reportLoopTime, stepsOnLoop } from '../../src/telemetry/loop-time.ts';

/** Holds the event loop. */
function hold(milliseconds: number): void {
  const until = performance.now() + milliseconds;
  while (performance.now() < until);
}

test('long work is counted, and logged where reviews had to wait; once for a while', async () => {
  const registry = new Registry();
  const lines: string[] = [];
  const logger = createLogger('info', { write: (line: string) => void lines.push(line) });
  const named = { name: 'blocked', help: 'blocked', labelNames: ['work'] as const, buckets: [0.25] };
  let isAnswering = false;
  reportLoopTime(new Histogram({ ...named, registers: [registry] }), logger, () => isAnswering);

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

function* steps(): Generator<void, void> {
  yield;
  hold(260);
  yield;
}
