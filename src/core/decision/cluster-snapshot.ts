import {
  type ClusterTerminationPolicy,
  type DiscoveryConsumer,
  type Mode,
  type NamespaceRecord,
  objectKey,
  type ServiceIndex,
  type ServiceRecord,
  serviceIndex,
  type TerminationPolicy,
  taken,
} from '../api/index.ts';
import { type Consumer, consumerOf, type LagSource, NONE_YET, STANDARD_CONSUMERS } from '../lag/index.ts';
import type { Fleet } from './fleet.ts';
import { originOf, type PolicySet, policySet } from './policy-set.ts';

export interface HoldSupply {
  /** The literal address that helpers connect to: `10.201.0.7:8445` or `[fd00::7]:8445`. */
  readonly address: string;
  /** The digest in the name of the ConfigMap with the helpers. */
  readonly digest: string;
  /** The namespaces in which that ConfigMap has been seen. */
  readonly namespaces: ReadonlySet<string>;
  /** The kinds of node on which the self-test has passed. */
  readonly tested: ReadonlySet<string>;
  readonly architectures: ReadonlySet<string>;
  /** The operator's image with the helpers, if there is one. */
  readonly image?: string;
}

/** Why no pod gets hook Hold, as the end of a sentence. */
export interface HoldAbsence {
  readonly why: string;
}

/** Everything besides the pod that a decision depends on: one immutable value, replaced as a whole. */
export interface ClusterSnapshot {
  readonly policies: PolicySet;
  readonly namespaces: ReadonlyMap<string, NamespaceRecord>;
  readonly services: ServiceIndex;
  /** The consumers that waits cover, including the built-in ones. */
  readonly consumers: readonly Consumer[];
  /** {@link consumers}, followed by those in mode Observe, which are measured and do not affect waits. */
  readonly measured: readonly Consumer[];
  /** undefined: there is no cluster; its components are assumed to be current. */
  readonly fleet: Fleet | undefined;
  readonly lags: LagSource;
  /** undefined: not known. */
  readonly hold: HoldSupply | HoldAbsence | undefined;
  /** The operator's cap on every layer's mode. */
  readonly modeLimit: Mode;
}

/** An object of a file, and where it stands: `base.yaml document 2`. */
export interface LocatedObject {
  readonly value: unknown;
  readonly where: string;
}

/** Everything that Linger reads from files, sorted by kind. */
export interface Documents {
  readonly clusterPolicies: readonly ClusterTerminationPolicy[];
  readonly policies: readonly TerminationPolicy[];
  readonly consumers: readonly DiscoveryConsumer[];
  readonly namespaces: readonly NamespaceRecord[];
  readonly services: readonly ServiceRecord[];
}

export const NO_DOCUMENTS: Documents = {
  clusterPolicies: [],
  policies: [],
  consumers: [],
  namespaces: [],
  services: [],
};

/** A member is undefined until its kind has been listed. */
export interface ClusterView {
  readonly namespaces?: ReadonlyMap<string, NamespaceRecord>;
  readonly services?: ServiceIndex;
  readonly clusterPolicies?: readonly ClusterTerminationPolicy[];
  readonly policies?: readonly TerminationPolicy[];
  readonly consumers?: readonly Consumer[];
  readonly fleet?: Fleet;
  readonly hold?: ClusterSnapshot['hold'];
}

export interface Sources {
  readonly modeLimit: Mode;
  /** Policy files. */
  readonly files: Documents;
  readonly cluster: ClusterView;
  /** The manifests that are being checked: their Namespaces and Services are about to replace those of the cluster. */
  readonly applied: Documents;
  readonly lags: LagSource;
}

export const NO_SOURCES: Sources = {
  modeLimit: 'Enforce',
  files: NO_DOCUMENTS,
  cluster: {},
  applied: NO_DOCUMENTS,
  lags: NONE_YET,
};

