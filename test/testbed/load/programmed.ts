import { waitUntil } from '../waiting.ts';
import { type Outcome, sendRequest } from './request.ts';

const TIMEOUT_MS = 2_000;

function requestTo(address: string): Promise<Outcome> {
  const target = { address, port: 80 };
  return sendRequest({ target, path: '/', connectTimeoutMs: TIMEOUT_MS, answerTimeoutMs: TIMEOUT_MS });
}

/** Resolves once kube-proxy has programmed a ClusterIP, port 80, for this many pods: each has answered through it. */
export async function untilEveryPodAnswers(address: string, pods: number): Promise<void> {
  const answered = new Set<string>();
  const look = async () => {
    const outcome = await requestTo(address);
    if (outcome.result === 'answered') answered.add(outcome.pod);
    return answered.size === pods;
  };
  await waitUntil('an answer from every pod', look, { intervalMs: 20 });
}

/** Resolves once kube-proxy rejects connections to a ClusterIP, port 80, of a Service without endpoints. */
export async function untilRefused(address: string): Promise<void> {
  const look = async () => {
    const outcome = await requestTo(address);
    return outcome.result === 'lost' && outcome.kind === 'refused';
  };
  await waitUntil('a refused connection', look, { intervalMs: 20 });
}
