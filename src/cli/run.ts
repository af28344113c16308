import { fstatSync, writeSync } from 'node:fs';
import { inspect } from 'node:util';
import { asError, ERRORS, LingerError, printable, UserError } from '../core/api/index.ts';
import {
  type CommandInvocation,
  type Environment,
  FAILURE_EXIT_CODE,
  readCommandLine,
} from './command-line.ts';
import type { CommandName, Settings } from './commands.ts';
import { fitTablesTo, Progress, type Streams, type Surroundings } from './terminal.ts';

/**
 * Runs a command.
 * @returns the exit code: 1 if something could not be read, 3 if something was found that --fail-on names
 * @throws UserError for anything that the user can fix
 */
type Run<C extends CommandName> = (settings: Settings<C>, surroundings: Surroundings) => Promise<number>;

/** Loaded on demand, because a server must not have the libraries of other commands in memory. */
const RUN: { readonly [C in CommandName]: () => Promise<Run<C>> } = {
  serve: async () => (await import('./serve.ts')).serve,
  inject: async () => (await import('./inject.ts')).inject,
  uninject: async () => (await import('./inject.ts')).uninject,
  explain: async () => (await import('./explain.ts')).explain,
  audit: async () => (await import('./audit.ts')).audit,
  dashboard: async () => (await import('./dashboard.ts')).dashboard,
  timeline: async () => (await import('./timeline.ts')).timeline,
  check: async () => (await import('./check.ts')).check,
  simulate: async () => (await import('./simulate.ts')).simulate,
  certs: async () => (await import('./certs.ts')).certs,
  watch: async () => (await import('./watch.ts')).watch,
  diagnose: async () => (await import('./diagnose.ts')).diagnose,
  consumers: async () => (await import('./consumers.ts')).consumers,
  witness: async () => (await import('./witness.ts')).witness,
  'node-timer': async () => (await import('./node-timer.ts')).nodeTimer,
  status: async () => (await import('./status.ts')).status,
  history: async () => (await import('./history.ts')).history,
  hold: async () => (await import('./hold-command.ts')).hold,
  prove: async () => (await import('./prove.ts')).prove,
  'prove-keep': async () => (await import('./prove-keep.ts')).proveKeep,
  'prove-traffic': async () => (await import('./prove-traffic.ts')).proveTraffic,
  version: async () => (await import('./version.ts')).version,
  completion: async () => (await import('./completion.ts')).completion,
};

interface Program {
  /** How the user calls it: `linger`, or `kubectl linger`. */
  readonly name: string;
  readonly version: string;
  /** The commit from which it was built; absent: not known. */
  readonly commit?: string | undefined;
}

/**
 * Runs one command to its end.
 * @param argv without the program's own name
 * @returns the exit code
 */
export async function run(
  argv: readonly string[],
  environment: Environment,
  program: Program,
  streams: Streams,
): Promise<number> {
  try {
    const invocation = readCommandLine(argv, environment, program.version, program.name, streams);
    if (invocation.command === 'none') return invocation.exitCode;
    return await start(invocation, program, streams);
  } catch (error) {
    return explainFailure(error, streams.stderr);
  }
}

async function start<C extends CommandName>(
  { command, settings, kube, colour }: CommandInvocation<C>,
  { version, commit }: Program,
  { stdin, stdout, stderr }: Streams,
): Promise<number> {
  const load: () => Promise<Run<C>> = RUN[command];
  const runCommand = await load();
  const write = writerTo(stdout);
  // Pauses and idle connections do not keep the process alive, so it would exit between two attempts.
  const alive = setInterval(() => undefined, 2 ** 30);
  const terminal = {
    print: (text: string) => write(Buffer.from(text)),
    warn: (line: string) => void stderr.write(`${printable(line)}\n`),
    overwrite: (text: string) => void stderr.write(text),
    errorColumns: () => (stderr.isTTY === true ? (stderr.columns ?? 80) : undefined),
  };
  const { report, print, note, end } = new Progress(terminal);
  if (stdout.isTTY === true) fitTablesTo(stdout.columns ?? 80);
  try {
    return await runCommand(settings, {
      ...terminal,
      print,
      warn: note,
      progress: report,
      write,
      kube,
      version,
      commit,
      stdin,
      interactive: stdin.isTTY === true && stderr.isTTY === true,
      colour: colour ?? stdout.isTTY === true,
      outputColumns: () => (stdout.isTTY === true ? (stdout.columns ?? 80) : undefined),
      now: () => Date.now() / 1000,
    });
  } finally {
    end();
    clearInterval(alive);
  }
}

/**
 * Writes all bytes to standard output, or ends the process. Node's own file stream mistakes a short write, as on a full
 * disk, for a complete one.
 */
function writerTo(stdout: Streams['stdout']): (bytes: Uint8Array) => void {
  const { fd } = stdout;
  if (fd === undefined || stdout.isTTY === true || !isFile(fd)) return (bytes) => void stdout.write(bytes);
  return (bytes) => {
    try {
      for (let at = 0; at < bytes.length; ) at += writeSync(fd, bytes, at);
    } catch (error) {
      leaveWithout(asError(error));
    }
  };
}

function isFile(fd: number): boolean {
  const about = fstatSync(fd);
  return about.isFile() || about.isCharacterDevice();
}

/**
 * Ends the process because standard output accepts no more. If the reader has seen enough (`linger explain | head`), that is
 * not an error; a full disk is.
 */
export function leaveWithout(error: NodeJS.ErrnoException): never {
  if (error.code === 'EPIPE') process.exit(0);
  console.error(`linger: standard output cannot be written (${error.message}) [output-unwritable]`);
  process.exit(FAILURE_EXIT_CODE);
}

const LONGEST_MESSAGE = 4_000;

/** An error that the user can fix is printed as one line. Anything else is a bug, and its stack helps to find it. */
function explainFailure(error: unknown, stderr: NodeJS.WritableStream): number {
  if (!(error instanceof UserError)) {
    stderr.write(printableLines(inspect(error)));
    return FAILURE_EXIT_CODE;
  }
  const { message } = error;
  // Messages may quote a value of a megabyte.
  const shown = message.length > LONGEST_MESSAGE ? `${message.slice(0, LONGEST_MESSAGE)}…` : message;
  stderr.write(printableLines(`linger: ${shown} [${error.code}]`));
  return error instanceof LingerError ? ERRORS[error.code].exit : FAILURE_EXIT_CODE;
}

function printableLines(text: string): string {
  return `${text.split('\n').map(printable).join('\n')}\n`;
}
