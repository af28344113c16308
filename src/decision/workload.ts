import { isRecord } from '../api/index.ts';

/** A manifest's object that makes pods. */
export interface Workload {
  readonly kind: string;
  readonly name: string;
  /** undefined where the manifest does not say. */
  readonly namespace: string | undefined;
  /** The kind that will own the pods; undefined for a bare Pod, which speaks for itself. */
  readonly ownerKind: string | undefined;
  /** JSON pointer to the pod or pod template; '' for a Pod. */
  readonly pointer: string;
  /** The pod or pod template, unchecked. */
  readonly pod: unknown;
}

interface Place {
  readonly pointer: string;
  readonly ownerKind: string | undefined;
}

/** Where each kind keeps its pod template and who owns the pods that come of it. */
const PLACES: Readonly<Record<string, Place>> = {
  'v1/Pod': { pointer: '', ownerKind: undefined },
  'v1/ReplicationController': { pointer: '/spec/template', ownerKind: 'ReplicationController' },
  'apps/Deployment': { pointer: '/spec/template', ownerKind: 'ReplicaSet' },
  'apps/ReplicaSet': { pointer: '/spec/template', ownerKind: 'ReplicaSet' },
  'apps/StatefulSet': { pointer: '/spec/template', ownerKind: 'StatefulSet' },
  'apps/DaemonSet': { pointer: '/spec/template', ownerKind: 'DaemonSet' },
  'batch/Job': { pointer: '/spec/template', ownerKind: 'Job' },
  'batch/CronJob': { pointer: '/spec/jobTemplate/spec/template', ownerKind: 'Job' },
  'argoproj.io/Rollout': { pointer: '/spec/template', ownerKind: 'ReplicaSet' },
  'apps.kruise.io/CloneSet': { pointer: '/spec/template', ownerKind: 'CloneSet' },
  'apps.kruise.io/StatefulSet': { pointer: '/spec/template', ownerKind: 'StatefulSet' },
  'apps.kruise.io/DaemonSet': { pointer: '/spec/template', ownerKind: 'DaemonSet' },
};

/** The workload that an object is, or undefined for an object that makes no pods (or none that can be found). */
export function workloadOf(object: unknown): Workload | undefined {
  if (!isRecord(object) || typeof object.apiVersion !== 'string' || typeof object.kind !== 'string')
    return undefined;
  const group = object.apiVersion === 'v1' ? 'v1' : object.apiVersion.split('/')[0];
  const key = `${group}/${object.kind}`;
  const place = Object.hasOwn(PLACES, key) ? PLACES[key] : undefined;
  if (place === undefined) return undefined;
  const pod = memberAt(object, place.pointer);
  if (pod === undefined) return undefined;
  const metadata = isRecord(object.metadata) ? object.metadata : {};
  return {
    kind: object.kind,
    name: textOr(metadata.name ?? metadata.generateName, '(no name)'),
    // The API server takes an empty one for none.
    namespace:
      typeof metadata.namespace === 'string' && metadata.namespace !== '' ? metadata.namespace : undefined,
    pod,
    ...place,
  };
}

function memberAt(object: unknown, pointer: string): unknown {
  let value = object;
  for (const member of pointer.split('/').slice(1)) value = isRecord(value) ? value[member] : undefined;
  return value;
}

function textOr(value: unknown, otherwise: string): string {
  return typeof value === 'string' && value !== '' ? value : otherwise;
}
