import {
  ANNOTATION,
  type ClusterTerminationPolicy,
  type ClusterTerminationPolicySpec,
  EVERYTHING,
  isRecord,
  type LabelSelector,
  type Labels,
  type NamespaceRecord,
  selectsNamespace,
  type TerminationPolicy,
} from '../api/index.ts';
import type { Enough } from '../lag/index.ts';
import { BUILT_IN_VALUES, type Layer, type Origin, type PolicyValues, printsOf } from './policy-values.ts';

/** A policy document, ready to be merged. */
export interface Policy extends Layer {
  readonly name: string;
  /** Empty for a ClusterTerminationPolicy. */
  readonly namespace: string;
  readonly priority: number;
  readonly namespaceSelector: LabelSelector;
  readonly podSelector: LabelSelector;
}

/** Up to this many policies, trying each is faster than looking them up. */
const FEW = 32;

/**
 * Keys beside those of labels: policies that require no particular label, and policies that require a namespace label but
 * restrain pods even before the Namespace, and so its labels, has been seen.
 */
const OF_ANY = 'any';

const RESTRAINING = 'restraining';

/** Policies per step of building a {@link PolicySet}: a millisecond on a slow machine. */
const POLICIES_OF_STEP = 50;

/**
 * Policies in layer order: ascending priority, then name; later wins. Most policies require a particular label and are
 * looked up by it, so a review pays only for the policies that may apply to it, however many there are.
 */
class PolicyList {
  readonly #all: readonly Policy[];
  /** By key: positions in the layer order. */
  readonly #ranks = new Map<string, number[]>();
  #holding: readonly Policy[] | undefined;

  private constructor(all: readonly Policy[]) {
    this.#all = all;
  }

  static *of(policies: readonly Policy[]): Generator<undefined, PolicyList> {
    const list = new PolicyList(policies.toSorted(inLayerOrder));
    for (const [rank, policy] of list.#all.entries()) {
      if (rank % POLICIES_OF_STEP === 0) yield;
      for (const key of lookupKeys(policy)) {
        const ranks = list.#ranks.get(key);
        if (ranks === undefined) list.#ranks.set(key, [rank]);
        else ranks.push(rank);
      }
    }
    return list;
  }

