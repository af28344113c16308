import { createHash, subtle } from 'node:crypto';
import { readdir, readFile, readlink, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import {
  asError,
  type ClusterTerminationPolicy,
  type DiscoveryConsumer,
  type ErrorCode,
  type LingerDocument,
  LingerError,
  type NamespaceRecord,
  type ServiceRecord,
  type TerminationPolicy,
} from '../api/index.ts';
import type { Documents } from '../decision/index.ts';
import { besides, OffLoop, pause } from '../timing/index.ts';

// Nothing in this file parses: a server leaves that, and the parser, to a thread that ends afterwards.

/** One document that can be used. */
export type PolicyEntry = (
  | { readonly kind: 'linger.dev'; readonly value: LingerDocument }
  | { readonly kind: 'Namespace'; readonly value: NamespaceRecord }
  | { readonly kind: 'Service'; readonly value: ServiceRecord }
) & {
  /** Kind, namespace and name: what makes it the same document as one that was read earlier. */
  readonly key: string;
  readonly file: string;
};

/** A document, a file or a folder that cannot be used. */
export interface PolicyProblem {
  readonly code: ErrorCode;
  /** Names the file, the document and the field, and says what was expected. */
  readonly message: string;
  /** Undefined: the whole folder cannot be read. */
  readonly file: string | undefined;
  /** Of the document, where its kind and name can be read. */
  readonly key: string | undefined;
  /** What stands in for a policy that says that it restrains, where no version of it could ever be used. */
  readonly cautious?: PolicyEntry | undefined;
}

/** What files say, document by document. */
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

/** Policy files as they stand on the disk at one moment. */
export interface PolicySnapshot {
  /** Changes whenever a name, a byte or a problem changes. */
  readonly hash: string;
  readonly files: readonly PolicyFile[];
  /** Of what could not be read at all. */
  readonly problems: readonly PolicyProblem[];
}

export interface PolicyFile {
  readonly name: string;
  /** UTF-8. */
  readonly bytes: Uint8Array;
}

const POLICY_FILE = /^[^.].*\.(ya?ml|json)$/;

/** More than a ConfigMap can hold (1 MiB), so a file beyond it is there by mistake. */
const MAX_FILE_BYTES = 4 * 1024 * 1024;

/**
 * Reads a policy file, or every `*.yaml`, `*.yml` and `*.json` of a folder: not recursive, dot-files left out (a
 * mounted ConfigMap keeps its revisions in them), links followed.
 */
export async function readPolicyFiles(path: string): Promise<PolicySnapshot> {
  const files: PolicyFile[] = [];
  const problems: PolicyProblem[] = [];
  const take = async <T>(file: string | undefined, read: Promise<T>): Promise<T | undefined> => {
    try {
      return await read;
    } catch (error) {
      const { message } = asError(error);
      problems.push({ code: 'policy-unreadable', message, file, key: undefined });
      return undefined;
    }
  };
  const paths = (await take(undefined, policyPaths(path))) ?? [];
  for (const each of await Promise.all(paths.map((file) => take(basename(file), readPolicyFile(file)))))
    if (each !== undefined) files.push(each);
  const hash = createHash('sha256');
  // In threads of their own: a file of 4 MB takes some 10 ms.
  const digestOf = async ({ name, bytes }: PolicyFile) => {
    const digest = await subtle.digest('SHA-256', bytes);
    return `${name}\0${Buffer.from(digest).toString('hex')}\0`;
  };
  for (const digest of await Promise.all(files.map(digestOf))) hash.update(digest);
  for (const { message } of problems) hash.update(`\0${message}\0`);
  return { hash: hash.digest('hex'), files, problems };
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
  let size: number;
  let regular: boolean;
  try {
    const about = await stat(path);
    size = about.size;
    regular = about.isFile();
    // A pipe or device would never end.
    if (regular && size <= MAX_FILE_BYTES) return { name: basename(path), bytes: await readFile(path) };
  } catch (cause) {
    throw unreadable(path, cause);
  }
  const problem = regular ? `is ${size} bytes long, more than ${MAX_FILE_BYTES}` : 'is not a regular file';
  throw new LingerError(
    'policy-unreadable',
    `${path}: ${problem}; --policies takes a folder or a file of policies`,
  );
}

export function joined(readings: Iterable<PolicyReading>): PolicyReading {
  const all = [...readings];
  return {
    entries: all.flatMap(({ entries }) => entries),
    problems: all.flatMap(({ problems }) => problems),
  };
}

function unreadable(path: string, cause: unknown): LingerError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new LingerError(
    'policy-unreadable',
    `${path}: cannot be read (${why}); --policies takes a folder or a file`,
    {
      cause,
    },
  );
}

