import { posix } from 'node:path';
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

/** What the house is held to. The lines are where it stands: the goal is 22,000, and the limit only ever falls. */
export const HOUSE_LIMITS = { files: 190, lines: 30_600, single: 15, repeated: 0 } as const;

const DOOR = /\/index\.ts$/;
const IMPORT = /(?:import|export) (?:type )?\{([^}]*)\} from '(\.[^']*)'/g;

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
  const behind = new Map([...sources].filter(([file]) => DOOR.test(file)).map(doorMap));
  for (const [file, syntax] of syntaxes) {
    if (DOOR.test(file)) continue;
    for (const { text } of [...syntax.imports, ...syntax.dynamicImports]) {
      if (!text.startsWith('.')) continue;
      const target = posix.join(posix.dirname(file), text);
      if (DOOR.test(target)) {
        const names = namesImported(sources.get(file) ?? '', text);
        const doors = behind.get(target) ?? new Map<string, string>();
        // A dynamic import may use any of it.
        const used = names.length > 0 ? names.map((name) => doors.get(name)) : [...doors.values()];
        for (const each of used) if (each !== undefined) users.get(each)?.add(file);
      } else users.get(target)?.add(file);
    }
  }
  return users;
}

/** A door, and the file behind it for each name that it exports. */
function doorMap([door, text]: readonly [string, string]): readonly [string, ReadonlyMap<string, string>] {
  const names = [...text.matchAll(IMPORT)].flatMap(([, list = '', from = '']) =>
    namesIn(list).map((name) => [name, posix.join(posix.dirname(door), from)] as const),
  );
  return [door, new Map(names)];
}

function namesImported(text: string, from: string): readonly string[] {
  return [...text.matchAll(IMPORT)].flatMap(([, list = '', module = '']) =>
    module === from ? namesIn(list) : [],
  );
}

function namesIn(list: string): readonly string[] {
  const names = list.split(',').map((name) => name.trim().replace(/^type /, ''));
  return names.filter((name) => name !== '').map((name) => name.replace(/ as .*$/, ''));
}
