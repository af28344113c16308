import { spawn } from 'node:child_process';
import { join } from 'node:path';

/** The module that brings the test cluster up and runs a file in it. */
const RUN = join(import.meta.dirname, '..', 'test', 'testbed', 'run.ts');

/**
 * Runs a benchmark that is a file of vitest's in the test cluster; this process ends with its exit code.
 * @param file from the project's root
 * @param settings what {@link settingsOnCluster} returns there
 */
export function runOnCluster(file: string, settings: object): void {
  const env = { ...process.env, BENCH: file, BENCH_SETTINGS: JSON.stringify(settings) };
  const child = spawn(process.execPath, [RUN, file], { env, stdio: 'inherit' });
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.on(name, () => child.kill(name));
  child.on('exit', (code) => {
    process.exitCode = code ?? 1;
  });
}

export function settingsOnCluster<S>(): S {
  return JSON.parse(process.env.BENCH_SETTINGS ?? '{}') as S;
}
