import type { SkipReason } from '../catalog/reasons.ts';
import type { EffectivePolicy } from '../policy/values.ts';
import type { ExcludableKind } from '../schema/choices.ts';
import { controllerOf, graceOf, type Pod } from './pod.ts';
import type { Serving } from './serving.ts';

/** What the exclusions look at. */
export interface Candidate {
  readonly pod: Pod;
  readonly policy: EffectivePolicy;
  /** The kind of the workload that owns the pod, where the caller knows better than the pod's ownerReferences. */
  readonly ownerKind: string | undefined;
  readonly serving: () => Serving;
}

/**
 * The reasons that come from what the pod is, in catalogue order. `linger.dev/inject: "true"` overrides DaemonSet
 * and NotServing and nothing else: the others would break the pod or do nothing at all.
 */
export function exclusionOf(candidate: Candidate): SkipReason | undefined {
  const { pod, policy } = candidate;
  const wanted = policy.inject.value === true;
  const kind = candidate.ownerKind ?? controllerOf(pod)?.kind;
  const excluded = policy.exclude.value.find((each) => each === kind);
  if (excluded === 'Job') return 'Job';
  if ((pod.spec.restartPolicy ?? 'Always') !== 'Always') return 'RestartPolicy';
  if (excluded !== undefined && !(excluded === 'DaemonSet' && wanted)) return REASON_OF_KIND[excluded];
  if (graceOf(pod) === 0) return 'ZeroGrace';
  if (!wanted && !servesEnough(candidate)) return 'NotServing';
  return undefined;
}

const REASON_OF_KIND: Readonly<Record<ExcludableKind, SkipReason>> = {
  Job: 'Job',
  DaemonSet: 'DaemonSet',
  StatefulSet: 'ExcludedKind',
  ReplicaSet: 'ExcludedKind',
};

function servesEnough({ policy, serving }: Candidate): boolean {
  if (policy.pods.value === 'All') return true;
  const { selected, declared } = serving();
  // A Service that is not known yet may select the pod: an unneeded wait is the cheaper mistake.
  return selected !== false || (policy.pods.value === 'Serving' && declared);
}

/** Whether the pod is taken for serving only because nobody knows better. */
export function servesByDefault({ policy, serving }: Candidate): boolean {
  if (policy.pods.value === 'All' || policy.inject.value === true) return false;
  const { selected, declared } = serving();
  return selected === 'unknown' && !(policy.pods.value === 'Serving' && declared);
}
