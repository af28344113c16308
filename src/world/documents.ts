import { LingerError } from '../core/catalog/errors.ts';
import { type NamespaceRecord, namespaceRecord } from '../core/cluster/namespaces.ts';
import { NO_LABELS } from '../core/cluster/selector.ts';
import type { ServiceRecord } from '../core/cluster/services.ts';
import {
  type ClusterTerminationPolicy,
  type DiscoveryConsumer,
  isLingerObject,
  parseDocument,
  type TerminationPolicy,
} from '../core/schema/documents.ts';
import { isRecord, isStringMap } from '../core/schema/shape.ts';

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

type Growing<T> = { -readonly [K in keyof T]: T[K] extends readonly (infer Item)[] ? Item[] : T[K] };

/**
 * Sorts objects into {@link Documents}. Kinds that are neither ours nor Services nor Namespaces are passed over.
 * @throws LingerError `policy-invalid` for a linger.dev object with an unknown or wrong field, `policy-duplicate`
 *   for two of one kind and name
 * @param defaultNamespace the namespace of Services that name none
 */
export function sortDocuments(objects: readonly LocatedObject[], defaultNamespace = 'default'): Documents {
  const documents: Growing<Documents> = {
    clusterPolicies: [],
    policies: [],
    consumers: [],
    namespaces: [],
    services: [],
  };
  const seen = new Map<string, string>();
  for (const { value, where } of objects) {
    if (!isRecord(value)) continue;
    if (isLingerObject(value)) addLingerDocument(documents, value, where, seen);
    else addClusterObject(documents, value, defaultNamespace);
  }
  return documents;
}

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

function addLingerDocument(
  documents: Growing<Documents>,
  value: Record<string, unknown>,
  where: string,
  seen: Map<string, string>,
): void {
  const document = parseDocument(value, where);
  const { name } = document.metadata;
  const namespace = 'namespace' in document.metadata ? `${String(document.metadata.namespace)}/` : '';
  const key = `${document.kind}/${namespace}${name}`;
  const earlier = seen.get(key);
  if (earlier !== undefined) {
    throw new LingerError(
      'policy-duplicate',
      `${where}: ${key} is already defined in ${earlier}; rename or remove one`,
    );
  }
  seen.set(key, where);
  if (document.kind === 'ClusterTerminationPolicy') documents.clusterPolicies.push(document);
  else if (document.kind === 'TerminationPolicy') documents.policies.push(document);
  else documents.consumers.push(document);
}

function addClusterObject(
  documents: Growing<Documents>,
  value: Record<string, unknown>,
  defaultNamespace: string,
): void {
  const { apiVersion, kind, metadata, spec } = value;
  if (apiVersion !== 'v1' || !isRecord(metadata) || typeof metadata.name !== 'string') return;
  const labels = isStringMap(metadata.labels) ? metadata.labels : NO_LABELS;
  const annotations = isStringMap(metadata.annotations) ? metadata.annotations : NO_LABELS;
  if (kind === 'Namespace') documents.namespaces.push(namespaceRecord(metadata.name, labels, annotations));
  if (kind !== 'Service' || !isRecord(spec)) return;
  documents.services.push({
    namespace: typeof metadata.namespace === 'string' ? metadata.namespace : defaultNamespace,
    name: metadata.name,
    labels,
    selector: isStringMap(spec.selector) ? spec.selector : undefined,
    externalName: spec.type === 'ExternalName',
  });
}
