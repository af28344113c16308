import type { NamespaceRecord } from '../core/cluster/namespaces.ts';
import type { ServiceRecord } from '../core/cluster/services.ts';
import type {
  ClusterTerminationPolicy,
  DiscoveryConsumer,
  TerminationPolicy,
} from '../core/schema/documents.ts';

/** An object somebody wrote, and where it stands: `base.yaml document 2`. */
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

/** Two sets as one; of Namespaces and Services that are in both, `later` wins. */
export function joinDocuments(earlier: Documents, later: Documents): Documents {
  return {
    clusterPolicies: [...earlier.clusterPolicies, ...later.clusterPolicies],
    policies: [...earlier.policies, ...later.policies],
    consumers: [...earlier.consumers, ...later.consumers],
    namespaces: lastOfEach([...earlier.namespaces, ...later.namespaces], ({ name }) => name),
    services: lastOfEach(
      [...earlier.services, ...later.services],
      ({ namespace, name }) => `${namespace}/${name}`,
    ),
  };
}

function lastOfEach<T>(items: readonly T[], keyOf: (item: T) => string): T[] {
  return [...new Map(items.map((item) => [keyOf(item), item])).values()];
}
