import { readFile } from 'node:fs/promises';
import { buffer as readAll } from 'node:stream/consumers';
import { setFlagsFromString } from 'node:v8';
import {
  fewOf,
  isRecord,
  isStringMap,
  type LabelSelector,
  LingerError,
  memberAt,
  NO_LABELS,
  nonTexts,
  recordsAt,
  selects,
} from '../core/api/index.ts';
import {
  type ClusterSnapshot,
  type Documents,
  decide,
  NO_DOCUMENTS,
  NO_SOURCES,
  observersOf,
  requestOf,
  type Sources,
  templateReferenceOf,
  undoFor,
  type Workload,
  withTemplate,
  workloadKey,
  workloadOf,
} from '../core/decision/index.ts';
import { patched } from '../core/judge/index.ts';
import {
  decodeText,
  type Encoding,
  type ManifestDocument,
  ManifestError,
  type ManifestObject,
  readDocuments,
  sortDocuments,
} from '../core/manifest/index.ts';
import type { TextProblem } from '../core/yaml/index.ts';
import { readPolicies } from '../policy-files/index.ts';
import type { Settings } from './commands.ts';
import { type Built, build, type Place } from './kustomize.ts';
import { findManifests, unreadable } from './manifest-files.ts';
import type { KnownCluster } from './read-cluster.ts';
import type { Surroundings, Terminal } from './terminal.ts';

export type ManifestSettings = Omit<Settings<'uninject'>, 'inPlace' | 'diff' | 'allowRemote'> & {
  /** Absent: rendering reaches no network. */
  readonly allowRemote?: boolean;
};

export interface ManifestInput {
  /** `-` is standard input; a kustomization's folder. */
  readonly path: string;
  /** For messages. */
  readonly name: string;
  readonly text: string;
  readonly encoding: Encoding;
  /** Of what was rendered: the file that an object comes from. */
  readonly placeOf?: Built['placeOf'];
}

export interface Manifests {
  readonly inputs: readonly ManifestInput[];
  /** The Services and Namespaces among them. */
  readonly documents: Documents;
  /** By {@link ownerKeyOf}: every object that another may belong to, with its pod template where a Rollout refers to it. */
  readonly objects: ReadonlyMap<string, unknown>;
  /** Something could not be read, and was reported. */
  readonly failed: boolean;
}

/** Loads the client of the API server only where a cluster is asked. @throws ConnectionError, LingerError */
export async function askCluster(
  settings: Pick<Settings<'explain'>, 'kubeconfig' | 'context' | 'lingerNamespace' | 'policies'> & {
    readonly namespace?: string | undefined;
  },
  surroundings: Surroundings,
) {
  const { connectToLinger } = await import('./connect.ts');
  const { readCluster } = await import('./read-cluster.ts');
  const { connection, ...place } = await connectToLinger(settings, surroundings);
  // kubectl’s default namespace: all that is read where listing the whole cluster is forbidden.
  const { namespace = connection.namespace } = settings;
  surroundings.progress('reading policies, Services, namespaces and nodes');
  const known = await readCluster(connection, { ...settings, ...place, namespace }, surroundings.warn);
  return { connection, known };
}

/**
 * Has V8 collect earlier, for the rest of the process: for commands that read far more than they keep
 * (docs/decisions/0044-collecting-early.md).
 */
export function collectEarly(): void {
  setFlagsFromString('--heap-growing-percent=20');
  setFlagsFromString('--semi-space-growth-factor=1');
}

/**
 * Reads the manifests that are named by `-f` and by words; standard input where none are. A kustomization is built where
 * kubectl or kustomize is there and its files are not to be changed; else it is refused, as a chart is.
 * @throws LingerError, ManifestError
 */
