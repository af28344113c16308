import { LingerError } from '../core/catalog/errors.ts';
import { namespaceRecord } from '../core/cluster/namespaces.ts';
import { NO_LABELS } from '../core/cluster/selector.ts';
import { isLingerObject, parseDocument } from '../core/schema/documents.ts';
import { isRecord, isStringMap } from '../core/schema/shape.ts';
import type { Documents, LocatedObject } from './documents.ts';

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
    headless: spec.clusterIP === 'None',
  });
}
