import { expect, test } from 'vitest';
import { consumerOf } from '../../src/core/lag/index.ts';
import { limitsOf } from '../../src/measurement/canary/canary.ts';
import { FLIP_LIMITS } from '../../src/measurement/canary/flip.ts';
import { FLIP_RESULTS } from '../../src/measurement/requests/probe.ts';
import { codeOf, read, tableUnder } from '../docs/markdown.ts';

const PAGE = 'docs/measuring.md';

test('the table has exactly the results of flips, in the catalogue’s order', () => {
  const rows = tableUnder('docs/reference/consumers.md', 'How a flip ends');
  expect(rows.map((row) => codeOf(row.result))).toEqual(Object.keys(FLIP_RESULTS));
  for (const row of rows) expect(row['what to do']).not.toBe('');
});

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
  const [, short] =
    /20 instances behind one URL, 2 replicas \| (.* short on average) \|/.exec(read(PAGE)) ?? [];
  const probed = consumerOf('edge', { measure: { probe: { url: 'https://edge.example/' } } });
  expect(limitsOf(probed, false)[0]).toContain(`of 20 the slowest is timed ${short}.`);
});
