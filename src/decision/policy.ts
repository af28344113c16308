import {
  ANNOTATION,
  ANNOTATION_PREFIX,
  type ClusterTerminationPolicy,
  type ClusterTerminationPolicySpec,
  DURATION_HINT,
  EVERYTHING,
  EXISTING_HOOK_RULES,
  type ExcludableKind,
  type ExistingHookRule,
  HOOK_CHOICES,
  HOOK_RESERVED,
  HOOK_UNAVAILABLE,
  type HookChoice,
  isRecord,
  type LabelSelector,
  type Labels,
  labelOf,
  MODES,
  type Mode,
  type NamespaceRecord,
  type PodScope,
  parseDuration,
  selects,
  selectsNamespace,
  type TerminationPolicy,
  type WaitSource,
} from '../api/index.ts';
import type { Enough } from '../lag/index.ts';
import { POD_LIMITS } from './pod.ts';
import { type Note, note } from './reasons.ts';

/**
 * All that can be decided by policy, leaf by leaf, under the path that the leaf has in a policy document.
 * Durations are in seconds.
 */
interface PolicyValues {
  readonly mode: Mode;
  readonly pods: PodScope;
  readonly exclude: readonly ExcludableKind[];
  readonly containers: readonly string[];
  readonly 'wait.from': WaitSource;
  readonly 'wait.fixed': number | undefined;
  readonly 'wait.percentile': number;
  readonly 'wait.safetyFactor': number;
  readonly 'wait.margin': number;
  readonly 'wait.min': number;
  readonly 'wait.max': number;
  readonly 'wait.initial': number;
  readonly 'wait.minSamples': number;
  readonly 'wait.minHistory': number;
  readonly hook: HookChoice;
  readonly existingHook: ExistingHookRule;
  readonly 'grace.max': number;
  readonly 'ceiling.wait': number;
  readonly 'ceiling.mode': Mode;
  readonly 'overrides.namespaces': boolean;
  readonly 'overrides.pods': boolean;
  /** Not in policy documents: what linger.dev/inject says; undefined = nothing. */
  readonly inject: boolean | undefined;
}

export type Field = keyof PolicyValues;

/** The values in force where no layer sets one. */
export const BUILT_IN_VALUES: PolicyValues = {
  mode: 'Enforce',
  pods: 'Serving',
  exclude: ['Job', 'DaemonSet'],
  containers: [],
  'wait.from': 'Measured',
  'wait.fixed': undefined,
  'wait.percentile': 99,
  'wait.safetyFactor': 1.5,
  'wait.margin': 0,
  'wait.min': 5,
  'wait.max': 60,
  // S3's cure: three times the 10 s at which gateways poll their discovery service.
  'wait.initial': 30,
  'wait.minSamples': 200,
  'wait.minHistory': 24 * 3600,
  hook: 'Auto',
  existingHook: 'Keep',
  // What cluster-autoscaler grants a pod at most (--max-graceful-termination-sec).
  'grace.max': 600,
  'ceiling.wait': 300,
  'ceiling.mode': 'Enforce',
  'overrides.namespaces': true,
  'overrides.pods': true,
  inject: undefined,
};

/** The fields whose values are seconds: for rendering. */
export const DURATION_FIELDS: ReadonlySet<Field> = new Set([
  'wait.fixed',
  'wait.margin',
  'wait.min',
  'wait.max',
  'wait.initial',
  'wait.minHistory',
  'grace.max',
  'ceiling.wait',
]);

/** Where a value comes from, in words that can be looked up: `ClusterTerminationPolicy/base`, `Pod linger.dev/wait`. */
export type Origin = string;
export const BUILT_IN: Origin = 'built-in';
const MODE_LIMIT: Origin = 'flag --mode-limit';

/** A value that would have won, had it been allowed to. */
export interface IgnoredValue {
  readonly value: unknown;
  readonly origin: Origin;
  /** What forbade it: the field `ceiling.mode` or `overrides.pods`, an annotation, or the flag. */
  readonly because: string;
}

