import { posix } from 'node:path';
import { DOOR_IMPORT, filesBehind, namesIn } from '../../deploy/doors.ts';
import type { Sources } from './imports.ts';
import { parseSources, type SourceSyntax } from './syntax.ts';

/** How large and how fragmented `src` is. */
export interface HouseFigures {
  readonly files: number;
  readonly lines: number;
  /** Lines by room. */
  readonly rooms: ReadonlyMap<string, number>;
  /**
   * Files that only one other file uses, and that one of the same room: candidates for merging. Those that are loaded by
   * `import()` are files of their own so that a program without them does not carry them.
   */
  readonly single: readonly string[];
  /** Basenames that occur more than once; doors (`index.ts`) aside. */
  readonly repeated: readonly string[];
}

/** What the house is held to, apart from the lines of its rooms. */
export const HOUSE_LIMITS = { single: 13, repeated: 0, deepTestImports: 33 } as const;

/** How many lines each room may have: a budget with room for repairs, reviewed when a feature lands. */
export const ROOM_BUDGETS: Readonly<Record<string, number>> = {
  api: 2_730,
  audit: 3_380,
  certs: 1_620,
  cli: 8_490,
  cluster: 2_740,
  dashboard: 850,
  decision: 4_570,
  diagnose: 4_230,
  discovery: 990,
  hold: 3_020,
  informers: 2_000,
  lag: 4_850,
  leader: 2_710,
  manager: 250,
  manifest: 1_320,
  measurement: 6_380,
  page: 1_930,
  prove: 2_670,
  telemetry: 330,
  timeline: 870,
  timing: 410,
  webhook: 1_770,
  yaml: 1_270,
};

const DOOR = /\/index\.ts$/;

/** @param sources path relative to the root → text */
export function figuresOf(sources: Sources): HouseFigures {
  const files = [...sources.keys()];
  const syntaxes = parseSources(sources);
  const users = usersOf(sources, syntaxes);
  const loaded = loadedLater(syntaxes);
  const single = files.filter((file) => {
    const [user, ...more] = users.get(file) ?? [];
    if (loaded.has(file)) return false;
    return user !== undefined && more.length === 0 && posix.dirname(user) === posix.dirname(file);
  });
  const names = files.filter((file) => !DOOR.test(file)).map((file) => posix.basename(file));
  return {
    files: files.length,
    lines: [...sources.values()].reduce((sum, text) => sum + linesOf(text), 0),
    rooms: linesByRoom(sources),
    single,
    repeated: [...new Set(names.filter((name, index) => names.indexOf(name) !== index))],
  };
}

function linesOf(text: string): number {
  return text.split('\n').length - 1;
}

function linesByRoom(sources: Sources): ReadonlyMap<string, number> {
  const rooms = new Map<string, number>();
  for (const [file, text] of sources) {
    const [, room, more] = file.split('/');
    if (room !== undefined && more !== undefined) rooms.set(room, (rooms.get(room) ?? 0) + linesOf(text));
  }
  return rooms;
}

/**
 * Imports by which a test reaches past the door of a room that is not its own: `test/audit` may enter `src/audit`, and
 * takes what it needs of other rooms from their `index.ts`.
 * @param tests path relative to the root → text
 */
export function deepTestImports(tests: Sources): readonly string[] {
  return [...parseSources(tests)].flatMap(([file, { imports, dynamicImports }]) =>
    [...imports, ...dynamicImports].flatMap(({ text, line }) => {
      if (!text.startsWith('.')) return [];
      const target = posix.join(posix.dirname(file), text);
      const [root, room, inside] = target.split('/');
      const deep = root === 'src' && inside !== undefined && inside !== 'index.ts';
      return deep && room !== file.split('/')[1] ? [`${file}:${line}: ${target}`] : [];
    }),
  );
}

type Syntaxes = ReadonlyMap<string, SourceSyntax>;

function loadedLater(syntaxes: Syntaxes): ReadonlySet<string> {
  const targets = [...syntaxes].flatMap(([file, { dynamicImports }]) =>
    dynamicImports.map(({ text }) => posix.join(posix.dirname(file), text)),
  );
  return new Set(targets);
}

/** Who uses what a file exports, by whatever way: a door uses nothing by itself, its callers do. */
function usersOf(sources: Sources, syntaxes: Syntaxes): ReadonlyMap<string, ReadonlySet<string>> {
  const users = new Map([...sources.keys()].map((file) => [file, new Set<string>()]));
  for (const [file, syntax] of syntaxes) {
    if (DOOR.test(file)) continue;
    for (const { text } of [...syntax.imports, ...syntax.dynamicImports]) {
      if (!text.startsWith('.')) continue;
      const target = posix.join(posix.dirname(file), text);
      const used = DOOR.test(target) ? usedBehind(target, text, sources.get(file) ?? '', sources) : [target];
      for (const each of used) users.get(each)?.add(file);
    }
  }
  return users;
}

/** The files behind a door that a file imports names of; all of them where it is imported as a whole. */
function usedBehind(door: string, specifier: string, text: string, sources: Sources): readonly string[] {
  const behind = filesBehind(sources.get(door) ?? '');
  const imports = [...text.matchAll(DOOR_IMPORT)].filter(([, , , from]) => from === specifier);
  const names = imports.flatMap(([, , list = '']) => namesIn(list).map(({ name }) => name));
  const files = names.length > 0 ? names.flatMap((name) => behind.get(name) ?? []) : [...behind.values()];
  return files.map((file) => posix.join(posix.dirname(door), file));
}
