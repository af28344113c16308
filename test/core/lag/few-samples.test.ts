import { expect, test } from 'vitest';
import { randomOf } from '../../property/random.ts';

/*
 * What fewer than a hundred samples of a consumer could say: a hold of 1.2 times the largest of n, and 3 s. How many of a thousand
 * removals would be released early; the built-in percentile allows 10. The table of docs/decisions/0056.
 */
type Draw = (random: () => number) => number;

const hump =
  (share: number): Draw =>
  (random) =>
    random() < share ? 30 + 10 * random() : random();
const pareto =
  (scale: number): Draw =>
  (random) =>
    scale / (1 - random()) ** (1 / 1.5);

const STORIES: Readonly<Record<string, Draw>> = {
  'uniform, 0 to 10 s': (random) => 10 * random(),
  '1 % at 30 to 40 s': hump(0.01),
  '5 % at 30 to 40 s': hump(0.05),
  'Pareto 1.5 from 0.1 s': pareto(0.1),
  'Pareto 1.5 from 1 s': pareto(1),
  'Pareto 1.5 from 10 s': pareto(10),
};
const SIZES = [20, 40, 60, 80, 100] as const;
const TRIALS = 4_000;
const ALLOWED = 10;

function earlyPerThousand(draw: Draw, n: number): number {
  const random = randomOf(7);
  let early = 0;
  for (let trial = 0; trial < TRIALS; trial += 1) {
    let largest = 0;
    for (let sample = 0; sample < n; sample += 1) largest = Math.max(largest, draw(random));
    const held = 1.2 * largest + 3;
    for (let removal = 0; removal < 10; removal += 1) if (draw(random) > held) early += 1;
  }
  return early / (TRIALS / 100);
}

test('forty samples allow no shorter hold for every story, and a hundred do', { timeout: 60_000 }, () => {
  const found = Object.entries(STORIES).map(([story, draw]) => ({
    story,
    early: SIZES.map((n) => earlyPerThousand(draw, n)),
  }));
  console.log(
    found.map(({ story, early }) => `${story}: ${early.map((each) => each.toFixed(1))}`).join('\n'),
  );
  const worstAt = (n: (typeof SIZES)[number]) =>
    Math.max(...found.map(({ early }) => early[SIZES.indexOf(n)] ?? Number.NaN));
  expect(worstAt(20)).toBeGreaterThan(ALLOWED);
  expect(worstAt(40)).toBeGreaterThan(ALLOWED);
  expect(worstAt(60)).toBeGreaterThan(ALLOWED);
  expect(worstAt(100)).toBeLessThanOrEqual(ALLOWED);
});
