import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { describeViolation, readSources, violationsOf } from './imports.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** A small tree that keeps the rule; each case adds a file, or replaces one. */
const SOUND: Readonly<Record<string, string>> = {
  'src/core/catalog/reasons.ts': 'export const REASONS = {};',
  'src/core/schema/policy.ts': "import { z } from 'zod';\nexport const schema = z;",
  'src/core/policy/values.ts': "import { schema } from '../schema/policy.ts';\nexport const values = schema;",
  'src/core/plan/decide.ts':
    "import type { values } from '../policy/values.ts';\nexport type Decision = typeof values;",
  'src/telemetry/logs.ts': "import { pino } from 'pino';\nexport const log = pino();",
  'src/render/table.ts':
    "import { REASONS } from '../core/catalog/reasons.ts';\nexport const table = REASONS;",
  'src/world/world.ts':
    "import type { Decision } from '../core/plan/decide.ts';\nexport type World = Decision;",
  'src/sources/files.ts': "import { readFile } from 'node:fs';\nexport const files = readFile;",
  'src/serve/listen.ts': "import { createServer } from 'node:https';\nexport const listen = createServer;",
  'src/settings/flag.ts':
    "import { REASONS } from '../core/catalog/reasons.ts';\nexport const flag = [REASONS, process.env.X];",
  'src/commands/serve.ts':
    "import { listen } from '../serve/listen.ts';\nexport const serve = [listen, new Date(), process];",
  'src/main.ts': "import { serve } from './commands/serve.ts';\nserve;\nprocess.argv;",
};

function problemsWith(file: string, ...lines: string[]): string[] {
  const sources = new Map(Object.entries({ ...SOUND, [file]: lines.join('\n') }));
  return violationsOf(sources).map(describeViolation);
}

describe('core imports only core, and zod only in core/schema', () => {
  it.each([
    [
      'a built-in module',
      'src/core/plan/a.ts',
      "import { readFile } from 'node:fs';",
      'core imports node:fs',
    ],
    ['one without a prefix', 'src/core/plan/a.ts', "import 'fs';", 'core imports fs'],
    ['a package', 'src/core/plan/a.ts', "import express from 'express';", 'core imports express'],
    ['a type of a package', 'src/core/plan/a.ts', "import type { V1Pod } from 'k8s';", 'core imports k8s'],
    ['an import type', 'src/core/plan/a.ts', "export type A = import('k8s').V1Pod;", 'core imports k8s'],
    ['a re-export', 'src/core/plan/a.ts', "export * from 'node:os';", 'core imports node:os'],
    ['a named re-export', 'src/core/plan/a.ts', "export { a } from 'node:os';", 'core imports node:os'],
    [
      'zod outside schema',
      'src/core/plan/a.ts',
      "import { z } from 'zod';",
      'core imports zod outside src/core/schema/',
    ],
    [
      'another folder',
      'src/core/plan/a.ts',
      "import '../../telemetry/logs.ts';",
      'core imports src/telemetry/logs.ts',
    ],
    [
      'a type of another folder',
      'src/core/plan/a.ts',
      "import type { World } from '../../world/world.ts';",
      'core imports src/world/world.ts',
    ],
  ])('%s', (_what, file, line, problem) => {
    expect(problemsWith(file, '// A comment first.', line)).toEqual([
      expect.stringContaining(
        `${file}:2: ${problem}: core imports only core; leave it to`.replace(
          ': core imports only core; leave it to',
          problem.includes('outside') ? ': import what' : ': core imports only core; leave it to',
        ),
      ),
    ]);
  });
});

