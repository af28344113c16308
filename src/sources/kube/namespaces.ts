import { type NamespaceRecord, namespaceRecord } from '../../core/cluster/namespaces.ts';
import { NO_LABELS } from '../../core/cluster/selector.ts';
import type { RawObject, Resource } from './resource.ts';

export function namespacesResource(): Resource<NamespaceRecord> {
  return { path: '/api/v1/namespaces', metadataOnly: true, project: projectNamespace };
}

export function projectNamespace({ metadata }: RawObject): NamespaceRecord {
  const { name, labels = NO_LABELS, annotations = NO_LABELS } = metadata;
  return namespaceRecord(name, labels, annotations);
}
