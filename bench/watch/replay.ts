import { request } from 'node:https';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { startTalker, stopTalker } from './process.ts';
import type { Surroundings } from './programs.ts';
import type { Settings } from './settings.ts';

/** What the replayed cluster consists of; bytes are those of JSON. */
export interface Volume {
  readonly objects: Readonly<Record<string, number>>;
  /** Mean, in a list. */
  readonly objectBytes: Readonly<Record<string, number>>;
  readonly listBytes: number;
  readonly events: Readonly<Record<string, number>>;
  readonly eventBytes: Readonly<Record<string, number>>;
  /** Those of the trial before the stream. */
  readonly trialEvents: number;
  readonly trialReplacements: number;
  readonly streamEvents: number;
  readonly streamBytes: number;
  /** The same stream as protobuf. */
  readonly protobufBytes: number;
  readonly replacements: number;
}

export interface Replay {
  readonly pid: number;
  readonly port: number;
  readonly volume: Volume;
  /** Creates the cluster again, for the next program. */
  reset(options: { readonly protobuf: boolean }): Promise<void>;
  /** Streams the trial, at a moderate pace, to all watchers. Resolves once everything has been sent. */
  playTrial(): Promise<void>;
  /** Streams what is measured, as fast as it is read. */
  play(): Promise<void>;
  stop(): Promise<void>;
}

/** Making 150,000 pods, and playing the script once to count it. */
const START_MS = 120_000;

export async function startReplay(settings: Settings, surroundings: Surroundings): Promise<Replay> {
  const { scratch, binaries, pinning, recordings } = surroundings;
  const numbers = (['services', 'pods', 'replacements'] as const).flatMap((name) => [
    `-${name}`,
    String(settings[name]),
  ]);
  const flags = ['-cert', join(scratch, 'tls.crt'), '-key', join(scratch, 'tls.key'), ...numbers];
  const talker = await startTalker({
    name: 'replay',
    command: [...pinning.load, binaries.replay, ...flags, ...recordings],
  });
  const { port, volume } = (await talker.next(START_MS)) as { port: number; volume: Volume };
  return {
    pid: talker.pid,
    port,
    volume,
    reset: async ({ protobuf }) => {
      await post(port, `/replay/reset?protobuf=${protobuf}`);
    },
    playTrial: () => play(port, true),
    play: () => play(port, false),
    stop: () => stopTalker(talker),
  };
}

async function play(port: number, trial: boolean): Promise<void> {
  const { failed } = (await post(port, `/replay/play?trial=${trial}`)) as { failed: string[] };
  if (failed.length > 0) throw new Error(`replay: ${failed.join('; ')}`);
}

async function post(port: number, path: string): Promise<unknown> {
  const response = await new Promise<import('node:http').IncomingMessage>((resolve, reject) => {
    // The certificate was made for this run, and is the benchmark's own.
    const options = {
      host: '127.0.0.1',
      port,
      path,
      method: 'POST',
      rejectUnauthorized: false,
      agent: false,
    };
    request(options, resolve).on('error', reject).end();
  });
  const answer = await json(response);
  if (response.statusCode !== 200) throw new Error(`${path}: ${JSON.stringify(answer)}`);
  return answer;
}
