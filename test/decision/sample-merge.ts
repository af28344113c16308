import type { Mode } from '../../src/api/index.ts';
import type { EffectivePolicy, Field } from '../../src/decision/policy.ts';
import { effectivePolicy, type MergedPolicy } from '../../src/decision/policy.ts';
import { type JsonObject, NAMESPACE } from './sample-pod.ts';
import { namespace, worldOf } from './sample-world.ts';

/** The policy in force for a pod of the sample namespace with these labels and annotations. */
export function merge(
  documents: readonly JsonObject[],
  annotations: Record<string, string> = {},
  modeLimit: Mode = 'Enforce',
  labels: Record<string, string> = { app: 'web' },
): MergedPolicy {
  const world = worldOf([namespace(), ...documents]);
  const record = world.namespaces.get(NAMESPACE);
  if (record === undefined) throw new Error('the sample has no namespace');
  return effectivePolicy(world.policies, { namespace: record, labels, annotations }, modeLimit);
}

/** A leaf's value and who said it. */
export function said(policyInForce: EffectivePolicy, field: Field): [value: unknown, origin: string] {
  const { value, origin } = policyInForce[field];
  return [value, origin];
}
