import { setTimeout as sleep } from 'node:timers/promises';
import { busySeconds, cpuSecondsOf, memoryOf, QUIET_CPU } from '../machine.ts';
import { stopTalker, type Talker } from './process.ts';
import { type ProgramName, type Surroundings, startProgram } from './programs.ts';
import type { Replay } from './replay.ts';

/** One run of one program, from its start to its end. */
export interface Measurement {
  readonly program: ProgramName;
  /** From the start of the process until everything has been listed and taken in. */
  readonly syncSeconds: number;
  readonly syncCpuSeconds: number;
  /** Megabytes of lists, as JSON, in a second of that. */
  readonly syncMbPerSecond: number;
  /** The script, as fast as the program reads it. */
  readonly eventsPerSecond: number;
  readonly mbPerSecond: number;
  /** Events in a second of CPU time that the program really got. */
  readonly eventsPerCpuSecond: number;
  /** Resident once synced and at rest, at the end and at rest, and at the most. Megabytes (10^6 bytes). */
  readonly syncedRssMb: number;
  readonly rssMb: number;
  readonly peakRssMb: number;
  /** Removals of which the program measured the lag while it was saturated; see README.md. */
  readonly sliceSamples: number;
  readonly endpointsSamples: number;
  /** Cores that the replay server used while it played: near 1, it would have measured itself. */
  readonly replayCpu: number;
  /** Cores that something else used meanwhile. */
  readonly othersCpu: number;
}

/** A program that reads 600 MB slowly, on a machine that is slow. */
const PATIENCE_MS = 300_000;

/** Until it has rested, memory is still given back, and Linger is finding out that its watches are current. */
const REST_MS = 3_000;

/**
 * Runs a program; again, if other processes used the machine meanwhile.
 * @param attempts the last one counts anyway
 */
export async function measure(
  program: ProgramName,
  replay: Replay,
  surroundings: Surroundings,
  attempts: number,
): Promise<Measurement> {
  for (let attempt = 1; ; attempt++) {
    const measurement = await measureOnce(program, replay, surroundings);
    const { othersCpu } = measurement;
    if (othersCpu <= QUIET_CPU || attempt === attempts) return measurement;
    console.error(`  ${program}: others used ${othersCpu.toFixed(2)} cores, measured again`);
  }
}

async function measureOnce(
  program: ProgramName,
  replay: Replay,
  surroundings: Surroundings,
): Promise<Measurement> {
  const { volume } = replay;
  await replay.reset({ protobuf: program === 'clientGoProtobuf' });
  const others = new Others([replay]);
  const begun = performance.now();
  const events = [volume.trialEvents, volume.streamEvents];
  const talker = await startProgram(program, replay.port, events, surroundings);
  try {
    await expectLine(talker, 'synced');
    const syncSeconds = (performance.now() - begun) / 1000;
    const syncCpuSeconds = cpuSecondsOf(talker);
    await sleep(REST_MS);
    const syncedRssMb = memoryOf(talker).rssMb;
    const trial = await tryOut(talker, replay);
    const stream = await measureStream(talker, replay, trial);
    await sleep(REST_MS);
    return {
      program,
      syncSeconds,
      syncCpuSeconds,
      syncedRssMb,
      ...stream,
      ...memoryOf(talker),
      syncMbPerSecond: volume.listBytes / 1e6 / syncSeconds,
      mbPerSecond:
        (program === 'clientGoProtobuf' ? volume.protobufBytes : volume.streamBytes) / 1e6 / stream.seconds,
      othersCpu: others.cores([talker]),
    };
  } finally {
    await stopTalker(talker);
  }
}

interface Found {
  readonly slices: number;
  readonly endpoints: number;
}

/** The share of the trial's lags that must be found. On a machine that is too busy a program may miss some. */
const MOST = 0.9;

/** @throws when the program does not measure what it is there for */
async function tryOut(talker: Talker, replay: Replay): Promise<Found> {
  const [found] = await Promise.all([expectFound(talker), replay.playTrial()]);
  const { trialReplacements: all } = replay.volume;
  for (const lags of [found.slices, found.endpoints]) {
    if (lags <= all && lags >= MOST * all) continue;
    throw new Error(
      `${talker.name}: expected ${all} lags of slices and of Endpoints, got ${JSON.stringify(found)}`,
    );
  }
  return found;
}

async function measureStream(talker: Talker, replay: Replay, trial: Found) {
  const cpuBefore = cpuSecondsOf(talker);
  const replayBefore = cpuSecondsOf(replay);
  const begun = performance.now();
  const [found] = await Promise.all([expectFound(talker), replay.play()]);
  const seconds = (performance.now() - begun) / 1000;
  const cpuSeconds = cpuSecondsOf(talker) - cpuBefore;
  const { streamEvents } = replay.volume;
  return {
    seconds,
    eventsPerSecond: streamEvents / seconds,
    eventsPerCpuSecond: streamEvents / cpuSeconds,
    sliceSamples: found.slices - trial.slices,
    endpointsSamples: found.endpoints - trial.endpoints,
    replayCpu: (cpuSecondsOf(replay) - replayBefore) / seconds,
  };
}

async function expectLine(talker: Talker, at: string): Promise<Record<string, unknown>> {
  const line = await talker.next(PATIENCE_MS);
  if (line.at !== at) throw new Error(`${talker.name}: expected "${at}", got ${JSON.stringify(line)}`);
  return line;
}

async function expectFound(talker: Talker): Promise<Found> {
  const { slices, endpoints } = await expectLine(talker, 'done');
  return { slices: Number(slices), endpoints: Number(endpoints) };
}

/** What the rest of the machine did, by the difference of all that was done and what these processes did. */
class Others {
  readonly #known: readonly { readonly pid: number }[];
  readonly #before: number;
  readonly #busyBefore = busySeconds();
  readonly #begun = performance.now();

  constructor(known: readonly { readonly pid: number }[]) {
    this.#known = known;
    this.#before = cpuOf(known);
  }

  /** @param started processes that did not run yet when this was made */
  cores(started: readonly { readonly pid: number }[]): number {
    const seconds = (performance.now() - this.#begun) / 1000;
    const ours = cpuOf(this.#known) - this.#before + cpuOf(started);
    return Math.max(busySeconds() - this.#busyBefore - ours, 0) / seconds;
  }
}

function cpuOf(processes: readonly { readonly pid: number }[]): number {
  return processes.map(cpuSecondsOf).reduce((sum, seconds) => sum + seconds, 0);
}