describe('core has no clock, chance, environment or I/O', () => {
  it.each([
    ['new Date()', 'Date'],
    ['Date.now()', 'Date'],
    ['let at: Date;', 'Date'],
    ['const o = { Date };', 'Date'],
    ['performance.now()', 'performance'],
    ['setTimeout(() => 0, 1)', 'setTimeout'],
    ['queueMicrotask(() => 0)', 'queueMicrotask'],
    ['Math.random()', 'Math.random'],
    ['Math["random"]()', 'Math.random'],
    ['Math[`random`]()', 'Math.…'],
    ['const { random: r } = Math;', 'Math.random'],
    ['const m = Math;', 'Math as a value'],
    ['[Math, Math.max(1)]', 'Math as a value'],
    ['crypto.randomUUID()', 'crypto'],
    ['process.env.HOME', 'process'],
    ['globalThis.Date', 'globalThis'],
    ['new Intl.NumberFormat()', 'Intl'],
    ['new Function("return 1")', 'Function'],
    ['eval("1")', 'eval'],
    ['import.meta.url', 'import.meta'],
    ['fetch("https://example")', 'fetch'],
    ['console.log(1)', 'console'],
    ['require("fs")', 'require'],
    ['export const t = `at $' + '{Date.now()}`', 'Date'],
  ])('%s', (code, name) => {
    const found = problemsWith('src/core/plan/a.ts', '/* two', ' lines */', code);
    expect(found).toContainEqual(
      expect.stringMatching(
        `^src/core/plan/a\\.ts:3: core uses ${name.replace('.', '\\.')}: core has no clock.*; .{10,}`,
      ),
    );
  });

  it.each([['"../policy/values.ts"'], ['"node:fs"'], ['name']])('import(%s)', (specifier) => {
    expect(problemsWith('src/core/plan/a.ts', `export const a = import(${specifier});`)).toContainEqual(
      'src/core/plan/a.ts:1: core uses import(): core has no clock, chance, environment or I/O; import it statically',
    );
  });

  it.each([
    ['in comments', '// new Date(), process.env', '/** Math.random() */'],
    ['in strings', 'export const a = ["Date", \'process.env\', `fetch()`];'],
    ['in regular expressions', 'export const a = /Date|import("x")/;'],
    [
      'as names of members',
      'export const a = (o: { Date: number; fetch(): void }) => [o.Date, o.fetch(), { console: 1 }];',
    ],
    ['as renamed members', 'export const f = ({ process: p }: { process: number }) => p;'],
    ['other functions of Math', 'export const a = Math.max(Math.ceil(1.5), Math.min(1, 2));'],
  ])('names mean nothing %s', (_what, ...lines) => {
    expect(problemsWith('src/core/plan/a.ts', ...lines)).toEqual([]);
  });

  it('outside core they are free', () => {
    expect(problemsWith('src/serve/a.ts', 'console.log(new Date(), Math.random(), process.pid);')).toEqual(
      [],
    );
  });
});

describe('imports point downwards only', () => {
  it.each([
    [
      'src/world/a.ts',
      '../sources/files.ts',
      'world imports src/sources/files.ts: imports point downwards only',
    ],
    [
      'src/telemetry/a.ts',
      '../world/world.ts',
      'telemetry imports src/world/world.ts: imports point downwards only',
    ],
    [
      'src/serve/a.ts',
      '../sources/files.ts',
      'serve imports src/sources/files.ts: imports point downwards only',
    ],
    [
      'src/render/a.ts',
      '../telemetry/logs.ts',
      'render imports src/telemetry/logs.ts: imports point downwards only',
    ],
    [
      'src/render/a.ts',
      '../commands/serve.ts',
      'render imports src/commands/serve.ts: imports point downwards only',
    ],
    ['src/commands/a.ts', '../main.ts', 'commands imports src/main.ts: imports point downwards only'],
    [
      'src/serve/a.ts',
      '../settings/flag.ts',
      'serve imports src/settings/flag.ts: imports point downwards only',
    ],
    [
      'src/settings/a.ts',
      '../serve/listen.ts',
      'settings imports src/serve/listen.ts: settings imports only core and telemetry',
    ],
    [
      'src/settings/a.ts',
      '../render/table.ts',
      'settings imports src/render/table.ts: settings imports only core and telemetry',
    ],
    ['src/novel/a.ts', '../core/plan/decide.ts', 'stands in src/novel, which has no place in the layers'],
    ['src/commands/a.ts', '../../test/a.ts', 'imports test/a.ts, which is outside src'],
    ['src/commands/a.ts', './nowhere.ts', 'imports src/commands/nowhere.ts, which does not exist'],
  ])('%s must not import %s', (file, specifier, problem) => {
    expect(problemsWith(file, `import type { a } from '${specifier}';`)).toEqual([
      expect.stringContaining(`${file}:1: ${problem}`),
    ]);
    expect(problemsWith(file, `export const a = await import('${specifier}');`)).toEqual([
      expect.stringContaining(`${file}:1: ${problem}`),
    ]);
  });

  it('inside core: catalog < schema < cluster < lag < consumers < changes < diagnose < policy < plan < patch', () => {
    expect(problemsWith('src/core/catalog/a.ts', "import '../plan/decide.ts';")).toEqual([
      'src/core/catalog/a.ts:1: core/catalog imports src/core/plan/decide.ts: inside core imports go catalog < schema < cluster < lag < consumers < changes < diagnose < policy < plan < patch; move what both need below both',
    ]);
    expect(problemsWith('src/core/patch/a.ts', "import '../plan/decide.ts';")).toEqual([]);
    expect(problemsWith('src/core/novel/a.ts', "import '../plan/decide.ts';")).toEqual([
      expect.stringContaining('src/core/novel/a.ts has no place in the layers of core'),
    ]);
  });

  it('only commands and main know the settings', () => {
    expect(problemsWith('src/commands/a.ts', "import '../settings/flag.ts';")).toEqual([]);
    expect(problemsWith('src/main.ts', "import './settings/flag.ts';")).toEqual([]);
  });
});

