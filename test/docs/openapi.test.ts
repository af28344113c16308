import { join } from 'node:path';
import { expect, test } from 'vitest';
import { stringify } from 'yaml';
import { reportsOpenApi } from '../../src/core/api/index.ts';
import { ROOT } from './markdown.ts';

const HEADER =
  '# Made of the schemas in src/core/api/report-request.ts: npx vitest run test/docs/openapi.test.ts --update\n';

test('docs/openapi.yaml is what the schemas say', async () => {
  const document = HEADER + stringify(reportsOpenApi(), { lineWidth: 120, aliasDuplicateObjects: false });
  await expect(document).toMatchFileSnapshot(join(ROOT, 'docs/openapi.yaml'));
});
