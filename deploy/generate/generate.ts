import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { GENERATED } from './generated.ts';

// npm run generate: writes what is made from the source.

for (const { path, text } of GENERATED) {
  const file = join(import.meta.dirname, '..', '..', path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text());
  console.log(path);
}
