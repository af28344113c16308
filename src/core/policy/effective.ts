import { type Note, note } from '../catalog/notes.ts';
import type { NamespaceRecord } from '../cluster/namespaces.ts';
import { type Labels, selects } from '../cluster/selector.ts';
import type { Mode } from '../schema/choices.ts';
import { annotationLayer } from './annotations.ts';
import type { PolicySet } from './policies.ts';
import {
  BUILT_IN_POLICY,
  type EffectivePolicy,
  type Field,
  type Layer,
  type Leaf,
  leaf,
  MODE_LIMIT,
  type Origin,
  type PolicyValues,
} from './values.ts';

/** The pod as far as layers are chosen by it. */
export interface PolicySubject {
  readonly namespace: NamespaceRecord;
  readonly labels: Labels;
  readonly annotations: Labels;
}

export interface MergedPolicy {
  readonly policy: EffectivePolicy;
  readonly notes: readonly Note[];
}

type Leaves = { -readonly [F in Field]: Leaf<PolicyValues[F]> };

/**
 * Merges the layers for one pod, later wins leaf by leaf: built-in, ClusterTerminationPolicies, the namespace's
 * TerminationPolicies, Namespace annotations, Pod annotations. Only ceilings (smallest) and overrides (AND) are
 * not last-wins: a later layer may tighten them and never loosen them.
 */
export function effectivePolicy(policies: PolicySet, subject: PolicySubject, modeLimit: Mode): MergedPolicy {
  const leaves: Leaves = { ...BUILT_IN_POLICY };
  const notes: Note[] = [];
  const { namespace, labels } = subject;

  for (const policy of policies.cluster) {
    if (selects(policy.namespaceSelector, namespace.labels) && selects(policy.podSelector, labels))
      apply(leaves, policy);
  }
  for (const policy of policies.byNamespace.get(namespace.name) ?? []) {
    if (selects(policy.podSelector, labels)) applyIfAllowed(leaves, policy, 'overrides.namespaces', notes);
  }
  const ofNamespace = annotationLayer(`Namespace/${namespace.name}`, namespace.annotations, namespace.labels);
  if (ofNamespace !== undefined) {
    notes.push(...ofNamespace.notes);
    applyIfAllowed(leaves, ofNamespace.layer, 'overrides.namespaces', notes);
  }
  const ofPod = annotationLayer('Pod', subject.annotations, labels);
  if (ofPod !== undefined) {
    notes.push(...ofPod.notes);
    applyIfAllowed(leaves, ofPod.layer, 'overrides.pods', notes);
  }
  capMode(leaves, leaves['ceiling.mode'].value, leaves['ceiling.mode'].origin, notes);
  capMode(leaves, modeLimit, MODE_LIMIT, notes);
  return { policy: leaves, notes };
}

function apply(leaves: Leaves, layer: Layer): void {
  for (const field in layer.values) setLeaf(leaves, field as Field, layer);
}

function setLeaf<F extends Field>(leaves: Leaves, field: F, layer: Layer): void {
  // A layer has only the leaves that it sets; `field` is one of them.
  const value = layer.values[field] as PolicyValues[F];
  const merge: Merge<PolicyValues[F]> | undefined = TIGHTENING[field];
  if (merge !== undefined && !merge(leaves[field].value, value)) return;
  (leaves as Record<Field, unknown>)[field] = leaf(value, layer.originOf(field), leaves[field].ignored);
}

/** Whether a later layer's value is tighter than the one in force. */
type Merge<T> = (inForce: T, later: T) => boolean;

const STRICTNESS: Readonly<Record<Mode, number>> = { Off: 0, Audit: 1, Enforce: 2 };

const TIGHTENING: { readonly [F in Field]?: Merge<PolicyValues[F]> } = {
  'ceiling.wait': (inForce, later) => later < inForce,
  'ceiling.mode': (inForce, later) => STRICTNESS[later] < STRICTNESS[inForce],
  'overrides.namespaces': (inForce, later) => inForce && !later,
  'overrides.pods': (inForce, later) => inForce && !later,
};

function applyIfAllowed(
  leaves: Leaves,
  layer: Layer,
  permission: 'overrides.namespaces' | 'overrides.pods',
  notes: Note[],
): void {
  const { value: allowed, origin: forbiddenBy } = leaves[permission];
  if (allowed) {
    apply(leaves, layer);
    return;
  }
  for (const name in layer.values) {
    const field = name as Field;
    const origin = layer.originOf(field);
    ignore(leaves, field, layer.values[field], origin, permission);
    notes.push(
      note('OverrideIgnored', `${field} from ${origin} is ignored: ${permission} is false (${forbiddenBy})`),
    );
  }
}

function capMode(leaves: Leaves, cap: Mode, by: Origin, notes: Note[]): void {
  const { value: mode, origin, ignored } = leaves.mode;
  if (STRICTNESS[mode] <= STRICTNESS[cap]) return;
  const because = by === MODE_LIMIT ? MODE_LIMIT : 'ceiling.mode';
  leaves.mode = leaf(cap, by, [...ignored, { value: mode, origin, because }]);
  notes.push(
    note('CeilingApplied', `mode ${mode} from ${origin} is lowered to ${cap} by ${because} (${by})`),
  );
}

function ignore(leaves: Leaves, field: Field, value: unknown, origin: Origin, because: string): void {
  const { ignored, ...rest } = leaves[field];
  (leaves as Record<Field, unknown>)[field] = { ...rest, ignored: [...ignored, { value, origin, because }] };
}
