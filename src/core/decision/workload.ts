import { isRecord, isString, memberAt, recordsAt } from '../api/index.ts';

/** An object of a manifest that creates pods. */
export interface Workload {
  readonly kind: string;
  readonly name: string;
  /** undefined where the manifest does not say. */
  readonly namespace: string | undefined;
  /** The kind that will own the pods; undefined for a bare Pod, whose own ownerReferences count. */
  readonly ownerKind: string | undefined;
  /** JSON pointer to the pod or pod template; '' for a Pod. */
  readonly pointer: string;
  /** The pod or pod template, unchecked. */
  readonly pod: unknown;
}

const TEMPLATE = '/spec/template';

/** Where each kind keeps its pod template, and the kind that will own the pods. */
const PLACES: Readonly<Record<string, readonly [pointer: string, ownerKind?: string]>> = {
  'v1/Pod': [''],
  'v1/ReplicationController': [TEMPLATE, 'ReplicationController'],
  'apps/Deployment': [TEMPLATE, 'ReplicaSet'],
  'apps/ReplicaSet': [TEMPLATE, 'ReplicaSet'],
  'apps/StatefulSet': [TEMPLATE, 'StatefulSet'],
  'apps/DaemonSet': [TEMPLATE, 'DaemonSet'],
  'batch/Job': [TEMPLATE, 'Job'],
  'batch/CronJob': ['/spec/jobTemplate/spec/template', 'Job'],
  'argoproj.io/Rollout': [TEMPLATE, 'ReplicaSet'],
  'apps.kruise.io/CloneSet': [TEMPLATE, 'CloneSet'],
  'apps.kruise.io/StatefulSet': [TEMPLATE, 'StatefulSet'],
  'apps.kruise.io/DaemonSet': [TEMPLATE, 'DaemonSet'],
};

/** `apps/Deployment` … and the kind that leads to their pods. */
const KINDS: readonly string[] = [...Object.keys(PLACES), 'v1/Service'];

/**
 * The kind that a misspelt one probably means: `Deployent`, or a Deployment of `v1`. Groups without a dot are Kubernetes’
 * own; for any other group, only that group’s kinds are candidates.
 * @returns `Deployment of apps`; undefined: the kind is known, or resembles none
 */
export function meantKind(apiVersion: string, kind: string): string | undefined {
  const group = apiVersion.includes('/') ? apiVersion.slice(0, apiVersion.indexOf('/')) : apiVersion;
  // Kinds that Kubernetes no longer serves have findings of their own.
  if (KINDS.includes(`${group}/${kind}`) || group === 'extensions') return undefined;
  const among = KINDS.map((each) => each.split('/') as [string, string]).filter(([own]) =>
    group.includes('.') ? own === group : !own.includes('.'),
  );
  const most = kind.length > 4 ? 2 : 1;
  const near = among
    .map(([own, name]) => ({ own, name, edits: editsBetween(kind.toLowerCase(), name.toLowerCase()) }))
    .filter(({ edits }) => edits <= most)
    .toSorted((a, b) => a.edits - b.edits);
  const [meant] = near;
  return (
    meant && `${meant.name} of ${meant.own}${meant.own === 'apps' || meant.own === 'batch' ? '/v1' : ''}`
  );
}

/**
 * The number of letters that differ, are missing or are too many (Levenshtein’s distance). Beyond three it is inexact, but
 * still above three.
 */
function editsBetween(one: string, other: string): number {
  if (Math.abs(one.length - other.length) > 3) return 4;
  let row = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let at = 0; at < one.length; at += 1) {
    const next = [at + 1];
    for (let index = 0; index < other.length; index += 1) {
      const kept = (row[index] ?? 0) + Number(one[at] !== other[index]);
      next.push(Math.min(kept, (row[index + 1] ?? 0) + 1, (next[index] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}

/** The object as a workload; undefined for an object that creates no pods, or none that can be found. */
export function workloadOf(object: unknown): Workload | undefined {
  if (!isRecord(object) || !isString(object.apiVersion) || !isString(object.kind)) return undefined;
  const group = object.apiVersion === 'v1' ? 'v1' : object.apiVersion.split('/')[0];
  const key = `${group}/${object.kind}`;
  const [pointer, ownerKind] = (Object.hasOwn(PLACES, key) ? PLACES[key] : undefined) ?? [];
  const pod = pointer === undefined ? undefined : memberAt(object, pointer.split('/').slice(1));
  if (pointer === undefined || pod === undefined) return undefined;
  const metadata = isRecord(object.metadata) ? object.metadata : {};
  const name = textOr(metadata.name ?? metadata.generateName, '(no name)');
  // The API server treats an empty namespace as absent.
  const namespace = textOr(metadata.namespace, undefined);
  return { kind: object.kind, name, namespace, ownerKind, pointer, pod };
}

function textOr<T>(value: unknown, otherwise: T): string | T {
  return isString(value) && value !== '' ? value : otherwise;
}

export function workloadKey(kind: string, namespace: string, name: string): string {
  return `${kind}/${namespace}/${name}`;
}

/** Whether a controller owns the object. Reads what was not validated, unlike a decision about a pod. */
export function hasController(object: unknown): boolean {
  return recordsAt(object, 'metadata', 'ownerReferences').some(({ controller }) => controller === true);
}

/** A reference to another object that holds the template of the pods: `spec.workloadRef` of an Argo Rollout. */
export interface TemplateReference {
  readonly kind: string;
  readonly name: string;
  /** {@link workloadKey} */
  readonly key: string;
}

export function templateReferenceOf(
  object: unknown,
  defaultNamespace = 'default',
): TemplateReference | undefined {
  const reference = memberAt(object, ['spec', 'workloadRef']);
  if (!isRecord(reference) || workloadOf(object) !== undefined) return undefined;
  const [kind, name] = [textOr(reference.kind, ''), textOr(reference.name, '')];
  const namespace = textOr(memberAt(object, ['metadata', 'namespace']), defaultNamespace);
  return { kind, name, key: workloadKey(kind, namespace, name) };
}

/**
 * The workload of an object that refers to its template.
 * @param template undefined: it was not found, so its pods are unknown
 */
export function withTemplate(
  object: unknown,
  { kind, name }: TemplateReference,
  template: unknown,
): { readonly workload: Workload; readonly unknown?: string } | undefined {
  const workload = isRecord(object)
    ? workloadOf({ ...object, spec: { template: template ?? {} } })
    : undefined;
  if (workload === undefined || template !== undefined) return workload && { workload };
  const unknown = `the pods of ${workload.kind} ${workload.name} come from the template of ${kind} ${name} (workloadRef), which was not found`;
  return { workload, unknown };
}
