import { describe, expect, test } from 'vitest';
import { readCommandLine, USAGE_EXIT_CODE } from '../../src/cli/command-line.ts';
import { VERBS } from '../../src/cli/commands.ts';
import { variableName } from '../../src/cli/flags.ts';
import { codeOf, PAGES, read, tableUnder } from '../docs/markdown.ts';

const PAGE = 'docs/reference/commands.md';

test('the table has exactly the commands', () => {
  const documented = tableUnder(PAGE, 'Commands, flags and variables').map((row) => codeOf(row.command));
  expect(documented).toEqual(Object.keys(VERBS));
});

test.each(Object.keys(VERBS))('%s is a command that the command line knows', (command) => {
  const operands = command === 'completion' ? ['bash'] : [];
  expect(readCommandLine([command, ...operands], {}, '0.0.0').command).toBe(command);
});

test.each(PAGES)('%s names no LINGER_ variable that does not exist', (page) => {
  const known = Object.keys(VERBS.serve.flags).map(variableName);
  const named = [...read(page).matchAll(/\bLINGER_[A-Z_]+\b/g)].map(([name]) => name);
  expect(named.filter((name) => name !== 'LINGER_' && !known.includes(name))).toEqual([]);
});

describe('exit codes', () => {
  const documented = tableUnder(PAGE, 'Exit codes').map((row) => Number(codeOf(row['exit code'])));

  test('there is a row for each that the program names', () => {
    for (const code of [0, USAGE_EXIT_CODE, 3, 130, 143]) expect(documented).toContain(code);
  });

  test('those of the errors page are all there', () => {
    const used = tableUnder('docs/reference/errors.md', 'Codes').map((row) => Number(row['exit code']));
    for (const code of used) expect(documented).toContain(code);
  });
});