export async function readGivenManifests(
  { filename = [], operands, recursive, namespace, allowRemote = false }: ManifestSettings,
  { stdin, warn, kube }: Pick<Surroundings, 'stdin' | 'warn'> & Partial<Pick<Surroundings, 'kube'>>,
  builds: 'plainly' | 'with origins' | 'never' = 'plainly',
): Promise<Manifests> {
  collectEarly();
  const named = [...filename, ...operands];
  const paths = named.length === 0 ? ['-'] : named;
  const { files, kustomizations, charts } = await findManifests(paths, recursive, builds === 'never');
  const inputs: ManifestInput[] = [];
  let failed = false;
  const refuse = (what: string) => {
    failed = true;
    warn(`linger: ${what}`);
  };
  for (const path of files) {
    const name = path === '-' ? 'stdin' : path;
    const bytes = await (path === '-' ? readAll(stdin) : readFile(path)).catch((cause: unknown) => {
      throw unreadable(name, cause);
    });
    inputs.push({ path, name, ...decodeText(bytes, name) });
  }
  for (const folder of kustomizations) {
    const terms = { allowRemote, variables: kube?.variables, withOrigins: builds === 'with origins' };
    const built =
      builds === 'never'
        ? undefined
        : await build(folder, terms).catch((thrown: unknown) => {
            if (!(thrown instanceof LingerError)) throw thrown;
            return thrown;
          });
    // One that cannot be rendered does not silence the others.
    if (built instanceof LingerError) refuse(built.message);
    else if (built === undefined) {
      const parts = 'its files are fragments';
      refuse(`${folder} is a kustomization, ${parts}: render it first (kubectl kustomize ${folder})`);
    } else {
      warn(`linger: ${folder} is a kustomization: rendered with ${built.by}`);
      const { placeOf } = built;
      inputs.push({
        path: folder,
        name: folder,
        ...decodeText(built.bytes, folder),
        ...(placeOf && { placeOf }),
      });
    }
  }
  for (const folder of charts) refuse(`${folder} is a Helm chart: render it first (helm template ${folder})`);
  const { documents, objects, problems } = survey(inputs, namespace);
  for (const { message } of problems) refuse(message);
  return { inputs, documents, objects, failed };
}

/** Where a workload stands, in a file that its author can change. */
export async function placeOf(
  input: ManifestInput,
  object: ManifestObject,
): Promise<Place & { column?: number }> {
  return input.placeOf?.(object) ?? { file: input.name, line: object.line, column: object.column };
}

/** A way through manifests that is told in the terminal. */
export function readingOf(
  warn: Terminal['warn'],
  { failed }: Pick<Manifests, 'failed'>,
  remark?: string,
): Reading {
  const report = ({ message }: ManifestProblem) => warn(`linger: ${message}`);
  return { report, failed, ...(remark !== undefined && { remark }) };
}

export type SnapshotSettings = Pick<Settings<'explain'>, 'policies' | 'namespace' | 'modeLimit'>;

/**
 * What decisions about manifests know: the policies given, or else those in force in the cluster; and the Services and
 * Namespaces of the manifests and of the cluster, or without one of the policy files.
 * @throws LingerError
 */
export async function sourcesFor(
  applied: Documents,
  { policies, modeLimit }: SnapshotSettings,
  cluster?: KnownCluster,
): Promise<Sources> {
  const given = policies === undefined ? cluster?.files : await readPolicies(policies);
  const sources = { ...NO_SOURCES, modeLimit, files: given ?? NO_DOCUMENTS, applied };
  return cluster === undefined ? sources : { ...sources, cluster, lags: cluster.lags };
}

/** Texts without any of these words refer to no other object, and are not parsed twice. */
const SURVEYED = /\b(?:Service|Namespace)(?:List)?\b|\bownerReferences\b|\bworkloadRef\b/;

/**
 * What the objects of texts say about each other; `problems`: those that cannot be read. Policies among them are left out:
 * they are about to be applied and not in force.
 */
export function survey(inputs: readonly ManifestInput[], defaultNamespace: string) {
  const documents: ManifestObject[] = [];
  const objects = new Map<string, unknown>();
  const refers = inputs.some(({ text }) => /\bworkloadRef\b/.test(text));
  const owned = refers || inputs.some(({ text }) => /\bownerReferences\b/.test(text));
  for (const { text, name } of inputs) {
    if (!owned && !SURVEYED.test(text)) continue;
    for (const document of readDocuments(text, name))
      for (const object of document.objects()) {
        if (object instanceof ManifestError) continue;
        if (isClusterObject(object.value)) documents.push(object);
        const key = owned ? ownerKeyOf(object.value, defaultNamespace) : undefined;
        // A PodTemplate makes no pods, but may be referred to.
        const pod = workloadOf(object.value)?.pod ?? memberAt(object.value, ['template']);
        if (key !== undefined) objects.set(key, refers ? pod : undefined);
      }
  }
  const problems = documents.flatMap(unreadableIn);
  return { documents: sortDocuments(documents, defaultNamespace), objects, problems };
}

