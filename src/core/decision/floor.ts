import {
  type ExcludableKind,
  FLOOR,
  HOOK_NAMES,
  HOOKS,
  type LabelSelector,
  type NamespaceRecord,
  NO_LABELS,
  selectsNamespace,
  unseenNamespace,
} from '../api/index.ts';
import { type Consumer, sendsTo } from '../lag/index.ts';
import type { ClusterSnapshot } from './cluster-snapshot.ts';
import { declaresTraffic } from './decide.ts';
import { supportsNativeSleep } from './fleet.ts';
import { fitGrace } from './plan.ts';
import { graceOf, type Pod } from './pod.ts';
import { effectivePolicy } from './policy-merge.ts';
import { type Policy, type PolicySet, restrains } from './policy-set.ts';
import { BUILT_IN, type EffectivePolicy, leaf } from './policy-values.ts';
import { boundOfWait, chooseWait, enoughOf, initialWait, type WaitChoice } from './wait.ts';

/** The first version that serves MutatingAdmissionPolicy v1, and the first that evaluates it at negligible cost. */
export const FLOOR_VERSIONS = {
  oldest: { major: 1, minor: 36 },
  recommended: { major: 1, minor: 37 },
} as const;

/** What the pods of a namespace get while Linger is down: the longest wait that any of them could get. */
export interface FloorEntry {
  /** Whole seconds, at least 1. */
  readonly wait: number;
  /** The least wait once the entry is out of date. Whole seconds. */
  readonly initial: number;
  /** Whole seconds. */
  readonly maxGrace: number;
  readonly hook: 'Sleep' | 'Exec';
  /** The kinds of owner whose pods are left alone. */
  readonly excluded: readonly ExcludableKind[];
  /** Names of the containers that wait. Empty: all. `?`: all, but only in pods where no container has a hook. */
  readonly containers: readonly string[];
}

export interface Floor {
  /** undefined: pods of that namespace are not changed. */
  readonly byNamespace: ReadonlyMap<string, FloorEntry | undefined>;
  /** For namespaces that Linger has not seen. */
  readonly newNamespaces: FloorEntry | undefined;
}

/** A generator, because a cluster may have thousands of namespaces and Services: reviews are answered between its steps. */
export function* floorOf(snapshot: ClusterSnapshot): Generator<undefined, Floor> {
  const byNamespace = new Map<string, FloorEntry | undefined>();
  const policies = unconditional(snapshot.policies);
  // A namespace may have policies or Services before the watch of Namespaces has shown it.
  const names = [snapshot.namespaces, policies.byNamespace, snapshot.services.byNamespace];
  for (const name of new Set(names.flatMap((each) => [...each.keys()]))) {
    const namespace = snapshot.namespaces.get(name) ?? unseenNamespace(name);
    byNamespace.set(name, yield* entryFor(namespace, policies, snapshot));
    yield;
  }
  const newNamespaces = yield* entryFor(unseenNamespace(''), policies, snapshot);
  return { byNamespace, newNamespaces };
}

/** What the pods of one namespace get while Linger is down. @returns undefined: nothing, they are not changed */
export function* floorEntry(
  name: string,
  snapshot: ClusterSnapshot,
): Generator<undefined, FloorEntry | undefined> {
  const namespace = snapshot.namespaces.get(name) ?? unseenNamespace(name);
  return yield* entryFor(namespace, unconditional(snapshot.policies), snapshot);
}

/** @param policies those that select every pod */
function* entryFor(
  namespace: NamespaceRecord,
  policies: PolicySet,
  snapshot: ClusterSnapshot,
): Generator<undefined, FloorEntry | undefined> {
  const subject = { namespace, labels: NO_LABELS, annotations: NO_LABELS };
  const { policy } = effectivePolicy(policies, subject, snapshot.modeLimit);
  if (policy.mode.value !== 'Enforce' || policy.inject.value === false) return undefined;
  const others = conditional(namespace, policy, snapshot.policies);
  // It may set Audit or Off for the very pod that is being created.
  if (others.some(({ values }) => restrains(values))) return undefined;
  const hook = hookFor(policy, snapshot);
  if (hook === undefined) return undefined;
  const longest = yield* longestIn(namespace, policy, others, snapshot);
  if (longest.seconds < 1) return undefined;
  const raised = raisedBy(policy, others);
  return {
    wait: longest.seconds,
    // A fixed wait does not depend on what has been measured, so it cannot be out of date.
    initial: longest.why === 'fixed' ? longest.seconds : initialWait(raised),
    maxGrace: Math.floor(raised['grace.max'].value),
    hook,
    excluded: [
      ...new Set([policy.exclude.value, ...others.map(({ values }) => values.exclude ?? [])].flat()),
    ],
    containers: namedBy(policy, others),
  };
}

/**
 * Where a policy for some pods sets `containers`, it may leave out containers of this entry: then only pods without any hook
 * are changed.
 */
