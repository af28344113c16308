import { expect, test } from 'vitest';
import { consumerOf } from '../../src/core/lag/index.ts';
import { limitsOf } from '../../src/measurement/canary/canary.ts';
import { FLIP_LIMITS } from '../../src/measurement/canary/flip.ts';
import { read } from '../docs/markdown.ts';

const PAGE = 'docs/measuring.md';

test('the limits that it names are those of the program', () => {
  const { everyMs, attemptMs, askMs, baselineMs, followWithinMs, longestMs } = FLIP_LIMITS;
  const text = read(PAGE);
  for (const said of [
    `every ${everyMs} ms`,
    `${attemptMs / 1000} s for an answer`,
    `Every ${askMs} ms`,
    `for up to ${baselineMs / 1000} s`,
    `within ${followWithinMs / 1000} s`,
    `${longestMs / 60_000} minutes`,
  ])
    expect(text).toContain(said);
});

test('it says of many instances behind a URL what their table says', () => {
  const [, short] = /20 instances behind one URL, 2 replicas\|(.* short on average)\|/.exec(read(PAGE)) ?? [];
  const probed = consumerOf('edge', { measure: { probe: { url: 'https://edge.example/' } } });
  expect(limitsOf(probed, false)[0]).toContain(`of 20 the slowest is timed ${short}.`);
});
