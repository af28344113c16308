import { expect, test } from 'vitest';
import { ChangeTable, changeLine } from '../../src/cli/watch-output.ts';
import { CHANGES, DISCARDS } from '../../src/core/lag/index.ts';
import { blocksOf, codeOf, tableUnder } from '../docs/markdown.ts';

const PAGE = 'docs/try.md';
const REFERENCE = 'docs/reference/commands.md';

test('the table has exactly the changes, in their order', () => {
  const rows = tableUnder(REFERENCE, 'What a line of linger watch says');
  expect(rows.map((row) => codeOf(row.change))).toEqual([...CHANGES]);
});

test('the table has exactly the reasons for which there is no lag', () => {
  const rows = tableUnder('docs/reference/metrics.md', 'Why a removal gives no sample');
  const reasons = rows.map((row) => codeOf(row.reason));
  expect(reasons.toSorted()).toEqual(Object.keys(DISCARDS).toSorted());
});

test('the examples are what is printed', () => {
  const change = {
    change: 'removed',
    source: 'Endpoints',
    namespace: 'shop',
    service: 'web',
    uid: undefined,
    pod: 'web-66d7fb69bc-ffx9g',
    ip: '10.202.0.20',
    withdrawn: true,
    at: 0,
    lag: 0.026,
    seen: 'live',
  } as const;
  const time = new Date('2026-11-21T11:04:47.023Z');
  const blocks = blocksOf(PAGE);
  const json = blocksOf(REFERENCE).find(({ text }) => text.includes('"change"'))?.text ?? '';
  expect(JSON.parse(json)).toEqual(changeLine(change, time));
  const table = new ChangeTable({ namespaces: false, colour: false });
  const shown = blocks.find(({ text }) => text.includes('TIME (UTC)'))?.text ?? '';
  expect(shown.startsWith(table.header())).toBe(true);
  expect(shown).toContain(table.row(change, time));
});
