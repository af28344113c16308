import { join } from 'node:path';
import { expect, test } from 'vitest';
import { stringify } from 'yaml';
import { REPORT_RESULTS } from '../../src/core/catalog/report-results.ts';
import { openApiDocument } from '../../src/serve/reports/openapi.ts';
import { codeOf, ROOT, tableUnder } from './markdown.ts';

const HEADER =
  '# Made of the schemas in src/core/schema/report.ts: npx vitest run test/docs/openapi.test.ts --update\n';

test('docs/openapi.yaml is what the schemas say', async () => {
  const document = HEADER + stringify(openApiDocument(), { lineWidth: 120, aliasDuplicateObjects: false });
  await expect(document).toMatchFileSnapshot(join(ROOT, 'docs/openapi.yaml'));
});

test('the page has exactly the results, in their order, with their statuses', () => {
  const rows = tableUnder('docs/reports.md', 'Answers');
  expect(rows.map((row) => codeOf(row.reason))).toEqual(Object.keys(REPORT_RESULTS));
  expect(rows.map((row) => Number(row.status))).toEqual(
    Object.values(REPORT_RESULTS).map(({ status }) => status),
  );
  for (const row of rows) expect(row['what to do']).not.toBe('');
});
