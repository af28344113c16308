import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { describeViolation, LAYERS, readSources, violationsOf } from './imports.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** A small tree that keeps the rule; each case adds a file, or replaces one. */
const SOUND: Readonly<Record<string, string>> = {
  'src/core/api/policy.ts': "import { z } from 'zod';\nexport const schema = z;",
  'src/core/api/index.ts': "export { schema } from './policy.ts';",
  'src/core/decision/values.ts': "import { schema } from '../api/index.ts';\nexport const values = schema;",
  'src/core/decision/decide.ts':
    "import type { values } from './values.ts';\nexport type Decision = typeof values;",
  'src/core/decision/index.ts': "export type { Decision } from './decide.ts';",
  'src/telemetry/logs.ts': "import { pino } from 'pino';\nexport const log = pino();",
  'src/telemetry/index.ts': "export { log } from './logs.ts';",
  'src/cluster/files.ts': "import { readFile } from 'node:fs';\nexport const files = readFile;",
  'src/cluster/index.ts': "export { files } from './files.ts';",
  'src/webhook/listen.ts': "import { createServer } from 'node:https';\nexport const listen = createServer;",
  'src/webhook/index.ts': "export { listen } from './listen.ts';",
  'src/cli/flags.ts':
    "import { schema } from '../core/api/index.ts';\nexport const flag = [schema, process.env.X];",
  'src/cli/serve.ts':
    "import { listen } from '../webhook/index.ts';\nexport const serve = [listen, new Date(), process];",
  'src/cli/index.ts': "export { serve } from './serve.ts';",
  'src/main.ts': "import { serve } from './cli/index.ts';\nserve;\nprocess.argv;",
};

function problemsWith(file: string, ...lines: string[]): string[] {
  const sources = new Map(Object.entries({ ...SOUND, [file]: lines.join('\n') }));
  return violationsOf(sources).map(describeViolation);
}

describe('pure rooms import no packages but zod, and that only in api', () => {
  it.each([
    [
      'a built-in module',
      "import { readFile } from 'node:fs';",
      'imports node:fs: core/decision is pure; leave it',
    ],
    ['one without a prefix', "import 'fs';", 'imports fs: core/decision is pure; leave it'],
    ['a package', "import express from 'express';", 'imports express: core/decision is pure; leave it'],
    [
      'a type of a package',
      "import type { V1Pod } from 'k8s';",
      'imports k8s: core/decision is pure; leave it',
    ],
    [
      'an import type',
      "export type A = import('k8s').V1Pod;",
      'imports k8s: core/decision is pure; leave it',
    ],
    ['a re-export', "export * from 'node:os';", 'imports node:os: core/decision is pure; leave it'],
    ['a named re-export', "export { a } from 'node:os';", 'imports node:os: core/decision is pure; leave it'],
    ['zod outside api', "import { z } from 'zod';", 'imports zod outside src/core/api/: import what'],
  ])('%s', (_what, line, problem) => {
    expect(problemsWith('src/core/decision/a.ts', '// A comment first.', line)).toEqual([
      expect.stringContaining(`src/core/decision/a.ts:2: ${problem}`),
    ]);
  });
});

describe('pure rooms have no clock, chance, environment or I/O', () => {
  it.each([
    ['new Date()', 'Date'],
    ['[new Date(1), Date.now()]', 'Date'],
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
    const found = problemsWith('src/core/decision/a.ts', '/* two', ' lines */', code);
    expect(found).toContainEqual(
      expect.stringMatching(
        `^src/core/decision/a\\.ts:3: uses ${name.replace('.', '\\.')}: core/decision has no clock.*; .{10,}`,
      ),
    );
  });

  it.each([['"./values.ts"'], ['"node:fs"'], ['name']])('import(%s)', (specifier) => {
    expect(problemsWith('src/core/decision/a.ts', `export const a = import(${specifier});`)).toContainEqual(
      'src/core/decision/a.ts:1: uses import(): core/decision has no clock, chance, environment or I/O; import it statically',
    );
  });

  it.each([
    ['in comments', '// new Date(), process.env', '/** Math.random() */'],
    ['a date of an instant', 'export const a = (ms: number): string => new Date(ms).toISOString();'],
    ['in strings', 'export const a = ["Date", \'process.env\', `fetch()`];'],
    ['in regular expressions', 'export const a = /Date|import("x")/;'],
    [
      'as names of members',
      'export const a = (o: { Date: number; fetch(): void }) => [o.Date, o.fetch(), { console: 1 }];',
    ],
    ['as renamed members', 'export const f = ({ process: p }: { process: number }) => p;'],
    ['other functions of Math', 'export const a = Math.max(Math.ceil(1.5), Math.min(1, 2));'],
  ])('names mean nothing %s', (_what, ...lines) => {
    expect(problemsWith('src/core/decision/a.ts', ...lines)).toEqual([]);
  });

  it('outside pure rooms they are free', () => {
    expect(problemsWith('src/webhook/a.ts', 'console.log(new Date(), Math.random(), process.pid);')).toEqual(
      [],
    );
  });
});

