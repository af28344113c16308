import {
  atPointer,
  fewOf,
  isRecord,
  isString,
  isStringMap,
  type LabelSelector,
  listOf,
  memberAt,
  NO_LABELS,
  nonTexts,
  recordsAt,
  selects,
  textOf,
} from '../api/index.ts';
import {
  type ClusterSnapshot,
  type Documents,
  decide,
  evidenceOf,
  exposureOf,
  hasController,
  meantKind,
  observersOf,
  requestOf,
  templateReferenceOf,
  undoFor,
  type Workload,
  withTemplate,
  workloadKey,
  workloadOf,
} from '../decision/index.ts';
import { patched } from '../judge/index.ts';
import {
  type ManifestDocument,
  ManifestError,
  type ManifestObject,
  readDocuments,
  sortDocuments,
} from '../manifest/index.ts';
import type { TextProblem } from '../yaml/index.ts';

/** The text of a file of manifests. */
export interface ManifestText {
  /** The name that messages use for it. */
  readonly name: string;
  readonly text: string;
}

/** What the objects of all texts say about each other. */
export interface Surveyed {
  /** The Services and Namespaces among them. */
  readonly documents: Documents;
  /** By {@link ownerKeyOf}: every object that another may belong to, with its pod template where a Rollout refers to it. */
  readonly objects: ReadonlyMap<string, unknown>;
  /** The names of the inputs: files, and folders from which manifests were rendered. */
  readonly names: readonly string[];
}

/** Which workloads are selected. */
export interface Selection {
  /** The namespace of objects that name none. */
  readonly namespace: string;
  readonly selector: LabelSelector | undefined;
}

/** The object, followed by the objects that it contains, as an OpenShift Template or a ManifestWork does. */
export function withEmbedded(object: ManifestObject): readonly ManifestObject[] {
  return [object, ...embeddedIn(object)];
}

/** Deep enough for an object in a template in a list of steps. */
const EMBEDDED_DEPTH = 10;

function embeddedIn(object: ManifestObject): readonly ManifestObject[] {
  if (workloadOf(object.value) !== undefined) return [];
  const found: ManifestObject[] = [];
  const walk = (value: unknown, path: readonly string[]): void => {
    if (typeof value !== 'object' || value === null || path.length > EMBEDDED_DEPTH) return;
    const before = found.length;
    if (workloadOf(value) === undefined)
      for (const [key, member] of Object.entries(value)) if (key !== 'metadata') walk(member, [...path, key]);
    // An object that contains others is only their envelope.
    if (path.length > 0 && found.length === before && isObject(value)) {
      const { where, lineOf } = object;
      found.push({
        ...object,
        value,
        where: `${where} ${path.join('.')}`,
        line: lineOf(path),
        column: 1,
        lineOf: (more) => lineOf([...path, ...more]),
      });
    }
  };
  walk(object.value, []);
  return found;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return (
    isRecord(value) &&
    isString(value.apiVersion) &&
    isString(value.kind) &&
    isRecord(value.metadata) &&
    (isRecord(value.spec) || isRecord(value.data) || value.kind === 'Namespace')
  );
}

/** Texts without any of these words refer to no other object and need not be parsed a second time. */
const SURVEYED = /\b(?:Service|Namespace)(?:List)?\b|\bownerReferences\b|\bworkloadRef\b/;

/**
 * What the objects of all texts say about each other; `problems`: objects that cannot be read. Policies are left out: they
 * are about to be applied, so they do not apply yet.
 */
export function survey(
  inputs: readonly ManifestText[],
  defaultNamespace: string,
): Surveyed & { readonly problems: readonly ManifestProblem[] } {
  const documents: ManifestObject[] = [];
  const objects = new Map<string, unknown>();
  const refers = inputs.some(({ text }) => /\bworkloadRef\b/.test(text));
  const owned = refers || inputs.some(({ text }) => /\bownerReferences\b/.test(text));
  for (const { text, name } of inputs) {
    if (!owned && !SURVEYED.test(text)) continue;
    for (const document of readDocuments(text, name))
      for (const object of [...document.objects()].flatMap((each) =>
        each instanceof ManifestError ? [] : withEmbedded(each),
      )) {
        if (isClusterObject(object.value)) documents.push(object);
        const key = owned ? ownerKeyOf(object.value, defaultNamespace) : undefined;
        // A PodTemplate creates no pods itself, but others may refer to it.
        const pod = workloadOf(object.value)?.pod ?? memberAt(object.value, ['template']);
        if (key !== undefined) objects.set(key, refers ? pod : undefined);
      }
  }
  const problems = documents.flatMap(unreadableIn);
  const names = inputs.map(({ name }) => name);
  return { documents: sortDocuments(documents, defaultNamespace), objects, names, problems };
}

