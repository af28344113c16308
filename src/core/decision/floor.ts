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

/** The first API server that serves MutatingAdmissionPolicy v1, and the first that evaluates one without a cost to speak of. */
export const FLOOR_VERSIONS = {
  oldest: { major: 1, minor: 36 },
  recommended: { major: 1, minor: 37 },
} as const;

/** What pods of a namespace get while Linger is down: of everything that they could get, the longest wait. */
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
  /** Names of the containers that wait; empty: all; `?`: all, of pods in which none has a hook. */
  readonly containers: readonly string[];
}

export interface Floor {
  /** undefined: the pods of that namespace are left alone. */
  readonly byNamespace: ReadonlyMap<string, FloorEntry | undefined>;
  /** For namespaces that Linger has not seen. */
  readonly newNamespaces: FloorEntry | undefined;
}

/** In steps, because a cluster may have thousands of namespaces and Services. */
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

/** What the pods of one namespace get while Linger is down. @returns undefined: they are left alone */
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
  // It may restrain the pod that is about to be created.
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

/** A policy for some pods may name containers that keep their hooks: then only pods without any hook get one. */
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

/** The policies that select some pods of the namespace by their labels, or may. */
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
  // Hold needs a token for each pod: without Linger its pods wait as with Auto.
  const names =
    choice === 'Auto' || choice === 'Hold' ? HOOK_NAMES.filter((name) => HOOKS[name].auto) : [choice];
  // Which nodes a pod can run on is for the webhook to say: with Windows nodes, none can be sure to have a `sleep`.
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

/** A policy with each value as large as any pod of the namespace may have it. */
function raisedBy(policy: EffectivePolicy, others: readonly Policy[]): EffectivePolicy {
  // A ceiling only lowers the one that is declared for all pods; the built-in one does not hold beside any.
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

/** The longest wait that any pod of the namespace gets now, whichever Services select it. */
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
  // A pod may come before its Service: then every consumer that may send to it counts.
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

/** The longest fixed wait that a policy for some pods declares; 0 s without any. */
function fixedBy(policy: EffectivePolicy, others: readonly Policy[]): Pick<WaitChoice, 'seconds' | 'why'> {
  const fixed = others.map(({ values }) => values['wait.fixed'] ?? 0);
  const seconds = Math.min(Math.ceil(Math.max(0, ...fixed)), Math.floor(policy['ceiling.wait'].value));
  return { seconds, why: 'fixed' };
}

/** The longest waits that a pod may get while Linger is down. Whole seconds; 0: none. */
export interface FloorWaits {
  readonly hook: FloorEntry['hook'];
  readonly atFirst: number;
  /** Once the entry is out of date. */
  readonly later: number;
}

/**
 * What the entry comes to for a pod that the decision gives a wait. Its annotations, hooks and nodes may still make the
 * policy in the API server leave it alone, and only that policy decides.
 * @param kind of its owner
 */
export function floorWaits(pod: Pod, kind: string | undefined, entry: FloorEntry): FloorWaits {
  const { hook, wait, initial, maxGrace, excluded } = entry;
  const isLeftAlone = !declaresTraffic(pod) || excluded.some((each) => each === kind);
  const fitted = (wanted: number) => (isLeftAlone ? 0 : fitGrace(wanted, graceOf(pod), maxGrace).wait);
  return { hook, atFirst: fitted(wait), later: fitted(Math.max(wait, initial)) };
}

/** As the policy in the API server reads it: without JSON, which CEL cannot read. */
export function floorText(entry: FloorEntry | undefined): string {
  if (entry === undefined) return NONE;
  const { wait, initial, maxGrace, hook, excluded, containers } = entry;
  return [wait, initial, maxGrace, hook, excluded.join(',') || '-', containers.join(',')].join(' ');
}

const NONE = 'none';

const ENTRY = /^(\d{1,9} ){3}(Sleep|Exec) \S+ \S*$/;

/**
 * The lines of the ConfigMap's data that the policy cannot evaluate or takes for none, although they are not `none`: an
 * administrator has written them.
 */
export function unreadableFloorLines(data: Readonly<Record<string, unknown>>): readonly string[] {
  const own: readonly string[] = [FLOOR.validUntil, FLOOR.dropped];
  return Object.entries(data).flatMap(([name, line]) =>
    own.includes(name) || line === NONE || (typeof line === 'string' && ENTRY.test(line)) ? [] : [name],
  );
}

/** A ConfigMap may have 1 MiB, and an object 1.5 MB in etcd, where each key stands once more, in managedFields. */
const MOST_CHARACTERS = 900_000;

/** A key's quotes, colons and braces, in data and in managedFields. */
const OVERHEAD = 16;

/**
 * The ConfigMap's data. Namespaces whose entry is that of new ones are left out. Where the others have no room, some
 * have to be left alone: then new ones are, too, because the policy cannot distinguish the two.
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
