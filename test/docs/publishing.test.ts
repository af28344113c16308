import { expect, test } from 'vitest';
import { PUBLISH_LIMITS } from '../../src/leader/index.ts';
import { read } from './markdown.ts';

const PAGE = 'docs/reference/metrics.md';

test('the times that the pages name are those of the source', () => {
  const { election, historyEveryMs, longestPauseMs } = PUBLISH_LIMITS;
  const operations = read('docs/reference/operations.md');
  expect(operations).toContain(`stops leading ${election.leadMs / 1000} s after its last renewal`);
  expect(operations).toContain(`${election.durationMs / 1000} s after it another leads`);
  expect(operations).toContain(`every ${election.renewEveryMs / 1000} s`);
  expect(operations).toContain(`every ${historyEveryMs / 60_000} minutes, and when the leader stops`);
  expect(read(PAGE)).toContain(
    `to ${election.longestPauseMs / 1000} s for the Lease, to ${longestPauseMs / 60_000} minutes for ConfigMaps`,
  );
});
