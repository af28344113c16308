// The two Go programs of the benchmark, and the cores that everything is pinned to.
import { execFileSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { availableParallelism, homedir } from 'node:os';
import { join } from 'node:path';

export interface Binaries {
  readonly controllerRuntime: string;
  readonly load: string;
}

/** Builds both into the user's cache directory; a second build takes a second. */
export function buildBinaries(bench: string): Binaries {
  const cache = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'linger', 'bench');
  mkdirSync(cache, { recursive: true });
  const build = (name: string): string => {
    const binary = join(cache, name);
    console.error(`building ${name} (the first build of controller-runtime takes a minute or two)`);
    execFileSync('go', ['build', '-o', binary, '.'], { cwd: join(bench, name), stdio: ['ignore', 2, 2] });
    return binary;
  };
  return { controllerRuntime: build('controller-runtime'), load: build('load') };
}

export function goVersion(bench: string): string {
  const options = { cwd: join(bench, 'controller-runtime'), encoding: 'utf8' } as const;
  return execFileSync('go', ['env', 'GOVERSION'], options).trim();
}

const SERVER_CORE = 0;
const LOAD_CORE = 1;

/** `taskset` prefixes for the servers and the load generator; empty, with the reason, where they cannot be used. */
export interface Pinning {
  readonly server: readonly string[];
  readonly load: readonly string[];
  readonly text: string;
}

export function pinning(): Pinning {
  const prefix = (core: number): string[] => ['taskset', '-c', String(core)];
  const fault = pinningFault();
  if (fault !== undefined) return { server: [], load: [], text: `NOT pinned: ${fault}` };
  return {
    server: prefix(SERVER_CORE),
    load: prefix(LOAD_CORE),
    text: `servers on core ${SERVER_CORE}, load on core ${LOAD_CORE}`,
  };
}

function pinningFault(): string | undefined {
  if (availableParallelism() < 2) return 'one core only, the load generator takes its share of it';
  try {
    for (const core of [SERVER_CORE, LOAD_CORE]) {
      execFileSync('taskset', ['-c', String(core), 'true'], { stdio: 'ignore' });
    }
    return undefined;
  } catch {
    return 'taskset is missing or may not use these cores';
  }
}
