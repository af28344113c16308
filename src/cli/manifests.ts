import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer as readAll } from 'node:stream/consumers';
import { setFlagsFromString } from 'node:v8';
import fastJsonPatch from 'fast-json-patch';
import {
  asError,
  isRecord,
  isStringMap,
  type LabelSelector,
  LingerError,
  NO_LABELS,
  selects,
} from '../api/index.ts';
import {
  type Documents,
  decide,
  type LocatedObject,
  NO_DOCUMENTS,
  NO_SOURCES,
  type Operation,
  requestOf,
  type Sources,
  type Workload,
  type World,
  workloadOf,
} from '../decision/index.ts';
import {
  decodeText,
  type Encoding,
  type ManifestDocument,
  ManifestError,
  type ManifestObject,
  readDocuments,
  readPolicies,
  sortDocuments,
} from '../manifest/index.ts';
import type { Settings } from './commands.ts';
import type { KnownCluster } from './read-cluster.ts';
import type { Surroundings, Terminal } from './terminal.ts';

/** Which manifests are read, and which of their objects are looked at. */
export type ManifestSettings = Omit<Settings<'uninject'>, 'inPlace' | 'diff'>;

export interface ManifestInput {
  /** `-` is standard input. */
  readonly path: string;
  /** For messages. */
  readonly name: string;
  readonly text: string;
  readonly encoding: Encoding;
}

/** Loads what asking a cluster takes only where one is asked. @throws ConnectionError, LingerError */
export async function askCluster(
  settings: Pick<Settings<'explain'>, 'kubeconfig' | 'context' | 'lingerNamespace' | 'policies'>,
  surroundings: Surroundings,
) {
  const { connectToLinger } = await import('./connect.ts');
  const { readCluster } = await import('./read-cluster.ts');
  const { connection, ...place } = await connectToLinger(settings, surroundings);
  return { connection, known: await readCluster(connection, { ...settings, ...place }, surroundings.warn) };
}

/**
 * Reads the manifests that are named by `-f` and by words; standard input where none are.
 * @throws LingerError, ManifestError
 */
export async function readInputs(
  { filename = [], operands, recursive }: ManifestSettings,
  stdin: NodeJS.ReadableStream,
): Promise<readonly ManifestInput[]> {
  // Documents are read and dropped one after the other: collected early, they take a few times less memory.
  setFlagsFromString('--heap-growing-percent=20');
  setFlagsFromString('--semi-space-growth-factor=1');
  const named = [...filename, ...operands];
  const paths = await Promise.all(
    (named.length === 0 ? ['-'] : named).map((path) => filesOf(path, recursive)),
  );
  const inputs: ManifestInput[] = [];
  for (const path of paths.flat()) {
    const name = path === '-' ? 'stdin' : path;
    const bytes = await (path === '-' ? readAll(stdin) : readFile(path)).catch((cause: unknown) => {
      throw unreadable(name, cause);
    });
    inputs.push({ path, name, ...decodeText(bytes, name) });
  }
  return inputs;
}

const MANIFEST_FILE = /\.(ya?ml|json)$/;

/** A file itself; of a folder its manifests, in the order of their names, as kubectl takes them. */
async function filesOf(path: string, recursive: boolean): Promise<readonly string[]> {
  try {
    if (path === '-' || !(await stat(path)).isDirectory()) return [path];
    const entries = await readdir(path, { recursive, withFileTypes: true });
    const files = entries.filter((entry) => !entry.isDirectory() && MANIFEST_FILE.test(entry.name));
    if (files.length > 0) return files.map((entry) => join(entry.parentPath, entry.name)).toSorted();
  } catch (cause) {
    throw unreadable(path, cause);
  }
  const wayOut = recursive ? 'name a file' : '-R also looks into its folders';
  throw new LingerError('manifest-invalid', `${path}: there is no *.yaml, *.yml or *.json in it: ${wayOut}`);
}

function unreadable(name: string, cause: unknown): LingerError {
  const why = /^https?:/.test(name) ? 'download it first' : asError(cause).message;
  return new LingerError('manifest-invalid', `${name}: cannot be read (${why})`, { cause });
}

export type WorldSettings = Pick<Settings<'explain'>, 'policies' | 'namespace' | 'modeLimit'>;

/**
 * What decisions about manifests know: the policies given, or else those in force in the cluster; and the Services and
 * Namespaces of the manifests and of the cluster, or without one of the policy files.
 * @throws LingerError
 */
export async function sourcesFor(
  inputs: readonly ManifestInput[],
  { namespace, policies, modeLimit }: WorldSettings,
  cluster?: KnownCluster,
): Promise<Sources> {
  const given = policies === undefined ? cluster?.files : await readPolicies(policies);
  const applied = clusterObjects(inputs, namespace);
  const sources = { ...NO_SOURCES, modeLimit, files: given ?? NO_DOCUMENTS, applied };
  return cluster === undefined ? sources : { ...sources, cluster, lags: cluster.lags };
}

