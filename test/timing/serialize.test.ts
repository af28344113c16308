import { expect, it } from 'vitest';
import { serialize } from '../../src/timing/pieces.ts';

it('calls wait for those before them, also for one that fails', async () => {
  const events: string[] = [];
  const work = serialize(async (name: string) => {
    events.push(`${name} begins`);
    await new Promise((resolve) => setImmediate(resolve));
    events.push(`${name} ends`);
    if (name === 'bad') throw new Error('no');
    return name.length;
  });
  const all = ['first', 'bad', 'last'].map(work);
  expect(await Promise.allSettled(all)).toMatchObject([
    { value: 5 },
    { reason: { message: 'no' } },
    { value: 4 },
  ]);
  expect(events).toEqual([
    ...['first begins', 'first ends'],
    ...['bad begins', 'bad ends'],
    ...['last begins', 'last ends'],
  ]);
});