function namedBy(policy: EffectivePolicy, others: readonly Policy[]): readonly string[] {
  return others.some(({ values }) => values.containers !== undefined) ? [NO_HOOKS] : policy.containers.value;
}

const NO_HOOKS = '?';

function isUnconditional({ podSelector }: { readonly podSelector: LabelSelector }): boolean {
  const { matchLabels = {}, matchExpressions = [] } = podSelector;
  return Object.keys(matchLabels).length + matchExpressions.length === 0;
}

function unconditional({ cluster, byNamespace, thresholds }: PolicySet): PolicySet {
  const kept = [...byNamespace].map(([name, each]) => [name, each.filter(isUnconditional)] as const);
  return { cluster: cluster.filter(isUnconditional), byNamespace: new Map(kept), thresholds };
}

/** Policies with a podSelector that may select pods of the namespace. */
function conditional(
  namespace: NamespaceRecord,
  policy: EffectivePolicy,
  { cluster, byNamespace }: PolicySet,
): readonly Policy[] {
  const ofCluster = cluster.filter(
    (each) => !isUnconditional(each) && selectsNamespace(each.namespaceSelector, namespace) !== false,
  );
  const own = policy['overrides.namespaces'].value ? (byNamespace.get(namespace.name) ?? []) : [];
  return [...ofCluster, ...own.filter((each) => !isUnconditional(each))];
}

function hookFor(policy: EffectivePolicy, { fleet }: ClusterSnapshot): FloorEntry['hook'] | undefined {
  const { value: choice } = policy.hook;
  // Hold needs a token for each pod, which only the webhook can issue: until it is back, pods of Hold get what Auto gives.
  const names =
    choice === 'Auto' || choice === 'Hold' ? HOOK_NAMES.filter((name) => HOOKS[name].auto) : [choice];
  // Only the webhook can tell which nodes a pod may run on, so with any Windows node, no pod can be sure to have a `sleep`.
  const windows = fleet?.nodes.some(({ operatingSystem }) => operatingSystem === 'windows') === true;
  const nodes = { nativeSleep: supportsNativeSleep(fleet), windows, holdHelper: false };
  const hook = names.find((name) => HOOKS[name].supports(nodes));
  return hook === 'Hold' ? undefined : hook;
}

type Lengthening =
  | 'wait.percentile'
  | 'wait.safetyFactor'
  | 'wait.margin'
  | 'wait.min'
  | 'wait.max'
  | 'wait.initial'
  | 'wait.minSamples'
  | 'wait.minHistory'
  | 'grace.max'
  | 'ceiling.wait';

const LENGTHENING: readonly Lengthening[] = [
  'wait.percentile',
  'wait.safetyFactor',
  'wait.margin',
  'wait.min',
  'wait.max',
  'wait.initial',
  'wait.minSamples',
  'wait.minHistory',
  'grace.max',
];

/** The policy with each field at the largest value that any policy of the namespace sets for some of its pods. */
function raisedBy(policy: EffectivePolicy, others: readonly Policy[]): EffectivePolicy {
  // Other policies can only tighten a ceiling that is declared for all pods; the built-in one gives way to any declared one.
  const isOpen = policy['ceiling.wait'].origin === BUILT_IN;
  const fields: readonly Lengthening[] = isOpen ? [...LENGTHENING, 'ceiling.wait'] : LENGTHENING;
  const raised: { -readonly [F in Lengthening]?: EffectivePolicy[F] } = {};
  for (const { values, origin } of others)
    for (const field of fields) {
      const value = values[field];
      if (value !== undefined && value > (raised[field] ?? policy[field]).value)
        raised[field] = leaf(value, origin);
    }
  return { ...policy, ...raised };
}

/** The longest wait that any pod of the namespace would get now, whichever Services select it. */
function* longestIn(
  namespace: NamespaceRecord,
  policy: EffectivePolicy,
  others: readonly Policy[],
  { lags, consumers, services }: ClusterSnapshot,
): Generator<undefined, Pick<WaitChoice, 'seconds' | 'why'>> {
  const raised = raisedBy(policy, others);
  let longest = fixedBy(raised, others);
  const isMeasured =
    policy['wait.from'].value === 'Measured' ||
    others.some(({ values }) => values['wait.from'] === 'Measured');
  const consider = (sending: readonly Consumer[], names: readonly string[]) => {
    const lag = lags.planned(namespace.name, sending, enoughOf(raised), names);
    const choices = [
      chooseWait(policy, lag),
      ...(others.length > 0 && isMeasured ? [boundOfWait(raised, lag)] : []),
    ];
    for (const { seconds, why } of choices) if (seconds > longest.seconds) longest = { seconds, why };
  };
  const isHere = (each: Consumer) => selectsNamespace(each.namespaceSelector, namespace) !== false;
  const finding = consumers.filter((each) => each.podSelector !== undefined && isHere(each));
  // A pod may be created before its Service: so consider all consumers that may send to it.
  const assumed = consumers.filter((each) => sendsTo(each, namespace, NO_LABELS, 'unknown') !== false);
  consider(assumed, []);
  if (finding.length > 0) consider([...new Set([...assumed, ...finding])], []);
  for (const service of services.byNamespace.get(namespace.name) ?? []) {
    const sending = consumers.filter((each) => sendsTo(each, namespace, NO_LABELS, [service]) !== false);
    consider(sending, [service.name]);
    if (finding.length > 0) consider([...new Set([...sending, ...finding])], [service.name]);
    yield;
  }
  return longest;
}

