import { expect, test } from 'vitest';
import { CONDITIONS } from '../../src/core/catalog/conditions.ts';
import { discoveryConsumerSpec } from '../../src/core/schema/consumer.ts';
import { discoveryConsumerStatus } from '../../src/core/schema/consumer-status.ts';
import { PUBLISH_LIMITS } from '../../src/publish/limits.ts';
import { MOST_CONSUMERS } from '../../src/sources/consumers.ts';
import { codeOf, codesOf, read, tableUnder } from './markdown.ts';
import { leafPaths } from './schema-leaves.ts';

const PAGE = 'docs/consumers.md';

test('the table has exactly the fields of the schema', () => {
  const documented = tableUnder(PAGE, 'DiscoveryConsumer fields').map((each) => codeOf(each.field));
  expect(documented).toEqual(leafPaths(discoveryConsumerSpec));
});

test('the table has exactly the fields of the status', () => {
  const documented = tableUnder(PAGE, 'Status').flatMap((each) => codesOf(each.field));
  expect(documented.toSorted()).toEqual(leafPaths(discoveryConsumerStatus).toSorted());
});

test('the table has exactly the reasons of conditions, each with its status and what to do', () => {
  const rows = tableUnder(PAGE, 'Conditions');
  expect(rows.map((row) => [codeOf(row.reason), row.status, row['what it means']])).toEqual(
    Object.entries(CONDITIONS).map(([reason, { status, summary }]) => [reason, status, summary]),
  );
  for (const row of rows) expect(row['what to do']).not.toBe('');
});

test('the numbers that the page names are those of the source', () => {
  const { toldEveryMs, toldAgainMs, statusAgainMs } = PUBLISH_LIMITS;
  const page = read(PAGE).replaceAll(/\s+/g, ' ');
  expect(toldEveryMs).toBe(60_000);
  expect(page).toContain(`at most every minute, and else every ${toldAgainMs / 60_000} minutes`);
  expect(page).toContain(`and every ${statusAgainMs / 60_000} minutes where there are only more samples`);
  expect(page).toContain(`At most ${MOST_CONSUMERS} of the cluster's are followed`);
});
