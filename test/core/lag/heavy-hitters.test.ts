import { expect, it } from 'vitest';
import { setNewest } from '../../../src/core/api/index.ts';
import { HeavyHitters } from '../../../src/core/lag/heavy-hitters.ts';

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

it('a name that was busy a week ago gives way to one that is busy now', () => {
  const day = 86_400;
  const busiest = new HeavyHitters(1, () => ({}));
  busiest.count('rush', 0, 1_000);
  // Less often than the rush was within a day, and more often than what is left of it.
  expect(busiest.count('shop', day - 1, 100)).toBeUndefined();
  for (let days = 1; days < 7; days += 1) busiest.count('shop', days * day, 10);
  expect(busiest.count('shop', 7 * day, 10)).toBeDefined();
  expect([...busiest.kept.keys()]).toEqual(['shop']);
});
