import { UserError } from '../api/index.ts';
import {
  type CommandInvocation,
  type Environment,
  type Invocation,
  readCommandLine,
  USAGE_EXIT_CODE,
} from './command-line.ts';
import type { CommandName, Settings } from './commands.ts';
import type { KubeEnvironment } from './flags.ts';
import { type Terminal, writerTo } from './terminal.ts';

export const FAILURE_EXIT_CODE = 1;

/** What a command may use of the process around it. */
export interface Surroundings extends Terminal {
  /** Writes bytes to standard output. */
  readonly write: (bytes: Uint8Array) => void;
  readonly kube: KubeEnvironment;
  readonly version: string;
  readonly stdin: NodeJS.ReadStream;
  /** Whether someone could answer a question, such as that of a credential plugin. */
  readonly interactive: boolean;
  readonly terminals: {
    /** Whether standard input and output are terminals. */
    readonly input: boolean;
    readonly output: boolean;
    /** How wide standard error is; undefined where it is no terminal. */
    readonly errorColumns: () => number | undefined;
  };
  /** Whether colours are welcome. */
  readonly colour: boolean;
  /** Seconds since the epoch. */
  readonly now: () => number;
}

/** Runs a command to its end; returns the exit code. */
type Run<C extends CommandName> = (settings: Settings<C>, surroundings: Surroundings) => Promise<number>;

/** Each command brings its own libraries: a server should not carry those of the others in its memory. */
const RUN: { readonly [C in CommandName]: () => Promise<Run<C>> } = {
  serve: async () => (await import('./serve.ts')).serve,
  inject: async () => (await import('./inject.ts')).inject,
  uninject: async () => (await import('./inject.ts')).uninject,
  explain: async () => (await import('./explain.ts')).explain,
  check: async () => (await import('./check.ts')).check,
  simulate: async () => (await import('./simulate.ts')).simulate,
  certs: async () => (await import('./certs.ts')).certs,
  watch: async () => (await import('./watch.ts')).watch,
  diagnose: async () => (await import('./diagnose.ts')).diagnose,
  consumers: async () => (await import('./consumers.ts')).consumers,
  history: async () => (await import('./history.ts')).history,
  completion: async () => (await import('./completion.ts')).completion,
};

export interface Program {
  readonly name: string;
  readonly version: string;
}

/**
 * Runs one command to its end.
 * @param argv without the program's own name
 * @param program its version, and its name as the user calls it: `linger`, or `kubectl linger`
 * @returns the exit code
 */
export async function run(
  argv: readonly string[],
  environment: Environment,
  program: Program,
): Promise<number> {
  try {
    const invocation: Invocation = readCommandLine(argv, environment, program.version, program.name);
    return invocation.command === 'none' ? invocation.exitCode : await start(invocation, program.version);
  } catch (error) {
    return explainFailure(error);
  }
}

async function start<C extends CommandName>(
  { command, settings, kube, colour }: CommandInvocation<C>,
  version: string,
): Promise<number> {
  const { stdin, stdout, stderr } = process;
  const load: () => Promise<Run<C>> = RUN[command];
  const runCommand = await load();
  const write = writerTo(stdout, 1, leaveWithout);
  return runCommand(settings, {
    print: (text) => write(Buffer.from(text)),
    write,
    warn: (text) => void stderr.write(text),
    kube,
    version,
    stdin,
    interactive: stdin.isTTY === true && stderr.isTTY === true,
    terminals: {
      input: stdin.isTTY === true,
      output: stdout.isTTY === true,
      errorColumns: () => (stderr.isTTY === true ? (stderr.columns ?? 80) : undefined),
    },
    colour,
    now: () => Date.now() / 1000,
  });
}

/**
 * Ends the process because standard output takes no more. A reader that has seen enough (`linger explain | head`) is
 * no error; a full disk is.
 */
export function leaveWithout(error: NodeJS.ErrnoException): never {
  if (error.code === 'EPIPE') process.exit(0);
  console.error(`linger: standard output cannot be written (${error.message}) [output-unwritable]`);
  process.exit(FAILURE_EXIT_CODE);
}

const LONGEST_MESSAGE = 4_000;

/** What the user can mend is one line; anything else is a bug, and its stack helps to find it. */
function explainFailure(error: unknown): number {
  if (!(error instanceof UserError)) {
    console.error(error);
    return FAILURE_EXIT_CODE;
  }
  const { message } = error;
  // A value that is quoted may be a megabyte long.
  const shown = message.length > LONGEST_MESSAGE ? `${message.slice(0, LONGEST_MESSAGE)}…` : message;
  console.error(`linger: ${shown} [${error.code}]`);
  return error.code === 'settings-invalid' ? USAGE_EXIT_CODE : FAILURE_EXIT_CODE;
}
