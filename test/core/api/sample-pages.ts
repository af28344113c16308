import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PAGE_FORMAT_NAMES, type PageFormat } from '../../../src/core/api/index.ts';

const PAGES = join(import.meta.dirname, '../../testdata/pages');

/** What is said of endpoints, each `ADDRESS:PORT` or an address; a text: the problem with the page. */
type Expected = Readonly<Record<string, 'using' | 'listed' | 'absent'>> | string;

/** Pages as their servers sent them, a folder for each format, with what is expected of them in its `expected.json`. */
export const SAMPLE_PAGES = PAGE_FORMAT_NAMES.flatMap((format: PageFormat) => {
  const expected = JSON.parse(readFileSync(join(PAGES, format, 'expected.json'), 'utf8')) as Record<
    string,
    Expected
  >;
  const names = readdirSync(join(PAGES, format)).filter((name) => name !== 'expected.json');
  return names.map((name) => ({
    format,
    name,
    bytes: readFileSync(join(PAGES, format, name)),
    expected: expected[name] ?? `${format}/expected.json does not say what is expected of this page`,
  }));
});
