import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { openSync, readFileSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { must } from '../testbed/command.ts';
import { waitUntil } from '../testbed/waiting.ts';
import type { Front } from './front.ts';

export const PORTS = { webhook: 8443, admin: 8080, hold: 8445, inspector: 9229 } as const;

export interface ReplicaInput {
  readonly name: string;
  /** The replicas have the same ports, as pods have, and so each needs an address of its own. */
  readonly host: string;
  /** A directory that no other replica uses. */
  readonly directory: string;
  readonly main: string;
  readonly front: Front;
  readonly flags: Readonly<Record<string, string>>;
  /** See clock-ahead.c; undefined where there is no compiler. */
  readonly clockLibrary: string | undefined;
}

/** What one process uses, after its garbage has been collected. */
export interface Usage {
  /** Milliseconds since the epoch. */
  readonly at: number;
  readonly heapBytes: number;
  readonly residentBytes: number;
  readonly descriptors: number;
  readonly handles: number;
}

/** Its log is on a disk of this size, which is no other's and ends with the process. */
const DISK_MIB = 64;
/** The page is made anew four times a second at most. */
const PAGE_MS = 300;

/** `linger serve` as a process whose clock, disk and way to the API server are its own. */
export class Replica {
  readonly input: ReplicaInput;
  /** How often it has ended of itself. */
  crashes = 0;
  #child: ChildProcess | undefined;
  #ending = false;

  constructor(input: ReplicaInput) {
    this.input = input;
    writeFileSync(this.#aheadFile, Buffer.alloc(8));
  }

  get #aheadFile(): string {
    return join(this.input.directory, 'clock-ahead');
  }

  get pid(): number {
    return this.#child?.pid ?? 0;
  }

  /** Resolves when it is ready. */
  async start(): Promise<void> {
    const { directory, main, host, flags, clockLibrary } = this.input;
    const disk = join(directory, 'disk');
    const words = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value]);
    const script = `mkdir -p "$0"; mount -t tmpfs -o size=${DISK_MIB}m soak "$0"; exec "$@" > "$0/log" 2>&1`;
    const node = [process.execPath, `--inspect=${host}:${PORTS.inspector}`, main, 'serve', ...words];
    const env: NodeJS.ProcessEnv = { ...process.env, TMPDIR: disk };
    if (clockLibrary !== undefined) {
      env.LD_PRELOAD = clockLibrary;
      env.CLOCK_AHEAD_FILE = this.#aheadFile;
    }
    // A mount namespace of its own: what is mounted there is gone with it.
    const argv = ['--mount', 'sh', '-ec', script, disk, ...node];
    const child = spawn('unshare', argv, { env, stdio: ['ignore', 'inherit', 'inherit'] });
    this.#child = child;
    this.#ending = false;
    const kill = () => child.kill('SIGKILL');
    process.once('exit', kill);
    child.once('exit', () => {
      process.off('exit', kill);
      if (!this.#ending) this.crashes += 1;
    });
    await waitUntil(`${this.input.name} to be ready`, () => this.#isReady(), {
      timeoutMs: 90_000,
      intervalMs: 200,
    });
  }

  /** @param beforeEnd what others do while it drains */
  async stop(signal: 'SIGTERM' | 'SIGKILL', beforeEnd: () => Promise<void> = async () => {}): Promise<void> {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    this.#ending = true;
    const ended = once(child, 'exit');
    child.kill(signal);
    await beforeEnd();
    await ended;
  }

  /** Sets its wall clock ahead. */
  setClockAhead(ms: number): void {
    const file = openSync(this.#aheadFile, 'r+');
    const bytes = Buffer.alloc(8);
    bytes.writeBigInt64LE(BigInt(ms));
    writeSync(file, bytes, 0, 8, 0);
  }

  /** @returns what gives the room back */
  async fillDisk(): Promise<() => Promise<void>> {
    const filler = `/proc/${this.pid}/root${join(this.input.directory, 'disk', 'filler')}`;
    await must(['sh', '-c', `dd if=/dev/zero of=${filler} bs=64k 2> /dev/null || true`]);
    return async () => void (await must(['rm', '-f', filler]));
  }

  log(): string {
    return readFileSync(`/proc/${this.pid}/root${join(this.input.directory, 'disk', 'log')}`, 'utf8');
  }

  /** The lines of its metrics. */
  async page(): Promise<readonly string[]> {
    const answer = await fetch(`http://${this.input.host}:${PORTS.admin}/metrics`, {
      signal: AbortSignal.timeout(10_000),
    });
    return (await answer.text()).split('\n');
  }

  async usage(): Promise<Usage> {
    await this.#collectGarbage();
    await sleep(PAGE_MS);
    const page = await this.page();
    const value = (name: string) =>
      Number(page.find((line) => line.startsWith(`${name} `))?.slice(name.length) ?? Number.NaN);
    return {
      at: Date.now(),
      heapBytes: value('nodejs_heap_size_used_bytes'),
      residentBytes: value('process_resident_memory_bytes'),
      descriptors: value('process_open_fds'),
      handles: value('nodejs_active_resources_total'),
    };
  }

  async #isReady(): Promise<boolean> {
    if (this.#child?.exitCode !== null) throw new Error(`${this.input.name} has ended`);
    const answer = await fetch(`http://${this.input.host}:${PORTS.admin}/readyz`).catch(() => undefined);
    await answer?.arrayBuffer();
    return answer?.ok === true;
  }

  async #collectGarbage(): Promise<void> {
    const list = await fetch(`http://${this.input.host}:${PORTS.inspector}/json/list`);
    const [target] = (await list.json()) as { webSocketDebuggerUrl: string }[];
    const socket = new WebSocket(target?.webSocketDebuggerUrl ?? '');
    await once(socket, 'open');
    const answered = once(socket, 'message');
    socket.send(JSON.stringify({ id: 1, method: 'HeapProfiler.collectGarbage' }));
    await answered;
    const closed = once(socket, 'close');
    socket.close();
    await closed;
  }
}
