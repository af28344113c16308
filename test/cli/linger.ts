import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, delimiter, dirname, join } from 'node:path';
import { Readable, Writable } from 'node:stream';
import { text as readAll } from 'node:stream/consumers';
import { onTestFinished } from 'vitest';
import { run as runCommand } from '../../src/cli/index.ts';
import type { AtEnd } from '../webhook/connection.ts';
import { BUILT, ROOT } from './built.ts';

export { ROOT };
/** The program as it is shipped; see build.ts. */
export const MAIN = join(BUILT, 'main.js');

export interface Finished {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  readonly stdin?: string | Uint8Array;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Default: {@link MAIN}. */
  readonly main?: string;
  /** Flags of Node itself. */
  readonly nodeFlags?: readonly string[];
  /** How many file descriptors a server may have open. */
  readonly descriptors?: number;
  /** Where the process's end is registered; default: the test's own end. */
  readonly atEnd?: AtEnd;
}

/** The environment of this process without anything that is Linger's business, and with `more`. */
export function environment(more: Readonly<Record<string, string>> = {}): Record<string, string | undefined> {
  const kept = Object.entries(process.env).filter(
    ([name]) => !name.startsWith('LINGER_') && name !== 'KUBERNETES_SERVICE_HOST',
  );
  return { ...Object.fromEntries(kept), ...more };
}

/** Runs a command of the real program to its end, in a process of its own. */
export function shipped(args: readonly string[], options: RunOptions = {}): Promise<Finished> {
  return run(process.execPath, [MAIN, ...args], options);
}

/** Commands that live with their process: they follow its signals until it ends. */
export const ALWAYS_A_PROCESS: ReadonlySet<string> = new Set(['serve', 'watch', 'dashboard']);

/**
 * Runs a command to its end, in this process where it can: hundreds of starts of Node take longer than all that they
 * run. shipped.test.ts holds each command to doing the same as the real program.
 */
export async function linger(args: readonly string[], options: RunOptions = {}): Promise<Finished> {
  if (ALWAYS_A_PROCESS.has(args[0] ?? '') || options.cwd !== undefined) return shipped(args, options);
  const [stdout, stderr] = [new Collected(), new Collected()];
  const stdin = Readable.from([Buffer.from(options.stdin ?? '')]);
  const code = await runCommand(args, environment(options.env), PROGRAM, { stdin, stdout, stderr });
  return { code, stdout: stdout.text, stderr: stderr.text };
}

const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
const PROGRAM = { name: 'linger', version };

class Collected extends Writable {
  readonly #chunks: Buffer[] = [];
  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.#chunks.push(chunk);
    done();
  }
  get text(): string {
    return Buffer.concat(this.#chunks).toString();
  }
}

export async function run(
  program: string,
  args: readonly string[],
  { stdin = '', env, cwd = ROOT }: RunOptions = {},
): Promise<Finished> {
  const child = spawn(program, args, { cwd, env: environment(env), stdio: 'pipe' });
  // A command that reads nothing may have ended before anything could be written to it.
  child.stdin.on('error', () => undefined).end(stdin);
  const exited = once(child, 'exit') as Promise<[number | null]>;
  const [stdout, stderr, [code]] = await Promise.all([readAll(child.stdout), readAll(child.stderr), exited]);
  return { code, stdout, stderr };
}

