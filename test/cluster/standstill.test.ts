import { expect, it } from 'vitest';
import { Standstill } from '../../src/cluster/standstill.ts';

type Look = readonly [now: number, said: ReturnType<Standstill['look']>];

it.each<{ name: string; looks: readonly Look[] }>([
  {
    name: 'none',
    looks: [
      [0, undefined],
      [100, undefined],
      [200, undefined],
    ],
  },
  {
    name: 'a pause that is tolerated',
    looks: [
      [0, undefined],
      [1_000, undefined],
    ],
  },
  {
    name: 'it counts from the last look, and is over when nothing has happened for a while',
    looks: [
      [100, undefined],
      [1_101, { since: 100 }],
      [1_900, undefined],
      [2_600, undefined],
      [3_100, undefined],
      [3_101, 'recovered'],
      [3_200, undefined],
    ],
  },
])('$name', ({ looks }) => {
  const standstill = new Standstill(1_000, 2_000);
  for (const [now, said] of looks) expect(standstill.look(now)).toEqual(said);
});

it('another one, before the first is over, begins anew', () => {
  const standstill = new Standstill(1_000, 2_000);
  for (const now of [0, 1_500, 2_000]) standstill.look(now);
  expect(standstill.look(3_400)).toEqual({ since: 2_000 });
  expect(standstill.look(4_000)).toBeUndefined();
  expect(standstill.look(4_900)).toBeUndefined();
  expect(standstill.look(5_400)).toBe('recovered');
});
