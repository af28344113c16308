import { describe, expect, test } from 'vitest';
import { certificateErrorCodes } from '../../src/certs/index.ts';
import { CONNECTION_ERRORS } from '../../src/cluster/index.ts';
import { ERRORS } from '../../src/core/api/index.ts';
import { NOTES, type NoteCode, SKIP_REASONS } from '../../src/core/decision/index.ts';
import { LOSS_CAUSES } from '../../src/prove/index.ts';
import { codeOf, codesOf, type Row, tableUnder } from './markdown.ts';

const column = (rows: readonly Row[], name: string) => rows.map((row) => codeOf(row[name]));

const SKIP_REASON_NAMES = Object.keys(SKIP_REASONS);

describe('reasons', () => {
  const documented = tableUnder('docs/reference/reasons.md', 'Skip reasons');

  test('the table has exactly the skip reasons, in the order in which they are tried', () => {
    expect(column(documented, 'reason')).toEqual(SKIP_REASON_NAMES);
  });

  test('the README groups all of them, in the same order', () => {
    const grouped = tableUnder('README.md', 'How it decides').flatMap((row) => codesOf(row.reasons));
    expect(grouped).toEqual(SKIP_REASON_NAMES);
  });

  test.each(documented)('$reason says what it means and what to do', (row) => {
    expect(row['what it means']).not.toBe('');
    expect(row['what to do']).not.toBe('');
  });
});

describe('notes', () => {
  const documented = tableUnder('docs/reference/reasons.md', 'Notes');

  test('the table has exactly the notes, in the catalogue’s order', () => {
    expect(column(documented, 'note')).toEqual(Object.keys(NOTES));
  });

  test.each(Object.keys(NOTES) as NoteCode[])('%s: whether it warns is documented', (code) => {
    const row = documented.find((each) => codeOf(each.note) === code);
    expect(row?.warns).toBe(NOTES[code].warns ? 'yes' : 'no');
    expect(row?.['what to do']).not.toBe('');
  });
});

test('the table of what explains a lost request has exactly the causes of prove', () => {
  const rows = tableUnder('docs/reference/commands.md', 'Why a request is lost');
  expect(column(rows, 'cause')).toEqual(Object.keys(LOSS_CAUSES));
  for (const row of rows) expect(row.meaning).not.toBe('');
});

describe('errors', () => {
  const PAGE = 'docs/reference/errors.md';

  test('the table has exactly the error codes, in the catalogue’s order', () => {
    expect(column(tableUnder(PAGE, 'Codes'), 'code')).toEqual(Object.keys(ERRORS));
  });

  test('the table of connections has exactly their codes, in the catalogue’s order', () => {
    const rows = tableUnder(PAGE, 'Connection codes');
    expect(column(rows, 'code')).toEqual(Object.keys(CONNECTION_ERRORS));
    for (const row of rows) expect(row['what to do']).not.toBe('');
  });

  // The certificates' own page has the same table.
  test.each([
    [PAGE, 'Certificate codes'],
    ['certs/README.md', 'When it refuses'],
  ])('%s has exactly the certificate codes, in the catalogue’s order', (page, heading) => {
    expect(column(tableUnder(page, heading), 'code')).toEqual(certificateErrorCodes);
  });
});
