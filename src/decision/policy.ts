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
  type HoldDelivery,
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
 * Every field that a policy can set, by its path in a policy document, with the value that applies where no layer sets
 * it. Durations are in seconds.
 */
export const BUILT_IN_VALUES = {
  mode: 'Enforce' as Mode,
  pods: 'Serving' as PodScope,
  exclude: ['Job', 'DaemonSet'] as readonly ExcludableKind[],
  containers: [] as readonly string[],
  'wait.from': 'Measured' as WaitSource,
  'wait.fixed': undefined as number | undefined,
  'wait.percentile': 99,
  'wait.safetyFactor': 1.5,
  'wait.margin': 0,
  'wait.min': 5,
  'wait.max': 60,
  // S3's cure: three times the 10 s at which gateways poll their discovery service.
  'wait.initial': 30,
  'wait.minSamples': 200,
  'wait.minHistory': 24 * 3600,
  hook: 'Auto' as HookChoice,
  'hold.min': 5,
  // The same as wait.max: Linger never chooses a longer wait by itself.
  'hold.max': 60,
  'hold.observe': false,
  'hold.delivery': 'Auto' as HoldDelivery,
  existingHook: 'Keep' as ExistingHookRule,
  // What cluster-autoscaler grants a pod at most (--max-graceful-termination-sec).
  'grace.max': 600,
  'ceiling.wait': 300,
  'ceiling.mode': 'Enforce' as Mode,
  'overrides.namespaces': true,
  'overrides.pods': true,
  /** From the annotation linger.dev/inject; policy documents have no such field. */
  inject: undefined as boolean | undefined,
};

type PolicyValues = typeof BUILT_IN_VALUES;
export type Field = keyof PolicyValues;

/** The fields whose values are seconds: for rendering. */
export const DURATION_FIELDS: ReadonlySet<Field> = new Set([
  'wait.fixed',
  'wait.margin',
  'wait.min',
  'wait.max',
  'wait.initial',
  'wait.minHistory',
  'hold.min',
  'hold.max',
  'grace.max',
  'ceiling.wait',
]);

/** Where a value comes from, as text that can be looked up: `ClusterTerminationPolicy/base`, `Pod linger.dev/wait`. */
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
  /** What the value adds to {@link digestOf}. */
  readonly print: number;
}

/** All layers merged; each leaf knows where it came from. */
export type EffectivePolicy = { readonly [F in Field]: Leaf<PolicyValues[F]> };

/** By field, what its value adds to {@link digestOf}. */
type Prints = Partial<Record<Field, number>>;

/** What one document or one annotation says. */
interface Layer {
  readonly values: Partial<PolicyValues>;
  /** Of the values. */
  readonly prints: Prints;
  readonly origin: Origin;
}

function leaf<T>(value: T, origin: Origin, print: number, ignored: readonly IgnoredValue[] = []): Leaf<T> {
  return { value, origin, ignored, print };
}

/**
 * Identifies the values of a policy, wherever they come from: 8 hex characters, `00000000` where all are built-in. Prints
 * are made with the layers, so that a review only adds them up. Built-in values add nothing, so a field that a later
 * version adds does not change the digest of existing policies.
 */
export function digestOf(policy: EffectivePolicy): string {
  let sum = 0;
  for (const field in policy) sum = (sum + policy[field as Field].print) | 0;
  return (sum >>> 0).toString(16).padStart(8, '0');
}

function printsOf(values: Partial<PolicyValues>): Prints {
  const prints: Prints = {};
  for (const field in values) prints[field as Field] = printOf(field as Field, values[field as Field]);
  return prints;
}

/** FNV-1a of field and value, then the finaliser of MurmurHash3: prints are summed, so their bits must be well mixed. */
function printOf(field: Field, value: unknown): number {
  const said = String(value);
  if (said === String(BUILT_IN_VALUES[field])) return 0;
  const text = `${field}=${said}`;
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return hash ^ (hash >>> 16);
}

/** The built-in layer as an effective policy: where every merge starts. */
export const BUILT_IN_POLICY: EffectivePolicy = Object.freeze(
  Object.fromEntries(
    Object.entries(BUILT_IN_VALUES).map(([field, value]) => [field, leaf(value, BUILT_IN, 0)]),
  ),
) as unknown as EffectivePolicy;

