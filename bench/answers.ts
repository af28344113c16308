import { readFileSync } from 'node:fs';
import { request } from 'node:https';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import fastJsonPatch, { type Operation } from 'fast-json-patch';
import type { Server } from './servers.ts';

// Before anything is measured: do all servers make of the review the same Pod?

const START_MS = 20_000;
const PLAN = 'linger.dev/plan';

interface Pod {
  metadata: { annotations?: Record<string, string> };
  spec: { terminationGracePeriodSeconds?: number; containers: { name: string; lifecycle?: object }[] };
}

interface Answer {
  response: { allowed: boolean; patchType?: string; patch?: string };
}

/**
 * Asks each server once and applies its patch. Waits for those that are still starting.
 *
 * @throws when a server does not answer with a patch, or when two of them make different Pods. The text of the
 * annotation `linger.dev/plan` is each one's own; that it is there is compared.
 */
export async function checkSameResult(servers: readonly Server[], reviewFile: string): Promise<void> {
  const review = readFileSync(reviewFile, 'utf8');
  const pods: { name: string; pod: Pod }[] = [];
  for (const server of servers) {
    const pod = patchedPod(await firstAnswer(server, review), review, server.name);
    pods.push({ name: server.name, pod });
  }
  const [first, ...others] = pods;
  for (const { name, pod } of others) {
    if (first === undefined || isDeepStrictEqual(pod, first.pod)) continue;
    throw new Error(
      `${first.name} and ${name} make different Pods of ${reviewFile}:\n${JSON.stringify(
        fastJsonPatch.compare(first.pod, pod),
        null,
        2,
      )}`,
    );
  }
  if (first !== undefined) console.error(summary(first.pod));
}

function patchedPod(answer: Answer, review: string, server: string): Pod {
  const { allowed, patchType, patch } = answer.response;
  if (!allowed || patchType !== 'JSONPatch' || patch === undefined) {
    throw new Error(`${server}: expected an allowed review with a JSONPatch, got ${JSON.stringify(answer)}`);
  }
  const { object } = (JSON.parse(review) as { request: { object: Pod } }).request;
  const operations = JSON.parse(Buffer.from(patch, 'base64').toString()) as Operation[];
  const pod = fastJsonPatch.applyPatch(object, operations, true).newDocument;
  const plan = pod.metadata.annotations?.[PLAN];
  if (plan === undefined)
    throw new Error(`${server}: expected the annotation ${PLAN}, got ${JSON.stringify(operations)}`);
  return {
    ...pod,
    metadata: { ...pod.metadata, annotations: { ...pod.metadata.annotations, [PLAN]: 'some' } },
  };
}

function summary({ spec }: Pod): string {
  const hooks = spec.containers.map(({ name, lifecycle }) => `${name} ${JSON.stringify(lifecycle)}`);
  return `  same Pod from all: grace ${spec.terminationGracePeriodSeconds}, ${hooks.join(', ')}`;
}

async function firstAnswer(server: Server, review: string): Promise<Answer> {
  const deadline = performance.now() + START_MS;
  for (;;) {
    try {
      return await post(server.port, review);
    } catch (error) {
      const ended = server.child.exitCode !== null;
      if (ended || performance.now() > deadline) {
        const log = readFileSync(server.logFile, 'utf8').slice(-2_000);
        throw new Error(`${server.name} ${ended ? 'ended' : 'does not answer'}: ${String(error)}\n${log}`);
      }
      await sleep(100);
    }
  }
}

async function post(port: number, body: string): Promise<Answer> {
  const response = await new Promise<import('node:http').IncomingMessage>((resolve, reject) => {
    const headers = { 'content-type': 'application/json' };
    // The certificate was made for this run, and is the benchmark's own.
    const options = {
      host: '127.0.0.1',
      port,
      path: '/mutate',
      method: 'POST',
      rejectUnauthorized: false,
      agent: false,
    };
    request({ ...options, headers }, resolve)
      .on('error', reject)
      .end(body);
  });
  const answer = await text(response);
  if (response.statusCode !== 200) throw new Error(`status ${response.statusCode}: ${answer}`);
  return JSON.parse(answer) as Answer;
}
