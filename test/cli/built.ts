import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/** Where tests have the program built. */
export const BUILT = join(ROOT, 'node_modules/.cache/linger/dist');
/** What esbuild says of it: what went into each of its files. */
export const METAFILE = join(dirname(BUILT), 'metafile.json');