/** A policy document, ready to be merged. */
interface Policy extends Layer {
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
function inLayerOrder(a: Policy, b: Policy): number {
  if (a.priority !== b.priority) return a.priority - b.priority;
  return a.name < b.name ? -1 : Number(a.name > b.name);
}

/** A policy that changes nothing for any pod, and those that undo it. */
export interface ShadowedPolicy {
  readonly policy: Origin;
  readonly by: readonly Origin[];
}

/**
 * The policies without any effect: for all pods that they select, later policies of the same layer set each of their
 * fields. Finds only those that are hidden by policies with the same selectors, or with none.
 */
export function shadowedPolicies(
  documents: readonly (ClusterTerminationPolicy | TerminationPolicy)[],
): readonly ShadowedPolicy[] {
  const layers = Map.groupBy(documents.map(policyOf), ({ namespace }) => namespace);
  return [...layers.values()].flatMap((all) => {
    const ofSelectors = Map.groupBy(all.toSorted(inLayerOrder), selectorsInWords);
    const ofAll = ofSelectors.get(
      selectorsInWords({ namespaceSelector: EVERYTHING, podSelector: EVERYTHING }),
    );
    return all.flatMap((policy) => {
      const own = ofSelectors.get(selectorsInWords(policy)) ?? [];
      const later = [...own, ...(ofAll ?? [])].filter((each) => inLayerOrder(policy, each) < 0);
      const fields = Object.keys(policy.values) as Field[];
      const by = fields.map(
        (field) => later.find((each) => hides(each.values, policy.values, field))?.origin,
      );
      if (by.length === 0 || by.includes(undefined)) return [];
      return [{ policy: policy.origin, by: [...new Set(by)].filter((each) => each !== undefined) }];
    });
  });
}

function hides<F extends Field>(
  later: Partial<PolicyValues>,
  values: Partial<PolicyValues>,
  field: F,
): boolean {
  if (!(field in later)) return false;
  const isTighter: Tighter<PolicyValues[F]> | undefined = TIGHTENING[field];
  return !isTighter?.(values[field] as PolicyValues[F], later[field] as PolicyValues[F]);
}

/** A canonical text: equal for selectors that differ in order only. */
function selectorsInWords({
  namespaceSelector,
  podSelector,
}: Pick<Policy, 'namespaceSelector' | 'podSelector'>) {
  const words = [namespaceSelector, podSelector].map(({ matchLabels = {}, matchExpressions = [] }) => [
    ...Object.entries(matchLabels).map((label) => label.join('=')),
    ...matchExpressions.map(({ key, operator, values = [] }) =>
      [key, operator, ...values.toSorted()].join(' '),
    ),
  ]);
  return JSON.stringify(words.map((each) => each.toSorted()));
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

/** Reads one annotation. */
interface AnnotationReader {
  /** @returns what was expected, where the text does not parse */
  read(text: string): Partial<PolicyValues> | string;
  /** It can only restrain: where its value cannot be read, the pod is held in Audit. */
  readonly restrains?: true;
}

const READERS: Readonly<Record<string, AnnotationReader>> = {
  [ANNOTATION.inject]: {
    restrains: true,
    // The forms of Go's strconv.ParseBool, as other annotations of the ecosystem accept them.
    read: (text) => {
      if (/^(1|t|T|true|TRUE|True)$/.test(text)) return { inject: true };
      return /^(0|f|F|false|FALSE|False)$/.test(text) ? { inject: false } : '"true" or "false"';
    },
  },
  [ANNOTATION.mode]: { read: choiceReader('mode', MODES), restrains: true },
  [ANNOTATION.wait]: {
    read: (text) => {
      const seconds = parseDuration(text);
      return seconds === undefined ? DURATION_HINT : { 'wait.from': 'Fixed', 'wait.fixed': seconds };
    },
  },
  [ANNOTATION.hook]: { read: choiceReader('hook', HOOK_CHOICES) },
  [ANNOTATION.containers]: { read: readContainers },
  [ANNOTATION.existingHook]: { read: choiceReader('existingHook', EXISTING_HOOK_RULES) },
};

/** Reads one of the known words, case-insensitively. */
function choiceReader<F extends Field>(
  field: F,
  known: readonly (PolicyValues[F] & string)[],
): AnnotationReader['read'] {
  return (text) => {
    const value = known.find((each) => each.toLowerCase() === text.toLowerCase());
    if (value === undefined) return known.join(', ').replace(/, ([^,]*)$/, ' or $1');
    return { [field]: value } as Partial<PolicyValues>;
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
    .filter(Boolean);
  if (names.length > POD_LIMITS.containers) return tooMany;
  return names.length === 0 ? 'container names, separated by commas' : { containers: names };
}

/** Annotations that Linger writes itself; they set no policy. */
const WRITTEN: ReadonlySet<string> = new Set([ANNOTATION.plan, ANNOTATION.holdToken]);

/** What the annotations of one object say, and what is wrong with them. */
interface AnnotationLayers {
  readonly layers: readonly Layer[];
  /** The first annotation that restrains and cannot be read. */
  readonly restrainedBy: string | undefined;
  readonly notes: readonly Note[];
}

const NOTHING_SAID: AnnotationLayers = { layers: [], restrainedBy: undefined, notes: [] };

/**
 * The layers that an object's linger.dev annotations make. A value that does not parse is left out and noted: it
 * must never block a pod. `linger.dev/inject` also counts as a label, where the API server can select on it; of
 * two that contradict each other on the same object, false wins: opting out must always work.
 * @param owner the object, as origins name it: `Pod` or `Namespace/shop`
 */
export function annotationLayers(owner: string, annotations: Labels, labels: Labels): AnnotationLayers {
  const keys: string[] = [];
  for (const key in annotations) if (key.startsWith(ANNOTATION_PREFIX) && !WRITTEN.has(key)) keys.push(key);
  const label = labelOf(labels, ANNOTATION.inject);
  if (keys.length === 0 && label === undefined) return NOTHING_SAID;
  const layers = new Map<string, Layer>();
  const notes: Note[] = [];
  let restrainedBy: string | undefined;
  const read = (key: string, text: string) => {
    const reader = Object.hasOwn(READERS, key) ? READERS[key] : undefined;
    const values = reader?.read(text.trim());
    if (reader === undefined || values === undefined) {
      const known = Object.keys(READERS).join(', ');
      const said = `${owner}: ${shorten(key)} is not known and ignored; known are ${known}`;
      notes.push(note('UnknownAnnotation', said));
    } else if (typeof values !== 'string')
      layers.set(key, { values, prints: printsOf(values), origin: `${owner} ${key}` });
    else {
      const effect = reader.restrains ? 'the pod is held in Audit' : 'ignored';
      if (reader.restrains) restrainedBy ??= key;
      const said = `${owner}: ${key}: expected ${values}, got "${shorten(text)}"; ${effect}`;
      notes.push(note('InvalidAnnotation', said, key));
    }
  };
  for (const key of keys) read(key, String(annotations[key]));
  if (label !== undefined) {
    const annotation = layers.get(ANNOTATION.inject);
    read(ANNOTATION.inject, label);
    if (annotation?.values.inject === false) layers.set(ANNOTATION.inject, annotation);
  }
  return { layers: [...layers.values()], restrainedBy, notes };
}

function shorten(text: string): string {
  return text.length > 60 ? `${text.slice(0, 57)}...` : text;
}

/** The pod, as far as it decides which layers apply. */
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
 * Merges the layers for one pod, later wins leaf by leaf: built-in, ClusterTerminationPolicies, the namespace's
 * TerminationPolicies, Namespace annotations, Pod annotations. Only ceilings (the smallest that is declared) and
 * overrides (AND) are not last-wins: a later layer may tighten them and never loosen them.
 */
export function effectivePolicy(policies: PolicySet, subject: PolicySubject, modeLimit: Mode): MergedPolicy {
  const merge = new Merge();
  const { namespace, labels } = subject;
  const unresolved: Policy[] = [];
  for (const policy of policies.cluster.candidates(namespace, labels)) {
    if (!selects(policy.podSelector, labels)) continue;
    const applies = selectsNamespace(policy.namespaceSelector, namespace);
    if (applies === 'unknown') unresolved.push(policy);
    else if (applies) merge.apply(policy);
  }
  for (const policy of unresolved) merge.applyRefusals(policy);
  for (const policy of policies.byNamespace.get(namespace.name)?.candidates(namespace, labels) ?? []) {
    if (selects(policy.podSelector, labels)) merge.applyIfAllowed(policy, 'overrides.namespaces');
  }
  merge.applyAnnotations(`Namespace/${namespace.name}`, namespace, 'overrides.namespaces');
  merge.applyAnnotations('Pod', subject, 'overrides.pods');

  const { value: ceiling, origin } = merge.policy['ceiling.mode'];
  merge.lowerMode(ceiling, origin, 'ceiling.mode');
  merge.lowerMode(modeLimit, MODE_LIMIT, MODE_LIMIT);
  merge.holdUnresolved(unresolved, namespace);
  return merge;
}

const PERMISSIONS = ['overrides.namespaces', 'overrides.pods'] as const;
type Permission = (typeof PERMISSIONS)[number];

function refuses(values: Partial<PolicyValues>): boolean {
  return PERMISSIONS.some((field) => values[field] === false);
}

function restrains(values: Partial<PolicyValues>): boolean {
  return [values.mode, values['ceiling.mode']].some((mode) => mode === 'Audit' || mode === 'Off');
}

/** The layers of one pod, as far as they have been merged. */
class Merge implements MergedPolicy {
  readonly policy: { -readonly [F in Field]: Leaf<PolicyValues[F]> } = { ...BUILT_IN_POLICY };
  readonly notes: Note[] = [];

  apply(layer: Layer): void {
    for (const field in layer.values) this.#set(field as Field, layer);
  }

  #set<F extends Field>(field: F, { values, prints, origin }: Layer): void {
    const value = values[field] as PolicyValues[F];
    const inForce = this.policy[field];
    const isTighter: Tighter<PolicyValues[F]> | undefined = TIGHTENING[field];
    if (isTighter !== undefined && inForce.origin !== BUILT_IN && !isTighter(value, inForce.value)) return;
    this.#put(field, leaf(value, origin, prints[field] ?? 0, inForce.ignored));
  }

  #put(field: Field, value: Leaf<unknown>): void {
    (this.policy as Record<Field, unknown>)[field] = value;
  }

  /** Applies the refusals of a policy that may select a Namespace that has not been seen: the cautious side. */
  applyRefusals(layer: Layer): void {
    for (const field of PERMISSIONS) if (layer.values[field] === false) this.#set(field, layer);
  }

  applyIfAllowed(layer: Layer, permission: Permission): void {
    if (this.policy[permission].value) {
      this.apply(layer);
      return;
    }
    const { values, origin } = layer;
    for (const name in values) {
      const field = name as Field;
      const { ignored, ...rest } = this.policy[field];
      const refused = { value: values[field], origin, because: permission };
      this.#put(field, { ...rest, ignored: [...ignored, refused] });
      this.#noteIgnored(`${field} from ${origin}`, permission);
    }
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
    else this.#noteIgnored(`mode Audit from ${origin}`, permission);
  }

  #noteIgnored(what: string, permission: Permission): void {
    const text = `${what} is ignored: ${permission} is false (${this.policy[permission].origin})`;
    this.notes.push(note('OverrideIgnored', text));
  }

