import { expect, test } from 'vitest';
import { filesUnder, read, tableUnder } from './markdown.ts';

const rows = tableUnder('docs/reference/operations.md', 'Ports');
const numbersIn = (text = '') => (text.match(/\b\d{2,5}\b/g) ?? []).map(Number);

test('the table has every port on which a command listens by default', () => {
  // The defaults in the reference are generated from those of the program.
  const listening = ['serve', 'dashboard', 'witness', 'node-timer']
    .flatMap((verb) => tableUnder('docs/reference/commands.md', verb))
    .filter(({ flag = '' }) => /^`--([a-z]+-)?(port|listen)`$/.test(flag))
    .flatMap(({ meaning = '' }) => numbersIn(/ Default `([^`]+)`\.$/.exec(meaning)?.[1]));
  expect(listening).toHaveLength(7);
  expect(rows.flatMap((row) => numbersIn(row.port))).toEqual(expect.arrayContaining(listening));
});

test('it names every port that an object of deploy/ opens', () => {
  const opened = filesUnder('deploy')
    .filter((path) => /^deploy\/(?:deployment|networkpolicy|node-timer|service(?:-\w+)?)\.yaml$/.test(path))
    .flatMap((path) => [...read(path).matchAll(/^[^#\n]*\b(?:port|containerPort): (\d+)/gm)])
    .map(([, port]) => Number(port));
  expect(opened.length).toBeGreaterThan(15);
  const named = rows.flatMap((row) => Object.values(row).flatMap(numbersIn));
  expect(named).toEqual(expect.arrayContaining(opened));
});
