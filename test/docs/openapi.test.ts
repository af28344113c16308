import { join } from 'node:path';
import { expect, test } from 'vitest';
import { stringify } from 'yaml';
import { REPORT_RESULTS, reportsOpenApi } from '../../src/core/api/index.ts';
import { codeOf, ROOT, tableUnder } from './markdown.ts';

const HEADER =
  '# Made of the schemas in src/core/api/report-request.ts: npx vitest run test/docs/openapi.test.ts --update\n';

test('docs/openapi.yaml is what the schemas say', async () => {
  const document = HEADER + stringify(reportsOpenApi(), { lineWidth: 120, aliasDuplicateObjects: false });
  await expect(document).toMatchFileSnapshot(join(ROOT, 'docs/openapi.yaml'));
});

test('the page has exactly the results, in their order, with their statuses', () => {
  const rows = tableUnder('docs/reference/consumers.md', 'Answers to reports');
  expect(rows.map((row) => codeOf(row.reason))).toEqual(Object.keys(REPORT_RESULTS));
  expect(rows.map((row) => Number(row.status))).toEqual(
    Object.values(REPORT_RESULTS).map(({ status }) => status),
  );
  for (const row of rows) expect(row['what to do']).not.toBe('');
});
