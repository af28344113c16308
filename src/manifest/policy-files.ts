import { subtle } from 'node:crypto';
import { readdir, readFile, readlink, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import {
  API_VERSION,
  asError,
  type ClusterTerminationPolicy,
  type DiscoveryConsumer,
  type ErrorCode,
  FOREIGN_LIMITS,
  type LingerDocument,
  LingerError,
  type NamespaceRecord,
  type ServiceRecord,
  type TerminationPolicy,
} from '../api/index.ts';
import type { Documents } from '../decision/index.ts';
import { OffLoop, tick, workerUrl } from '../timing/index.ts';
import type { TextProblem } from '../yaml/index.ts';

// This file does not parse: a server leaves that, and loading the parser, to a thread that ends afterwards.

export type PolicyEntry = (
  | { readonly kind: 'linger.dev'; readonly value: LingerDocument }
  | { readonly kind: 'Namespace'; readonly value: NamespaceRecord }
  | { readonly kind: 'Service'; readonly value: ServiceRecord }
) & {
  /** Kind, namespace and name, which identify the document across readings. */
  readonly key: string;
  readonly file: string;
};

export interface PolicyProblem {
  readonly code: ErrorCode;
  /** Names the file, the document and the field, and what was expected. */
  readonly message: string;
  /** The same without the words of the place; absent: it is about the whole file. */
  readonly place?: TextProblem | undefined;
  /** Undefined: the whole folder cannot be read. */
  readonly file: string | undefined;
  /** The document's key, if its kind and name could be read. */
  readonly key: string | undefined;
  /** Replaces an invalid policy that is restrictive and of which no valid version is known. */
  readonly cautious?: PolicyEntry | undefined;
}

export interface PolicyReading {
  readonly entries: readonly PolicyEntry[];
  readonly problems: readonly PolicyProblem[];
}

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

export interface PolicySnapshot {
  /** Changes whenever a name, a byte or a problem changes. */
  readonly digest: string;
  readonly files: readonly PolicyFile[];
  /** Files that could not be read at all. */
  readonly problems: readonly PolicyProblem[];
}

export interface PolicyFile {
  readonly name: string;
  /** UTF-8. */
  readonly bytes: Uint8Array;
}

/** A mounted ConfigMap keeps its revisions in dot-files, which are not read. */
export const POLICY_FILE = /^[^.].*\.(ya?ml|json)$/;

/** More than a ConfigMap can hold (1 MiB), so a larger file is there by mistake. */
const MAX_FILE_BYTES = FOREIGN_LIMITS.policy.bytes;

/**
 * Reads a policy file, or every `*.yaml`, `*.yml` and `*.json` in a folder: not recursively, ignoring dot-files (a
 * mounted ConfigMap keeps its revisions in them), following links.
 */
export async function readPolicyFiles(path: string): Promise<PolicySnapshot> {
  const problems: PolicyProblem[] = [];
  const unlessUnreadable = <T>(file: string | undefined, read: Promise<T>) =>
    read.catch((error: unknown) => {
      const { message } = asError(error);
      problems.push({ code: 'policy-unreadable', message, file, key: undefined });
      return undefined;
    });
  const paths = (await unlessUnreadable(undefined, policyPaths(path))) ?? [];
  const read = await Promise.all(paths.map((file) => unlessUnreadable(basename(file), readPolicyFile(file))));
  const files = read.filter((file) => file !== undefined);
  // In the thread pool, since a file of 4 MB takes some 10 ms.
  const digestOf = async ({ name, bytes }: PolicyFile) =>
    `${name} ${Buffer.from(await subtle.digest('SHA-256', bytes)).toString('hex')}`;
  const digests = await Promise.all(files.map(digestOf));
  // Sorted, because the order in which reading failed may differ the next time.
  const digest = [...digests, ...problems.map(({ message }) => message).toSorted()].join('\0');
  return { digest, files, problems };
}

async function policyPaths(path: string): Promise<readonly string[]> {
  try {
    if (!(await stat(path)).isDirectory()) return [path];
    const names = (await readdir(path)).filter((name) => POLICY_FILE.test(name));
    return names.toSorted().map((name) => join(path, name));
  } catch (cause) {
    throw unreadable(path, cause);
  }
}

async function readPolicyFile(path: string): Promise<PolicyFile> {
  const unfit = (problem: string) => {
    const message = `${path}: ${problem}; --policies takes a folder or a file of policies`;
    return new LingerError('policy-unreadable', message);
  };
  try {
    const about = await stat(path);
    // Reading a pipe or device might never end.
    if (!about.isFile()) throw unfit('is not a regular file');
    if (about.size > MAX_FILE_BYTES) throw unfit(`is ${about.size} bytes long, more than ${MAX_FILE_BYTES}`);
    return { name: basename(path), bytes: await readFile(path) };
  } catch (cause) {
    throw cause instanceof LingerError ? cause : unreadable(path, cause);
  }
}

export function joined(readings: Iterable<PolicyReading>): PolicyReading {
  const all = [...readings];
  return {
    entries: all.flatMap(({ entries }) => entries),
    problems: all.flatMap(({ problems }) => problems),
  };
}

function unreadable(path: string, cause: unknown): LingerError {
  const message = `${path}: cannot be read (${asError(cause).message}); --policies takes a folder or a file`;
  return new LingerError('policy-unreadable', message, { cause });
}

export interface PolicyState {
  readonly documents: Documents;
  /** What is invalid on disk; for documents that were valid before, the last good version is in force. */
  readonly problems: readonly PolicyProblem[];
  /**
   * It has not been known since the start which policies there are. No pod is enforced, because one of them may say Audit.
   */
  readonly unknown: boolean;
}

const NOTHING_ENFORCED: PolicyEntry = {
  kind: 'linger.dev',
  value: {
    apiVersion: API_VERSION,
    kind: 'ClusterTerminationPolicy',
    metadata: { name: 'policies-unknown' },
    spec: { ceiling: { mode: 'Audit' } },
  },
  key: 'policies that are not known',
  file: '',
};

/**
 * How often the folder is read. A change takes effect when two readings agree, so that a half-written file is
 * not mistaken for a shorter one: after at most two intervals and the time of two readings, under 3 s.
 */
export const POLL_MS = 1_000;

/** How often a mounted folder is read even if its `..data` link is unchanged: it may be a copy that is edited in place. */
const READ_EVERY_POLLS = 10;

/** How often unchanged files are parsed again while policies are unknown: a thread that was too slow may be fast enough now. */
const RETRY_EVERY_POLLS = 60;

/**
 * The current revision of a ConfigMap that a kubelet has mounted: the kubelet changes no file, but swaps the link `..data`
 * (Kubernetes, pkg/volume/util/atomic_writer.go). Reading the link takes a tenth of the time of reading the folder, most of which is
 * spent on waking threads.
 * @returns undefined if it is not such a mount
 */
function mountedRevision(path: string): Promise<string | undefined> {
  return readlink(join(path, '..data')).catch(() => undefined);
}

/** What the parsing thread does at a time. */
export interface PolicyTask {
  readonly files: readonly PolicyFile[];
  /** No policies are known yet, so nothing is enforced: on a busy node, a thread of low priority would take minutes. */
  readonly urgent: boolean;
}

/** 10,000 policies take half a second. */
const PARSING = { timeoutMs: 30_000, heapMb: 256 };

/**
 * Follows a policy path until the signal aborts. It compares contents instead of relying on change events, which do not arrive
 * for the links by which a kubelet swaps a mounted ConfigMap, or on network file systems.
 * @param onChange called with each later state, one call at a time
 * @returns the state at the start
 */
export async function followPolicyFiles(
  path: string,
  onChange: (state: PolicyState) => Promise<void> | void,
  signal: AbortSignal,
  pollMs = POLL_MS,
): Promise<PolicyState> {
  const parser = new OffLoop<PolicyTask, PolicyReading>(workerUrl(import.meta.url, 'policy-worker'), PARSING);
  let good: readonly PolicyEntry[] = [];
  let unknown = true;
  const policyStateOf = async ({ files, problems }: PolicySnapshot): Promise<PolicyState> => {
    const unreadable = { entries: [], problems };
    const reading = joined([unreadable, ...(await parsed({ files, urgent: unknown }, parser))]);
    good = withLastGood(reading, good);
    // An invalid document affects only itself; of an unreadable file, nothing is known.
    unknown &&= reading.problems.some(({ code, file }) => code === 'policy-unreadable' || file === undefined);
    // With thousands of policies, what follows takes a while, too.
    await turn();
    const inForce = unknown ? [...good, NOTHING_ENFORCED] : good;
    return { documents: documentsOf(inForce), problems: reading.problems, unknown };
  };
  const first = await readPolicyFiles(path);
  const state = await policyStateOf(first);
  void (async () => {
    let taken = first.digest;
    let previous = first.digest;
    /** The snapshot on which two readings have agreed. */
    let revision: string | undefined;
    for (let polls = 1; await tick(pollMs, signal); polls += 1) {
      const now = await mountedRevision(path);
      const again = unknown && polls % RETRY_EVERY_POLLS === 0;
      if (now !== undefined && now === revision && polls % READ_EVERY_POLLS !== 0 && !again) continue;
      const snapshot = await readPolicyFiles(path);
      const settled = snapshot.digest === previous;
      previous = snapshot.digest;
      revision = settled ? now : undefined;
      if (!settled || (snapshot.digest === taken && !again)) continue;
      taken = snapshot.digest;
      const next = await policyStateOf(snapshot);
      if (!signal.aborted) await onChange(next);
    }
  })();
  return state;
}

async function parsed(
  task: PolicyTask,
  parser: OffLoop<PolicyTask, PolicyReading>,
): Promise<readonly PolicyReading[]> {
  if (task.files.length === 0) return [];
  try {
    return await parser.run(task);
  } catch (error) {
    const message = `the policies cannot be parsed: ${asError(error).message}; make them fewer or smaller`;
    return [{ entries: [], problems: [{ code: 'policy-syntax', message, file: undefined, key: undefined }] }];
  }
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
