import { execFile } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { busySeconds, cpuSecondsOf, QUIET_CPU } from './machine.ts';
import type { Server } from './servers.ts';
import type { Binaries, Pinning } from './toolchain.ts';

/** What bench/load prints, and who used the machine meanwhile. */
export interface LoadResult {
  readonly requests: number;
  readonly seconds: number;
  readonly rps: number;
  readonly p50ms: number;
  readonly p99ms: number;
  readonly maxms: number;
  readonly reconnects: number;
  /** How late the generator's own pacer was, 99th percentile. */
  readonly lateP99ms: number;
  /** Cores that the generator used. */
  readonly cpu: number;
  readonly serverCpu: number;
  /** Cores that neither the server nor the generator used: what the measurement was disturbed by. */
  readonly othersCpu: number;
}

export interface LoadGenerator {
  readonly binaries: Binaries;
  readonly pinning: Pinning;
}

export interface Load {
  readonly reviewFile: string;
  readonly seconds: number;
  /** Reviews per second, open loop; undefined = closed loop. */
  readonly rate?: number;
  /** Takes a line per review: when it was due (Unix time, ms), its latency (ms). */
  readonly samplesFile?: string;
}

export const CONNECTIONS = 16;
const run = promisify(execFile);

const ATTEMPTS = 4;
const PAUSE_MS = 5_000;

/**
 * Drives one server. If other processes used the machine meanwhile, the measurement is thrown away and made
 * again after a pause; the last attempt counts anyway, and its `othersCpu` tells.
 *
 * @throws when one answer was not a 200 with a patch
 */
export async function drive(server: Server, load: Load, generator: LoadGenerator): Promise<LoadResult> {
  for (let attempt = 1; ; attempt++) {
    const result = await driveOnce(server, load, generator);
    if (result.othersCpu <= QUIET_CPU || attempt === ATTEMPTS) return result;
    console.error(`  ${server.name}: others used ${result.othersCpu.toFixed(2)} cores, measured again`);
    await sleep(PAUSE_MS);
  }
}

/**
 * As {@link drive}, even if other processes use the machine.
 * @throws when one answer was not a 200 with a patch
 */
export async function driveOnce(server: Server, load: Load, generator: LoadGenerator): Promise<LoadResult> {
  const flags = [
    ...(load.samplesFile === undefined ? [] : ['-samples', load.samplesFile]),
    ...['-address', `127.0.0.1:${server.port}`, '-body', load.reviewFile],
    ...[
      '-connections',
      String(CONNECTIONS),
      '-duration',
      `${load.seconds}s`,
      '-rate',
      String(load.rate ?? 0),
    ],
  ];
  const [program = '', ...args] = [...generator.pinning.load, generator.binaries.load, ...flags];
  const serverBefore = cpuSecondsOf(server);
  const machineBefore = busySeconds();
  const { stdout } = await run(program, args).catch((error: { stdout?: string; message: string }) => {
    throw new Error(`${server.name}: ${error.stdout || error.message}`);
  });
  const result = JSON.parse(stdout) as Omit<LoadResult, 'serverCpu' | 'othersCpu'>;
  const serverCpu = (cpuSecondsOf(server) - serverBefore) / result.seconds;
  const busy = (busySeconds() - machineBefore) / result.seconds;
  return { ...result, serverCpu, othersCpu: Math.max(busy - serverCpu - result.cpu, 0) };
}
