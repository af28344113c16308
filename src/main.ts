#!/usr/bin/env node
import { enableCompileCache } from 'node:module';
import { join } from 'node:path';

// Stripping the types of every file anew takes 20 MB and a fifth of a second at each start. Where the folder cannot
// be written, Node does without.
enableCompileCache(join(import.meta.dirname, '..', 'node_modules', '.cache', 'linger'));
const { FAILURE_EXIT_CODE, run } = await import('./commands/run.ts');

// A reader that has seen enough (`linger explain | head`) is no error.
process.stdout.on('error', (error: NodeJS.ErrnoException) =>
  process.exit(error.code === 'EPIPE' ? 0 : FAILURE_EXIT_CODE),
);
// Nobody can be told.
process.stderr.on('error', () => undefined);

const exitCode = await run(process.argv.slice(2), process.env);
// Not process.exit at once: what was written to a pipe may not have been read yet, and would be lost.
process.stdout.write('', () => process.stderr.write('', () => process.exit(exitCode)));
