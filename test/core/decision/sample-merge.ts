import type { Mode } from '../../../src/core/api/index.ts';
import { effectivePolicy, type MergedPolicy } from '../../../src/core/decision/policy-merge.ts';
import type { EffectivePolicy, Field } from '../../../src/core/decision/policy-values.ts';
import { type JsonObject, NAMESPACE } from './sample-pod.ts';
import { namespace, snapshotOf } from './sample-snapshot.ts';

/** The policy in force for a pod of the sample namespace with these labels and annotations. */
export function merge(
  documents: readonly JsonObject[],
  annotations: Record<string, string> = {},
  modeLimit: Mode = 'Enforce',
  labels: Record<string, string> = { app: 'web' },
): MergedPolicy {
  const snapshot = snapshotOf([namespace(), ...documents]);
  const record = snapshot.namespaces.get(NAMESPACE);
  if (record === undefined) throw new Error('the sample has no namespace');
  return effectivePolicy(snapshot.policies, { namespace: record, labels, annotations }, modeLimit);
}

/** A leaf's value and who said it. */
export function said(policyInForce: EffectivePolicy, field: Field): [value: unknown, origin: string] {
  const { value, origin } = policyInForce[field];
  return [value, origin];
}
