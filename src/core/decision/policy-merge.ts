import {
  fewOf,
  type Labels,
  type Mode,
  type NamespaceRecord,
  selects,
  selectsNamespace,
} from '../api/index.ts';
import { annotationLayers } from './policy-annotations.ts';
import { PERMISSIONS, type Policy, type PolicySet, restrains } from './policy-set.ts';
import {
  BUILT_IN,
  BUILT_IN_POLICY,
  type EffectivePolicy,
  type Field,
  type Layer,
  type Leaf,
  leaf,
  type Origin,
  type PolicyValues,
} from './policy-values.ts';
import { type Note, note } from './reasons.ts';

const MODE_LIMIT: Origin = 'flag --mode-limit';

interface PolicySubject {
  readonly namespace: NamespaceRecord;
  readonly labels: Labels;
  readonly annotations: Labels;
}

export interface MergedPolicy {
  readonly policy: EffectivePolicy;
  readonly notes: readonly Note[];
}

/**
 * Merges the layers for one pod, field by field, the later layer wins: built-in, ClusterTerminationPolicies, the namespace's
 * TerminationPolicies, Namespace annotations, Pod annotations. Ceilings (the smallest declared) and overrides (AND) are the
 * exceptions: a later layer may only tighten them.
 */
export function effectivePolicy(policies: PolicySet, subject: PolicySubject, modeLimit: Mode): MergedPolicy {
  const merge = new Merge();
  const { namespace, labels } = subject;
  const unresolved: Policy[] = [];
  for (const policy of policies.cluster) {
    if (!selects(policy.podSelector, labels)) continue;
    const applies = selectsNamespace(policy.namespaceSelector, namespace);
    if (applies === 'unknown') unresolved.push(policy);
    else if (applies) merge.apply(policy);
  }
  for (const policy of unresolved) merge.applyRefusals(policy);
  merge.applyOwn(policies.byNamespace.get(namespace.name) ?? [], labels);
  merge.applyAnnotations(`Namespace/${namespace.name}`, namespace, 'overrides.namespaces');
  merge.applyAnnotations('Pod', subject, 'overrides.pods');

  const { value: ceiling, origin } = merge.policy['ceiling.mode'];
  merge.lowerMode(ceiling, origin, 'ceiling.mode');
  merge.lowerMode(modeLimit, MODE_LIMIT, MODE_LIMIT);
  merge.holdUnresolved(unresolved, namespace);
  return merge;
}

type Permission = (typeof PERMISSIONS)[number];

/**
 * How many refused TerminationPolicies a decision names, counting from the one that would have won. The owner of a namespace
 * may create any number of them, and each review of its pods carries the names.
 */
const MOST_REFUSALS = 8;

class Merge implements MergedPolicy {
  readonly policy: { -readonly [F in Field]: Leaf<PolicyValues[F]> } = { ...BUILT_IN_POLICY };
  readonly notes: Note[] = [];

  apply(layer: Layer): void {
    for (const field in layer.values) this.#set(field as Field, layer);
  }

