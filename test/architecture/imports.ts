import { readdir, readFile } from 'node:fs/promises';
import { join, posix } from 'node:path';
import { type Mention, parseSources, type SourceSyntax } from './syntax.ts';

/** A place where the source breaks the rule, and the way out. */
export interface Violation {
  /** Relative to the root: `src/core/decision/decide.ts`. */
  readonly file: string;
  readonly line: number;
  readonly problem: string;
}

/** Path relative to the root → text. */
export type Sources = ReadonlyMap<string, string>;

/**
 * The rooms of `src`, lowest first: imports point downwards only, and rooms of one row do not import each other. Data
 * goes one way through them: cluster → informers → lag → decision → webhook. Neither the client of the API server nor the
 * pure rooms know of each other; the informers turn what the one reads into the values that the others take.
 */
export const LAYERS: readonly (readonly string[])[] = [
  ['core/api'],
  ['core/yaml', 'core/timeline', 'timing', 'telemetry'],
  ['core/lag', 'cluster'],
  ['core/decision', 'core/discovery'],
  ['core/manifest', 'core/judge', 'manager'],
  ['core/report', 'informers', 'policy-files', 'certs'],
  ['measurement'],
  ['leader'],
  ['hold'],
  ['webhook', 'audit', 'check', 'diagnose', 'dashboard'],
  ['prove', 'server'],
  ['cli', 'page'],
  ['main.ts'],
];

/** The rooms without I/O, clock, chance or environment: they run in Node and in a browser's worker alike. */
const PURE = /^core\//;

/** Pure files of other rooms. */
const PURE_FILES: readonly string[] = [
  'src/hold/release-rules.ts',
  'src/hold/connection-monitor.ts',
  'src/prove/verdict.ts',
];

/** The packages that pure rooms may use, and where: zod describes the documents, fast-json-patch applies patches. */
const PURE_PACKAGES: Readonly<Record<string, string>> = {
  zod: 'src/core/api/',
  'fast-json-patch': 'src/core/',
};

const CLOCK = 'take the instant (or the span) as an argument';
const CHANCE = 'take what chance has brought as an argument';
const ENVIRONMENT = 'take the value as an argument';
const IO = 'leave it to the rooms above, and take what they bring as an argument';

/** What pure rooms must not even name. */
const FORBIDDEN_NAMES: Readonly<Record<string, string>> = {
  ...named(CLOCK, 'Date', 'performance', 'Temporal'),
  ...named(
    CLOCK,
    'setTimeout',
    'setInterval',
    'setImmediate',
    'queueMicrotask',
    'clearTimeout',
    'clearInterval',
  ),
  ...named(CHANCE, 'crypto', 'WeakRef', 'FinalizationRegistry'),
  // Its answers depend on the machine's locale and time zone.
  ...named(ENVIRONMENT, 'process', 'Buffer', 'Intl', 'navigator', '__dirname', '__filename'),
  ...named(ENVIRONMENT, 'globalThis', 'global', 'self', 'window', 'eval', 'Function'),
  ...named(
    IO,
    'fetch',
    'console',
    'require',
    'module',
    'WebSocket',
    'EventSource',
    'XMLHttpRequest',
    'Worker',
    'Atomics',
  ),
};
const FORBIDDEN_MEMBERS: Readonly<Record<string, string>> = {
  ...named(CHANCE, 'Math.random', 'Math.…'),
  ...named(ENVIRONMENT, 'import.meta'),
};

/** The only readers of the command line and the environment. */
const PROCESS_INPUTS: ReadonlySet<string> = new Set(['process.env', 'process.argv', 'process.…']);
const INPUT_READERS = /^src\/(cli\/(flags|command-line)\.ts|main\.ts)$/;

function named(wayOut: string, ...names: string[]): Record<string, string> {
  return Object.fromEntries(names.map((name) => [name, wayOut]));
}

/** Every TypeScript file under a folder of a checkout. */
export async function readSources(root: string, folder = 'src'): Promise<Sources> {
  const names = await readdir(join(root, folder), { recursive: true });
  const paths = names
    .filter((name) => /\.tsx?$/.test(name))
    .map((name) => `${folder}/${name.replaceAll('\\', '/')}`);
  const texts = paths
    .toSorted()
    .map(async (path) => [path, await readFile(join(root, path), 'utf8')] as const);
  return new Map(await Promise.all(texts));
}

/** Holds sources against the rule. No violation: an empty list. In the order of the files and lines. */
export function violationsOf(sources: Sources): readonly Violation[] {
  const syntaxes = [...parseSources(sources)];
  const found = syntaxes.flatMap(([file, syntax]) => [
    ...importViolations(file, syntax, sources),
    ...(isPure(file) ? purityViolations(file, syntax, sources.get(file) ?? '') : []),
    ...inputViolations(file, syntax),
  ]);
  return [...found, ...cycles(syntaxes)].toSorted((a, b) => compare(a.file, b.file) || a.line - b.line);
}

export function describeViolation({ file, line, problem }: Violation): string {
  return `${file}:${line}: ${problem}`;
}

function importViolations(file: string, syntax: SourceSyntax, sources: Sources): readonly Violation[] {
  return [...syntax.imports, ...syntax.dynamicImports].flatMap(({ text, line }) => {
    const problem = text.startsWith('.')
      ? relativeProblem(file, text, sources)
      : isPure(file)
        ? purePackageProblem(file, text)
        : undefined;
    return problem === undefined ? [] : [{ file, line, problem }];
  });
}

