import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { join } from 'node:path';
import { run } from './command.ts';
import type { Component } from './components.ts';
import { isAlive, readRecord } from './process.ts';
import type { StatePaths } from './settings.ts';
import { GivingUp, type WaitOptions, waitUntil } from './waiting.ts';

/** A component ended or never became healthy. The message has the end of its log, which says why. */
export class ComponentFailure extends Error {
  constructor(component: string, logFile: string, problem: string) {
    super(`${component} ${problem}; the end of ${logFile}:\n${tailOf(logFile)}`);
    this.name = 'ComponentFailure';
  }
}

function tailOf(file: string, lines = 25): string {
  try {
    return readFileSync(file, 'utf8').trimEnd().split('\n').slice(-lines).join('\n');
  } catch (error) {
    return `(no log: ${error instanceof Error ? error.message : error})`;
  }
}

export function logFile(paths: StatePaths, component: string): string {
  return join(paths.logs, `${component}.log`);
}

/** What is wrong with a component, or undefined when it works. Runs inside the cluster's network. */
export async function problemOf(
  component: Component<string>,
  paths: StatePaths,
): Promise<string | undefined> {
  const record = readRecord(paths.run, component.name);
  if (record === undefined) return 'was not started';
  if (!isAlive(record)) return 'ended';
  if (component.health === undefined) return containerdProblem(component, paths);
  try {
    const { status, body } = await answerOf(component.health.url);
    const complete = body.includes(component.health.says ?? '');
    return status === 200 && complete ? undefined : `answers ${status} at ${component.health.url}`;
  } catch (error) {
    return `does not answer: ${error instanceof Error ? error.message : error}`;
  }
}

/** Waits until a component works. Throws {@link ComponentFailure} as soon as it has ended. */
export async function waitHealthy(
  component: Component<string>,
  paths: StatePaths,
  options: WaitOptions = {},
): Promise<void> {
  const log = logFile(paths, component.name);
  let problem: string | undefined;
  try {
    await waitUntil(
      component.name,
      async () => {
        problem = await problemOf(component, paths);
        if (problem === 'ended') throw new GivingUp(problem);
        return problem === undefined;
      },
      options,
    );
  } catch {
    throw new ComponentFailure(component.name, log, problem ?? 'is not healthy');
  }
}

async function containerdProblem(
  component: Component<string>,
  paths: StatePaths,
): Promise<string | undefined> {
  const ctr = join(component.argv[0] ?? '', '..', 'ctr');
  const argv = [ctr, '--address', paths.containerdSocket, '--connect-timeout', '2s', 'version'];
  const result = await run(argv, { timeoutMs: 5_000 });
  return result.code === 0 ? undefined : `does not answer: ${result.stderr.trim().split('\n').at(-1)}`;
}

/** What a health endpoint answers. Certificates of components are made at start, and no authority signs them. */
function answerOf(url: string): Promise<{ status: number; body: string }> {
  const transport = url.startsWith('https:') ? https : http;
  const options = { signal: AbortSignal.timeout(3_000), rejectUnauthorized: false, agent: false as const };
  return new Promise((resolve, reject) => {
    const request = transport.get(url, options, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () =>
        resolve({ status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString() }),
      );
    });
    request.on('error', reject);
  });
}
