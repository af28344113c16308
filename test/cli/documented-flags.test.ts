import { describe, expect, test } from 'vitest';
import { readCommandLine, USAGE_EXIT_CODE } from '../../src/cli/command-line.ts';
import { VERBS } from '../../src/cli/commands.ts';
import { type Flags, flagName, variableName } from '../../src/cli/flags.ts';
import { codeOf, PAGES, type Row, read, tableUnder } from '../docs/markdown.ts';

const PAGE = 'docs/reference/commands.md';
const COMMANDS: Readonly<Record<string, Flags>> = Object.fromEntries(
  Object.entries(VERBS).map(([name, { flags }]) => [name, flags]),
);

test('the table has exactly the commands', () => {
  const documented = tableUnder(PAGE, 'Commands, flags and variables').map((row) => codeOf(row.command));
  expect(documented).toEqual(Object.keys(COMMANDS));
});

test.each(Object.keys(COMMANDS))('%s is a command that the command line knows', (command) => {
  const operands = command === 'completion' ? ['bash'] : [];
  expect(readCommandLine([command, ...operands], {}, '0.0.0').command).toBe(command);
});

const withFlags = Object.entries(COMMANDS).filter(([, flags]) => Object.keys(flags).length > 0);

describe.each(withFlags)('%s', (command, flags) => {
  const documented = tableUnder(PAGE, command);
  const expected = Object.entries(flags).map(([key, { fallback }]) => ({
    flag: `--${flagName(key)}`,
    default: fallback ?? 'none',
    ...(command === 'serve' ? { variable: variableName(key) } : {}),
  }));

  test('the table has exactly its flags, with their defaults and variables', () => {
    expect(documented.map(asFlag)).toEqual(expected);
  });
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

function asFlag(row: Row): Record<string, string> {
  return {
    flag: codeOf(row.flag),
    default: row.default === 'none' ? 'none' : codeOf(row.default),
    ...(row.variable === undefined ? {} : { variable: codeOf(row.variable) }),
  };
}
