import { EVERYTHING } from '../cluster/selector.ts';
import type { ClusterTerminationPolicy, TerminationPolicy } from '../schema/documents.ts';
import type { ClusterTerminationPolicySpec, TerminationPolicySpec } from '../schema/policy.ts';
import type { LabelSelector } from '../schema/selector.ts';
import type { Field, Layer, PolicyValues } from './values.ts';

/** A policy document, ready to be merged. */
export interface Policy extends Layer {
  readonly name: string;
  readonly priority: number;
  readonly namespaceSelector: LabelSelector;
  readonly podSelector: LabelSelector;
}

/** All policies, in the order in which they are layered: ascending priority, then name; later wins. */
export interface PolicySet {
  readonly cluster: readonly Policy[];
  readonly byNamespace: ReadonlyMap<string, readonly Policy[]>;
}

export const NO_POLICIES: PolicySet = { cluster: [], byNamespace: new Map() };

export function policySet(
  cluster: readonly ClusterTerminationPolicy[],
  namespaced: readonly TerminationPolicy[],
): PolicySet {
  const grouped = Map.groupBy(namespaced, (document) => document.metadata.namespace);
  return {
    cluster: cluster.map(clusterPolicy).toSorted(inLayerOrder),
    byNamespace: new Map(
      [...grouped].map(([namespace, documents]) => [
        namespace,
        documents.map(namespacedPolicy).toSorted(inLayerOrder),
      ]),
    ),
  };
}

function clusterPolicy({ metadata, spec }: ClusterTerminationPolicy): Policy {
  const origin = `ClusterTerminationPolicy/${metadata.name}`;
  return { ...policy(metadata.name, spec, origin), namespaceSelector: spec.namespaceSelector ?? EVERYTHING };
}

function namespacedPolicy({ metadata, spec }: TerminationPolicy): Policy {
  return policy(metadata.name, spec, `TerminationPolicy/${metadata.namespace}/${metadata.name}`);
}

function policy(name: string, spec: TerminationPolicySpec, origin: string): Policy {
  return {
    name,
    priority: spec.priority ?? 0,
    namespaceSelector: EVERYTHING,
    podSelector: spec.podSelector ?? EVERYTHING,
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
  const { wait = {}, grace = {}, ceiling = {}, overrides = {} } = spec;
  const all: { [F in Field]?: PolicyValues[F] | undefined } = {
    mode: spec.mode,
    pods: spec.pods,
    exclude: spec.exclude,
    containers: spec.containers,
    'wait.from': wait.from,
    'wait.fixed': wait.fixed,
    'wait.percentile': wait.percentile,
    'wait.safetyFactor': wait.safetyFactor,
    'wait.margin': wait.margin,
    'wait.min': wait.min,
    'wait.max': wait.max,
    'wait.initial': wait.initial,
    'wait.minSamples': wait.minSamples,
    'wait.minHistory': wait.minHistory,
    hook: spec.hook,
    existingHook: spec.existingHook,
    'grace.max': grace.max,
    'ceiling.wait': ceiling.wait,
    'ceiling.mode': ceiling.mode,
    'overrides.namespaces': overrides.namespaces,
    'overrides.pods': overrides.pods,
  };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
}
