import { posix } from 'node:path';
import { DOOR_IMPORT, filesBehind, namesIn } from '../../deploy/doors.ts';
import type { Sources } from './imports.ts';
import { parseSources, type SourceSyntax } from './syntax.ts';

/** How large and how fragmented `src` is. */
export interface HouseFigures {
  readonly files: number;
  readonly lines: number;
  /**
   * Files that only one other file uses, and that one of the same room: candidates for merging. Those that are loaded by
   * `import()` are files of their own so that a program without them does not carry them.
   */
  readonly single: readonly string[];
  /** Basenames that occur more than once; doors (`index.ts`) aside. */
  readonly repeated: readonly string[];
}

/** What the house is held to. The lines are where it stands: a feature raises the limit by its own, and nothing else does. */
export const HOUSE_LIMITS = { files: 201, lines: 40_368, single: 10, repeated: 0 } as const;

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
    lines: [...sources.values()].reduce((sum, text) => sum + text.split('\n').length - 1, 0),
    single,
    repeated: [...new Set(names.filter((name, index) => names.indexOf(name) !== index))],
  };
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
