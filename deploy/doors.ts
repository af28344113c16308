/** The named imports of a file from a door; the groups are `type `, the names, and the door. */
export const DOOR_IMPORT = /^import (type )?\{([^}]*)\} from '((?:\.\.\/)+[a-z/-]+\/index\.ts)';$/gm;
const REEXPORT = /^export (?:type )?\{([^}]*)\} from '\.\/([a-z0-9/-]+\.ts)';$/gm;

/** The file behind each name that a door (`index.ts`) exports, by its name beside the door. */
export function filesBehind(door: string): ReadonlyMap<string, string> {
  const exports = [...door.matchAll(REEXPORT)];
  return new Map(
    exports.flatMap(([, names = '', file = '']) => namesIn(names).map(({ name }) => [name, file])),
  );
}

/** `a, type B, c as d`, whether or not it stands on several lines; `name` is what it is called behind the door. */
export function namesIn(list: string): readonly { readonly name: string; readonly text: string }[] {
  const texts = list.split(',').map((text) => text.trim().replaceAll(/\s+/g, ' '));
  return texts
    .filter(Boolean)
    .map((text) => ({ text, name: text.replace(/^type /, '').replace(/ as .*$/, '') }));
}
