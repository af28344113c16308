import { isRecord, isString, jsonIn } from '../core/schema/shape.ts';
import type { KubeConnection } from './connection.ts';
import { WatchFailure } from './failure.ts';
import { ask, newAgent, readText } from './request.ts';

/** The answer is a few hundred bytes. */
const LONGEST_ANSWER = 64 * 1024;
const ANSWER_MS = 10_000;

/**
 * The API server's version, such as `v1.36.3` or `v1.30.4-eks-a737599`.
 * @throws WatchFailure when it does not say; the signal's reason once that has aborted
 */
export async function kubeVersion(connection: KubeConnection, signal: AbortSignal): Promise<string> {
  const agent = newAgent(connection);
  try {
    const response = await ask(connection, { path: '/version', agent, signal, answerMs: ANSWER_MS });
    return gitVersionOf(await readText(response, LONGEST_ANSWER, ANSWER_MS));
  } finally {
    agent.destroy();
  }
}

function gitVersionOf(text: string): string {
  const version = jsonIn(text);
  if (isRecord(version) && isString(version.gitVersion)) return version.gitVersion;
  throw new WatchFailure('Malformed', `expected a version, got ${text.slice(0, 100)}`);
}
