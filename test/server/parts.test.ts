import { expect, it } from 'vitest';
import { inOrder } from '../../src/manager/index.ts';
import { PARTS } from '../../src/server/cluster.ts';

const started = inOrder(PARTS).map(({ name }) => name);

it('has a part for everything that another needs, and names each once', () => {
  expect(started.toSorted()).toEqual(PARTS.map(({ name }) => name).toSorted());
  expect(new Set(started).size).toBe(PARTS.length);
});

// Events reach parts in the reverse order of their start.
it.each([
  ['inspection', 'measurement', 'gateways are asked about a pod before its removal has ended'],
  ['termination review', 'hold', 'the review asks about a pod that Hold forgets with the same event'],
])('%s hears events before %s: %s', (first, then) => {
  expect(started.indexOf(first)).toBeGreaterThan(started.indexOf(then));
  expect(started).toContain(then);
});
