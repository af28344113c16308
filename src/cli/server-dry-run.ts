import { setTimeout as sleep } from 'node:timers/promises';
import { POD, pathOf } from '../audit/index.ts';
import { changersOf } from '../check/index.ts';
import {
  ApiReader,
  asFailure,
  type FailureReason,
  type KubeConnection,
  type KubeFailure,
} from '../cluster/index.ts';
import { ANNOTATION, isString, listOf, memberAt, printable } from '../core/api/index.ts';
import {
  type ClusterSnapshot,
  decide,
  graceOf,
  type Pod,
  parsePlan,
  patchFor,
  requestOf,
} from '../core/decision/index.ts';
import { type AuditSubject, type GraceCut, patched, subjectOf } from '../core/judge/index.ts';
import type { Surroundings } from './terminal.ts';

/** The limits of a trial. What exceeds them is left out and reported. */
const LIMITS = {
  most: 1_000,
  /** The pause between two requests: at this rate, 1,000 workloads take a minute. */
  everyMs: 50,
  /** The time for everything; if a webhook does not answer, each request takes its whole timeout. */
  withinMs: 300_000,
};
export type TryLimits = typeof LIMITS;
const LONGEST_SENTENCE = 400;
/** How often one pod is tried while the API server is busy, and the longest Retry-After that is honoured. */
const MOST_ATTEMPTS = 3;
const LONGEST_PAUSE_MS = 5_000;

/** Refusals that concern the object itself, from validation, an admission plugin or a policy. */
const REFUSALS: ReadonlySet<FailureReason> = new Set(['Refused', 'Forbidden']);
/** Failures with which every further pod would fail as well. */
const HOPELESS: ReadonlySet<FailureReason> = new Set(['Unauthorized', 'Unreachable']);
/**
 * Matches RBAC's message, because admission's refusals are Forbidden as well. Source: k8s.io/apiserver
 * pkg/endpoints/handlers/responsewriters.
 */
const NO_RIGHT = /^403: pods is forbidden: .* cannot create resource "pods"/;

export interface Tried {
  /** The workloads, with the API server's refusals of their waits, and how their grace was cut. */
  readonly subjects: readonly AuditSubject[];
  /** Whether some could not be tried: a right was missing, no answer came, or time ran out. */
  readonly incomplete: boolean;
}

/**
 * For each workload that would get a wait, tries whether the API server would accept its pods with that wait, by creating
 * one as a dry run that passes all of the cluster's admission. A pod that is refused even without the wait has other
 * problems.
 * @param asked whether the webhook is called for its pods
 */
