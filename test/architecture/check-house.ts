// npm run check:house: prints how large and how fragmented src is; ends with 1 where it is beyond its limits.
import { fileURLToPath } from 'node:url';
import { deepTestImports, figuresOf, HOUSE_LIMITS, ROOM_BUDGETS } from './house.ts';
import { readSources } from './imports.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
const figures = figuresOf(await readSources(root));
const deep = deepTestImports(await readSources(root, 'test'));
const named = (names: readonly string[]) => (names.length > 0 ? `: ${names.join(', ')}` : '');

console.log(`src: ${figures.files} files, ${figures.lines} lines`);
const rooms = [...figures.rooms].map(([room, lines]) => {
  const budget = ROOM_BUDGETS[room] ?? 0;
  console.log(`  ${room.padEnd(12)} ${String(lines).padStart(5)} lines (budget ${budget})`);
  return [`${room}: its lines`, lines, budget, []] as const;
});
const rows = [
  ['files with one user, in their own room', figures.single.length, HOUSE_LIMITS.single, figures.single],
  ['basenames that occur twice', figures.repeated.length, HOUSE_LIMITS.repeated, figures.repeated],
  ['imports of tests past the door of a foreign room', deep.length, HOUSE_LIMITS.deepTestImports, []],
] as const;
for (const [what, value, limit, names] of rows) {
  console.log(`${what}: ${value} (at most ${limit})${named(names)}`);
}
if (process.argv.includes('--verbose')) for (const each of deep) console.log(`  ${each}`);
const beyond = [...rooms, ...rows].filter(([, value, limit]) => value > limit);
for (const [what, value, limit] of beyond) console.error(`beyond its limit: ${what}, ${value} of ${limit}`);
process.exitCode = beyond.length === 0 ? 0 : 1;
