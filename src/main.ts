#!/usr/bin/env node
import { readFileSync } from 'node:fs';
import { enableCompileCache } from 'node:module';
import { basename, join } from 'node:path';

// Stripping the types of every file takes 20 MB and a fifth of a second at each start. Where the folder cannot
// be written, Node does without.
enableCompileCache(join(import.meta.dirname, '..', 'node_modules', '.cache', 'linger'));
const { leaveWithout, run } = await import('./cli/index.ts');

process.stdout.on('error', leaveWithout);
// Where standard error cannot be written, there is no place to say so.
process.stderr.on('error', () => undefined);

/** Beside src in a checkout, and beside dist in the image and the package. */
const { version, gitHead } = JSON.parse(
  readFileSync(new URL('../package.json', import.meta.url), 'utf8'),
) as {
  readonly version: string;
  /** npm's name for the commit: of what a release has packed. */
  readonly gitHead?: string;
};
// kubectl runs a program called kubectl-linger for `kubectl linger`.
const name = basename(process.argv[1] ?? '').startsWith('kubectl-') ? 'kubectl linger' : 'linger';
const exitCode = await run(process.argv.slice(2), process.env, { name, version, commit: gitHead }, process);
// Not process.exit at once: what was written to a pipe may not have been read yet, and would be lost.
process.stdout.write('', () => process.stderr.write('', () => process.exit(exitCode)));
