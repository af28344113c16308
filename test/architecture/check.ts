import { fileURLToPath } from 'node:url';
import { describeViolation, readSources, violationsOf } from './imports.ts';

// Holds src against the rule of the house; ends with 1 and a line for each violation when it is broken.

const root = fileURLToPath(new URL('../..', import.meta.url));
const sources = await readSources(root);
const violations = violationsOf(sources);
for (const violation of violations) console.error(describeViolation(violation));
console.log(`architecture: ${sources.size} files, ${violations.length} violations`);
process.exitCode = violations.length === 0 ? 0 : 1;