/** A Service whose selector cannot be read might select anything of its namespace. */
function unreadableIn({ value, where, lineOf }: ManifestObject): readonly ManifestProblem[] {
  const kind = String(memberAt(value, ['kind']));
  const maps = kind === 'Service' ? ['spec.selector'] : ['metadata.labels', 'metadata.annotations'];
  const said = (field: string, what: string): ManifestProblem => {
    const problem = `${kind} ${nameOf(value)}: ${field} ${what}: ignored for the pods of its namespace`;
    return { message: `${where}: ${problem}`, place: { line: lineOf(field.split('.')), problem } };
  };
  if (!isRecord(memberAt(value, ['spec']) ?? {})) return [said('spec', 'is not an object')];
  return [...maps, 'metadata.name', 'metadata.namespace'].flatMap((field) => {
    const member = memberAt(value, field.split('.')) ?? undefined;
    const isMap = maps.includes(field);
    if (member === undefined || (isMap ? isStringMap(member) : typeof member === 'string')) return [];
    const members = nonTexts(member);
    if (members.length > 0) return [said(field, `has values that are not strings: ${fewOf(members)}`)];
    return [said(field, isMap ? 'is not a map of strings' : 'is not a string')];
  });
}

function isClusterObject(value: unknown): boolean {
  return isRecord(value) && value.apiVersion === 'v1' && /^(?:Service|Namespace)$/.test(String(value.kind));
}

function ownerKeyOf(value: unknown, defaultNamespace: string): string | undefined {
  const name = memberAt(value, ['metadata', 'name']);
  if (!isRecord(value) || typeof name !== 'string') return undefined;
  return workloadKey(
    String(value.kind),
    String(memberAt(value, ['metadata', 'namespace']) || defaultNamespace),
    name,
  );
}

/** An object that creates pods. */
export interface FoundWorkload {
  readonly object: ManifestObject;
  readonly workload: Workload;
  readonly namespace: string;
  /** What is unknown about its pods, as a sentence: their kind or their template. */
  readonly unknown?: string;
}

/** What is wrong with a manifest. */
export interface ManifestProblem {
  /** With its place in words. */
  readonly message: string;
  /** undefined: it is about the whole text. */
  readonly place: TextProblem | undefined;
}

/** A command's way through manifests. */
export interface Reading {
  readonly report: (problem: ManifestProblem) => void;
  /** Appended to messages about objects that cannot be read, where manifests are to be changed. */
  readonly remark?: string;
  /** Whether an object could not be read. */
  failed: boolean;
}

