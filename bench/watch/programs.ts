import { join } from 'node:path';
import { lingerRuntime } from '../servers.ts';
import type { Pinning } from '../toolchain.ts';
import { startTalker, type Talker } from './process.ts';

/** `clientGoProtobuf` is the same program as `clientGo`, with a server that offers protobuf. */
export const programNames = ['linger', 'clientGo', 'clientGoProtobuf'] as const;
export type ProgramName = (typeof programNames)[number];

export interface Surroundings {
  /** The checkout. */
  readonly root: string;
  /** Holds the server's tls.crt and tls.key and, as a pod's ServiceAccount has them, ca.crt, token and namespace. */
  readonly scratch: string;
  readonly binaries: { readonly clientGo: string; readonly replay: string };
  readonly pinning: Pinning;
  /** Files of recorded objects. */
  readonly recordings: readonly string[];
}

/**
 * Starts a program that watches the server.
 * @param events it says so when it has handled as many, and as many more
 */
export function startProgram(
  name: ProgramName,
  port: number,
  events: readonly number[],
  surroundings: Surroundings,
): Promise<Talker> {
  const { root, scratch, binaries, pinning } = surroundings;
  const expecting = ['--events', events.join()];
  if (name === 'linger') {
    const { nodeFlags, environment: env } = lingerRuntime({ root, scratch });
    const program = [process.execPath, ...nodeFlags, join(root, 'bench/watch/linger.ts')];
    const flags = ['--port', String(port), '--service-account', scratch, ...expecting];
    return startTalker({ name, command: [...pinning.server, ...program, ...flags], env });
  }
  const flags = ['--server', `https://127.0.0.1:${port}`, '--ca', join(scratch, 'ca.crt'), ...expecting];
  // One core, one P, as Go would find out by itself from the core that it is pinned to.
  return startTalker({
    name,
    command: [...pinning.server, binaries.clientGo, ...flags],
    env: { GOMAXPROCS: '1' },
  });
}
