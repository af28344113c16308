import type {
  ClusterTerminationPolicy,
  DiscoveryConsumer,
  ErrorCode,
  LingerDocument,
  NamespaceRecord,
  ServiceRecord,
  TerminationPolicy,
} from '../api/index.ts';
import type { Documents } from '../decision/index.ts';
import type { TextProblem } from '../yaml/index.ts';

// This file does not parse: in a server, parsing (and loading the parser) is left to a thread that ends afterwards.

export type PolicyEntry = (
  | { readonly kind: 'linger.dev'; readonly value: LingerDocument }
  | { readonly kind: 'Namespace'; readonly value: NamespaceRecord }
  | { readonly kind: 'Service'; readonly value: ServiceRecord }
) & {
  /** Kind, namespace and name, which identify the document whenever files are read again. */
  readonly key: string;
  readonly file: string;
};

export interface PolicyProblem {
  readonly code: ErrorCode;
  /** Names the file, the document and the field, and what was expected. */
  readonly message: string;
  /** The problem and its place apart; absent: it is about the whole file. */
  readonly place?: TextProblem | undefined;
  /** Undefined: the whole folder cannot be read. */
  readonly file: string | undefined;
  /** The document's key, if its kind and name could be read. */
  readonly key: string | undefined;
  /** A replacement for an invalid policy that is restrictive and of which no valid version is known. */
  readonly cautious?: PolicyEntry | undefined;
}

export interface PolicyReading {
  readonly entries: readonly PolicyEntry[];
  readonly problems: readonly PolicyProblem[];
}

export interface PolicyFile {
  readonly name: string;
  /** UTF-8. */
  readonly bytes: Uint8Array;
}

export interface PolicyState {
  readonly documents: Documents;
  /** What is invalid on disk. Of documents that were valid before, the last good version still applies. */
  readonly problems: readonly PolicyProblem[];
  /**
   * Whether it has been unknown since the start which policies exist. If so, nothing is enforced, because one of them may
   * say Audit.
   */
  readonly unknown: boolean;
}

/** A mounted ConfigMap keeps its revisions in dot-files, which are not read. */
export const POLICY_FILE = /^[^.].*\.(ya?ml|json)$/;

export function documentsOf(entries: readonly PolicyEntry[]): Documents {
  const documents = {
    clusterPolicies: [] as ClusterTerminationPolicy[],
    policies: [] as TerminationPolicy[],
    consumers: [] as DiscoveryConsumer[],
    namespaces: [] as NamespaceRecord[],
    services: [] as ServiceRecord[],
  };
  for (const entry of entries) {
    if (entry.kind === 'Namespace') documents.namespaces.push(entry.value);
    else if (entry.kind === 'Service') documents.services.push(entry.value);
    else if (entry.value.kind === 'ClusterTerminationPolicy') documents.clusterPolicies.push(entry.value);
    else if (entry.value.kind === 'TerminationPolicy') documents.policies.push(entry.value);
    else documents.consumers.push(entry.value);
  }
  return documents;
}

export function joined(readings: Iterable<PolicyReading>): PolicyReading {
  const all = [...readings];
  return {
    entries: all.flatMap(({ entries }) => entries),
    problems: all.flatMap(({ problems }) => problems),
  };
}

/** The valid entries, and the last good version of each document that is invalid now. */
export function withLastGood(
  { entries, problems }: PolicyReading,
  good: readonly PolicyEntry[],
): readonly PolicyEntry[] {
  if (problems.length === 0) return entries;
  const present = new Set(entries.map(({ key }) => key));
  const keys = new Set(problems.map(({ key }) => key));
  // An invalid document without a name may be any document of its file.
  const files = new Set(problems.filter(({ key }) => key === undefined).map(({ file }) => file));
  const isBroken = ({ key, file }: PolicyEntry) =>
    !present.has(key) && (keys.has(key) || files.has(file) || files.has(undefined));
  const kept = [...entries, ...good.filter(isBroken)];
  const known = new Set(kept.map(({ key }) => key));
  const cautious = problems.flatMap((each) => each.cautious ?? []).filter(({ key }) => !known.has(key));
  return [...kept, ...cautious];
}
