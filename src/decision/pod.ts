import {
  isAbsentOr,
  isRecord,
  isString,
  isStringMap,
  type Labels,
  type LifecycleHandler,
  labelOf,
  NO_LABELS,
  plainSleep,
} from '../api/index.ts';

/**
 * A Pod as far as the decision reads it: everything else in the object is passed over unseen. Optional members
 * may be absent or null, as JSON from any client may have them.
 */
export interface Pod {
  readonly metadata?: PodMetadata | null;
  readonly spec: PodSpec;
}

interface PodMetadata {
  readonly labels?: Labels | null;
  readonly annotations?: Labels | null;
  readonly ownerReferences?: readonly OwnerReference[] | null;
}

interface OwnerReference {
  readonly kind: string;
  readonly name: string;
  readonly controller?: boolean | null;
}

interface PodSpec {
  readonly containers: readonly Container[];
  readonly initContainers?: readonly Container[] | null;
  readonly terminationGracePeriodSeconds?: number | null;
  readonly restartPolicy?: string | null;
  readonly nodeSelector?: Labels | null;
  readonly os?: { readonly name?: unknown } | null;
}

export interface Container {
  readonly name: string;
  /** Only init containers have one of their own: `Always` makes a native sidecar. */
  readonly restartPolicy?: unknown;
  readonly ports?: readonly unknown[] | null;
  readonly readinessProbe?: Probe | null;
  readonly livenessProbe?: Probe | null;
  readonly startupProbe?: Probe | null;
  readonly lifecycle?: { readonly preStop?: LifecycleHandler | null } | null;
}

interface Probe {
  readonly terminationGracePeriodSeconds?: unknown;
}

/** What the API server puts where the author says nothing. Source: k8s.io/api core/v1 DefaultTerminationGracePeriodSeconds. */
export const DEFAULT_GRACE_SECONDS = 30;

/**
 * Checks the members that the decision reads, and only those: all else is the API server's to judge.
 * @returns what is wrong, as `path: expected …`, or undefined when the object can be read as a {@link Pod}
 */
export function problemOf(object: unknown): string | undefined {
  if (!isRecord(object)) return 'object: expected a Pod';
  if ((object.kind ?? 'Pod') !== 'Pod' || (object.apiVersion ?? 'v1') !== 'v1')
    return 'kind: expected v1 Pod';
  const { metadata, spec } = object;
  if (!isAbsentOr(isRecord, metadata)) return 'metadata: expected an object';
  if (!isAbsentOr(isStringMap, metadata?.labels)) return 'metadata.labels: expected a map of strings';
  if (!isAbsentOr(isStringMap, metadata?.annotations))
    return 'metadata.annotations: expected a map of strings';
  if (!isAbsentOr(isOwnerList, metadata?.ownerReferences))
    return 'metadata.ownerReferences: expected a list of owners';
  if (!isRecord(spec)) return 'spec: expected an object';
  if (!isAbsentOr(Number.isInteger, spec.terminationGracePeriodSeconds)) {
    return 'spec.terminationGracePeriodSeconds: expected whole seconds';
  }
  if (!isAbsentOr(isString, spec.restartPolicy)) return 'spec.restartPolicy: expected a string';
  if (!isAbsentOr(isStringMap, spec.nodeSelector)) return 'spec.nodeSelector: expected a map of strings';
  if (!isAbsentOr(isRecord, spec.os)) return 'spec.os: expected an object';
  if (!Array.isArray(spec.containers)) return 'spec.containers: expected a list';
  const wrong = spec.containers.findIndex((container) => !isContainer(container));
  if (wrong >= 0) return `spec.containers[${wrong}]: expected a container`;
  const initContainers = spec.initContainers ?? [];
  return Array.isArray(initContainers) && initContainers.every(isContainer)
    ? undefined
    : 'spec.initContainers: expected a list of containers';
}

/** The Pod in this object, or undefined when {@link problemOf} finds something wrong with it. */
export function readPod(object: unknown): Pod | undefined {
  return problemOf(object) === undefined ? (object as Pod) : undefined;
}

export function labelsOf(pod: Pod): Labels {
  return pod.metadata?.labels ?? NO_LABELS;
}

export function annotationsOf(pod: Pod): Labels {
  return pod.metadata?.annotations ?? NO_LABELS;
}

/**
 * The pod's grace in seconds. A negative one becomes 1 when the API server stores the pod.
 * Source: k8s.io/kubernetes pkg/registry/core/pod/strategy.go (PrepareForCreate).
 */
export function graceOf(pod: Pod): number {
  const grace = pod.spec.terminationGracePeriodSeconds ?? DEFAULT_GRACE_SECONDS;
  return grace < 0 ? 1 : grace;
}

export function controllerOf(pod: Pod): OwnerReference | undefined {
  return pod.metadata?.ownerReferences?.find((owner) => owner.controller === true);
}