/** The longest fixed wait of the policies that select only some pods; 0 s without any. */
function fixedBy(policy: EffectivePolicy, others: readonly Policy[]): Pick<WaitChoice, 'seconds' | 'why'> {
  const fixed = others.map(({ values }) => values['wait.fixed'] ?? 0);
  const seconds = Math.min(Math.ceil(Math.max(0, ...fixed)), Math.floor(policy['ceiling.wait'].value));
  return { seconds, why: 'fixed' };
}

/** The longest waits that a pod may get while Linger is down. Whole seconds; 0: none. */
export interface FloorWaits {
  readonly hook: FloorEntry['hook'];
  readonly atFirst: number;
  /** Once the entry is out of date: then the wait is at least its `initial`. */
  readonly later: number;
}

/**
 * The wait that the floor gives to a pod for which the webhook would decide on a wait. Its annotations, hooks and nodes may
 * still keep the admission policy from changing it; only that policy decides.
 * @param kind of the pod's owner
 */
export function floorWaits(pod: Pod, kind: string | undefined, entry: FloorEntry): FloorWaits {
  const { hook, wait, initial, maxGrace, excluded } = entry;
  const isLeftAlone = !declaresTraffic(pod) || excluded.some((each) => each === kind);
  const fitted = (wanted: number) => (isLeftAlone ? 0 : fitGrace(wanted, graceOf(pod), maxGrace).wait);
  return { hook, atFirst: fitted(wait), later: fitted(Math.max(wait, initial)) };
}

/** In the format that the admission policy parses; not JSON, because CEL cannot parse that. */
export function floorText(entry: FloorEntry | undefined): string {
  if (entry === undefined) return NONE;
  const { wait, initial, maxGrace, hook, excluded, containers } = entry;
  return [wait, initial, maxGrace, hook, excluded.join(',') || '-', containers.join(',')].join(' ');
}

const NONE = 'none';

const ENTRY = /^(\d{1,9} ){3}(Sleep|Exec) \S+ \S*$/;

/**
 * The names of lines in the ConfigMap's data that Linger cannot have written, so an administrator edited them. The admission
 * policy fails to evaluate them or takes them for `none`.
 */
export function unreadableFloorLines(data: Readonly<Record<string, unknown>>): readonly string[] {
  const own: readonly string[] = [FLOOR.validUntil, FLOOR.dropped];
  return Object.entries(data).flatMap(([name, line]) =>
    own.includes(name) || line === NONE || (typeof line === 'string' && ENTRY.test(line)) ? [] : [name],
  );
}

/**
 * A ConfigMap's data may have 1 MiB, and an object in etcd 1.5 MB, in which each key appears a second time in managedFields.
 */
const MOST_CHARACTERS = 900_000;

/** Characters that each entry adds around its key and value, in data and in managedFields. */
const OVERHEAD = 16;

/**
 * The ConfigMap's data. Namespaces with the same entry as new namespaces are left out. If the rest does not fit, some
 * namespaces have to be dropped; new ones then get no wait either, because the admission policy cannot distinguish a dropped
 * namespace from a new one.
 * @param validUntil seconds since the epoch
 */
export function floorData(
  { byNamespace, newNamespaces }: Floor,
  validUntil: number,
  mostCharacters = MOST_CHARACTERS,
): { readonly data: Readonly<Record<string, string>>; readonly dropped: number } {
  const texts = [...byNamespace].map(([name, entry]) => [name, floorText(entry)] as const);
  const otherwise = floorText(newNamespaces);
  const sizeOf = ([name, text]: readonly [string, string]) => 2 * name.length + text.length + OVERHEAD;
  const until = new Date(Math.floor(validUntil) * 1000).toISOString().replace('.000Z', 'Z');
  const base = { [FLOOR.validUntil]: until };
  const differing = texts.filter(([, text]) => text !== otherwise);
  if (differing.reduce((sum, each) => sum + sizeOf(each), 0) <= mostCharacters)
    return {
      data: { ...base, [FLOOR.newNamespaces]: otherwise, ...Object.fromEntries(differing) },
      dropped: 0,
    };
  let left = mostCharacters;
  const kept = texts
    .filter(([, text]) => text !== NONE)
    .filter((each) => {
      left -= sizeOf(each);
      return left >= 0;
    });
  const dropped = texts.filter(([, text]) => text !== NONE).length - kept.length;
  const data = { ...base, [FLOOR.newNamespaces]: NONE, ...Object.fromEntries(kept) };
  return { data: { ...data, [FLOOR.dropped]: String(dropped) }, dropped };
}