describe('imports point downwards only, and through doors', () => {
  it.each([
    ['src/core/decision/a.ts', '../../cluster/index.ts', 'core/decision is pure, and cluster is not'],
    [
      'src/cluster/a.ts',
      '../core/decision/index.ts',
      'cluster imports src/core/decision/index.ts: imports point downwards',
    ],
    [
      'src/telemetry/a.ts',
      '../cluster/index.ts',
      'telemetry imports src/cluster/index.ts: imports point downwards',
    ],
    [
      'src/core/manifest/a.ts',
      '../../webhook/index.ts',
      'core/manifest imports src/webhook/index.ts: imports point downwards',
    ],
    [
      'src/cluster/a.ts',
      '../webhook/index.ts',
      'cluster imports src/webhook/index.ts: imports point downwards',
    ],
    ['src/cli/a.ts', '../main.ts', 'cli imports src/main.ts: imports point downwards only'],
    ['src/webhook/a.ts', '../cli/index.ts', 'webhook imports src/cli/index.ts: imports point downwards only'],
    [
      'src/webhook/a.ts',
      '../core/decision/decide.ts',
      'imports src/core/decision/decide.ts past the door of core/decision: import src/core/decision/index.ts',
    ],
    [
      'src/main.ts',
      './cli/serve.ts',
      'imports src/cli/serve.ts past the door of cli: import src/cli/index.ts',
    ],
    ['src/novel/a.ts', '../core/decision/index.ts', 'stands in src/novel, which has no place in the layers'],
    ['src/cli/a.ts', '../../test/a.ts', 'imports test/a.ts, which is outside src'],
    ['src/cli/a.ts', './nowhere.ts', 'imports src/cli/nowhere.ts, which does not exist'],
  ])('%s must not import %s', (file, specifier, problem) => {
    expect(problemsWith(file, `import type { a } from '${specifier}';`)).toContainEqual(
      expect.stringContaining(`${file}:1: ${problem}`),
    );
    expect(problemsWith(file, `export const a = await import('${specifier}');`)).toContainEqual(
      expect.stringContaining(`${file}:1: ${problem}`),
    );
  });

  it('inside a room, files import each other directly', () => {
    expect(problemsWith('src/webhook/a.ts', "import { listen } from './listen.ts';")).toEqual([]);
  });
});

describe('no cycles of imports', () => {
  it('between two files of one folder, even of types', () => {
    const sources = new Map([
      ['src/webhook/a.ts', "import './c.ts';\nimport type { B } from './b.ts';"],
      ['src/webhook/b.ts', "import type { A } from './a.ts';"],
      ['src/webhook/c.ts', ''],
    ]);
    expect(violationsOf(sources).map(describeViolation)).toEqual([
      'src/webhook/b.ts:1: closes a cycle of imports: src/webhook/a.ts → src/webhook/b.ts → src/webhook/a.ts; move what they share into a file of its own',
    ]);
  });

  it('through three, and a file that imports itself', () => {
    const sources = new Map([
      ['src/webhook/a.ts', "export * from './b.ts';"],
      ['src/webhook/b.ts', "export * from './c.ts';"],
      ['src/webhook/c.ts', "export * from './a.ts';"],
      ['src/webhook/d.ts', "import './d.ts';"],
    ]);
    expect(violationsOf(sources).map(({ file }) => file)).toEqual(['src/webhook/c.ts', 'src/webhook/d.ts']);
  });

  it('two ways to the same file are none', () => {
    const sources = new Map([
      ['src/webhook/a.ts', "import './b.ts';\nimport './c.ts';"],
      ['src/webhook/b.ts', "import './c.ts';"],
      ['src/webhook/c.ts', ''],
    ]);
    expect(violationsOf(sources)).toEqual([]);
  });
});

describe('only the flags and main read the environment and the command line', () => {
  it.each([
    'process.env.HOME',
    'process.argv[2]',
    'process["env"]',
    'const { env } = process',
    "import { argv } from 'node:process'",
  ])('%s', (code) => {
    expect(problemsWith('src/webhook/a.ts', code)).toEqual([
      expect.stringMatching(
        /^src\/webhook\/a\.ts:1: uses (node:)?process.*: only src\/cli\/flags\.ts, .* and src\/main\.ts read/,
      ),
    ]);
    expect(problemsWith('src/cli/flags.ts', code)).toEqual([]);
  });

  it('other uses of process are free outside pure rooms', () => {
    expect(problemsWith('src/webhook/a.ts', 'process.exit(process.pid); const { pid } = process;')).toEqual(
      [],
    );
  });
});

describe('the tree', () => {
  it('keeps the rule that the cases break', () => {
    expect(violationsOf(new Map(Object.entries(SOUND)))).toEqual([]);
  });

  it('of this project has all its files read, and keeps the rule', async () => {
    const sources = await readSources(ROOT);
    expect(sources.size).toBeGreaterThan(50);
    expect([...sources.keys()]).toContain('src/core/decision/decide.ts');
    expect(violationsOf(sources).map(describeViolation)).toEqual([]);
  });
});

it('is drawn as it is checked', () => {
  const page = readFileSync(`${ROOT}/docs/architecture.md`, 'utf8');
  const [, drawing = ''] = /^## Layers\n.*?^```\n(.*?)^```/ms.exec(page) ?? [];
  const rows = drawing.trimEnd().split('\n');
  const sorted = (rooms: readonly string[]) => rooms.toSorted();
  expect(rows.map((row) => sorted(row.split(/ +/)))).toEqual(LAYERS.map(sorted).toReversed());
});
