import { isRecord, isString, memberAt } from '../api/index.ts';

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