const CLUSTER_OBJECT = /\b(?:Service|Namespace)(?:List)?\b/;

/** Policies among the manifests are left out: they are about to be applied and not in force. */
function clusterObjects(inputs: readonly ManifestInput[], defaultNamespace: string): Documents {
  const found: LocatedObject[] = [];
  for (const { text, name } of inputs) {
    // Manifests of workloads alone are read once.
    if (!CLUSTER_OBJECT.test(text)) continue;
    for (const document of readDocuments(text, name))
      for (const object of document.objects())
        if (!(object instanceof ManifestError) && isClusterObject(object.value)) found.push(object);
  }
  return sortDocuments(found, defaultNamespace);
}

function isClusterObject(value: unknown): boolean {
  return isRecord(value) && value.apiVersion === 'v1' && /^(?:Service|Namespace)$/.test(String(value.kind));
}

/** An object with pods in it. */
export interface FoundWorkload {
  readonly object: ManifestObject;
  readonly workload: Workload;
  readonly namespace: string;
}

/** A command's way through manifests. */
interface Reading {
  readonly warn: Terminal['warn'];
  /** What else is said of an object that cannot be read. */
  readonly remark?: string;
  /** Whether an object could not be read. */
  failed: boolean;
}

/** The workloads of a document; says which objects could not be read, or have pods but are of an unknown kind. */
export function* workloadsIn(
  document: ManifestDocument,
  { name }: ManifestInput,
  { namespace, selector }: ManifestSettings,
  reading: Reading,
): Generator<FoundWorkload> {
  const passOver = (message: string) => reading.warn(`linger: ${message}`);
  const unreadable = ({ message }: ManifestError) => {
    reading.failed = true;
    passOver(message + (reading.remark ?? ''));
  };
  for (const object of document.objects()) {
    if (object instanceof ManifestError) {
      unreadable(object);
      continue;
    }
    if (!isSelected(object.value, selector)) continue;
    const workload = workloadOf(object.value);
    if (workload === undefined) {
      const message = overlooked(object.value);
      if (message !== undefined) passOver(`${name}:${object.line}: ${message}; left unchanged`);
    } else if (object.duplicateKey !== undefined) unreadable(object.duplicateKey);
    else yield { object, workload, namespace: workload.namespace ?? namespace };
  }
}

function isSelected(value: unknown, selector: LabelSelector | undefined): boolean {
  if (selector === undefined) return true;
  const metadata = isRecord(value) && isRecord(value.metadata) ? value.metadata : {};
  return selects(selector, isStringMap(metadata.labels) ? metadata.labels : NO_LABELS);
}

/** Why Linger does not understand an object with a pod template in it. */
function overlooked(value: unknown): string | undefined {
  if (!isRecord(value)) return undefined;
  const { apiVersion, kind, metadata } = value;
  const place = podTemplateIn(value, '', 0);
  if (place === undefined) return undefined;
  const name = isRecord(metadata) && typeof metadata.name === 'string' ? ` ${metadata.name}` : '';
  const subject = `${String(kind)}${name} has a pod template (${place})`;
  if (apiVersion === 'extensions/v1beta1')
    return `${subject}, and Kubernetes no longer serves ${apiVersion}: write apps/v1`;
  return `${subject}, but ${String(apiVersion)} ${String(kind)} is no kind that Linger knows`;
}

/** Deep enough for an operator's nested templates. */
const TEMPLATE_DEPTH = 8;

/** Where in an object a list of containers stands. */
function podTemplateIn(value: unknown, path: string, depth: number): string | undefined {
  if (depth > TEMPLATE_DEPTH || typeof value !== 'object' || value === null) return undefined;
  if (isRecord(value) && Array.isArray(value.containers)) {
    const isContainer = (item: unknown) => isRecord(item) && typeof item.image === 'string';
    if (value.containers.some(isContainer)) return `${path}/containers`;
  }
  for (const [key, member] of Object.entries(value)) {
    const found = podTemplateIn(member, `${path}/${key}`, depth + 1);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** A pod with operations applied to it; itself where there are none. */
export function patched(pod: unknown, operations: readonly Operation[]): unknown {
  if (operations.length === 0) return pod;
  // Operations are copied, too, as one may change what an earlier one has put in. Copies share no YAML aliases.
  const patch = fastJsonPatch.deepClone(operations) as fastJsonPatch.Operation[];
  return fastJsonPatch.applyPatch(fastJsonPatch.deepClone(pod), patch).newDocument as unknown;
}

/** Decides for the pods of a workload. */
export function planOf(found: Pick<FoundWorkload, 'workload' | 'namespace'>, world: World) {
  return { ...found, decision: decide(requestOf(found), world) };
}
