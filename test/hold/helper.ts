import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import net from 'node:net';
import { join } from 'node:path';
import { HELPER_FOLDER, type HelperArchitecture } from '../../deploy/build-helper.ts';

export const TOKEN = 'AAAAAAAAAAAAAAAAAAAAAA';

export function helperFile(architecture: HelperArchitecture): string {
  return join(HELPER_FOLDER, `hold-${architecture}`);
}

/** The helper that this machine can run without an emulator. */
export const OWN_ARCHITECTURE: HelperArchitecture = process.arch === 'arm64' ? 'arm64' : 'amd64';

export interface RunningHelper {
  readonly process: ChildProcess;
  readonly ended: Promise<{
    readonly code: number | null;
    readonly signal: NodeJS.Signals | null;
    readonly ms: number;
  }>;
  /** Its peak memory so far, in kB. */
  memory(): number;
}

/** @param command the helper, or an emulator and the helper */
export function runHelper(command: readonly string[], args: readonly string[], cwd = '/'): RunningHelper {
  const begun = performance.now();
  const [file = '', ...before] = command;
  const child = spawn(file, [...before, ...args], { cwd, env: {}, stdio: 'ignore' });
  const ended = once(child, 'exit').then(([code, signal]) => ({
    code,
    signal,
    ms: performance.now() - begun,
  }));
  const memory = () => Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'))?.[1]);
  return { process: child, ended, memory };
}

/** The server that a helper calls. */
export interface HoldServer {
  readonly address: string;
  /** Connections so far. */
  readonly calls: readonly { readonly at: number; readonly lines: readonly string[] }[];
  close(): void;
}

/** @param meet called with each connection, after its first line if `greeted` */
export async function serveHelpers(
  meet: (socket: net.Socket, call: number) => void,
  host = '127.0.0.1',
): Promise<HoldServer> {
  const calls: { at: number; lines: string[] }[] = [];
  const open = new Set<net.Socket>();
  const server = net.createServer((socket) => {
    const call = { at: performance.now(), lines: [] as string[] };
    calls.push(call);
    open.add(socket);
    let rest = '';
    socket.on('data', (bytes) => {
      const lines = (rest + bytes.toString('latin1')).split('\n');
      rest = lines.pop() ?? '';
      call.lines.push(...lines);
    });
    socket.on('error', () => undefined);
    socket.on('close', () => open.delete(socket));
    meet(socket, calls.length);
  });
  server.listen(0, host);
  await once(server, 'listening');
  const { port } = server.address() as net.AddressInfo;
  return {
    address: net.isIPv6(host) ? `[${host}]:${port}` : `${host}:${port}`,
    calls,
    close: () => {
      server.close();
      for (const socket of open) socket.destroy();
    },
  };
}
