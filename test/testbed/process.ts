import { spawn } from 'node:child_process';
import { closeSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { waitUntil } from './waiting.ts';

/** Identifies one process for ever: a pid alone is given to others after its owner's death. */
export interface ProcessIdentity {
  readonly pid: number;
  /** Clock ticks between boot and the process's start: field 22 of /proc/PID/stat, proc(5). */
  readonly startTicks: string;
  readonly bootId: string;
}

export interface ProcessRecord extends ProcessIdentity {
  readonly name: string;
  readonly argv: readonly string[];
  readonly logFile: string;
  /** RFC 3339. */
  readonly startedAt: string;
}

function bootId(): string {
  return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
}

/** What /proc says about a pid, or undefined when there is no such process or nothing of it runs any more. */
function statOf(pid: number): { startTicks: string } | undefined {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch {
    return undefined;
  }
  // The program's name, field 2, is in parentheses and may itself hold any character.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
  const [state] = fields;
  const [threads, startTicks] = [fields[17], fields[19]];
  // A process is shown as a zombie as soon as its first thread has ended; the others still have its sockets.
  const ended = state === 'X' || (state === 'Z' && threads === '1');
  if (startTicks === undefined || ended) return undefined;
  return { startTicks };
}

/** The identity of a running process, or undefined when there is none. */
export function identify(pid: number): ProcessIdentity | undefined {
  const stat = statOf(pid);
  return stat === undefined ? undefined : { pid, startTicks: stat.startTicks, bootId: bootId() };
}

/** Whether exactly this process, and not a later one with its pid, is running. */
export function isAlive(identity: ProcessIdentity): boolean {
  return identity.bootId === bootId() && statOf(identity.pid)?.startTicks === identity.startTicks;
}

export interface StartOptions {
  readonly name: string;
  readonly argv: readonly string[];
  readonly runDir: string;
  readonly logFile: string;
  readonly env?: NodeJS.ProcessEnv;
}

/** Starts a process that outlives this one, its output appended to a log, and records it. */
export async function startProcess(options: StartOptions): Promise<ProcessRecord> {
  const [program = '', ...args] = options.argv;
  const log = openSync(options.logFile, 'a');
  const child = spawn(program, args, {
    detached: true,
    stdio: ['ignore', log, log],
    env: options.env ?? process.env,
  });
  closeSync(log);
  await new Promise<void>((resolve, reject) => {
    child.once('spawn', resolve);
    child.once('error', (error) => reject(new Error(`cannot start ${program}: ${error.message}`)));
  });
  const identity = child.pid === undefined ? undefined : identify(child.pid);
  if (identity === undefined) throw new Error(`${options.name} ended at once; see ${options.logFile}`);
  child.unref();
  const record: ProcessRecord = {
    ...identity,
    name: options.name,
    argv: options.argv,
    logFile: options.logFile,
    startedAt: new Date().toISOString(),
  };
  writeFileSync(join(options.runDir, `${options.name}.json`), JSON.stringify(record, null, 2));
  return record;
}

/** The record of a component that was started and not yet stopped, running or not. */
export function readRecord(runDir: string, name: string): ProcessRecord | undefined {
  try {
    return JSON.parse(readFileSync(join(runDir, `${name}.json`), 'utf8')) as ProcessRecord;
  } catch {
    // Never written, or cut short by a crash: either way there is nothing to go by.
    return undefined;
  }
}

/** SIGTERM, then SIGKILL after `patienceMs`; returns when the process is gone. Never signals another's pid. */
export async function stopProcess(record: ProcessRecord, runDir: string, patienceMs = 8_000): Promise<void> {
  for (const [signal, timeoutMs] of [
    ['SIGTERM', patienceMs],
    ['SIGKILL', 10_000],
  ] as const) {
    if (!isAlive(record)) break;
    signalIfAlive(record, signal);
    await waitUntil(`${record.name} to end`, () => !isAlive(record), { timeoutMs, intervalMs: 50 }).catch(
      (error: unknown) => {
        if (signal === 'SIGKILL') throw error;
      },
    );
  }
  rmSync(join(runDir, `${record.name}.json`), { force: true });
}

export function signalIfAlive(identity: ProcessIdentity, signal: NodeJS.Signals): void {
  if (!isAlive(identity)) return;
  try {
    process.kill(identity.pid, signal);
  } catch (error) {
    // It ended between the look and the signal.
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** All processes, as pid and command line; a kernel thread has an empty one. */
export function listProcesses(): { pid: number; argv: string[] }[] {
  return readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry))
    .flatMap((entry) => {
      try {
        const argv = readFileSync(`/proc/${entry}/cmdline`, 'utf8').split('\0').slice(0, -1);
        return [{ pid: Number(entry), argv }];
      } catch {
        return [];
      }
    });
}
