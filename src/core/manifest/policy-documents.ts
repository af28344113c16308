import {
  cautiousPolicy,
  isLingerObject,
  isRecord,
  isStringMap,
  LingerError,
  NO_LABELS,
  namespaceRecord,
  parseDocument,
  speaksOfRestraint,
  textOf,
} from '../api/index.ts';
import type { Documents, LocatedObject } from '../decision/index.ts';
import { fileText } from '../yaml/index.ts';
import type { ManifestError } from './manifest-error.ts';
import {
  documentsOf,
  joined,
  POLICY_FILE,
  type PolicyEntry,
  type PolicyFile,
  type PolicyProblem,
  type PolicyReading,
  type PolicyState,
  withLastGood,
} from './policy-entries.ts';
import { type ManifestObject, readManifests } from './read.ts';

/**
 * Reads each object by itself; kinds other than ours, Services and Namespaces are ignored.
 * @param defaultNamespace the namespace of Services that name none
 * @param seen where each key has been defined so far, across all files of a set
 */
function readObjects(
  objects: readonly (LocatedObject &
    Partial<Pick<ManifestObject, 'lineOf'>> & { readonly duplicateKey?: ManifestError | undefined })[],
  file: string,
  seen: Map<string, string>,
  defaultNamespace = 'default',
): PolicyReading {
  const entries: PolicyEntry[] = [];
  const problems: PolicyProblem[] = [];
  for (const { value, where, lineOf, duplicateKey } of objects) {
    if (!isRecord(value)) continue;
    if (!isLingerObject(value)) {
      const entry = clusterEntry(value, file, defaultNamespace);
      if (entry !== undefined) entries.push(entry);
      continue;
    }
    const key = documentKeyOf(value);
    if (duplicateKey !== undefined) {
      problems.push(problemIn(file, duplicateKey, key));
      continue;
    }
    try {
      const document = parseDocument(value, where);
      const earlier = seen.get(key ?? '');
      if (earlier !== undefined) {
        const message = `${where}: ${key} is already defined in ${earlier}; rename or remove one`;
        throw new LingerError('policy-duplicate', message);
      }
      seen.set(key ?? '', where);
      entries.push({ kind: 'linger.dev', value: document, key: key ?? '', file });
    } catch (error) {
      if (!(error instanceof LingerError)) throw error;
      const cautious = error.code === 'policy-invalid' ? cautiousEntry(value, key, file) : undefined;
      const problem = error.message.replace(`${where}: `, '');
      const place = lineOf && { line: lineOf(error.path), problem };
      problems.push({ code: error.code, message: error.message, place, file, key, cautious });
    }
  }
  return { entries, problems };
}

/** Replaces an invalid policy that may have been restrictive: its pods are kept in Audit. */
function cautiousEntry(
  { kind, metadata, spec }: Record<string, unknown>,
  key: string | undefined,
  file: string,
): PolicyEntry | undefined {
  if (key === undefined || !isRecord(metadata) || !speaksOfRestraint(spec)) return undefined;
  if (kind !== 'ClusterTerminationPolicy' && kind !== 'TerminationPolicy') return undefined;
  const { name, namespace = '' } = metadata as { readonly name: string; readonly namespace?: string };
  try {
    return { kind: 'linger.dev', value: cautiousPolicy(kind, { name, namespace }, spec), key, file };
  } catch {
    // No object can have such a name, so there is no policy to replace.
    return undefined;
  }
}

function documentKeyOf({ kind, metadata }: Record<string, unknown>): string | undefined {
  if (typeof kind !== 'string' || !isRecord(metadata) || typeof metadata.name !== 'string') return undefined;
  const namespace = typeof metadata.namespace === 'string' ? `${metadata.namespace}/` : '';
  return `${kind}/${namespace}${metadata.name}`;
}

function clusterEntry(
  { apiVersion, kind, metadata, spec }: Record<string, unknown>,
  file: string,
  defaultNamespace: string,
): PolicyEntry | undefined {
  if (apiVersion !== 'v1' || !isRecord(metadata)) return undefined;
  const { name } = metadata;
  const labels = isStringMap(metadata.labels) ? metadata.labels : NO_LABELS;
  const annotations = isStringMap(metadata.annotations) ? metadata.annotations : NO_LABELS;
  if (kind === 'Namespace' && typeof name === 'string')
    return { kind, value: namespaceRecord(name, labels, annotations), key: `Namespace/${name}`, file };
  if (kind !== 'Service' || (spec ?? undefined) === undefined) return undefined;
  // The API server treats an empty one as absent.
  const namespace = textOf(metadata.namespace) || defaultNamespace;
  const { selector, type, clusterIP } = isRecord(spec) ? spec : {};
  const isReadable = isRecord(spec) && isStringMap(selector ?? {});
  const value = {
    namespace,
    name: textOf(name ?? '(no name)'),
    labels,
    selector: isStringMap(selector) ? selector : undefined,
    ...(!isReadable && { unreadable: true as const }),
    externalName: type === 'ExternalName',
    headless: clusterIP === 'None',
  };
  return { kind, value, key: `Service/${namespace}/${value.name}`, file };
}

/**
 * The {@link Documents} among objects, such as Services and Namespaces.
 * @throws LingerError for the first invalid one
 */
export function sortDocuments(objects: readonly LocatedObject[], defaultNamespace?: string): Documents {
  return usable(readObjects(objects, '', new Map(), defaultNamespace));
}

export function usable({ entries, problems: [problem] }: PolicyReading): Documents {
  if (problem !== undefined) throw new LingerError(problem.code, problem.message);
  return documentsOf(entries);
}

function problemIn(file: string, { message, place }: ManifestError, key?: string): PolicyProblem {
  return { code: 'policy-syntax', message, place, file, key };
}

export function* parsePolicyFiles(files: readonly PolicyFile[]): Generator<PolicyReading> {
  const seen = new Map<string, string>();
  for (const { name, bytes } of files) {
    const { objects, problems } = readManifests(fileText(bytes), name);
    const unreadable = problems.map((problem) => problemIn(name, problem));
    const reading = readObjects(objects, name, seen);
    const unread = reading.entries.flatMap(({ kind, value, key, file }): readonly PolicyProblem[] => {
      if (kind !== 'Service' || !value.unreadable) return [];
      const message = `${file}: ${key}: spec.selector cannot be read, so any pod of its namespace may be selected: expected a map of strings`;
      return [{ code: 'policy-invalid', message, file, key }];
    });
    yield joined([{ entries: [], problems: [...unreadable, ...unread] }, reading]);
  }
}

/**
 * What a starting replica reads from a ConfigMap that is mounted as its policy folder.
 * @param place names the ConfigMap in problems
 */
export function policiesOfMap(data: Readonly<Record<string, string>>, place: string): PolicyState {
  const files = Object.entries(data)
    .filter(([name]) => POLICY_FILE.test(name))
    .map(([name, text]) => ({ name: `${place} ${name}`, bytes: new TextEncoder().encode(text) }));
  const reading = joined(parsePolicyFiles(files));
  return { documents: documentsOf(withLastGood(reading, [])), problems: reading.problems, unknown: false };
}
