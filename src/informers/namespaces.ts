import type { RawObject, Resource } from '../cluster/index.ts';
import {
  ANNOTATION_PREFIX,
  type Labels,
  type NamespaceRecord,
  NO_LABELS,
  namespaceRecord,
} from '../core/api/index.ts';

export function namespacesResource(): Resource<NamespaceRecord> {
  return { path: '/api/v1/namespaces', metadataOnly: true, project: projectNamespace };
}

export function projectNamespace({ metadata }: RawObject): NamespaceRecord {
  const { name, labels = NO_LABELS, annotations = NO_LABELS } = metadata;
  return namespaceRecord(name, labels, ours(annotations));
}

/** Keeps only annotations that decisions read, because others may be as long as kubectl's last-applied-configuration. */
function ours(annotations: Labels): Labels {
  const entries = Object.entries(annotations).filter(([key]) => key.startsWith(ANNOTATION_PREFIX));
  return entries.length === 0 ? NO_LABELS : Object.fromEntries(entries);
}