/** What is in force of a policy path. */
export interface PolicyState {
  readonly documents: Documents;
  /** What is not, as it stands on the disk; of documents that were good once, their last good version is. */
  readonly problems: readonly PolicyProblem[];
}

/**
 * How often the folder is read. A change is taken when two readings agree, so that a file caught half-written is
 * not taken for a shorter one: in force after at most two intervals and the time of two readings, under 3 s.
 */
export const POLL_MS = 1_000;

/** How often a mounted folder is read even without a new `..data` link: it may be a copy that is edited in place. */
const READ_EVERY_POLLS = 10;

/**
 * What a kubelet's mount of a ConfigMap stands at: the kubelet changes no file in it, but swaps the link `..data`
 * (Kubernetes, pkg/volume/util/atomic_writer.go). Asking for that takes a tenth of what a reading does, most of which is
 * threads being woken.
 * @returns undefined where it is no such mount
 */
function mountedRevision(path: string): Promise<string | undefined> {
  return readlink(join(path, '..data')).catch(() => undefined);
}

/** 10,000 policies take half a second. */
const PARSING = { timeoutMs: 30_000, heapMb: 256 };

/**
 * Follows a policy path until the signal aborts. Contents are compared and not change events: those do not arrive
 * for the links by which a kubelet swaps a mounted ConfigMap, nor on network file systems.
 * @param onChange called with each later state, one after the other
 * @returns the state at the start
 */
export async function followPolicyFiles(
  path: string,
  onChange: (state: PolicyState) => Promise<void> | void,
  signal: AbortSignal,
  pollMs = POLL_MS,
): Promise<PolicyState> {
  const parser = new OffLoop<readonly PolicyFile[], PolicyReading>(
    besides(import.meta.url, 'policy-worker'),
    PARSING,
  );
  let good: readonly PolicyEntry[] = [];
  const stateOf = async ({ files, problems }: PolicySnapshot): Promise<PolicyState> => {
    const unreadable = { entries: [], problems };
    const reading = joined([unreadable, ...(await parsed(files, parser))]);
    good = withLastGood(reading, good);
    // What follows takes a while, too, where there are thousands.
    await turn();
    return { documents: documentsOf(good), problems: reading.problems };
  };
  const first = await readPolicyFiles(path);
  const state = await stateOf(first);
  void (async () => {
    let taken = first.hash;
    let previous = first.hash;
    /** At which two readings have agreed. */
    let revision: string | undefined;
    for (let polls = 1; await pause(pollMs, signal); polls += 1) {
      const now = await mountedRevision(path);
      if (now !== undefined && now === revision && polls % READ_EVERY_POLLS !== 0) continue;
      const snapshot = await readPolicyFiles(path);
      const settled = snapshot.hash === previous;
      previous = snapshot.hash;
      revision = settled ? now : undefined;
      if (!settled || snapshot.hash === taken) continue;
      taken = snapshot.hash;
      const next = await stateOf(snapshot);
      if (!signal.aborted) await onChange(next);
    }
  })();
  return state;
}

async function parsed(
  files: readonly PolicyFile[],
  parser: OffLoop<readonly PolicyFile[], PolicyReading>,
): Promise<readonly PolicyReading[]> {
  if (files.length === 0) return [];
  try {
    return await parser.run(files);
  } catch (error) {
    const message = `the policies cannot be parsed: ${asError(error).message}; make them fewer or smaller`;
    return [{ entries: [], problems: [{ code: 'policy-syntax', message, file: undefined, key: undefined }] }];
  }
}

/** The entries that were read, and the last good version of each document that cannot be read now. */
function withLastGood(
  { entries, problems }: PolicyReading,
  good: readonly PolicyEntry[],
): readonly PolicyEntry[] {
  if (problems.length === 0) return entries;
  const present = new Set(entries.map(({ key }) => key));
  const keys = new Set(problems.map(({ key }) => key));
  // A document without a readable name may be any of its file.
  const files = new Set(problems.filter(({ key }) => key === undefined).map(({ file }) => file));
  const isBroken = ({ key, file }: PolicyEntry) =>
    !present.has(key) && (keys.has(key) || files.has(file) || files.has(undefined));
  const kept = [...entries, ...good.filter(isBroken)];
  const known = new Set(kept.map(({ key }) => key));
  const cautious = problems.flatMap((each) => each.cautious ?? []).filter(({ key }) => !known.has(key));
  return [...kept, ...cautious];
}
