import { subtle } from 'node:crypto';
import { readdir, readFile, readlink, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { API_VERSION, asError, FOREIGN_LIMITS, LingerError } from '../core/api/index.ts';
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
} from '../core/manifest/index.ts';
import { OffLoop, tick, workerUrl } from '../timing/index.ts';

// This file does not parse: in a server, parsing (and loading the parser) is left to a thread that ends afterwards.

export interface PolicySnapshot {
  /** Changes whenever a name, a byte or a problem changes. */
  readonly digest: string;
  readonly files: readonly PolicyFile[];
  /** Files that could not be read at all. */
  readonly problems: readonly PolicyProblem[];
}

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
  // Sorted, because files may fail to be read in a different order the next time.
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

function unreadable(path: string, cause: unknown): LingerError {
  const message = `${path}: cannot be read (${asError(cause).message}); --policies takes a folder or a file`;
  return new LingerError('policy-unreadable', message, { cause });
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
 * (Kubernetes, pkg/volume/util/atomic_writer.go). Reading the link takes a tenth of the time of reading the folder, most of
 * which is spent on waking threads.
 * @returns undefined if it is not such a mount
 */
function mountedRevision(path: string): Promise<string | undefined> {
  return readlink(join(path, '..data')).catch(() => undefined);
}

/** The input for one run of the parsing thread. */
export interface PolicyTask {
  readonly files: readonly PolicyFile[];
  /**
   * Whether no policies are known yet, so that nothing is enforced: on a busy node, a thread of low priority would take
   * minutes.
   */
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
    // An invalid document affects only itself, but of an unreadable file nothing is known.
    unknown &&= reading.problems.some(({ code, file }) => code === 'policy-unreadable' || file === undefined);
    // With thousands of policies, what follows takes a while as well.
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
