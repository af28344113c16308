import { expect, it } from 'vitest';
import { setNewest } from '../../src/api/index.ts';
import { HeavyHitters } from '../../src/lag/heavy-hitters.ts';

it('a Map with a bound keeps what was set last', () => {
  const map = new Map<string, number>();
  for (const [value, key] of ['a', 'b', 'c', 'a', 'd'].entries()) {
    setNewest(map, key, value, 3);
    expect(map.size).toBeLessThanOrEqual(3);
  }
  expect([...map]).toEqual([
    ['c', 2],
    ['a', 3],
    ['d', 4],
  ]);
  setNewest(map, '', 5, 3);
  setNewest(map, 'e', 6, 3);
  setNewest(map, 'f', 7, 3);
  setNewest(map, 'g', 8, 3);
  expect([...map.keys()]).toEqual(['e', 'f', 'g']);
});

it('a name that is counted again keeps its value', () => {
  const busiest = new HeavyHitters(2, () => ({}));
  const value = busiest.count('shop', 0);
  expect(busiest.count('shop', 1)).toBe(value);
  expect(busiest.count('pay', 2)).not.toBe(value);
});