  /** Those whose selectors may match, in layer order. */
  candidates(namespace: NamespaceRecord, labels: Labels): readonly Policy[] {
    if (this.#all.length <= FEW) return this.#all;
    const keys = [OF_ANY, ...labelKeys('pod', labels), ...labelKeys('namespace', namespace.labels)];
    // A Namespace that has not been seen may have any labels.
    if (namespace.unseen) keys.push(RESTRAINING);
    const ranks = keys.flatMap((key) => this.#ranks.get(key) ?? []);
    return [...new Set(ranks)].toSorted((a, b) => a - b).flatMap((rank) => this.#all[rank] ?? []);
  }

  /** The policies with hook Hold whose helper comes from a ConfigMap. */
  get holding(): readonly Policy[] {
    this.#holding ??= this.#all.filter(
      ({ values }) => values.hook === HOLD && values['hold.delivery'] !== 'Image',
    );
    return this.#holding;
  }
}

function lookupKeys({ podSelector, namespaceSelector, values }: Policy): readonly string[] {
  const ofPod = neededLabels('pod', podSelector);
  if (ofPod !== undefined) return ofPod;
  const ofNamespace = neededLabels('namespace', namespaceSelector);
  if (ofNamespace === undefined) return [OF_ANY];
  return restrains(values) || refuses(values) ? [RESTRAINING, ...ofNamespace] : ofNamespace;
}

/** Labels of which an object must have at least one to be selected; undefined: no particular label is required. */
function neededLabels(
  of: 'pod' | 'namespace',
  { matchLabels = {}, matchExpressions = [] }: LabelSelector,
): readonly string[] | undefined {
  const [label] = labelKeys(of, matchLabels);
  if (label !== undefined) return [label];
  const oneOf = matchExpressions.find(({ operator }) => operator === 'In');
  return oneOf && [...new Set(oneOf.values)].flatMap((value) => labelKeys(of, { [oneOf.key]: value }));
}

/** Neither keys nor values of labels have spaces. */
function labelKeys(of: 'pod' | 'namespace', labels: Labels): readonly string[] {
  return Object.entries(labels).map(([key, value]) => `${of} ${key} ${value}`);
}

/** All policies. */
export interface PolicySet {
  readonly cluster: PolicyList;
  readonly byNamespace: ReadonlyMap<string, PolicyList>;
  /** Each `wait.minSamples` and each `wait.minHistory` that some layer may bring in force. */
  readonly thresholds: readonly Enough[];
}

/** In steps, because thousands of policies would otherwise delay reviews. */
export function* policySet(
  cluster: readonly ClusterTerminationPolicy[],
  namespaced: readonly TerminationPolicy[],
): Generator<undefined, PolicySet> {
  const ofCluster = yield* policiesOf(cluster);
  const ofNamespaces = yield* policiesOf(namespaced);
  const byNamespace = new Map<string, PolicyList>();
  for (const [namespace, policies] of Map.groupBy(ofNamespaces, (policy) => policy.namespace)) {
    yield;
    byNamespace.set(namespace, yield* PolicyList.of(policies));
  }
  return {
    thresholds: thresholdsOf([...ofCluster, ...ofNamespaces]),
    cluster: yield* PolicyList.of(ofCluster),
    byNamespace,
  };
}

function* policiesOf(
  documents: readonly (ClusterTerminationPolicy | TerminationPolicy)[],
): Generator<undefined, Policy[]> {
  const policies: Policy[] = [];
  for (const document of documents) {
    if (policies.length % POLICIES_OF_STEP === 0) yield;
    policies.push(policyOf(document));
  }
  return policies;
}

const HOLD = 'Hold';

/** Whether a pod of the namespace may get Hold with a ConfigMap: by policy, or by the Namespace's annotation. */
export function wantsHold({ cluster, byNamespace }: PolicySet, namespace: NamespaceRecord): boolean {
  const { annotations, name } = namespace;
  if (annotations[ANNOTATION.hook]?.toLowerCase() === HOLD.toLowerCase()) return true;
  if ((byNamespace.get(name)?.holding.length ?? 0) > 0) return true;
  return cluster.holding.some((each) => selectsNamespace(each.namespaceSelector, namespace) === true);
}

function thresholdsOf(policies: readonly Policy[]): readonly Enough[] {
  const valuesOf = (field: 'wait.minSamples' | 'wait.minHistory') => {
    const found = new Set([BUILT_IN_VALUES[field]]);
    for (const { values } of policies) {
      const value = values[field];
      if (value !== undefined) found.add(value);
    }
    return found;
  };
  return [
    ...[...valuesOf('wait.minSamples')].map((minSamples) => ({ minSamples, minHistory: 0 })),
    ...[...valuesOf('wait.minHistory')].map((minHistory) => ({ minSamples: 0, minHistory })),
  ];
}

/** @returns its selectors, and the leaves that it sets */
export function policyOf({ kind, metadata, spec }: ClusterTerminationPolicy | TerminationPolicy): Policy {
  const { priority = 0, podSelector, namespaceSelector }: ClusterTerminationPolicySpec = spec;
  const { name } = metadata;
  const namespace = kind === 'TerminationPolicy' ? metadata.namespace : '';
  const origin = originOf({ kind, metadata });
  const selectors = {
    namespaceSelector: namespaceSelector ?? EVERYTHING,
    podSelector: podSelector ?? EVERYTHING,
  };
  const values = leavesOf(spec);
  return { name, namespace, priority, ...selectors, values, prints: printsOf(values), origin };
}

export function originOf({
  kind,
  metadata: { namespace = '', name },
}: Pick<ClusterTerminationPolicy | TerminationPolicy, 'kind' | 'metadata'>): Origin {
  return `${kind}/${namespace === '' ? '' : `${namespace}/`}${name}`;
}

// Names are compared by code unit and not by locale: the order must be the same on every machine.
export function inLayerOrder(a: Policy, b: Policy): number {
  if (a.priority !== b.priority) return a.priority - b.priority;
  return a.name < b.name ? -1 : Number(a.name > b.name);
}

/** The field of each member of a spec, and of each member of that: `wait`, `percentile` → `wait.percentile`. */
const FIELD_OF = new Map<string, Map<string, string>>();
for (const field of Object.keys(BUILT_IN_VALUES)) {
  const [name = '', member = ''] = field.split('.');
  FIELD_OF.set(name, (FIELD_OF.get(name) ?? new Map<string, string>()).set(member, field));
}

/** The leaves that a document sets, and only those: an absent field must not hide a lower layer. */
function leavesOf(spec: ClusterTerminationPolicySpec): Partial<PolicyValues> {
  const leaves: Record<string, unknown> = {};
  const set = (field: string | undefined, value: unknown) => {
    if (field !== undefined && value !== undefined) leaves[field] = value;
  };
  // Plain loops without string building: thousands of policies are read in one go, while reviews wait.
  for (const name in spec) {
    const fields = FIELD_OF.get(name);
    if (fields === undefined) continue;
    const value: unknown = spec[name as keyof ClusterTerminationPolicySpec];
    if (isRecord(value)) for (const member in value) set(fields.get(member), value[member]);
    else set(fields.get(''), value);
  }
  return leaves;
}

export const PERMISSIONS = ['overrides.namespaces', 'overrides.pods'] as const;

function refuses(values: Partial<PolicyValues>): boolean {
  return PERMISSIONS.some((field) => values[field] === false);
}

export function restrains(values: Partial<PolicyValues>): boolean {
  return [values.mode, values['ceiling.mode']].some((mode) => mode === 'Audit' || mode === 'Off');
}
