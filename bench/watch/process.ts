import { type ChildProcess, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { started, stop } from '../processes.ts';

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

export async function startTalker({ name, command, env = {} }: TalkerOptions): Promise<Talker> {
  const [program = '', ...args] = command;
  const child = spawn(program, args, {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await started(name, child);
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

/** Both programs end in good order on it; one that is still there later is killed. */
export function stopTalker({ child }: Talker): Promise<void> {
  return stop(child, 'SIGTERM', STOP_MS);
}