/** The containers that run as long as the pod does: the ordinary ones and native sidecars. Source: KEP-753. */
export function servingContainers({ spec }: Pod): readonly Container[] {
  const sidecars = spec.initContainers?.filter(({ restartPolicy }) => restartPolicy === 'Always') ?? [];
  return [...spec.containers, ...sidecars];
}

/** Whether the pod can only run on Windows, where there is no `sleep` program. Source: KEP-2802. */
export function isWindows(pod: Pod): boolean {
  return (
    pod.spec.os?.name === 'windows' ||
    labelOf(pod.spec.nodeSelector ?? NO_LABELS, 'kubernetes.io/os') === 'windows'
  );
}

/** The shortest grace that a failing liveness or startup probe of this container gives, if one says so. */
export function probeGraceOf(container: Container): number | undefined {
  const graces = [container.livenessProbe, container.startupProbe]
    .map((probe) => probe?.terminationGracePeriodSeconds)
    .filter((grace) => typeof grace === 'number');
  return graces.length === 0 ? undefined : Math.min(...graces);
}

function isContainer(value: unknown): value is Container {
  if (!isRecord(value) || typeof value.name !== 'string') return false;
  const { ports, readinessProbe, livenessProbe, startupProbe, lifecycle } = value;
  return (
    isAbsentOr(Array.isArray, ports) &&
    isAbsentOr(isRecord, readinessProbe) &&
    isAbsentOr(isRecord, livenessProbe) &&
    isAbsentOr(isRecord, startupProbe) &&
    isAbsentOr(isRecord, lifecycle) &&
    isAbsentOr(isRecord, lifecycle?.preStop)
  );
}

function isOwnerList(value: unknown): value is readonly OwnerReference[] {
  return (
    Array.isArray(value) &&
    value.every(
      (owner) => isRecord(owner) && typeof owner.kind === 'string' && typeof owner.name === 'string',
    )
  );
}

/**
 * Beyond these, reading a pod takes time that other pods wait for. The API server itself refuses more annotations
 * (k8s.io/apimachinery pkg/api/validation, TotalAnnotationSizeLimitB), but only after it has asked its webhooks; no node
 * runs so many containers.
 */
export const POD_LIMITS = { containers: 1_000, labels: 1_000, annotationCharacters: 256 * 1024 } as const;

/** Whether the pod is beyond {@link POD_LIMITS}. */
export function isTooLarge(pod: Pod): boolean {
  const { containers, initContainers } = pod.spec;
  if (containers.length + (initContainers?.length ?? 0) > POD_LIMITS.containers) return true;
  let labels = 0;
  for (const _ in labelsOf(pod)) if (++labels > POD_LIMITS.labels) return true;
  let characters = 0;
  const annotations = annotationsOf(pod);
  for (const key in annotations) {
    characters += key.length + (annotations[key]?.length ?? 0);
    if (characters > POD_LIMITS.annotationCharacters) return true;
  }
  return false;
}

/**
 * What decisions read of a pod that is within {@link POD_LIMITS}, as a copy: small enough to be handed from one thread to
 * another. A decision for it is the same as for the whole pod.
 */
export function essentialsOf(pod: Pod): Pod {
  const { spec } = pod;
  const controller = controllerOf(pod);
  return {
    ...(pod.metadata && {
      metadata: {
        ...pick(pod.metadata, 'labels', 'annotations'),
        ...(controller && { ownerReferences: [controller] }),
      },
    }),
    spec: {
      ...pick(spec, 'terminationGracePeriodSeconds', 'restartPolicy'),
      ...(isWindows(pod) && { os: { name: 'windows' } }),
      containers: spec.containers.map(essentialsOfContainer),
      ...(spec.initContainers && { initContainers: spec.initContainers.map(essentialsOfContainer) }),
    },
  };
}

function essentialsOfContainer(container: Container): Container {
  const { ports, readinessProbe, lifecycle } = container;
  const probeGrace = probeGraceOf(container);
  return {
    ...pick(container, 'name', 'restartPolicy'),
    ...(ports && { ports: ports.slice(0, 1).map(() => ({})) }),
    ...(readinessProbe && { readinessProbe: {} }),
    ...(probeGrace !== undefined && { livenessProbe: { terminationGracePeriodSeconds: probeGrace } }),
    ...(lifecycle && { lifecycle: lifecycle.preStop ? { preStop: recognisable(lifecycle.preStop) } : {} }),
  };
}

/** A handler that is no plain sleep is its author's, whatever is in it. */
function recognisable(handler: LifecycleHandler): LifecycleHandler {
  return plainSleep(handler) === undefined ? { unread: {} } : handler;
}

function pick<T extends object, K extends keyof T>(from: T, ...keys: readonly K[]): Pick<T, K> {
  const picked = {} as Pick<T, K>;
  for (const key of keys) if (Object.hasOwn(from, key)) picked[key] = from[key];
  return picked;
}