/** The workloads of a document; says which objects could not be read, or have pods but are of an unknown kind. */
export function* workloadsIn(
  document: ManifestDocument,
  { name }: ManifestInput,
  { namespace, selector }: ManifestSettings,
  { objects }: Manifests,
  reading: Reading,
): Generator<FoundWorkload> {
  const passOver = (problem: string, line?: number) =>
    reading.report(
      line === undefined
        ? { message: `${name}: ${problem}`, place: undefined }
        : { message: `${name}:${line}: ${problem}`, place: { line, problem } },
    );
  const fail = ({ message, place }: ManifestProblem) => {
    reading.failed = true;
    reading.report({ message: message + (reading.remark ?? ''), place });
  };
  const edits = reading.remark !== undefined;
  const owned: string[] = [];
  for (const object of document.objects()) {
    if (object instanceof ManifestError) {
      fail(object);
      continue;
    }
    const { value, line } = object;
    if (!isSelected(value, selector)) continue;
    if (isKustomization(value)) {
      const problem = 'this is a kustomization: render it first (kubectl kustomize FOLDER)';
      fail({ message: `${name}:${line}: ${problem}`, place: { line, problem } });
      continue;
    }
    const replacement = replacementOf(value);
    if (replacement !== undefined) {
      passOver(`${replacement}${edits ? '; left unchanged' : ''}`, line);
      const gone = edits ? undefined : foreignWorkload(value);
      if (gone !== undefined)
        yield { ...gone, object, namespace: gone.workload.namespace ?? namespace, unknown: replacement };
      continue;
    }
    const own = workloadOf(value);
    const found = own === undefined ? foundOtherwise(value, namespace, objects) : { workload: own };
    if (found === undefined) continue;
    const { workload } = found;
    const where = { object, namespace: workload.namespace ?? namespace };
    if (isOwnedIn(value, where.namespace, objects)) owned.push(`${workload.kind} ${workload.name}`);
    else if (object.duplicateKey !== undefined) fail(object.duplicateKey);
    else if (!edits || own !== undefined) yield { ...where, ...found };
    // The template is in the other workload, and is changed there.
    else
      passOver(
        `${found.unknown ?? `${String(memberAt(value, ['apiVersion']))} ${workload.kind} is not a kind that inject changes`}; left unchanged`,
        line,
      );
  }
  if (owned.length > 0)
    passOver(`${fewOf(owned)}: left ${edits ? 'unchanged' : 'out'}, as their owners are among the manifests`);
}

/** Pods whose template is in another object, or of a kind that Linger does not know. */
function foundOtherwise(
  value: unknown,
  defaultNamespace: string,
  objects: Manifests['objects'],
): Pick<FoundWorkload, 'workload' | 'unknown'> | undefined {
  const reference = templateReferenceOf(value, defaultNamespace);
  return reference === undefined
    ? foreignWorkload(value)
    : withTemplate(value, reference, objects.get(reference.key));
}

function isSelected(value: unknown, selector: LabelSelector | undefined): boolean {
  if (selector === undefined) return true;
  const metadata = isRecord(value) && isRecord(value.metadata) ? value.metadata : {};
  return selects(selector, isStringMap(metadata.labels) ? metadata.labels : NO_LABELS);
}

function isKustomization(value: unknown): boolean {
  return isRecord(value) && String(value.apiVersion).startsWith('kustomize.config.k8s.io/');
}

/** Whether an owner of the object is among the manifests, and stands for it. */
function isOwnedIn(value: unknown, namespace: string, objects: Manifests['objects']): boolean {
  return recordsAt(value, 'metadata', 'ownerReferences').some(({ kind, name }) =>
    objects.has(workloadKey(String(kind), namespace, String(name))),
  );
}

/** API versions that no Kubernetes serves any more, for the kinds that matter here. Source: the deprecation guide. */
const GONE: readonly (readonly [apiVersion: RegExp, kinds: RegExp, instead: string])[] = [
  [
    /^(extensions|apps)\/v1(alpha1|beta1|beta2)$/,
    /^(Deployment|ReplicaSet|DaemonSet|StatefulSet)$/,
    'apps/v1',
  ],
  [/^batch\/(v1beta1|v2alpha1)$/, /^(Cron|Scheduled)?Job$/, 'batch/v1'],
  [/^(extensions|networking\.k8s\.io)\/v1beta1$/, /^Ingress$/, 'networking.k8s.io/v1'],
  [/^policy\/v1beta1$/, /^PodDisruptionBudget$/, 'policy/v1'],
  [/^autoscaling\/v2beta[12]$/, /^HorizontalPodAutoscaler$/, 'autoscaling/v2'],
];

function replacementOf(value: unknown): string | undefined {
  if (!isRecord(value)) return undefined;
  const [apiVersion, kind] = [String(value.apiVersion), String(value.kind)];
  const gone = GONE.find(([versions, kinds]) => versions.test(apiVersion) && kinds.test(kind));
  const subject = `${kind} ${nameOf(value)}`;
  return gone && `${subject}: Kubernetes no longer serves ${apiVersion}: write ${gone[2]}`;
}

function nameOf(value: unknown): string {
  return String(memberAt(value, ['metadata', 'name']) ?? '(no name)');
}

/** Deep enough for an operator's nested templates. */
const TEMPLATE_DEPTH = 8;

