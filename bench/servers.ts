import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { type ContainerRuntime, containerRuntime } from './containerfile.ts';
import { started, stop } from './processes.ts';
import type { Binaries, Pinning } from './toolchain.ts';

export const serverNames = ['linger', 'bare', 'controller-runtime'] as const;
export type ServerName = (typeof serverNames)[number];

export interface Server {
  readonly name: ServerName;
  readonly pid: number;
  readonly port: number;
  readonly logFile: string;
  readonly child: ChildProcess;
}

export interface Surroundings {
  /** The checkout. */
  readonly root: string;
  /** Holds tls.crt and tls.key, and takes the logs. */
  readonly scratch: string;
  readonly binaries: Binaries;
  readonly pinning: Pinning;
}

const HOST = '127.0.0.1';
/** A server that gets SIGINT has nothing in flight; one that is still there later is killed. */
const STOP_MS = 5_000;

/** @param more further flags of Linger's */
export async function startServer(
  name: ServerName,
  surroundings: Surroundings,
  more: readonly string[] = [],
): Promise<Server> {
  const [port, adminPort] = await freePorts(2);
  const { command, environment = {} } = runOf(name, surroundings, String(port), String(adminPort));
  const [program = '', ...args] = [...surroundings.pinning.server, ...command, ...more];
  const logFile = join(surroundings.scratch, `${name}.log`);
  const log = openSync(logFile, 'w');
  // One core, one P: with more, Go's collector would compete with itself. A Node process is what it is.
  const env = { ...process.env, GOMAXPROCS: '1', ...environment };
  const child = spawn(program, args, { cwd: surroundings.root, env, stdio: ['ignore', log, log] });
  closeSync(log);
  await started(name, child);
  // taskset replaces itself by the program, so this is the server's own pid.
  return { name, pid: child.pid!, port: port!, logFile, child };
}

/** As deploy/Containerfile has it. The cache is warm where Linger has been started once before. */
export function lingerRuntime({ root, scratch }: Pick<Surroundings, 'root' | 'scratch'>): ContainerRuntime {
  const { environment, ...runtime } = containerRuntime(root);
  return { ...runtime, environment: { ...environment, NODE_COMPILE_CACHE: join(scratch, 'cache') } };
}

function runOf(
  name: ServerName,
  { root, scratch, binaries }: Surroundings,
  port: string,
  admin: string,
): { readonly command: readonly string[]; readonly environment?: ContainerRuntime['environment'] } {
  const common = ['--host', HOST, '--port', port];
  const cert = join(scratch, 'tls.crt');
  const key = join(scratch, 'tls.key');
  switch (name) {
    case 'linger': {
      const flags = [...common, '--admin-port', admin, '--certs', scratch, '--log-level', 'info'];
      const { nodeFlags, program, environment } = lingerRuntime({ root, scratch });
      const command = [process.execPath, ...nodeFlags, join(root, program), 'serve', ...flags];
      return { command, environment };
    }
    case 'bare':
      return {
        command: [process.execPath, join(root, 'bench/bare.ts'), ...common, '--cert', cert, '--key', key],
      };
    case 'controller-runtime':
      return { command: [binaries.controllerRuntime, ...common, '--certs', scratch] };
  }
}

/** SIGINT ends all three at once; Linger would drain on SIGTERM. */
export function stopServer({ child }: Server): Promise<void> {
  return stop(child, 'SIGINT', STOP_MS);
}

/** Free ports; all are held until the last is found, so that they differ. */
export async function freePorts(count: number): Promise<number[]> {
  const listeners = await Promise.all(
    Array.from({ length: count }, async () => {
      const listener = createServer();
      await new Promise<void>((resolve) => listener.listen(0, HOST, resolve));
      return listener;
    }),
  );
  const ports = listeners.map((listener) => {
    const address = listener.address();
    if (address === null || typeof address === 'string') throw new Error('expected a TCP port');
    return address.port;
  });
  await Promise.all(listeners.map((listener) => new Promise((resolve) => listener.close(resolve))));
  return ports;
}
