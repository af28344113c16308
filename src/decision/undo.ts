import { ANNOTATION, isRecord, plainSleep } from '../api/index.ts';
import type { Carriers } from './containers.ts';
import { type Operation, pointer } from './patch.ts';
import { earlierPass } from './plan.ts';
import { type Container, type Pod, problemOf } from './pod.ts';

/** What Kubernetes takes where a pod says nothing. */
const DEFAULT_GRACE = 30;

/**
 * The operations that take a plan out of a pod again: its hooks where they still are as the plan says, the grace where
 * it has not been changed since, and the annotation. What an author wrote stays, but for an explicit grace of 30 s,
 * which is what an absent one means. None for a pod without a plan.
 */
export function undoFor(pod: unknown): readonly Operation[] {
  if (problemOf(pod) !== undefined) return [];
  const { plan, carriers } = earlierPass(pod as Pod, Number.POSITIVE_INFINITY);
  if (plan === undefined) return [];
  const { spec, metadata } = pod as Pod;
  const operations: Operation[] = spec.containers.flatMap((container, index) =>
    hookOperations(container, `${pointer('/spec/containers', index)}/lifecycle`, carriers),
  );
  const grace = '/spec/terminationGracePeriodSeconds';
  if (spec.terminationGracePeriodSeconds === plan.grace) {
    if (plan.baseGrace === DEFAULT_GRACE) operations.push({ op: 'remove', path: grace });
    else operations.push({ op: 'replace', path: grace, value: plan.baseGrace });
  }
  const annotations = isRecord(metadata?.annotations) ? Object.keys(metadata.annotations) : [];
  const path = '/metadata/annotations';
  operations.push({ op: 'remove', path: annotations.length > 1 ? pointer(path, ANNOTATION.plan) : path });
  return operations;
}

function hookOperations({ name, lifecycle }: Container, path: string, carriers: Carriers): Operation[] {
  const handler = lifecycle?.preStop;
  if (!lifecycle || !handler || !carriers.has(name)) return [];
  const seconds = carriers.get(name);
  const sleep = plainSleep(handler);
  if (seconds !== undefined && sleep !== undefined) {
    return [{ op: 'replace', path: `${path}/preStop${sleep.pointer}`, value: sleep.render(seconds) }];
  }
  return [{ op: 'remove', path: Object.keys(lifecycle).length === 1 ? path : `${path}/preStop` }];
}
