import { execFileSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { availableParallelism, homedir } from 'node:os';
import { join } from 'node:path';

// The Go programs of the benchmarks, and the cores that everything is pinned to.

export interface Binaries {
  readonly controllerRuntime: string;
  readonly load: string;
}

/** Builds both programs of `npm run bench:admission`. */
export function buildBinaries(bench: string): Binaries {
  return { controllerRuntime: build(bench, 'controller-runtime'), load: build(bench, 'load') };
}

/** Builds the Go program in a folder of the benchmarks into the user's cache directory; again takes a second. */
export function build(bench: string, name: string): string {
  const cache = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'linger', 'bench');
  mkdirSync(cache, { recursive: true });
  const binary = join(cache, name);
  console.error(
    `building ${name} (the first build of what uses Kubernetes' libraries takes a minute or two)`,
  );
  // Static, so that it runs in an image without a C library.
  const env = { ...process.env, CGO_ENABLED: '0' };
  execFileSync('go', ['build', '-o', binary, '.'], { cwd: join(bench, name), env, stdio: ['ignore', 2, 2] });
  return binary;
}

export function goVersion(bench: string): string {
  const options = { cwd: join(bench, 'controller-runtime'), encoding: 'utf8' } as const;
  return execFileSync('go', ['env', 'GOVERSION'], options).trim();
}

/** The version of a module that the program in a folder is built with. */
export function moduleVersion(bench: string, name: string, module: string): string {
  const options = { cwd: join(bench, name), encoding: 'utf8' } as const;
  return execFileSync('go', ['list', '-m', '-f', '{{.Version}}', module], options).trim();
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
