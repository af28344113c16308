import { expect, test } from 'vitest';
import { TABLE_PAGES, TABLES } from '../../deploy/generate/tables.ts';
import { read } from './markdown.ts';

// Whether the pages are current is tested with everything else that is generated (test/deploy/generated.test.ts).

test.each(Object.keys(TABLES))('the table %s is on a page', (name) => {
  expect(TABLE_PAGES.filter(({ path }) => read(path).includes(`\n<!-- table: ${name} -->\n`))).not.toEqual(
    [],
  );
});

// An empty cell is right only where a metric has no labels.
test.each(Object.entries(TABLES))('every cell of the table %s says something', (_, text) => {
  const columns = text().split('\n')[0]?.split('|').slice(1, -1) ?? [];
  for (const line of text().split('\n').slice(2)) {
    // Below its own flags, a command has a line with those that it shares.
    if (!line.startsWith('|')) continue;
    const cells = line.split(/(?<!\\)\|/).slice(1, -1);
    const empty = columns.filter((_, index) => cells[index]?.trim() === '').map((column) => column.trim());
    expect([line, empty.filter((column) => column !== 'labels')]).toEqual([line, []]);
  }
});