export async function tryPods(
  subjects: readonly AuditSubject[],
  snapshot: ClusterSnapshot,
  asked: (subject: AuditSubject) => boolean,
  connection: KubeConnection,
  { warn, progress }: Pick<Surroundings, 'warn' | 'progress'>,
  limits: TryLimits = LIMITS,
): Promise<Tried> {
  const signal = AbortSignal.timeout(limits.withinMs);
  const reader = new ApiReader(connection, signal);
  /** Returns the pod as it would be stored, or why it would not be. */
  const create = async (
    namespace: string,
    pod: object,
  ): Promise<{ readonly created: unknown } | { readonly failure: KubeFailure }> => {
    for (let attempt = 1; ; attempt += 1) {
      await sleep(limits.everyMs);
      try {
        const { answer } = await reader.post(`${pathOf(POD, namespace)}?dryRun=All`, pod);
        return { created: answer };
      } catch (thrown) {
        signal.throwIfAborted();
        const failure = asFailure(thrown);
        if (failure.reason !== 'Throttled' || attempt === MOST_ATTEMPTS) return { failure };
        await sleep(Math.min(failure.retryAfterMs ?? 1_000, LONGEST_PAUSE_MS));
      }
    }
  };
  const waiting = subjects.flatMap((subject) => {
    const decision = decide(requestOf(subject), snapshot);
    return decision.outcome === 'inject' && asked(subject) ? [{ subject, decision }] : [];
  });
  /** Replacements for workloads whose pods are refused with a wait, or returned with a shorter one. */
  const judged = new Map<AuditSubject, AuditSubject>();
  const untried: string[] = [];
  /** Namespaces that do not exist or in which pods may not be created, each with the reason. Key '': the whole cluster. */
  const hopeless = new Map<string, string>();
  let tried = 0;
  let incomplete = false;
  try {
    for (const { subject, decision } of waiting.slice(0, limits.most)) {
      const { namespace } = subject;
      progress('trying pods as dry runs', tried, Math.min(waiting.length, limits.most));
      const leaveOut = (why: string) =>
        untried.push(`${subjectOf({ ...subject.workload, namespace })}: ${why}`);
      const known = hopeless.get('') ?? hopeless.get(namespace);
      if (known === undefined) {
        const pod = podOf(subject);
        const changed = patched(pod, patchFor(pod, decision)) as Pod;
        // Only admission gives a token, so hooks are those of the fallback, but the grace is the one that the pod would get.
        const grace = decision.hold?.grace ?? graceOf(changed);
        const sent = { ...changed, spec: { ...changed.spec, terminationGracePeriodSeconds: grace } };
        const answer = await create(namespace, sent);
        const without = 'failure' in answer ? await create(namespace, optedOut(pod)) : undefined;
        if (!('failure' in answer)) {
          const cut = graceCutOf(sent, answer.created);
          if (cut !== undefined) {
            const by = await changersOf(
              { sent, returned: answer.created, namespace, taken: 'grace' },
              reader,
            );
            if (by !== undefined) judged.set(subject, { ...subject, cut: { ...cut, by } });
          }
        } else if (without !== undefined && !('failure' in without) && REFUSALS.has(answer.failure.reason))
          judged.set(subject, { ...subject, refusal: sentenceOf(answer.failure) });
        else {
          const failure = without !== undefined && 'failure' in without ? without.failure : answer.failure;
          const { reason, message } = failure;
          leaveOut(sentenceOf(failure));
          const mayNot = NO_RIGHT.test(message);
          incomplete ||= mayNot || HOPELESS.has(reason);
          if (HOPELESS.has(reason)) hopeless.set('', message);
          else if (mayNot || reason === 'NotServed') hopeless.set(namespace, message);
        }
      } else leaveOut(known);
      tried += 1;
    }
  } catch (thrown) {
    if (!signal.aborted) throw thrown;
    incomplete = true;
  } finally {
    reader.close();
  }
  if (tried < waiting.length) {
    const why = incomplete && signal.aborted ? `${limits.withinMs / 1000}s were not enough` : 'too many';
    warn(`${waiting.length - tried} of ${waiting.length} workloads were not tried: ${why}`);
  }
  const [example] = untried;
  if (example !== undefined)
    warn(
      `${untried.length} of ${waiting.length} workloads could not be tried (refused without a wait, too, or no answer): ${example}`,
    );
  return { subjects: subjects.map((each) => judged.get(each) ?? each), incomplete };
}

/** How the cluster has cut a pod’s grace, and to what Linger’s own webhook has then reduced the wait. */
function graceCutOf(sent: Pod, created: unknown): Omit<GraceCut, 'by'> | undefined {
  const grace = memberAt(created, ['spec', 'terminationGracePeriodSeconds']);
  if (typeof grace !== 'number' || grace >= graceOf(sent)) return undefined;
  const planIn = (pod: unknown) => {
    const text = memberAt(pod, ['metadata', 'annotations', ANNOTATION.plan]);
    return isString(text) ? parsePlan(text) : undefined;
  };
  const wait = planIn(created)?.wait ?? planIn(sent)?.wait ?? 0;
  return { from: graceOf(sent), grace, wait };
}

/** The text may come from a webhook or a policy, so it is made printable. */
function sentenceOf({ message }: KubeFailure): string {
  return printable(message.replaceAll(/\s+/g, ' ')).slice(0, LONGEST_SENTENCE);
}

/** The pod as its controller would create it, except that it has no owner. */
function podOf({ workload, object }: AuditSubject): Pod {
  const { metadata, spec } = workload.pod as Pod & { readonly spec: { readonly volumes?: unknown } };
  const claimed = listOf(memberAt(object, ['spec', 'volumeClaimTemplates'])).map((claim) => {
    const name = String(memberAt(claim, ['metadata', 'name']));
    return { name, persistentVolumeClaim: { claimName: `${name}-${workload.name}-0` } };
  });
  const volumes = [...listOf(spec.volumes), ...claimed];
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

/** Adds the opt-out, so that a running Linger leaves the pod unchanged. */
function optedOut(pod: Pod): object {
  const { metadata } = pod;
  return { ...pod, metadata: { ...metadata, labels: { ...metadata?.labels, [ANNOTATION.inject]: 'false' } } };
}