export type SnapshotChange =
  | { readonly kind: 'documents'; readonly documents: Documents }
  | { readonly kind: 'namespaces'; readonly namespaces: ClusterSnapshot['namespaces'] }
  | { readonly kind: 'services'; readonly services: ServiceIndex }
  | { readonly kind: 'clusterPolicies'; readonly clusterPolicies: readonly ClusterTerminationPolicy[] }
  | { readonly kind: 'policies'; readonly policies: readonly TerminationPolicy[] }
  | { readonly kind: 'consumers'; readonly consumers: readonly Consumer[] }
  | { readonly kind: 'fleet'; readonly fleet: Fleet }
  | { readonly kind: 'hold'; readonly hold: ClusterSnapshot['hold'] }
  | { readonly kind: 'lags'; readonly lags: LagSource };

function sourcesAfter(sources: Sources, { kind, ...change }: SnapshotChange): Sources {
  if ('documents' in change) return { ...sources, files: change.documents };
  if ('lags' in change) return { ...sources, lags: change.lags };
  return { ...sources, cluster: { ...sources.cluster, ...change } };
}

/**
 * The snapshot that follows from its sources; the one place that says which source wins:
 * - Namespaces and Services: those being applied, then the cluster's. Those of files apply only until the cluster's have
 *   been read, since files may be out of date.
 * - policies and consumers: files and the cluster both count; where both have an object of one kind and name, the cluster's
 *   wins.
 */
export function snapshotOf(sources: Sources): ClusterSnapshot {
  return snapshotWith(taken(policiesOf(sources)), sources);
}

/** Unchanged parts are shared with the next snapshot, so that it costs only what has changed. */
interface Before {
  readonly sources: Sources;
  readonly snapshot: ClusterSnapshot;
}

function isUnchanged(sources: Sources, before: Before, madeOf: readonly (keyof ClusterView)[]): boolean {
  const { files, applied, cluster } = before.sources;
  const sameBase = files === sources.files && applied === sources.applied;
  return sameBase && madeOf.every((member) => cluster[member] === sources.cluster[member]);
}

function snapshotWith(policies: PolicySet, sources: Sources, before?: Before): ClusterSnapshot {
  const part = <P extends 'namespaces' | 'services'>(
    name: P,
    make: (sources: Sources) => ClusterSnapshot[P],
  ): ClusterSnapshot[P] =>
    before && isUnchanged(sources, before, [name]) ? before.snapshot[name] : make(sources);
  return {
    policies,
    namespaces: part('namespaces', namespacesOf),
    services: part('services', servicesOf),
    ...consumersOf(sources, before),
    fleet: sources.cluster.fleet,
    hold: sources.cluster.hold,
    lags: sources.lags,
    modeLimit: sources.modeLimit,
  };
}

function* policiesOf(sources: Sources, before?: Before): Generator<undefined, PolicySet> {
  if (before && isUnchanged(sources, before, ['clusterPolicies', 'policies']))
    return before.snapshot.policies;
  const { files, cluster } = sources;
  return yield* policySet(
    unlessIn(cluster.clusterPolicies ?? [], files.clusterPolicies),
    unlessIn(cluster.policies ?? [], files.policies),
  );
}

/** The cluster's objects, and those of files that the cluster does not replace. */
function unlessIn<T extends ClusterTerminationPolicy | TerminationPolicy>(
  cluster: readonly T[],
  files: readonly T[],
): readonly T[] {
  if (cluster.length === 0) return files;
  const hidden = new Set(hiddenBy(cluster, files));
  return [...files.filter((each) => !hidden.has(each)), ...cluster];
}

/** The policies of files that are shadowed by the cluster's policies of the same names. */
function hiddenBy<T extends ClusterTerminationPolicy | TerminationPolicy>(
  cluster: readonly T[],
  files: readonly T[],
): readonly T[] {
  const keys = new Set(files.length === 0 ? [] : cluster.map(({ metadata }) => objectKey(metadata)));
  return files.filter((each) => keys.has(objectKey(each.metadata)));
}

function byName<T extends { readonly name: string }>(all: readonly T[]): ReadonlyMap<string, T> {
  return new Map(all.map((each) => [each.name, each]));
}

