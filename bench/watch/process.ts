import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

/** A process that says on its standard output, in lines of JSON, what has happened. */
export interface Talker {
  readonly name: string;
  readonly pid: number;
  readonly child: ChildProcess;
  /**
   * The next line.
   * @throws when the process ends, or says nothing for too long
   */
  next(withinMs: number): Promise<Record<string, unknown>>;
}

export interface TalkerOptions {
  readonly name: string;
  readonly command: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

const running = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => process.exit(1));

export async function startTalker({ name, command, env = {} }: TalkerOptions): Promise<Talker> {
  const [program = '', ...args] = command;
  const child = spawn(program, args, {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  running.add(child);
  child.once('exit', () => running.delete(child));
  await new Promise<void>((resolve, reject) => {
    child.once('spawn', resolve);
    child.once('error', (error) => reject(new Error(`cannot start ${name}: ${error.message}`)));
  });
  const lines = createInterface({ input: child.stdout! })[Symbol.asyncIterator]();
  const next = async (withinMs: number): Promise<Record<string, unknown>> => {
    const late = Promise.withResolvers<never>();
    const timer = setTimeout(
      () => late.reject(new Error(`${name} says nothing for ${withinMs / 1000} s`)),
      withinMs,
    );
    try {
      const { done, value } = await Promise.race([lines.next(), late.promise]);
      if (done === true) throw new Error(`${name} has ended`);
      return JSON.parse(value) as Record<string, unknown>;
    } finally {
      clearTimeout(timer);
    }
  };
  // taskset replaces itself by the program, so this is the program's own pid.
  return { name, pid: child.pid!, child, next };
}

const STOP_MS = 10_000;

/** Both programs end in good order by it; whoever is still there then is killed. */
export async function stopTalker({ child }: Talker): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  const deadline = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
  await gone;
  clearTimeout(deadline);
}