  #set<F extends Field>(field: F, { values, origin }: Layer): void {
    const value = values[field] as PolicyValues[F];
    const inForce = this.policy[field];
    const isTighter: Tighter<PolicyValues[F]> | undefined = TIGHTENING[field];
    if (isTighter !== undefined && inForce.origin !== BUILT_IN && !isTighter(value, inForce.value)) return;
    this.#put(field, leaf(value, origin, inForce.ignored));
  }

  #put(field: Field, value: Leaf<unknown>): void {
    (this.policy as Record<Field, unknown>)[field] = value;
  }

  /** For a policy that may select a Namespace that has not been seen yet: to be safe, what it forbids is forbidden. */
  applyRefusals(layer: Layer): void {
    for (const field of PERMISSIONS) if (layer.values[field] === false) this.#set(field, layer);
  }

  /** @param own the TerminationPolicies of the namespace, in layer order */
  applyOwn(own: readonly Policy[], labels: Labels): void {
    if (this.policy['overrides.namespaces'].value) {
      for (const policy of own) if (selects(policy.podSelector, labels)) this.apply(policy);
      return;
    }
    const refused: Policy[] = [];
    let left = own.length;
    for (; left > 0 && refused.length < MOST_REFUSALS; left -= 1) {
      const policy = own[left - 1];
      if (policy !== undefined && selects(policy.podSelector, labels)) refused.unshift(policy);
    }
    for (const policy of refused) this.#refuse(policy, 'overrides.namespaces');
    if (left > 0)
      this.#noteIgnored(
        `what ${left} more TerminationPolicies of the namespace set is`,
        'overrides.namespaces',
      );
  }

  applyIfAllowed(layer: Layer, permission: Permission): void {
    if (this.policy[permission].value) this.apply(layer);
    else this.#refuse(layer, permission);
  }

  #refuse({ values, origin }: Layer, permission: Permission): void {
    const fields = Object.keys(values) as Field[];
    for (const field of fields) {
      const { ignored, ...rest } = this.policy[field];
      const refused = { value: values[field], origin, because: permission };
      this.#put(field, { ...rest, ignored: [...ignored, refused] });
    }
    if (fields.length > 0)
      this.#noteIgnored(`${fewOf(fields)} from ${origin} ${fields.length === 1 ? 'is' : 'are'}`, permission);
  }

  applyAnnotations(
    owner: string,
    { annotations, labels }: Pick<NamespaceRecord, 'annotations' | 'labels'>,
    permission: Permission,
  ): void {
    const { layers, restrainedBy, notes } = annotationLayers(owner, annotations, labels);
    this.notes.push(...notes);
    for (const layer of layers) this.applyIfAllowed(layer, permission);
    if (restrainedBy === undefined) return;
    const origin = `${owner} ${restrainedBy}`;
    if (this.policy[permission].value) this.#capMode('Audit', origin, restrainedBy);
    else this.#noteIgnored(`mode Audit from ${origin} is`, permission);
  }

  #noteIgnored(what: string, permission: Permission): void {
    const text = `${what} ignored: ${permission} is false (${this.policy[permission].origin})`;
    this.notes.push(note('OverrideIgnored', text));
  }

  /** @returns the mode that was lowered, and its origin; undefined where the cap changes nothing */
  #capMode(cap: Mode, by: Origin, because: string): string | undefined {
    const { value: mode, origin, ignored } = this.policy.mode;
    if (STRICTNESS[mode] <= STRICTNESS[cap]) return undefined;
    const capped = [...ignored, { value: mode, origin, because }];
    this.policy.mode = leaf(cap, by, capped);
    return `mode ${mode} from ${origin}`;
  }

  lowerMode(cap: Mode, by: Origin, because: string): void {
    const lowered = this.#capMode(cap, by, because);
    if (lowered === undefined) return;
    this.notes.push(note('CeilingApplied', `${lowered} is lowered to ${cap} by ${because} (${by})`));
  }

  /** Lowers the mode to Audit while a policy that may apply to the unseen Namespace says Audit or Off. */
  holdUnresolved(unresolved: readonly Policy[], { name }: NamespaceRecord): void {
    const holding = unresolved.find(({ values }) => restrains(values));
    if (holding === undefined) return;
    const { origin } = holding;
    if (this.#capMode('Audit', origin, 'namespaceSelector') === undefined) return;
    const text = `Namespace ${name} has not been seen; ${origin} may select it and does not enforce, so the mode is Audit`;
    this.notes.push(note('NamespaceUnknown', text));
  }
}

const STRICTNESS: Readonly<Record<Mode, number>> = { Off: 0, Audit: 1, Enforce: 2 };

/** Whether a later layer's value is tighter than the current one. */
export type Tighter<T> = (later: T, inForce: T) => boolean;

export const TIGHTENING: { readonly [F in Field]?: Tighter<PolicyValues[F]> } = {
  'ceiling.wait': (later, inForce) => later < inForce,
  'ceiling.mode': (later, inForce) => STRICTNESS[later] < STRICTNESS[inForce],
  'overrides.namespaces': (later, inForce) => inForce && !later,
  'overrides.pods': (later, inForce) => inForce && !later,
};