export interface Leaf<T> {
  readonly value: T;
  readonly origin: Origin;
  readonly ignored: readonly IgnoredValue[];
}

/** All layers merged; each leaf knows where it came from. */
export type EffectivePolicy = { readonly [F in Field]: Leaf<PolicyValues[F]> };

/** What one document or one object's annotations say: a few leaves, all of one origin each. */
interface Layer {
  readonly values: Partial<PolicyValues>;
  /** The origin of a field that this layer sets. */
  readonly originOf: (field: Field) => Origin;
}

const NOTHING_IGNORED: readonly IgnoredValue[] = [];

function leaf<T>(value: T, origin: Origin, ignored: readonly IgnoredValue[] = NOTHING_IGNORED): Leaf<T> {
  return { value, origin, ignored };
}

/** The built-in layer as an effective policy: where every merge starts. */
export const BUILT_IN_POLICY: EffectivePolicy = Object.freeze(
  Object.fromEntries(Object.entries(BUILT_IN_VALUES).map(([field, value]) => [field, leaf(value, BUILT_IN)])),
) as unknown as EffectivePolicy;

/** A policy document, ready to be merged. */
interface Policy extends Layer {
  readonly name: string;
  readonly priority: number;
  readonly namespaceSelector: LabelSelector;
  readonly podSelector: LabelSelector;
}

/**
 * Policies in the order in which they are layered: ascending priority, then name; later wins. Most policies ask for a
 * certain label, and are looked up by it: thousands of them cost a review no more than those that may apply to it.
 */
class PolicyList {
  readonly #all: readonly Policy[];
  /** By `pod` or `namespace`, key and value: the ranks of the policies that need this label. */
  readonly #byLabel = new Map<string, number[]>();
  /** The ranks of those that need a certain label of the namespace. */
  readonly #byNamespace: number[] = [];
  /** The ranks of those that need no certain label. */
  readonly #others: number[] = [];