/**
 * Problems of objects that others depend on, such as a Service with an unreadable selector, which might select any pod of
 * its namespace.
 */
function unreadableIn({ value, where, lineOf }: ManifestObject): readonly ManifestProblem[] {
  const kind = textOf(memberAt(value, ['kind']));
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
  return isRecord(value) && value.apiVersion === 'v1' && /^(?:Service|Namespace)$/.test(textOf(value.kind));
}

function ownerKeyOf(value: unknown, defaultNamespace: string): string | undefined {
  const name = memberAt(value, ['metadata', 'name']);
  if (!isRecord(value) || typeof name !== 'string') return undefined;
  return workloadKey(
    textOf(value.kind),
    textOf(memberAt(value, ['metadata', 'namespace']) || defaultNamespace),
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
  /** It only refers to manifests from which its workloads are rendered elsewhere. */
  readonly notRendered?: true;
  /** Why kubectl rejects the object. */
  readonly refused?: string;
}

/** What is wrong with a manifest. */
export interface ManifestProblem {
  /** The text includes the place. */
  readonly message: string;
  /** undefined: it concerns the whole text. */
  readonly place: TextProblem | undefined;
}

/** How a command reads manifests, and what went wrong. */
export interface Reading {
  readonly report: (problem: ManifestProblem) => void;
  /** Appended to messages about unreadable objects when manifests are to be changed. */
  readonly remark?: string;
  /** Whether an object could not be read. */
  failed: boolean;
}

/**
 * The objects of a text and their workloads, document by document, so that no document has to be kept in memory. Unreadable
 * objects are reported to `reading` as the workloads are consumed.
 */
export function* partsIn(
  input: ManifestText,
  selection: Selection,
  surveyed: Surveyed,
  reading: Reading,
): Generator<{
  /** The objects in order of the text. */
  readonly objects: readonly ManifestObject[];
  readonly workloads: Iterable<FoundWorkload>;
}> {
  for (const document of readDocuments(input.text, input.name)) {
    const objects = [...document.objects()].filter(
      (each): each is ManifestObject => !(each instanceof ManifestError),
    );
    yield { objects, workloads: workloadsIn(document, input, selection, surveyed, reading) };
  }
}

/**
 * The workloads of a document. Reports objects that cannot be read, and objects of an unknown kind that seem to have pods.
 */
export function* workloadsIn(
  document: ManifestDocument,
  { name }: ManifestText,
  { namespace, selector }: Selection,
  { objects, names }: Surveyed,
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
  const [owned, made]: [string[], string[]] = [[], []];
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
    const source = sourceIn(value, name);
    if (source !== undefined) {
      if (!edits && !isAmong(names, value)) yield { ...source, object };
      continue;
    }
    const embedded = embeddedIn(object);
    if (embedded.some((each) => podSpecsIn(each.value).length > 0)) {
      const first = `${textOf(memberAt(value, ['kind']))} ${nameOf(value)} holds ${embedded.length} ${embedded.length === 1 ? 'object' : 'objects'}`;
      const wayOut = isTemplate(value) ? `: process it first (oc process --local -f ${name})` : '';
      passOver(
        `${first}${wayOut}${edits ? '; left unchanged' : wayOut === '' ? '' : '; judged as they stand in it'}`,
        line,
      );
      for (const each of edits ? [] : embedded)
        for (const found of foundIn(each.value, namespace, objects))
          yield { ...found, object: each, namespace: found.workload.namespace ?? namespace };
      continue;
    }
    const replacement = replacementOf(value);
    if (replacement !== undefined) {
      passOver(`${replacement}${edits ? '; left unchanged' : ''}`, line);
      for (const gone of edits ? [] : foreignWorkloads(value))
        yield { ...gone, object, namespace: gone.workload.namespace ?? namespace, unknown: replacement };
      continue;
    }
    const own = workloadOf(value);
    const all = foundIn(value, namespace, objects);
    const [found] = all;
    if (found === undefined) continue;
    const { workload } = found;
    const where = { object, namespace: workload.namespace ?? namespace };
    if (isOwnedIn(value, where.namespace, objects)) owned.push(`${workload.kind} ${workload.name}`);
    else if (edits && isMade(value)) made.push(`${workload.kind} ${workload.name}`);
    else if (object.duplicateKey !== undefined) fail(object.duplicateKey);
    else if (edits && found.refused !== undefined) passOver(`${found.refused}; left unchanged`, line);
    else if (!edits || own !== undefined) for (const each of all) yield { ...where, ...each };
    // The template is part of another object, and is changed there.
    else
      passOver(
        `${found.unknown ?? `${textOf(memberAt(value, ['apiVersion']))} ${workload.kind} is not a kind that inject changes`}; left unchanged`,
        line,
      );
  }
  if (owned.length > 0)
    passOver(`${fewOf(owned)}: left ${edits ? 'unchanged' : 'out'}, as their owners are among the manifests`);
  if (made.length > 0)
    passOver(`${fewOf(made)}: left unchanged, as controllers made them: change what these made them from`);
}