function relativeProblem(file: string, specifier: string, sources: Sources): string | undefined {
  const target = posix.join(posix.dirname(file), specifier);
  if (!target.startsWith('src/'))
    return `imports ${target}, which is outside src: move what is needed into src`;
  // Data and style of the file's own room; the compiler and the bundler say where they are missing.
  if (/\.(json|css)$/.test(target) && posix.dirname(target) === posix.dirname(file)) return undefined;
  if (!sources.has(target)) return `imports ${target}, which does not exist`;
  const [from, to] = [folderOf(file), folderOf(target)];
  if (from === to) return undefined;
  const [fromRank, toRank] = [rankOf(from), rankOf(to)];
  if (fromRank < 0)
    return `stands in src/${from}, which has no place in the layers: add it to LAYERS in test/architecture`;
  if (toRank < 0)
    return `imports ${target}: src/${to} has no place in the layers: add it to LAYERS in test/architecture`;
  if (toRank >= fromRank) {
    return `${from} imports ${target}: imports point downwards only, and ${to} is not below ${from}; move what both need below both, or take it as an argument`;
  }
  if (isPure(file) && !PURE.test(to)) return `${from} is pure, and ${to} is not; ${IO}`;
  const door = `src/${to}/index.ts`;
  if (to !== 'main.ts' && target !== door) return `imports ${target} past the door of ${to}: import ${door}`;
  return undefined;
}

function isPure(file: string): boolean {
  return PURE.test(folderOf(file)) || PURE_FILES.includes(file);
}

function purePackageProblem(file: string, specifier: string): string | undefined {
  const home = Object.hasOwn(PURE_PACKAGES, specifier) ? PURE_PACKAGES[specifier] : undefined;
  if (home === undefined) return `imports ${specifier}: ${folderOf(file)} is pure; ${IO}`;
  return file.startsWith(home)
    ? undefined
    : `imports ${specifier} outside ${home}: import what ${home} makes of it`;
}

function purityViolations(
  file: string,
  { names, members, dynamicImports }: SourceSyntax,
  source: string,
): readonly Violation[] {
  const lines = source.split('\n');
  // A date that is made of an instant is a value; Date without one is the clock.
  const isValue = ({ text, line }: Mention) =>
    text === 'Date' &&
    /\bnew Date\((?!\))/.test(lines[line - 1] ?? '') &&
    lines[line - 1]?.split(/\bDate\b/).length === 2;
  const say = (what: string, { line }: Mention, wayOut: string) => ({
    file,
    line,
    problem: `uses ${what}: ${folderOf(file)} has no clock, chance, environment or I/O; ${wayOut}`,
  });
  return [
    ...names.flatMap((name) =>
      (isValue(name) ? [] : forbidden(FORBIDDEN_NAMES, name)).map((wayOut) => say(name.text, name, wayOut)),
    ),
    ...members.flatMap((member) =>
      forbidden(FORBIDDEN_MEMBERS, member).map((wayOut) => say(member.text, member, wayOut)),
    ),
    ...bareMath(names, members).map((mention) =>
      say('Math as a value', mention, `name the function: Math.max; ${CHANCE}`),
    ),
    ...dynamicImports.map((mention) => say('import()', mention, 'import it statically')),
  ];
}

function forbidden(table: Readonly<Record<string, string>>, { text }: Mention): readonly string[] {
  return Object.hasOwn(table, text) ? [table[text] ?? ''] : [];
}

/** `const m = Math` would hide what is used of it. */
function bareMath(names: readonly Mention[], members: readonly Mention[]): readonly Mention[] {
  const onLine = (mentions: readonly Mention[], line: number, is: (text: string) => boolean) =>
    mentions.filter((each) => each.line === line && is(each.text)).length;
  const all = names.filter(({ text }) => text === 'Math');
  return all.filter(
    ({ line }) => onLine(all, line, () => true) > onLine(members, line, (text) => text.startsWith('Math.')),
  );
}

function inputViolations(file: string, { members, imports }: SourceSyntax): readonly Violation[] {
  if (INPUT_READERS.test(file) || isPure(file)) return [];
  const read = members.filter(({ text }) => PROCESS_INPUTS.has(text));
  const imported = imports.filter(({ text }) => /^(node:)?process$/.test(text));
  const wayOut =
    'only src/cli/flags.ts, src/cli/command-line.ts and src/main.ts read the environment and the command line; make it a setting';
  return [...read, ...imported].map(({ text, line }) => ({ file, line, problem: `uses ${text}: ${wayOut}` }));
}

/** One violation for each cycle, at the import that closes it. */
function cycles(syntaxes: readonly (readonly [string, SourceSyntax])[]): readonly Violation[] {
  const targets = new Map(
    syntaxes.map(([file, { imports, dynamicImports }]) => [
      file,
      [...imports, ...dynamicImports]
        .filter(({ text }) => text.startsWith('.'))
        .map(({ text, line }) => ({ target: posix.join(posix.dirname(file), text), line })),
    ]),
  );
  const violations: Violation[] = [];
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]): void => {
    for (const { target, line } of targets.get(file) ?? []) {
      const start = path.indexOf(target);
      if (start >= 0) {
        const circle = [...path.slice(start), target].join(' → ');
        violations.push({
          file,
          line,
          problem: `closes a cycle of imports: ${circle}; move what they share into a file of its own`,
        });
      } else if (!done.has(target)) visit(target, [...path, target]);
    }
    done.add(file);
  };
  for (const [file] of syntaxes) if (!done.has(file)) visit(file, [file]);
  return violations;
}

/** The room of a file: `webhook`, or in the core `core/decision`. */
function folderOf(path: string): string {
  const [, room = '', inner = ''] = path.split('/');
  return room === 'core' ? `core/${inner}` : room;
}

function rankOf(folder: string): number {
  return LAYERS.findIndex((layer) => layer.includes(folder));
}

function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}
