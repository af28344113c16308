import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';

/** Nothing that a benchmark has started outlives it. */
const running = new Set<ChildProcess>();
process.on('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => process.exit(1));

/**
 * Waits until a process that was spawned runs, and from then on ends it with this one.
 * @throws when it cannot be started
 */
export async function started(name: string, child: ChildProcess): Promise<void> {
  try {
    await once(child, 'spawn');
  } catch (error) {
    throw new Error(`cannot start ${name}: ${error instanceof Error ? error.message : error}`);
  }
  running.add(child);
  child.once('exit', () => running.delete(child));
}

/** Asks a process to end, and kills it if it has not after this long. */
export async function stop(child: ChildProcess, signal: NodeJS.Signals, withinMs: number): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill(signal);
  const deadline = setTimeout(() => child.kill('SIGKILL'), withinMs);
  await gone;
  clearTimeout(deadline);
}