type FoundPods = Pick<FoundWorkload, 'workload' | 'unknown' | 'refused'>;

/** The pods of an object, including those whose template is in another object or whose kind is not known. */
function foundIn(
  value: unknown,
  defaultNamespace: string,
  objects: Surveyed['objects'],
): readonly FoundPods[] {
  const workload = workloadOf(value);
  if (workload !== undefined) {
    const refused = typeProblemOf(value, workload);
    return [{ workload, ...(refused !== undefined && { refused }) }];
  }
  const reference = templateReferenceOf(value, defaultNamespace);
  if (reference === undefined) return foreignWorkloads(value);
  const found = withTemplate(value, reference, objects.get(reference.key));
  return found === undefined ? [] : [found];
}

const isParameter = (value: unknown) => isString(value) && value.includes('${');
const isWhole = (value: unknown) => Number.isInteger(value) || isParameter(value);
const isTextList = (value: unknown) => Array.isArray(value) && value.every(isString);

/** The types that the API requires of the fields around a pod. Source: k8s.io/apimachinery meta/v1, k8s.io/api apps/v1. */
const TYPES: readonly (readonly [path: string, expected: string, is: (value: unknown) => boolean])[] = [
  ...['metadata.name', 'metadata.generateName', 'metadata.namespace', 'spec.serviceName'].map(
    (path) => [path, 'a string', isString] as const,
  ),
  ...['metadata.labels', 'metadata.annotations', 'spec.selector.matchLabels'].map(
    (path) => [path, 'a map of strings', isStringMap] as const,
  ),
  ...[
    'spec.replicas',
    'spec.minReadySeconds',
    'spec.progressDeadlineSeconds',
    'spec.revisionHistoryLimit',
  ].map((path) => [path, 'a whole number', isWhole] as const),
  ...['spec.strategy', 'spec.updateStrategy'].map((path) => [path, 'an object', isRecord] as const),
  ...['spec.strategy.rollingUpdate', 'spec.updateStrategy.rollingUpdate', 'spec.strategy.canary'].flatMap(
    (path) =>
      ['maxSurge', 'maxUnavailable'].map(
        (name) => [`${path}.${name}`, 'a whole number or a percentage', isIntOrPercent] as const,
      ),
  ),
  ['spec.paused', 'true or false', (value) => typeof value === 'boolean' || isParameter(value)],
];

/** Members of containers that manifests often give in a wrong type and that decisions do not read. Source: k8s.io/api core/v1. */
const CONTAINER_TYPES: typeof TYPES = [
  ['image', 'a string', isString],
  ['command', 'a list of strings', isTextList],
  ['args', 'a list of strings', isTextList],
];
const ENTRY_TYPES: readonly (readonly [list: string, ...(typeof TYPES)[number]])[] = [
  ['ports', 'containerPort', 'a whole number', isWhole],
  ['env', 'value', 'a string', isString],
];

function isIntOrPercent(value: unknown): boolean {
  return isWhole(value) || /^\d+%$/.test(textOf(value));
}

