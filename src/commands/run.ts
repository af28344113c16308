import { readFileSync } from 'node:fs';
import { UserError } from '../core/catalog/errors.ts';
import {
  type Environment,
  type Invocation,
  readCommandLine,
  USAGE_EXIT_CODE,
} from '../settings/command-line.ts';

export const FAILURE_EXIT_CODE = 1;

/**
 * Runs one command to its end.
 * @param argv without the program's own name
 * @returns the exit code
 */
export async function run(argv: readonly string[], environment: Environment): Promise<number> {
  try {
    return await start(readCommandLine(argv, environment, version()));
  } catch (error) {
    return explainFailure(error);
  }
}

async function start(invocation: Invocation): Promise<number> {
  const print = (text: string) => process.stdout.write(text);
  const warn = (text: string) => process.stderr.write(text);
  // Each command brings its own libraries: a server should not carry those of the others in its memory.
  switch (invocation.command) {
    case 'serve':
      return (await import('./serve.ts')).serve(invocation.settings, {
        version: version(),
        kube: invocation.kube,
        print: (text) => print(`${text}\n`),
      });
    case 'inject':
      return (await import('./inject.ts')).inject(invocation.settings, { print, warn });
    case 'explain':
      return (await import('./explain.ts')).explain(invocation.settings, invocation.kube, { print, warn });
    case 'certs':
      return (await import('./certs.ts')).certs(invocation.settings, { print, warn });
    case 'watch': {
      const { settings, kube, colour } = invocation;
      const { stdin, stdout, stderr } = process;
      const terminals = {
        input: stdin.isTTY === true,
        output: stdout.isTTY === true,
        errorColumns: () => (stderr.isTTY === true ? (stderr.columns ?? 80) : undefined),
      };
      return (await import('./watch.ts')).watch(settings, { print, warn, kube, colour, terminals });
    }
    case 'diagnose': {
      const { settings, kube } = invocation;
      const { stdin, stderr } = process;
      const interactive = stdin.isTTY === true && stderr.isTTY === true;
      return (await import('./diagnose.ts')).diagnose(settings, { print, warn, kube, stdin, interactive });
    }
    case 'consumers': {
      const { settings, kube } = invocation;
      const { stdin, stderr } = process;
      const interactive = stdin.isTTY === true && stderr.isTTY === true;
      const now = () => Date.now() / 1000;
      return (await import('./consumers.ts')).consumers(settings, { print, warn, kube, interactive, now });
    }
    case 'none':
      return invocation.exitCode;
  }
}

function version(): string {
  const about: unknown = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
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