function namespacesOf({ files, cluster, applied }: Sources): ClusterSnapshot['namespaces'] {
  if (cluster.namespaces !== undefined && applied.namespaces.length === 0) return cluster.namespaces;
  return byName([...(cluster.namespaces?.values() ?? files.namespaces), ...applied.namespaces]);
}

function servicesOf({ files, cluster, applied }: Sources): ServiceIndex {
  // Files may be incomplete: a namespace for which they list no Service may still have one in the cluster.
  const base = cluster.services ?? serviceIndex(files.services, false);
  if (applied.services.length === 0) return base;
  const byNamespace = new Map(base.byNamespace);
  for (const [namespace, services] of Map.groupBy(applied.services, (each) => each.namespace)) {
    const names = new Set(services.map(({ name }) => name));
    const others = byNamespace.get(namespace)?.filter(({ name }) => !names.has(name)) ?? [];
    // An input may contain several Services of one name, for different environments: they differ in the pods that they
    // select.
    const distinct = new Map(services.map((each) => [`${each.name} ${JSON.stringify(each.selector)}`, each]));
    byNamespace.set(namespace, [...others, ...distinct.values()]);
  }
  return { ...base, byNamespace };
}

/** A consumer in mode Observe never replaces another of the same name, so that adding one changes no decision. */
function consumersOf(
  sources: Sources,
  before: Before | undefined,
): Pick<ClusterSnapshot, 'consumers' | 'measured'> {
  if (before && isUnchanged(sources, before, ['consumers'])) {
    const { consumers, measured } = before.snapshot;
    return { consumers, measured };
  }
  const { files, cluster } = sources;
  const ofFiles = files.consumers.map(({ metadata, spec }) => consumerOf(metadata.name, spec));
  const declared = [...ofFiles, ...(cluster.consumers ?? [])];
  const inForce = byName([...STANDARD_CONSUMERS, ...declared.filter(({ observed }) => !observed)]);
  const observed = byName(declared.filter((each) => each.observed && !inForce.has(each.name)));
  return { consumers: [...inForce.values()], measured: [...inForce.values(), ...observed.values()] };
}

/** Holds the current snapshot. Only one writer replaces it, always as a whole. */
export interface SnapshotHolder {
  /** The current snapshot. It is immutable, so a reader may keep it across awaits. */
  current(): ClusterSnapshot;
  apply(event: SnapshotChange): void;
  /**
   * Applies an event in steps, because it may contain thousands of policies; the last step replaces the snapshot. Other
   * events may be applied in between, except those of policies.
   */
  applying(event: SnapshotChange): Generator<undefined, void>;
  /** The names of consumers in files that the cluster's consumers of these names replace; one in mode Observe does not. */
  shadowed(): readonly string[];
  /** The origins (such as `TerminationPolicy/shop/gateway`) of policies in files that the cluster's of these names replace. */
  shadowedPolicies(): readonly string[];
}

export function newSnapshotHolder(modeLimit: Mode): SnapshotHolder {
  let sources: Sources = { ...NO_SOURCES, modeLimit };
  let snapshot = snapshotOf(sources);
  const applying = function* (event: SnapshotChange): Generator<undefined, void> {
    const policies = yield* policiesOf(sourcesAfter(sources, event), { sources, snapshot });
    const next = sourcesAfter(sources, event);
    snapshot = snapshotWith(policies, next, { sources, snapshot });
    sources = next;
  };
  return {
    current: () => snapshot,
    apply: (event) => taken(applying(event)),
    applying,
    shadowed: () => {
      const names = new Set(
        sources.cluster.consumers?.flatMap(({ name, observed }) => (observed ? [] : [name])),
      );
      return sources.files.consumers.map(({ metadata }) => metadata.name).filter((name) => names.has(name));
    },
    shadowedPolicies: () => {
      const { files, cluster } = sources;
      const hidden = [
        ...hiddenBy(cluster.clusterPolicies ?? [], files.clusterPolicies),
        ...hiddenBy(cluster.policies ?? [], files.policies),
      ];
      return hidden.map(originOf);
    },
  };
}
