import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { AtEnd } from '../webhook/connection.ts';
import { emptyDirectory, MAIN, ROOT, until } from './linger.ts';

/** A kubeconfig of a server without authentication; its context is `model`. */
export function writeKubeconfig(server: URL, user: object, atEnd: AtEnd): Promise<string> {
  return writeContexts({ model: server }, user, atEnd);
}

/** The same of several servers, by their contexts; the first is the current one. */
export async function writeContexts(
  servers: Readonly<Record<string, URL>>,
  user: object,
  atEnd: AtEnd,
): Promise<string> {
  const file = join(await emptyDirectory(atEnd), 'config');
  const document = {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': Object.keys(servers)[0],
    clusters: Object.entries(servers).map(([name, { href }]) => ({ name, cluster: { server: href } })),
    users: [{ name: 'me', user }],
    contexts: Object.keys(servers).map((name) => ({ name, context: { cluster: name, user: 'me' } })),
  };
  await writeFile(file, JSON.stringify(document));
  return file;
}

/** A `linger watch` that runs. */
export interface Watching {
  readonly stdout: () => string;
  readonly stderr: () => string;
  /** What it has printed with `--output json`. */
  readonly lines: () => readonly ChangeJson[];
  readonly kill: (signal: 'SIGINT' | 'SIGTERM' | 'SIGSTOP' | 'SIGCONT') => void;
  readonly child: ChildProcess;
  /** Resolves with the exit code when the process has ended. */
  readonly exited: Promise<number | null>;
}

export interface ChangeJson {
  readonly time: string;
  readonly context?: string;
  readonly namespace: string;
  readonly service: string | null;
  readonly pod: string | null;
  readonly ip: string;
  readonly change: string;
  readonly source: string;
  readonly lagSeconds: number | null;
}

export interface WatchingOptions {
  readonly atEnd: AtEnd;
  readonly env?: Readonly<Record<string, string>>;
  /** Whether the process must not stand still: on a machine that is too busy it has no lags to tell. Default: true. */
  readonly steady?: boolean;
  /** Whether to wait until it says that it watches. Default: true. */
  readonly ready?: boolean;
}

/** Starts the real process and waits until it watches. */
export async function startWatching(
  kubeconfig: string,
  args: readonly string[],
  { atEnd, env = {}, steady = true, ready = true }: WatchingOptions,
): Promise<Watching> {
  const child = spawn(process.execPath, [MAIN, 'watch', '--kubeconfig', kubeconfig, ...args], {
    cwd: ROOT,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  const exited = once(child, 'close').then(([code]) => code as number | null);
  atEnd(async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
    await exited;
  });
  if (ready) {
    await until(async () => {
      if (child.exitCode !== null) throw new Error(`watch ended with ${child.exitCode}: ${stderr}`);
      return stderr.includes('Watching ');
    });
  }
  const printed = () => {
    if (steady && stderr.includes('stood still')) throw new Error('the process stood still');
    return stdout;
  };
  return {
    stdout: printed,
    stderr: () => stderr,
    lines: () =>
      printed()
        .split('\n')
        .slice(0, -1)
        .map((line) => JSON.parse(line) as ChangeJson),
    kill: (signal) => child.kill(signal),
    child,
    exited,
  };
}
