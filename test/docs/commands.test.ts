import { describe, expect, test } from 'vitest';
import { CHECKS } from '../../src/check/index.ts';
import { VERBS, type Verb } from '../../src/cli/commands.ts';
import { flagName } from '../../src/cli/flags.ts';
import { PAGES, read } from './markdown.ts';

const COMMAND =
  /^(?:source <\(|[- ]*(?:run|entry): |- )?(?:npm run --silent )?(?:kubectl )?linger(?: --)? (?<verb>[a-z][a-z-]*)(?<rest>.*)$/;

/** The commands of Linger that a page shows, in spans and in blocks. */
function commandsOf(page: string) {
  const spans = [...read(page).matchAll(/`([^`\n]+)`/g)].map(([, span = '']) => span);
  const lines = [...read(page).matchAll(/^ *```(?:sh|yaml)\n([\s\S]*?)^ *```$/gm)].flatMap(([, block = '']) =>
    block.split('\n'),
  );
  return [...spans, ...lines]
    .flatMap((line) => line.split(/\\?\||&&|[;>]/))
    .flatMap((part) => {
      const found = COMMAND.exec(part.trim())?.groups;
      return found === undefined
        ? []
        : [{ command: part.trim(), verb: found.verb ?? '', rest: found.rest ?? '' }];
    });
}

/** What a command has and Linger has not: its verb, or flags of it. */
function unknownIn(verb: string, rest: string): readonly string[] {
  const known = (VERBS as Readonly<Record<string, Verb>>)[verb];
  if (known === undefined) return [verb];
  const flags = Object.entries(known.flags);
  const names = new Set([...flags.map(([key]) => `--${flagName(key)}`), '--help']);
  const shorts = new Set(flags.map(([, { short }]) => `-${short}`));
  const used = [...rest.matchAll(/(?<=\s)(--[a-z][a-z-]*|-[a-zA-Z]\b)/g)].map(([, flag = '']) => flag);
  return used.filter((flag) => !names.has(flag) && !shorts.has(flag));
}

test('the pages show commands', () => {
  expect(PAGES.flatMap(commandsOf).length).toBeGreaterThan(150);
});

test.each(PAGES)('%s shows commands and flags that there are', (page) => {
  const wrong = commandsOf(page).flatMap(({ command, verb, rest }) => {
    const unknown = unknownIn(verb, rest);
    return unknown.length === 0 ? [] : [{ command, unknown }];
  });
  expect(wrong).toEqual([]);
});

describe('a line of check that a page names', () => {
  const named = PAGES.flatMap((page) =>
    [...read(page).matchAll(/\blines? ((?:`[A-Z]\w+`(?:, )?)+)/g)].flatMap(([, names = '']) =>
      [...names.matchAll(/`(\w+)`/g)].map(([, name = '']) => ({ page, name })),
    ),
  );

  test('is one of check', () => {
    expect(named.length).toBeGreaterThan(20);
    expect(named.filter(({ name }) => !(name in CHECKS))).toEqual([]);
  });
});