/** Why kubectl rejects an object even though Linger can read its pod. A value of null counts as absent. */
function typeProblemOf(value: unknown, workload: Workload): string | undefined {
  const { pod, pointer } = workload;
  const own = problemAmong(TYPES, value, '') ?? refusalOf(value, workload);
  if (own !== undefined) return own;
  const spec = [...pointer.split('/').slice(1), 'spec'].join('.');
  for (const list of ['containers', 'initContainers'])
    for (const [index, container] of recordsAt(pod, 'spec', list).entries()) {
      const path = `${spec}.${list}[${index}].`;
      const found =
        problemAmong(CONTAINER_TYPES, container, path) ??
        ENTRY_TYPES.flatMap(([entries, ...type]) =>
          recordsAt(container, entries).map((entry, at) =>
            problemAmong([type], entry, `${path}${entries}[${at}].`),
          ),
        ).find((each) => each !== undefined);
      if (found !== undefined) return found;
    }
  return undefined;
}

function problemAmong(types: typeof TYPES, value: unknown, above: string): string | undefined {
  for (const [path, expected, is] of types) {
    const member = memberAt(value, path.split('.')) ?? undefined;
    if (member === undefined || is(member)) continue;
    const members = isRecord(member)
      ? nonTexts(member)
      : listOf(member)
          .filter((each) => !isString(each))
          .map((each) => `${typeof each} ${textOf(each)}`);
    const got =
      members.length > 0
        ? fewOf(members)
        : isRecord(member)
          ? 'an object'
          : `${typeof member} ${textOf(member)}`;
    return `${above}${path}: expected ${expected}, got ${got}${typeof member === 'boolean' ? ' (YAML 1.1 reads no, off, yes and on so: write quotes)' : ''}; kubectl refuses the object`;
  }
  return undefined;
}

/** The types of strategies, by the field of a workload. */
const STRATEGIES = {
  strategy: ['Recreate', 'RollingUpdate'],
  updateStrategy: ['OnDelete', 'RollingUpdate'],
} as const;

/**
 * What the API server refuses among the fields that determine which pods a workload has and how it replaces them. Source:
 * k8s.io/kubernetes pkg/apis/apps/validation.
 */
function refusalOf(value: unknown, { pod, pointer }: Workload): string | undefined {
  if (memberAt(value, ['apiVersion']) !== 'apps/v1' || pointer !== '/spec/template') return undefined;
  const refused = (problem: string) => `${problem}; the API server refuses the object`;
  for (const [field, types] of Object.entries(STRATEGIES)) {
    const strategy = memberAt(value, ['spec', field]);
    const type = memberAt(strategy, ['type']) ?? undefined;
    if (type !== undefined && !isParameter(type) && !types.some((each) => each === type))
      return refused(`spec.${field}.type: expected ${types.join(' or ')}, got ${textOf(type)}`);
    const rolling = memberAt(strategy, ['rollingUpdate']);
    if (!isRecord(rolling)) continue;
    const path = `spec.${field}.rollingUpdate`;
    if (type === 'Recreate') return refused(`${path}: not allowed with type Recreate`);
    if ([rolling.maxSurge, rolling.maxUnavailable].every((each) => /^0%?$/.test(textOf(each))))
      return refused(`${path}: maxSurge and maxUnavailable are both 0`);
  }
  const restarts = memberAt(pod, ['spec', 'restartPolicy']) ?? 'Always';
  if (restarts !== 'Always' && !isParameter(restarts))
    return refused(`spec.template.spec.restartPolicy: expected Always, got ${textOf(restarts)}`);
  const matchLabels = memberAt(value, ['spec', 'selector', 'matchLabels']);
  // Labels that a kustomization adds are not in its bases.
  const labels = memberAt(pod, ['metadata', 'labels']);
  if (!isStringMap(matchLabels) || !isStringMap(labels) || selects({ matchLabels }, labels)) return undefined;
  const wanted = Object.entries(matchLabels).map(([key, label]) => `${key}: ${label}`);
  return refused(`spec.selector (${fewOf(wanted)}) does not match the labels of the template`);
}

