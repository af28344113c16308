import { expect, test } from 'vitest';
import { OBJECT_FAILURES } from '../../src/cluster/index.ts';
import { PUBLISH_LIMITS, REFUSALS } from '../../src/leader/index.ts';
import { codeOf, read, tableUnder } from './markdown.ts';

const PAGE = 'docs/reference/metrics.md';

test.each<[string, Readonly<Record<string, string>>]>([
  ['Why publishing fails', OBJECT_FAILURES],
  ['Why what is published is refused', REFUSALS],
])('"%s" has exactly the reasons, in their order, and says what to do', (heading, reasons) => {
  const rows = tableUnder(PAGE, heading);
  expect(rows.map((row) => codeOf(row.reason))).toEqual(Object.keys(reasons));
  for (const row of rows) expect(row['what to do']).not.toBe('');
});

test('the times that the pages name are those of the source', () => {
  const { election, historyEveryMs, longestPauseMs } = PUBLISH_LIMITS;
  const operations = read('docs/operations.md');
  expect(operations).toContain(`stops leading by itself ${election.leadMs / 1000} s after its last renewal`);
  expect(operations).toContain(`${election.durationMs / 1000} s after it another leads`);
  expect(operations).toContain(`every ${election.renewEveryMs / 1000} s`);
  expect(operations).toContain(`every ${historyEveryMs / 60_000} minutes, and when the leader stops`);
  expect(read(PAGE)).toContain(
    `to ${election.longestPauseMs / 1000} s for the Lease, to ${longestPauseMs / 60_000} minutes for ConfigMaps`,
  );
});
