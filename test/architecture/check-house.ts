// npm run check:house: prints how large and how fragmented src is; ends with 1 where it is beyond its limits.
import { fileURLToPath } from 'node:url';
import { figuresOf, HOUSE_LIMITS } from './house.ts';
import { readSources } from './imports.ts';

const figures = figuresOf(await readSources(fileURLToPath(new URL('../..', import.meta.url))));
const rows = [
  ['files in src', figures.files, HOUSE_LIMITS.files, []],
  ['lines in src', figures.lines, HOUSE_LIMITS.lines, []],
  ['files with one user, in their own room', figures.single.length, HOUSE_LIMITS.single, figures.single],
  ['basenames that occur twice', figures.repeated.length, HOUSE_LIMITS.repeated, figures.repeated],
] as const;

for (const [what, value, limit, names] of rows) {
  console.log(`${what}: ${value} (at most ${limit})${names.length > 0 ? `: ${names.join(', ')}` : ''}`);
}
process.exitCode = rows.every(([, value, limit]) => value <= limit) ? 0 : 1;
