#!/usr/bin/env node
import { readFileSync } from 'node:fs';
import { certs } from './commands/certs.ts';
import { explain } from './commands/explain.ts';
import { inject } from './commands/inject.ts';
import { serve } from './commands/serve.ts';
import { UserError } from './core/catalog/errors.ts';
import { readCommandLine, USAGE_EXIT_CODE } from './settings/command-line.ts';

const FAILURE_EXIT_CODE = 1;

async function main(): Promise<number> {
  const invocation = readCommandLine(process.argv.slice(2), process.env, version());
  const print = (text: string) => process.stdout.write(text);
  const warn = (text: string) => process.stderr.write(text);
  switch (invocation.command) {
    case 'serve':
      return serve(invocation.settings, {
        version: version(),
        inCluster: invocation.inCluster,
        print: (text) => print(`${text}\n`),
      });
    case 'inject':
      return inject(invocation.settings, { print, warn });
    case 'explain':
      return explain(invocation.settings, { print, warn });
    case 'certs':
      return certs(invocation.settings, { print, warn });
    case 'none':
      return invocation.exitCode;
  }
}

function version(): string {
  const about: unknown = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  return typeof about === 'object' && about !== null && 'version' in about
    ? String(about.version)
    : 'unknown';
}

/** What the user can mend is one line; anything else is a bug, and its stack helps to find it. */
function explainFailure(error: unknown): number {
  if (!(error instanceof UserError)) {
    console.error(error);
    return FAILURE_EXIT_CODE;
  }
  console.error(`linger: ${error.message} [${error.code}]`);
  return error.code === 'settings-invalid' ? USAGE_EXIT_CODE : FAILURE_EXIT_CODE;
}

// A reader that has seen enough (`linger explain | head`) is no error.
process.stdout.on('error', (error: NodeJS.ErrnoException) =>
  process.exit(error.code === 'EPIPE' ? 0 : FAILURE_EXIT_CODE),
);

const exitCode = await main().catch(explainFailure);
// Not process.exit at once: what was written to a pipe may not have been read yet, and would be lost.
process.stdout.write('', () => process.stderr.write('', () => process.exit(exitCode)));