  constructor(policies: readonly Policy[]) {
    this.#all = policies.toSorted(inLayerOrder);
    for (const [rank, { podSelector, namespaceSelector }] of this.#all.entries()) {
      const ofPod = neededLabels('pod', podSelector);
      const labels = ofPod ?? neededLabels('namespace', namespaceSelector);
      if (labels === undefined) this.#others.push(rank);
      else if (ofPod === undefined) this.#byNamespace.push(rank);
      for (const label of labels ?? []) mapped(this.#byLabel, label).push(rank);
    }
  }

  /** Those whose selectors may match, in layer order. */
  candidates(namespace: NamespaceRecord, labels: Labels): readonly Policy[] {
    if (this.#all.length <= FEW) return this.#all;
    const ranks = [this.#others];
    const add = (of: 'pod' | 'namespace', all: Labels) => {
      for (const key in all) ranks.push(this.#byLabel.get(labelKey(of, key, all[key])) ?? []);
    };
    add('pod', labels);
    // A Namespace that has not been seen may have any label.
    if (namespace.unseen) ranks.push(this.#byNamespace);
    else add('namespace', namespace.labels);
    const found = ranks.flat().toSorted((a, b) => a - b);
    return found.flatMap((rank) => this.#all[rank] ?? []);
  }
}

/** Up to so many policies are tried faster than looked up. */
const FEW = 32;

/** Labels of which an object needs one to be selected; undefined where none is certain. */
function neededLabels(
  of: 'pod' | 'namespace',
  { matchLabels = {}, matchExpressions = [] }: LabelSelector,
): readonly string[] | undefined {
  for (const key in matchLabels) return [labelKey(of, key, matchLabels[key])];
  const oneOf = matchExpressions.find(({ operator }) => operator === 'In');
  return oneOf && [...new Set(oneOf.values)].map((value) => labelKey(of, oneOf.key, value));
}

/** Neither keys nor values of labels have spaces. */
function labelKey(of: 'pod' | 'namespace', key: string, value: string | undefined): string {
  return `${of} ${key} ${value}`;
}

function mapped<K, V>(lists: Map<K, V[]>, key: K): V[] {
  const list = lists.get(key) ?? [];
  lists.set(key, list);
  return list;
}

/** All policies. */
export interface PolicySet {
  readonly cluster: PolicyList;
  readonly byNamespace: ReadonlyMap<string, PolicyList>;
  /** Each `wait.minSamples` and each `wait.minHistory` that some layer may bring in force. */
  readonly thresholds: readonly Enough[];
}

export function policySet(
  cluster: readonly ClusterTerminationPolicy[],
  namespaced: readonly TerminationPolicy[],
): PolicySet {
  const grouped = Map.groupBy(namespaced, (document) => document.metadata.namespace);
  return {
    thresholds: thresholdsOf([...cluster, ...namespaced]),
    cluster: new PolicyList(cluster.map(policyOf)),
    byNamespace: new Map(
      [...grouped].map(([namespace, documents]) => [namespace, new PolicyList(documents.map(policyOf))]),
    ),
  };
}

function thresholdsOf(
  documents: readonly (ClusterTerminationPolicy | TerminationPolicy)[],
): readonly Enough[] {
  const valuesOf = (field: 'wait.minSamples' | 'wait.minHistory') =>
    new Set([BUILT_IN_VALUES[field], ...documents.flatMap(({ spec }) => leavesOf(spec)[field] ?? [])]);
  return [
    ...[...valuesOf('wait.minSamples')].map((minSamples) => ({ minSamples, minHistory: 0 })),
    ...[...valuesOf('wait.minHistory')].map((minHistory) => ({ minSamples: 0, minHistory })),
  ];
}

export const NO_POLICIES: PolicySet = policySet([], []);

function policyOf({ kind, metadata, spec }: ClusterTerminationPolicy | TerminationPolicy): Policy {
  const namespace = kind === 'TerminationPolicy' ? `${metadata.namespace}/` : '';
  const origin = `${kind}/${namespace}${metadata.name}`;
  const { priority = 0, podSelector, namespaceSelector }: ClusterTerminationPolicySpec = spec;
  return {
    name: metadata.name,
    priority,
    namespaceSelector: namespaceSelector ?? EVERYTHING,
    podSelector: podSelector ?? EVERYTHING,
    values: leavesOf(spec),
    originOf: () => origin,
  };
}

// Names are compared by code unit and not by locale: the order must be the same on every machine.
function inLayerOrder(a: Policy, b: Policy): number {
  if (a.priority !== b.priority) return a.priority - b.priority;
  return a.name < b.name ? -1 : Number(a.name > b.name);
}

/** The leaves that a document sets, and only those: an absent field must not hide a lower layer. */
function leavesOf(spec: ClusterTerminationPolicySpec): Partial<PolicyValues> {
  const leaves: Record<string, unknown> = {};
  const set = (field: string, value: unknown) => {
    if (value !== undefined && Object.hasOwn(BUILT_IN_VALUES, field)) leaves[field] = value;
  };
  // Plain loops: thousands of policies are read at once.
  for (const name in spec) {
    const value: unknown = spec[name as keyof ClusterTerminationPolicySpec];
    if (isRecord(value)) for (const member in value) set(`${name}.${member}`, value[member]);
    else set(name, value);
  }
  return leaves;
}

/** What the annotations of one object say, and what is wrong with them. */
interface AnnotationLayer {
  readonly layer: Layer;
  /** The first annotation that cannot be read and can only have been meant to restrain: it holds the pod in Audit. */
  readonly restrainedBy: string | undefined;
  readonly notes: readonly Note[];
}

interface AnnotationReader {
  readonly fields: readonly Field[];
  /** @returns what was expected, where the text does not parse */
  read(text: string): Partial<PolicyValues> | string;
  readonly restrains?: true;
}

const READERS: Readonly<Record<string, AnnotationReader>> = {
  [ANNOTATION.inject]: {
    fields: ['inject'],
    restrains: true,
    // The forms of Go's strconv.ParseBool, which other annotations of the ecosystem take too.
    read: (text) => {
      if (/^(1|t|T|true|TRUE|True)$/.test(text)) return { inject: true };
      return /^(0|f|F|false|FALSE|False)$/.test(text) ? { inject: false } : '"true" or "false"';
    },
  },
  [ANNOTATION.mode]: { ...choiceReader('mode', MODES), restrains: true },
  [ANNOTATION.wait]: {
    fields: ['wait.from', 'wait.fixed'],
    read: (text) => {
      const seconds = parseDuration(text);
      return seconds === undefined ? DURATION_HINT : { 'wait.from': 'Fixed', 'wait.fixed': seconds };
    },
  },
  [ANNOTATION.hook]: {
    fields: ['hook'],
    read: (text) => {
      const value = choiceReader('hook', HOOK_CHOICES).read(text);
      const isReserved = typeof value === 'string' && text.toLowerCase() === HOOK_RESERVED.toLowerCase();
      return isReserved ? `${value} (${HOOK_UNAVAILABLE})` : value;
    },
  },
  [ANNOTATION.containers]: { fields: ['containers'], read: readContainers },
  [ANNOTATION.existingHook]: choiceReader('existingHook', EXISTING_HOOK_RULES),
};

/** Reads one of these words, in upper or lower case. */
function choiceReader<F extends Field>(
  field: F,
  known: readonly (PolicyValues[F] & string)[],
): AnnotationReader {
  return {
    fields: [field],
    read: (text) => {
      const lower = text.toLowerCase();
      const value = known.find((each) => each.toLowerCase() === lower);
      return value === undefined
        ? known.join(', ').replace(/, ([^,]*)$/, ' or $1')
        : ({ [field]: value } as Partial<PolicyValues>);
    },
  };
}

/** As many names as a pod may have containers, of 63 characters each, and their commas. */
const NAMES_MAX_LENGTH = POD_LIMITS.containers * 64;

function readContainers(text: string): Partial<PolicyValues> | string {
  const tooMany = `at most ${POD_LIMITS.containers} container names`;
  if (text.length > NAMES_MAX_LENGTH) return tooMany;
  const names = text
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '');
  if (names.length > POD_LIMITS.containers) return tooMany;
  return names.length === 0 ? 'container names, separated by commas' : { containers: names };
}

/** Which annotation set a field; several fields can come from one annotation. */
const SOURCE_OF: ReadonlyMap<Field, string> = new Map(
  Object.entries(READERS).flatMap(([key, { fields }]) => fields.map((field) => [field, key] as const)),
);

/**
 * The layer that an object's linger.dev annotations make. A value that does not parse is left out and noted: it
 * must never block a pod. `linger.dev/inject` also counts as a label, where the API server can select on it; of
 * two contradicting ones on the same object, false wins, since taking part must be the safe choice to refuse.
 * @param owner the object, as origins name it: `Pod` or `Namespace/shop`
 * @returns undefined for an object without such annotations
 */
export function annotationLayer(
  owner: string,
  annotations: Labels,
  labels: Labels,
): AnnotationLayer | undefined {
  const values: Values = {};
  const notes: Note[] = [];
  let restrainedBy: string | undefined;
  const read = (key: string, text: string) => {
    const reader = Object.hasOwn(READERS, key) ? READERS[key] : undefined;
    const result = reader?.read(text.trim());
    if (result === undefined) notes.push(unknownNote(owner, key));
    else if (typeof result !== 'string') Object.assign(values, result);
    else {
      const effect = reader?.restrains ? 'the pod is held in Audit' : 'ignored';
      if (reader?.restrains) restrainedBy ??= key;
      const said = `${owner}: ${key}: expected ${result}, got "${shorten(text)}"; ${effect}`;
      notes.push(note('InvalidAnnotation', said, key));
    }
  };
  for (const key in annotations) {
    if (key.startsWith(ANNOTATION_PREFIX) && key !== ANNOTATION.plan) read(key, String(annotations[key]));
  }
  const label = labelOf(labels, ANNOTATION.inject);
  if (label !== undefined) {
    const fromAnnotation = values.inject;
    read(ANNOTATION.inject, label);
    if (fromAnnotation === false) values.inject = false;
  }
  if (notes.length === 0 && Object.keys(values).length === 0) return undefined;
  const originOf = (field: Field) => `${owner} ${SOURCE_OF.get(field) ?? field}`;
  return { layer: { values, originOf }, restrainedBy, notes };
}

function unknownNote(owner: string, key: string): Note {
  const known = Object.keys(READERS).join(', ');
  return note('UnknownAnnotation', `${owner}: ${shorten(key)} is not known and ignored; known are ${known}`);
}

function shorten(text: string): string {
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/** The pod as far as layers are chosen by it. */
interface PolicySubject {
  readonly namespace: NamespaceRecord;
  readonly labels: Labels;
  readonly annotations: Labels;
}

export interface MergedPolicy {
  readonly policy: EffectivePolicy;
  readonly notes: readonly Note[];
}

type Values = { -readonly [F in Field]?: PolicyValues[F] };
type Leaves = { -readonly [F in Field]: Leaf<PolicyValues[F]> };
type Permission = 'overrides.namespaces' | 'overrides.pods';

/**
 * Merges the layers for one pod, later wins leaf by leaf: built-in, ClusterTerminationPolicies, the namespace's
 * TerminationPolicies, Namespace annotations, Pod annotations. Only ceilings (the smallest that is declared) and
 * overrides (AND) are not last-wins: a later layer may tighten them and never loosen them.
 */
export function effectivePolicy(policies: PolicySet, subject: PolicySubject, modeLimit: Mode): MergedPolicy {
  const leaves: Leaves = { ...BUILT_IN_POLICY };
  const notes: Note[] = [];
  const { namespace, labels } = subject;

  const unresolved: Policy[] = [];
  for (const policy of policies.cluster.candidates(namespace, labels)) {
    if (!selects(policy.podSelector, labels)) continue;
    const applies = selectsNamespace(policy.namespaceSelector, namespace);
    if (applies === 'unknown') unresolved.push(policy);
    else if (applies) apply(leaves, policy);
  }
  for (const policy of unresolved) applyOverrides(leaves, policy);
  for (const policy of policies.byNamespace.get(namespace.name)?.candidates(namespace, labels) ?? []) {
    if (selects(policy.podSelector, labels)) applyIfAllowed(leaves, policy, 'overrides.namespaces', notes);
  }
  const owner = `Namespace/${namespace.name}`;
  applyAnnotations(leaves, owner, namespace, 'overrides.namespaces', notes);
  applyAnnotations(leaves, 'Pod', subject, 'overrides.pods', notes);

  const { value: ceiling, origin } = leaves['ceiling.mode'];
  lowerMode(leaves, ceiling, origin, 'ceiling.mode', notes);
  lowerMode(leaves, modeLimit, MODE_LIMIT, MODE_LIMIT, notes);
  holdUnresolved(leaves, unresolved, namespace, notes);
  return { policy: leaves, notes };
}

function apply(leaves: Leaves, layer: Layer): void {
  for (const field in layer.values) setLeaf(leaves, field as Field, layer);
}

function setLeaf<F extends Field>(leaves: Leaves, field: F, layer: Layer): void {
  // A layer has only the leaves that it sets; `field` is one of them.
  const value = layer.values[field] as PolicyValues[F];
  const { value: inForce, origin, ignored } = leaves[field];
  const isTighter: Tighter<PolicyValues[F]> | undefined = TIGHTENING[field];
  if (isTighter !== undefined && origin !== BUILT_IN && !isTighter(value, inForce)) return;
  (leaves as Record<Field, unknown>)[field] = leaf(value, layer.originOf(field), ignored);
}

/** Whether a later layer's value is tighter than the one in force. */
type Tighter<T> = (later: T, inForce: T) => boolean;

const STRICTNESS: Readonly<Record<Mode, number>> = { Off: 0, Audit: 1, Enforce: 2 };

const TIGHTENING: { readonly [F in Field]?: Tighter<PolicyValues[F]> } = {
  'ceiling.wait': (later, inForce) => later < inForce,
  'ceiling.mode': (later, inForce) => STRICTNESS[later] < STRICTNESS[inForce],
  'overrides.namespaces': (later, inForce) => inForce && !later,
  'overrides.pods': (later, inForce) => inForce && !later,
};

function applyAnnotations(
  leaves: Leaves,
  owner: string,
  { annotations, labels }: Pick<NamespaceRecord, 'annotations' | 'labels'>,
  permission: Permission,
  notes: Note[],
): void {
  const found = annotationLayer(owner, annotations, labels);
  if (found === undefined) return;
  notes.push(...found.notes);
  applyIfAllowed(leaves, found.layer, permission, notes);
  if (found.restrainedBy === undefined) return;
  const origin = `${owner} ${found.restrainedBy}`;
  if (leaves[permission].value) capMode(leaves, 'Audit', origin, found.restrainedBy);
  else notes.push(overrideIgnored(leaves, `mode Audit from ${origin}`, permission));
}

function applyIfAllowed(leaves: Leaves, layer: Layer, permission: Permission, notes: Note[]): void {
  if (leaves[permission].value) {
    apply(leaves, layer);
    return;
  }
  for (const name in layer.values) {
    const field = name as Field;
    const origin = layer.originOf(field);
    ignore(leaves, field, { value: layer.values[field], origin, because: permission });
    notes.push(overrideIgnored(leaves, `${field} from ${origin}`, permission));
  }
}

function overrideIgnored(leaves: Leaves, what: string, permission: Permission): Note {
  const { origin } = leaves[permission];
  return note('OverrideIgnored', `${what} is ignored: ${permission} is false (${origin})`);
}

/** @returns the mode that was lowered, and where it came from; undefined where the cap changes nothing */
function capMode(leaves: Leaves, cap: Mode, by: Origin, because: string): string | undefined {
  const { value: mode, origin, ignored } = leaves.mode;
  if (STRICTNESS[mode] <= STRICTNESS[cap]) return undefined;
  leaves.mode = leaf(cap, by, [...ignored, { value: mode, origin, because }]);
  return `mode ${mode} from ${origin}`;
}

function lowerMode(leaves: Leaves, cap: Mode, by: Origin, because: string, notes: Note[]): void {
  const lowered = capMode(leaves, cap, by, because);
  if (lowered !== undefined)
    notes.push(note('CeilingApplied', `${lowered} is lowered to ${cap} by ${because} (${by})`));
}

/** What policies restrict that may apply to a Namespace that has not been seen: the cautious side is that they do. */
function applyOverrides(leaves: Leaves, policy: Policy): void {
  if (policy.values['overrides.namespaces'] === false) setLeaf(leaves, 'overrides.namespaces', policy);
  if (policy.values['overrides.pods'] === false) setLeaf(leaves, 'overrides.pods', policy);
}

/** Enforces nothing while a policy that may apply says Audit or Off. */
function holdUnresolved(
  leaves: Leaves,
  unresolved: readonly Policy[],
  { name }: NamespaceRecord,
  notes: Note[],
): void {
  const holding = unresolved.find(({ values }) =>
    [values.mode, values['ceiling.mode']].some((mode) => mode === 'Audit' || mode === 'Off'),
  );
  if (holding === undefined) return;
  const origin = holding.originOf('mode');
  if (capMode(leaves, 'Audit', origin, 'namespaceSelector') === undefined) return;
  const text = `Namespace ${name} has not been seen; ${origin} may select it and does not enforce, so the mode is Audit`;
  notes.push(note('NamespaceUnknown', text));
}

function ignore(leaves: Leaves, field: Field, value: IgnoredValue): void {
  const { ignored, ...rest } = leaves[field];
  (leaves as Record<Field, unknown>)[field] = { ...rest, ignored: [...ignored, value] };
}
