import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { eachLine } from '../../testbed/command.ts';
import type { Listening, Message } from './messages.ts';

/** A process of the scenario: a file of this folder, which talks in lines of JSON. */
export interface ScenarioProcess {
  readonly ports: Listening['ports'];
  /** Throws when it has ended before. */
  stop(): Promise<void>;
}

const START_MS = 30_000;

/** Resolves when it listens. It ends when this process does: it reads from a pipe that ends then. */
export async function startProcess(
  file: string,
  settings: unknown,
  heard: (message: Message) => void,
  env: Readonly<Record<string, string>> = {},
): Promise<ScenarioProcess> {
  const argv = [join(import.meta.dirname, file), JSON.stringify(settings)];
  const child = spawn(process.execPath, argv, {
    env: { ...process.env, ...env },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const complaints: string[] = [];
  const listening = Promise.withResolvers<Listening['ports']>();
  child.once('exit', (code) =>
    listening.reject(new Error(`${file} ended (${code}): ${complaints.slice(-20).join('\n')}`)),
  );
  child.once('error', (error) => listening.reject(error));
  eachLine(child.stderr, (line) => complaints.push(line));
  eachLine(child.stdout, (line) => {
    const message = JSON.parse(line) as Message;
    if (message.event === 'listening') listening.resolve(message.ports);
    heard(message);
  });
  const timer = setTimeout(() => listening.reject(new Error(`${file} does not listen`)), START_MS);
  const stop = async () => {
    if (child.exitCode !== null) throw new Error(`${file} has ended: ${complaints.slice(-20).join('\n')}`);
    const gone = once(child, 'exit');
    child.stdin.end();
    await gone;
  };
  try {
    return { ports: await listening.promise, stop };
  } catch (error) {
    child.kill('SIGKILL');
    throw error;
  } finally {
    clearTimeout(timer);
  }
}
