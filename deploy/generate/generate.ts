import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { GENERATED } from './generated.ts';

// npm run generate: writes what is made from the source, and names the files that have changed.

const changed = GENERATED.filter(({ path, text }) => {
  const file = join(import.meta.dirname, '..', '..', path);
  const now = text();
  if (existsSync(file) && readFileSync(file, 'utf8') === now) return false;
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, now);
  return true;
});
for (const { path } of changed) console.log(path);
console.log(`${changed.length} of ${GENERATED.length} files changed`);