describe('no cycles of imports', () => {
  it('between two files of one folder, even of types', () => {
    const sources = new Map([
      ['src/world/a.ts', "import './c.ts';\nimport type { B } from './b.ts';"],
      ['src/world/b.ts', "import type { A } from './a.ts';"],
      ['src/world/c.ts', ''],
    ]);
    expect(violationsOf(sources).map(describeViolation)).toEqual([
      'src/world/b.ts:1: closes a cycle of imports: src/world/a.ts → src/world/b.ts → src/world/a.ts; move what they share into a file of its own',
    ]);
  });

  it('through three, and a file that imports itself', () => {
    const sources = new Map([
      ['src/world/a.ts', "export * from './b.ts';"],
      ['src/world/b.ts', "export * from './c.ts';"],
      ['src/world/c.ts', "export * from './a.ts';"],
      ['src/world/d.ts', "import './d.ts';"],
    ]);
    expect(violationsOf(sources).map(({ file }) => file)).toEqual(['src/world/c.ts', 'src/world/d.ts']);
  });

  it('two ways to the same file are none', () => {
    const sources = new Map([
      ['src/world/a.ts', "import './b.ts';\nimport './c.ts';"],
      ['src/world/b.ts', "import './c.ts';"],
      ['src/world/c.ts', ''],
    ]);
    expect(violationsOf(sources)).toEqual([]);
  });
});

describe('only settings and main read the environment and the command line', () => {
  it.each([
    'process.env.HOME',
    'process.argv[2]',
    'process["env"]',
    'const { env } = process',
    "import { argv } from 'node:process'",
  ])('%s', (code) => {
    expect(problemsWith('src/serve/a.ts', code)).toEqual([
      expect.stringMatching(
        /^src\/serve\/a\.ts:1: uses (node:)?process.*: only src\/settings and src\/main\.ts read/,
      ),
    ]);
    expect(problemsWith('src/settings/a.ts', code)).toEqual([]);
  });

  it('other uses of process are free outside core', () => {
    expect(problemsWith('src/serve/a.ts', 'process.exit(process.pid); const { pid } = process;')).toEqual([]);
  });
});

describe('the tree', () => {
  it('keeps the rule that the cases break', () => {
    expect(violationsOf(new Map(Object.entries(SOUND)))).toEqual([]);
  });

  it('of this project has all its files read, and keeps the rule', async () => {
    const sources = await readSources(ROOT);
    expect(sources.size).toBeGreaterThan(50);
    expect([...sources.keys()]).toContain('src/core/plan/decide.ts');
    expect(violationsOf(sources).map(describeViolation)).toEqual([]);
  });
});
