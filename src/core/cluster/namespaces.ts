import { NAMESPACE_NAME_LABEL } from '../catalog/vocabulary.ts';
import { type Labels, NO_LABELS } from './selector.ts';

/** What the decision needs of a Namespace. */
export interface NamespaceRecord {
  readonly name: string;
  readonly labels: Labels;
  readonly annotations: Readonly<Record<string, string>>;
}

/** A Namespace that Linger has not seen still has the label that the API server gives to every one of them. */
export function unseenNamespace(name: string): NamespaceRecord {
  return { name, labels: { [NAMESPACE_NAME_LABEL]: name }, annotations: NO_LABELS };
}

/** A Namespace from a manifest, with the label that the API server would add. */
export function namespaceRecord(name: string, labels: Labels, annotations: Labels): NamespaceRecord {
  return { name, labels: { ...labels, [NAMESPACE_NAME_LABEL]: name }, annotations };
}