/** A new empty directory, removed after the test. */
export async function emptyDirectory(atEnd: AtEnd = onTestFinished as AtEnd): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'linger-test-'));
  atEnd(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

/** The PATH of a shell in which `linger` is this program. */
export async function pathWithLinger(): Promise<string> {
  const bin = await emptyDirectory();
  await writeFile(join(bin, 'linger'), `#!/bin/sh\nexec '${process.execPath}' '${MAIN}' "$@"\n`, {
    mode: 0o755,
  });
  return `${bin}${delimiter}${process.env.PATH ?? ''}`;
}

/** Writes a file in one step: on a busy machine it would otherwise stand there empty for a while, which is a change too. */
export async function replaceFile(path: string, text: string): Promise<void> {
  const temporary = join(dirname(path), `.${basename(path)}.new`);
  await writeFile(temporary, text);
  await rename(temporary, path);
}

export type LogLine = Readonly<Record<string, unknown>>;

/** A `linger serve` that runs. */
export interface Serving {
  readonly pid: number;
  readonly host: string;
  readonly port: number;
  readonly adminPort: number;
  /** PEM of the authority that vouches for it. */
  readonly ca: string;
  /** All that has been printed so far. */
  readonly stdout: () => string;
  readonly stderr: () => string;
  readonly logs: () => readonly LogLine[];
  /**
   * Resolves once `times` lines have this message. The log is written in the background: a line may come after an
   * HTTP answer that the server gave later.
   */
  readonly logged: (message: string, times?: number) => Promise<readonly LogLine[]>;
  readonly kill: (signal: 'SIGTERM' | 'SIGINT' | 'SIGUSR2') => void;
  /** Resolves with the exit code when the process has ended and all that it printed has been read. */
  readonly exited: Promise<number | null>;
  readonly get: (path: string) => Promise<{ status: number; text: string }>;
  /** A sample of /metrics; 0 where there is none. */
  readonly count: (series: string) => Promise<number>;
}

/** Starts the real process on free ports and waits until it listens. */
export async function serving(
  certs: string,
  args: readonly string[] = [],
  options: RunOptions = {},
): Promise<Serving> {
  const main = [...(options.nodeFlags ?? []), options.main ?? MAIN];
  const all = [
    ...main,
    'serve',
    '--port',
    '0',
    '--admin-port',
    '0',
    '--hold-port',
    '0',
    '--certs',
    certs,
    ...args,
  ];
  const limited = ['-c', `ulimit -n ${options.descriptors}; exec "$0" "$@"`, process.execPath, ...all];
  const [file, words] = options.descriptors === undefined ? [process.execPath, all] : ['sh', limited];
  // What is asked twice on one connection would fail once in a hundred times.
  const env = environment({ LINGER_CONNECTION_CLOSE_PROBABILITY: '0', ...options.env });
  const child = spawn(file, words, { cwd: options.cwd ?? ROOT, env });
  const atEnd = options.atEnd ?? (onTestFinished as AtEnd);
  atEnd(() => stop(child));
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => (stdout += chunk));
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => (stderr += chunk));
  const exited = once(child, 'close').then(([code]) => code as number | null);
  const logs = () =>
    stdout
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line) as LogLine);
  const logged = (message: string, times = 1) =>
    until(async () => {
      const lines = logs().filter(({ msg }) => msg === message);
      return lines.length >= times && lines;
    });

  const listening = until(async () => {
    if (child.exitCode !== null) throw new Error(`serve ended with ${child.exitCode}: ${stderr}`);
    return stdout.endsWith('\n') ? logs().find(({ msg }) => msg === 'listening') : undefined;
  });
  const { host, port, adminPort } = (await listening) as {
    host: string;
    port: number;
    adminPort: number;
  } & LogLine;
  const ca = await readFile(join(certs, 'ca.crt'), 'utf8').catch(() => '');
  const get = async (path: string) => {
    const response = await fetch(`http://${host}:${adminPort}${path}`, {
      headers: { connection: 'close' },
    });
    return { status: response.status, text: await response.text() };
  };
  const count = async (series: string) => {
    const line = (await get('/metrics')).text.split('\n').find((each) => each.startsWith(`${series} `));
    return line === undefined ? 0 : Number(line.slice(series.length + 1));
  };
  return {
    pid: child.pid ?? 0,
    host,
    port,
    adminPort,
    ca,
    stdout: () => stdout,
    stderr: () => stderr,
    logs,
    logged,
    kill: (signal) => child.kill(signal),
    exited,
    get,
    count,
  };
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGKILL');
  await once(child, 'exit');
}

/** Tries until there is something other than undefined and false; a loaded machine is given its time. */
export async function until<T>(attempt: () => Promise<T | undefined | false>, seconds = 60): Promise<T> {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const found = await attempt();
    if (found !== undefined && found !== false) return found;
    if (Date.now() > deadline) throw new Error(`nothing after ${seconds} s of trying: ${attempt}`);
    await new Promise((resolve) => setTimeout(resolve, 30));
  }
}
