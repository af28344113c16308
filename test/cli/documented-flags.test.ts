import { expect, test } from 'vitest';
import { readCommandLine } from '../../src/cli/command-line.ts';
import { VERBS } from '../../src/cli/commands.ts';
import { variableName } from '../../src/cli/flags.ts';
import { ERRORS, EXITS } from '../../src/core/api/index.ts';
import { PAGES, read } from '../docs/markdown.ts';

test.each(Object.keys(VERBS))('%s is a command that the command line knows', (command) => {
  const operands = command === 'completion' ? ['bash'] : [];
  expect(readCommandLine([command, ...operands], {}, '0.0.0').command).toBe(command);
});

test.each(PAGES)('%s names no LINGER_ variable that does not exist', (page) => {
  const known = Object.keys(VERBS.serve.flags).map(variableName);
  const named = [...read(page).matchAll(/\bLINGER_[A-Z_]+\b/g)].map(([name]) => name);
  expect(named.filter((name) => name !== 'LINGER_' && !known.includes(name))).toEqual([]);
});

test('an error exits with a code that there is', () => {
  const codes = Object.values(EXITS).map(({ code }) => code);
  for (const { exit } of Object.values(ERRORS)) expect(codes).toContain(exit);
});
