import { setTimeout as sleep } from 'node:timers/promises';
import { ANNOTATION, memberAt } from '../api/index.ts';
import { type AuditSubject, subjectOf } from '../audit/index.ts';
import {
  asFailure,
  ask,
  type FailureReason,
  type KubeConnection,
  newAgent,
  readText,
} from '../cluster/index.ts';
import { decide, type Pod, patchFor, requestOf, type World } from '../decision/index.ts';
import { patched } from './manifests.ts';
import type { Terminal } from './terminal.ts';

/** Workloads whose pods are tried; beyond it, the rest is left out and said. At this rate, 1,000 take a minute. */
const MOST_TRIED = 1_000;
const EVERY_MS = 50;
const ANSWER_MS = 30_000;
/** A pod as it would be stored. */
const LONGEST_ANSWER = 3 * 1024 * 1024;
const LONGEST_SENTENCE = 400;

/** What the API server itself, a plugin or a policy of its admission says of the object, and not of the moment. */
const REFUSALS: ReadonlySet<FailureReason> = new Set(['Refused', 'Forbidden']);

/**
 * Tries for each workload that would get a wait whether the API server would take its pods with it: creates one as a dry
 * run, through all of the cluster's admission. What is refused without the wait, too, is refused for reasons of its own.
 * @returns the subjects, with what the API server says against their waits
 */
export async function tryPods(
  subjects: readonly AuditSubject[],
  world: World,
  connection: KubeConnection,
  warn: Terminal['warn'],
): Promise<readonly AuditSubject[]> {
  const { signal } = new AbortController();
  const agent = newAgent(connection);
  const refusalOf = async (namespace: string, pod: unknown) => {
    // Not timing/pause, which lets the process end meanwhile.
    await sleep(EVERY_MS);
    const path = `/api/v1/namespaces/${namespace}/pods?dryRun=All`;
    const body = { contentType: 'application/json', text: JSON.stringify(pod) };
    try {
      const request = { method: 'POST', path, body, agent, signal, answerMs: ANSWER_MS };
      await readText(await ask(connection, request), LONGEST_ANSWER, ANSWER_MS);
      return undefined;
    } catch (thrown) {
      const { reason, message } = asFailure(thrown);
      return { reason, message: message.replaceAll(/\s+/g, ' ').slice(0, LONGEST_SENTENCE) };
    }
  };
  const waiting = subjects.flatMap((subject) => {
    const decision = decide(requestOf(subject), world);
    return decision.outcome === 'inject' ? [{ subject, decision }] : [];
  });
  if (waiting.length > MOST_TRIED)
    warn(`${waiting.length - MOST_TRIED} of ${waiting.length} workloads have not been tried: too many\n`);
  const refusals = new Map<AuditSubject, string>();
  const untried: string[] = [];
  try {
    for (const { subject, decision } of waiting.slice(0, MOST_TRIED)) {
      const { namespace } = subject;
      const pod = podOf(subject);
      const refused = await refusalOf(namespace, patched(pod, patchFor(pod, decision)));
      if (refused === undefined) continue;
      const without = await refusalOf(namespace, optedOut(pod));
      if (without === undefined && REFUSALS.has(refused.reason)) refusals.set(subject, refused.message);
      else {
        const { message } = without ?? refused;
        untried.push(`${subjectOf({ ...subject.workload, namespace })}: ${message}`);
      }
    }
  } finally {
    agent.destroy();
  }
  const [example] = untried;
  if (example !== undefined)
    warn(
      `${untried.length} of ${waiting.length} workloads could not be tried (refused without a wait, too, or no answer): ${example}\n`,
    );
  return subjects.map((subject) => {
    const refusal = refusals.get(subject);
    return refusal === undefined ? subject : { ...subject, refusal };
  });
}

/** As its controller would make it, but for its owner. */
function podOf({ workload, object }: AuditSubject): Pod {
  const { metadata, spec } = workload.pod as Pod & { readonly spec: { readonly volumes?: unknown } };
  const claims: unknown = memberAt(object, ['spec', 'volumeClaimTemplates']);
  const claimed = (Array.isArray(claims) ? claims : []).map((claim: unknown) => {
    const name = String(memberAt(claim, ['metadata', 'name']));
    return { name, persistentVolumeClaim: { claimName: `${name}-${workload.name}-0` } };
  });
  const volumes = [...(Array.isArray(spec.volumes) ? spec.volumes : []), ...claimed];
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      generateName: `${workload.name}-`,
      labels: metadata?.labels ?? {},
      annotations: metadata?.annotations ?? {},
    },
    spec: volumes.length === 0 ? spec : { ...spec, volumes },
  } as Pod;
}

/** Linger itself, where it runs, leaves it as it is. */
function optedOut(pod: Pod): object {
  const { metadata } = pod;
  return { ...pod, metadata: { ...metadata, labels: { ...metadata?.labels, [ANNOTATION.inject]: 'false' } } };
}