/** GitOps kinds: workloads are created from what they name. With how to render that. */
const SOURCES: readonly (readonly [group: RegExp, kinds: RegExp, how: string])[] = [
  [
    /^helm\.toolkit\.fluxcd\.io\//,
    /^HelmRelease$/,
    'helm template CHART with its values, or flux-local build',
  ],
  [
    /^kustomize\.toolkit\.fluxcd\.io\//,
    /^Kustomization$/,
    'flux build kustomization NAME --path PATH --dry-run',
  ],
  [/^fluxcd\.controlplane\.io\//, /^ResourceSet$/, 'flux-operator build rset -f FILE'],
  [
    /^argoproj\.io\//,
    /^(Application|ApplicationSet)$/,
    'argocd app manifests NAME, or helm template / kubectl kustomize of its source',
  ],
  [/^helm\.cattle\.io\//, /^HelmChart$/, 'helm template CHART with its values'],
  [/^fleet\.cattle\.io\//, /^(GitRepo|Bundle|HelmOp)$/, 'fleet apply --output -'],
  [/^helm\.crossplane\.io\//, /^Release$/, 'helm template CHART with its values'],
  [/^kappctrl\.k14s\.io\//, /^(App|PackageInstall)$/, 'kctrl dev --local -f FILE'],
  [/^packaging\.carvel\.dev\//, /^PackageInstall$/, 'kctrl dev --local -f FILE'],
  [/^configsync\.gke\.io\//, /^(RootSync|RepoSync)$/, 'nomos hydrate'],
  [/^core\.oam\.dev\//, /^Application$/, 'vela dry-run -f FILE'],
  [
    /^apps\.open-cluster-management\.io\//,
    /^Subscription$/,
    'helm template / kubectl kustomize of what its channel holds',
  ],
  [/^addons\.cluster\.x-k8s\.io\//, /^HelmChartProxy$/, 'helm template CHART with its values'],
  [
    /^config\.projectsveltos\.io\//,
    /^(ClusterProfile|Profile)$/,
    'helm template / kubectl kustomize of what it names',
  ],
  [/^gitops\.kluctl\.io\//, /^KluctlDeployment$/, 'kluctl render'],
];

/**
 * The chart that a HelmRelease (where `chartRef` names the object with the chart), a HelmChart of k3s or a Release of
 * Crossplane installs.
 */
function chartIn(value: unknown): string {
  const spec = memberAt(value, ['spec']);
  const { kind, name } = recordIn(memberAt(spec, ['chartRef']));
  if (isString(kind) && isString(name)) return `CHART (that of ${kind} ${name})`;
  const chart =
    memberAt(spec, ['chart', 'spec', 'chart']) ??
    memberAt(spec, ['forProvider', 'chart', 'name']) ??
    memberAt(spec, ['chartName']) ??
    memberAt(spec, ['chart']);
  return isString(chart) ? chart : 'CHART';
}

function recordIn(value: unknown): Readonly<Record<string, unknown>> {
  return isRecord(value) ? value : {};
}

function sourceIn(value: unknown, file: string): Omit<FoundWorkload, 'object'> | undefined {
  if (!isRecord(value)) return undefined;
  const [apiVersion, kind] = [textOf(value.apiVersion), textOf(value.kind)];
  const source = SOURCES.find(([group, kinds]) => group.test(apiVersion) && kinds.test(kind));
  const metadata = isRecord(value.metadata) ? value.metadata : {};
  const as = workloadOf({ apiVersion: 'v1', kind: 'Pod', metadata, spec: {} });
  if (source === undefined || as === undefined) return undefined;
  const how = source[2]
    .replace('FILE', file)
    .replace('NAME', as.name)
    .replace('CHART', chartIn(value))
    .replace('PATH', textOf(memberAt(value, ['spec', 'path'])) || 'PATH');
  return {
    workload: { ...as, kind, pod: undefined },
    namespace: as.namespace ?? 'default',
    unknown: `the workloads of ${kind} ${as.name} are not here: render them (${how}), and audit what comes out`,
    notRendered: true,
  };
}

/**
 * Whether the input contains the folders that a Kustomization of Flux or an Application of Argo CD applies; if so, they are
 * judged directly, and the object itself is not unknown.
 */
function isAmong(names: readonly string[], value: unknown): boolean {
  const folders = foldersOf(value);
  return folders.length > 0 && folders.every((folder) => isFolderAmong(names, folder));
}

/** The paths of its folders in the repository; empty: it applies something else. */
function foldersOf(value: unknown): readonly unknown[] {
  const spec = memberAt(value, ['spec']);
  if (memberAt(value, ['kind']) === 'Kustomization') {
    const { kind, name } = recordIn(memberAt(spec, ['sourceRef']));
    // By convention, Flux’s own source is this repository, or is pushed from it.
    return kind === 'GitRepository' || name === 'flux-system' ? [memberAt(spec, ['path'])] : [];
  }
  if (memberAt(value, ['kind']) !== 'Application') return [];
  const sources = recordsAt(spec, 'sources');
  const all = sources.length > 0 ? sources : [recordIn(memberAt(spec, ['source']))];
  // A source that only provides values for others renders nothing.
  return all.filter(({ ref, path }) => ref === undefined || path !== undefined).map(({ path }) => path);
}

/** Paths are relative to the root of the repository, so the root must contain the whole input. */
function isFolderAmong(names: readonly string[], path: unknown): boolean {
  const folder = isString(path) ? `/${path.replace(/^\.?\/|\/$/g, '')}/` : '//';
  if (folder === '//') return false;
  const all = names.map((name) => `/${name}/`);
  return all.some((name) => {
    const at = name.indexOf(folder);
    return at >= 0 && all.every((each) => each.startsWith(name.slice(0, at + 1)));
  });
}

function isTemplate(value: unknown): boolean {
  return (
    isRecord(value) &&
    value.kind === 'Template' &&
    /^(template\.openshift\.io\/)?v1$/.test(textOf(value.apiVersion))
  );
}

function isSelected(value: unknown, selector: LabelSelector | undefined): boolean {
  if (selector === undefined) return true;
  const metadata = isRecord(value) && isRecord(value.metadata) ? value.metadata : {};
  return selects(selector, isStringMap(metadata.labels) ? metadata.labels : NO_LABELS);
}

function isKustomization(value: unknown): boolean {
  return isRecord(value) && textOf(value.apiVersion).startsWith('kustomize.config.k8s.io/');
}

/** Whether the manifests contain an owner of the object; then the owner is judged instead. */
function isOwnedIn(value: unknown, namespace: string, objects: Surveyed['objects']): boolean {
  return recordsAt(value, 'metadata', 'ownerReferences').some(({ kind, name }) =>
    objects.has(workloadKey(textOf(kind), namespace, textOf(name))),
  );
}

/**
 * Whether it is exported from a cluster in which a controller made it. A change of such a Pod is refused, and a change of a
 * ReplicaSet makes its Deployment create another one.
 */
function isMade(value: unknown): boolean {
  const isExported = memberAt(value, ['metadata', 'resourceVersion']) ?? memberAt(value, ['status', 'phase']);
  return (
    hasController(value) &&
    isExported !== undefined &&
    /^(Pod|ReplicaSet|ReplicationController)$/.test(textOf(memberAt(value, ['kind'])))
  );
}

/** API versions that Kubernetes no longer serves, for the kinds that matter here. Source: the deprecation guide. */
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
  const [apiVersion, kind] = [textOf(value.apiVersion), textOf(value.kind)];
  const gone = GONE.find(([versions, kinds]) => versions.test(apiVersion) && kinds.test(kind));
  const subject = `${kind} ${nameOf(value)}`;
  return gone && `${subject}: Kubernetes no longer serves ${apiVersion}: write ${gone[2]}`;
}

function nameOf(value: unknown): string {
  return textOf(memberAt(value, ['metadata', 'name']) ?? '(no name)');
}

/** Deep enough for an operator's nested templates. */
const TEMPLATE_DEPTH = 8;

/** The pods that an object of an unknown kind seems to create, for each of its templates, and what to report about them. */
function foreignWorkloads(value: unknown): readonly FoundPods[] {
  const specs = podSpecsIn(value);
  if (specs.length === 0) return listOfOne(foreignWorkload(value));
  return specs.flatMap((each) => listOfOne(foreignWorkload(value, each, specs.length > 1)));
}

function listOfOne<T>(value: T | undefined): readonly T[] {
  return value === undefined ? [] : [value];
}

function foreignWorkload(value: unknown, found?: PodSpecAt, isOneOf = false): FoundPods | undefined {
  if (!isRecord(value)) return undefined;
  const [apiVersion, kind] = [textOf(value.apiVersion), textOf(value.kind)];
  const metadata = isRecord(value.metadata) ? value.metadata : {};
  const as = (pointer: string, pod: unknown, unknown?: string) => {
    // If undefined, an object of a known kind lacks its template.
    const workload = workloadOf({ apiVersion: 'v1', kind: 'Pod', metadata, spec: {} });
    return (
      workload && {
        workload: {
          ...workload,
          kind,
          pointer,
          pod,
          name: isOneOf ? `${workload.name} (${groupIn(pointer)})` : workload.name,
        },
        ...(unknown !== undefined && { unknown }),
      }
    );
  };
  const subject = `${kind} ${nameOf(value)}`;
  if (/^(pool\.)?kubevirt\.io\//.test(apiVersion) && /^VirtualMachine/.test(kind)) {
    const pod = { metadata: {}, spec: { restartPolicy: 'Never', containers: [{ name: 'compute' }] } };
    return as('', pod, `${subject} runs in a pod of KubeVirt’s, and is not a kind that Linger knows`);
  }
  if (found === undefined) return undefined;
  const { path, spec } = found;
  const meant = meantKind(apiVersion, kind);
  const wayOut = meant === undefined ? '' : ` (is ${meant} meant?)`;
  const unknown = `${subject} has a pod template (${path}/containers), but ${apiVersion} ${kind} is not a kind that Linger knows${wayOut}`;
  const pointer = path.replace(/\/spec$/, '');
  const template = pointer === path ? {} : atPointer(value, pointer);
  const own = pointer === '' ? {} : memberAt(template, ['metadata']);
  const metadataOf = (more = {}) => ({
    ...(isRecord(own) && own),
    labels: { ...(isRecord(own) && isRecord(own.labels) && own.labels), ...more },
  });
  const label = LABELS_OF_PODS.find((each) => apiVersion.startsWith(each.replace(/[^/]*$/, '')));
  if (label === undefined) return as(pointer, { metadata: metadataOf(), spec }, unknown);
  // Knative names the container of a revision if its author does not.
  const containers = spec.containers.map((each) =>
    isRecord(each) ? { name: 'user-container', ...each } : each,
  );
  return as(pointer, { metadata: metadataOf({ [label]: nameOf(value) }), spec: { ...spec, containers } });
}

/** Labels that a controller adds to its pods and by which decisions recognise them. */
const LABELS_OF_PODS = ['serving.knative.dev/revision', 'agones.dev/gameserver'];

/** `/spec/workerGroupSpecs/0/template` as `workerGroupSpecs[0]`. */
function groupIn(pointer: string): string {
  return pointer
    .replace(/^\/spec\//, '')
    .replace(/\/(template|spec)$/, '')
    .replaceAll(/\/(\d+)(?=\/|$)/g, '[$1]')
    .replaceAll('/', '.');
}

interface PodSpecAt {
  readonly path: string;
  readonly spec: { readonly containers: readonly unknown[] };
}

/** The parts of an object that look like pod specs: they have a list of containers. */
function podSpecsIn(value: unknown, path = '', depth = 0): readonly PodSpecAt[] {
  if (depth > TEMPLATE_DEPTH || typeof value !== 'object' || value === null) return [];
  if (isRecord(value) && Array.isArray(value.containers)) {
    // In a pod template, containers may lack an image, because an operator adds it.
    const isPod = /(\/template|[pP]odTemplate(Spec)?)\/spec$/.test(path);
    const isContainer = (item: unknown) =>
      isRecord(item) && (isString(item.image) || (isPod && isString(item.name)));
    if (value.containers.some(isContainer))
      return [{ path, spec: { ...value, containers: value.containers } }];
  }
  return Object.entries(value).flatMap(([key, member]) => podSpecsIn(member, `${path}/${key}`, depth + 1));
}

export function planOf(found: Pick<FoundWorkload, 'workload' | 'namespace'>, snapshot: ClusterSnapshot) {
  const { workload, namespace } = found;
  // A template that cannot be read counts as having no labels.
  const labels = memberAt(workload.pod, ['metadata', 'labels']);
  const observers = observersOf(namespace, isStringMap(labels) ? labels : NO_LABELS, snapshot);
  const request = requestOf(found);
  const exposure = exposureOf(request, snapshot);
  const evidence = exposure && evidenceOf(exposure);
  return { ...found, decision: decide(request, snapshot), observers, ...(evidence && { evidence }) };
}

/** Decides for the pods of a running workload as if they were created today. */
export function planOfRunning(
  { workload, namespace }: Pick<FoundWorkload, 'workload' | 'namespace'>,
  snapshot: ClusterSnapshot,
) {
  // Undo Linger's changes first; otherwise the answer would just be AlreadyInjected.
  const pod = workload.pointer === '' ? patched(workload.pod, undoFor(workload.pod)) : workload.pod;
  return planOf({ workload: { ...workload, pod }, namespace }, snapshot);
}