/** The pods that an object of an unknown kind seems to create, and what to report about that. */
function foreignWorkload(
  value: unknown,
): { readonly workload: Workload; readonly unknown?: string } | undefined {
  if (!isRecord(value)) return undefined;
  const [apiVersion, kind] = [String(value.apiVersion), String(value.kind)];
  const metadata = isRecord(value.metadata) ? value.metadata : {};
  const as = (pointer: string, pod: unknown, unknown?: string) => {
    // undefined: the template of a known kind is missing.
    const workload = workloadOf({ apiVersion: 'v1', kind: 'Pod', metadata, spec: {} });
    return (
      workload && { workload: { ...workload, kind, pointer, pod }, ...(unknown !== undefined && { unknown }) }
    );
  };
  const subject = `${kind} ${nameOf(value)}`;
  if (/^(pool\.)?kubevirt\.io\//.test(apiVersion) && /^VirtualMachine/.test(kind)) {
    const pod = { metadata: {}, spec: { restartPolicy: 'Never', containers: [{ name: 'compute' }] } };
    return as('', pod, `${subject} runs in a pod of KubeVirt’s, and is not a kind that Linger knows`);
  }
  const found = podSpecIn(value, '', 0);
  if (found === undefined) return undefined;
  const { path, spec } = found;
  const unknown = `${subject} has a pod template (${path}/containers), but ${apiVersion} ${kind} is not a kind that Linger knows`;
  const pointer = path.replace(/\/spec$/, '');
  const template = pointer === path ? {} : memberAt(value, pointer.split('/').slice(1));
  const own = pointer === '' ? {} : memberAt(template, ['metadata']);
  const metadataOf = (more = {}) => ({
    ...(isRecord(own) && own),
    labels: { ...(isRecord(own) && isRecord(own.labels) && own.labels), ...more },
  });
  const label = LABELS_OF_PODS.find((each) => apiVersion.startsWith(each.replace(/[^/]*$/, '')));
  if (label === undefined) return as(pointer, { metadata: metadataOf(), spec }, unknown);
  // Knative names the container of a revision where its author does not.
  const containers = spec.containers.map((each) =>
    isRecord(each) ? { name: 'user-container', ...each } : each,
  );
  return as(pointer, { metadata: metadataOf({ [label]: nameOf(value) }), spec: { ...spec, containers } });
}

/** By which decisions know the pods of a group; its controller adds them. */
const LABELS_OF_PODS = ['serving.knative.dev/revision', 'agones.dev/gameserver'];

/** The first list of containers in an object. */
function podSpecIn(
  value: unknown,
  path: string,
  depth: number,
): { readonly path: string; readonly spec: { readonly containers: readonly unknown[] } } | undefined {
  if (depth > TEMPLATE_DEPTH || typeof value !== 'object' || value === null) return undefined;
  if (isRecord(value) && Array.isArray(value.containers)) {
    const isContainer = (item: unknown) => isRecord(item) && typeof item.image === 'string';
    if (value.containers.some(isContainer)) return { path, spec: { ...value, containers: value.containers } };
  }
  for (const [key, member] of Object.entries(value)) {
    const found = podSpecIn(member, `${path}/${key}`, depth + 1);
    if (found !== undefined) return found;
  }
  return undefined;
}

export function planOf(found: Pick<FoundWorkload, 'workload' | 'namespace'>, snapshot: ClusterSnapshot) {
  const { workload, namespace } = found;
  // A template that cannot be read has no labels.
  const labels = memberAt(workload.pod, ['metadata', 'labels']);
  const observers = observersOf(namespace, isStringMap(labels) ? labels : NO_LABELS, snapshot);
  return { ...found, decision: decide(requestOf(found), snapshot), observers };
}

/** Decides as of today for the pods of a running workload. */
export function planOfRunning(
  { workload, namespace }: Pick<FoundWorkload, 'workload' | 'namespace'>,
  snapshot: ClusterSnapshot,
) {
  // Without what Linger has added: with its plan, the answer would only be AlreadyInjected.
  const pod = workload.pointer === '' ? patched(workload.pod, undoFor(workload.pod)) : workload.pod;
  return planOf({ workload: { ...workload, pod }, namespace }, snapshot);
}