  /** @returns the mode that was lowered, and where it came from; undefined where the cap changes nothing */
  #capMode(cap: Mode, by: Origin, because: string): string | undefined {
    const { value: mode, origin, ignored } = this.policy.mode;
    if (STRICTNESS[mode] <= STRICTNESS[cap]) return undefined;
    const capped = [...ignored, { value: mode, origin, because }];
    this.policy.mode = leaf(cap, by, printOf('mode', cap), capped);
    return `mode ${mode} from ${origin}`;
  }

  lowerMode(cap: Mode, by: Origin, because: string): void {
    const lowered = this.#capMode(cap, by, because);
    if (lowered === undefined) return;
    this.notes.push(note('CeilingApplied', `${lowered} is lowered to ${cap} by ${because} (${by})`));
  }

  /** Enforces nothing while a policy that may apply says Audit or Off. */
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

/** Whether a later layer's value is tighter than the one in force. */
type Tighter<T> = (later: T, inForce: T) => boolean;

const TIGHTENING: { readonly [F in Field]?: Tighter<PolicyValues[F]> } = {
  'ceiling.wait': (later, inForce) => later < inForce,
  'ceiling.mode': (later, inForce) => STRICTNESS[later] < STRICTNESS[inForce],
  'overrides.namespaces': (later, inForce) => inForce && !later,
  'overrides.pods': (later, inForce) => inForce && !later,
};
