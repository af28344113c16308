import {
  isRecord,
  isString,
  type Labels,
  type LifecycleHandler,
  labelOf,
  memberAt,
  NO_LABELS,
} from '../api/index.ts';

/**
 * The part of a Pod that decisions read; everything else is ignored. Optional members may be absent or null, since clients
 * send either. Each member has its row in `pod-members.ts`.
 */
export interface Pod {
  readonly metadata?: PodMetadata | null | undefined;
  readonly spec: PodSpec;
}

export interface PodMetadata {
  readonly labels?: Labels | null | undefined;
  readonly annotations?: Labels | null | undefined;
  readonly ownerReferences?: readonly OwnerReference[] | null | undefined;
}

export interface OwnerReference {
  readonly kind: string;
  readonly name: string;
  readonly controller?: boolean | null | undefined;
}

export interface PodSpec {
  readonly containers: readonly Container[];
  readonly initContainers?: readonly Container[] | null | undefined;
  readonly terminationGracePeriodSeconds?: number | null | undefined;
  readonly restartPolicy?: string | null | undefined;
  readonly nodeSelector?: Labels | null | undefined;
  readonly os?: { readonly name?: unknown } | null | undefined;
  // Read for Hold only, and unchecked: validation is the API server's.
  readonly volumes?: unknown;
  readonly affinity?: unknown;
  readonly nodeName?: unknown;
  readonly hostNetwork?: unknown;
  readonly runtimeClassName?: unknown;
  readonly securityContext?: unknown;
}

export interface Container {
  readonly name: string;
  /** Read only to recognise images that cannot run the hook. */
  readonly image?: unknown;
  /**
   * `Always` makes an init container a native sidecar; for an ordinary container it overrides the pod's. Source: KEP-5307.
   */
  readonly restartPolicy?: unknown;
  readonly ports?: readonly unknown[] | null | undefined;
  readonly readinessProbe?: ReadinessProbe | null | undefined;
  readonly livenessProbe?: KillingProbe | null | undefined;
  readonly startupProbe?: KillingProbe | null | undefined;
  readonly lifecycle?: Lifecycle | null | undefined;
  // Read for Hold only, and unchecked.
  readonly volumeMounts?: unknown;
  readonly volumeDevices?: unknown;
  readonly securityContext?: unknown;
}

export interface Lifecycle {
  readonly preStop?: LifecycleHandler | null | undefined;
  /** Only its presence matters. */
  readonly postStart?: unknown;
}

export interface ReadinessProbe {
  readonly periodSeconds?: unknown;
  readonly exec?: unknown;
}

/** A probe whose failure ends the container. */
export interface KillingProbe {
  readonly terminationGracePeriodSeconds?: unknown;
}

/** The API server's default. Source: k8s.io/api core/v1 DefaultTerminationGracePeriodSeconds. */
export const DEFAULT_GRACE_SECONDS = 30;

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
export function servingContainers(pod: Pod): readonly Container[] {
  return [...pod.spec.containers, ...nativeSidecars(pod)];
}

export function nativeSidecars({ spec }: Pod): readonly Container[] {
  return spec.initContainers?.filter(({ restartPolicy }) => restartPolicy === 'Always') ?? [];
}

/** Whether an ordinary container is one that exits by itself and is not started again. */
export function endsByItself({ spec }: Pod, { restartPolicy }: Container): boolean {
  return (restartPolicy ?? spec.restartPolicy ?? 'Always') !== 'Always';
}

/** The second label is no longer set on new nodes from 1.37 on, but manifests still use it. */
export const OS_LABELS = ['kubernetes.io/os', 'beta.kubernetes.io/os'] as const;
/** Only Windows nodes have it. */
export const WINDOWS_BUILD = 'node.kubernetes.io/windows-build';

/**
 * Whether the pod asks for Windows, where there is no `sleep` program, in any of the ways that Kubernetes has. Source:
 * KEP-2802, and kubernetes.io/docs/concepts/windows/user-guide.
 */
export function isWindows({ spec }: Pod): boolean {
  const { os, nodeSelector, affinity, runtimeClassName, containers, initContainers } = spec;
  if (isString(os?.name)) return os.name === 'windows';
  if (nodeSelector) {
    const selected = OS_LABELS.map((label) => labelOf(nodeSelector, label)).find(
      (each) => each !== undefined,
    );
    if (selected !== undefined) return selected === 'windows';
    if (labelOf(nodeSelector, WINDOWS_BUILD) !== undefined) return true;
  }
  if (affinity && entriesOf(nodeSelectorTerms(spec)).some(asksForWindows)) return true;
  if (
    hasWindowsOptions(spec) ||
    containers.some(hasWindowsOptions) ||
    initContainers?.some(hasWindowsOptions)
  )
    return true;
  // Admission has merged the class's own nodeSelector into a pod; in a manifest there is its name only.
  return Boolean(runtimeClassName) && /windows|wcow/i.test(shortTextIn(runtimeClassName));
}

/** A node selector term that Windows nodes match (and perhaps others): then the image must be one for Windows. */
function asksForWindows(term: unknown): boolean {
  return entriesOf(memberAt(term, ['matchExpressions'])).some((expression) => {
    const { key, operator, values } = isRecord(expression) ? expression : {};
    if (key === WINDOWS_BUILD) return operator !== 'DoesNotExist';
    if (!OS_LABELS.some((label) => label === key)) return false;
    const listed = entriesOf(values);
    return operator === 'In' ? listed.includes('windows') : operator === 'NotIn' && listed.includes('linux');
  });
}

function hasWindowsOptions({ securityContext }: Pick<PodSpec, 'securityContext'>): boolean {
  if (!isRecord(securityContext) || !isRecord(securityContext.windowsOptions)) return false;
  return Object.values(securityContext.windowsOptions).some((value) => value !== null && value !== false);
}

/** More volumes than any real pod has, or mounts than any container: longer lists are not read. */
export const MOST_ENTRIES = 1_000;

export function isReadableList(value: unknown): value is readonly unknown[] {
  return Array.isArray(value) && value.length <= MOST_ENTRIES;
}

/** The entries of a list that can be read; none of anything else. */
export function entriesOf(value: unknown): readonly unknown[] {
  return isReadableList(value) ? value : [];
}

export const NODE_PROFILES = ['seccompProfile', 'appArmorProfile'] as const;

const TERMS = [
  'nodeAffinity',
  'requiredDuringSchedulingIgnoredDuringExecution',
  'nodeSelectorTerms',
] as const;

/** Unchecked. */
export function nodeSelectorTerms({ affinity }: PodSpec): unknown {
  return memberAt(affinity, TERMS);
}

/** Characters: longer than any real constraints, and short enough to evaluate against thousands of nodes. */
const LONGEST_CONSTRAINTS = 4 * 1024;

/** The pod's node constraints as text; empty: it has none, or more than {@link LONGEST_CONSTRAINTS}. */
export function constraintsOf({ spec }: Pod): string {
  const { nodeName, nodeSelector, os } = spec;
  const terms = nodeSelectorTerms(spec);
  if (!nodeName && !nodeSelector && !terms && os?.name !== 'linux') return '';
  const text = JSON.stringify([nodeName, nodeSelector, terms, os?.name]);
  return text.length > LONGEST_CONSTRAINTS ? '' : text;
}

/** Source: k8s.io/api core/v1 Probe. */
const DEFAULT_PROBE_PERIOD_SECONDS = 10;

/**
 * Connections per second that the kubelet's probes make to the pod while it terminates; only readiness probes continue
 * then. Source: pkg/kubelet/prober/worker.go, doProbe.
 */
export function probeRateOf(pod: Pod): number {
  const rate = servingContainers(pod).reduce((sum, { readinessProbe: probe }) => {
    if (!probe || probe.exec) return sum;
    const { periodSeconds } = probe;
    const isGiven = typeof periodSeconds === 'number' && periodSeconds >= 1;
    return sum + 1 / (isGiven ? periodSeconds : DEFAULT_PROBE_PERIOD_SECONDS);
  }, 0);
  return Math.round(rate * 1_000) / 1_000;
}

/** The shortest grace that a failing liveness or startup probe of this container gives; infinite if none says so. */
export function probeGraceOf({ livenessProbe, startupProbe }: Container): number {
  return Math.min(ownGraceOf(livenessProbe), ownGraceOf(startupProbe));
}

function ownGraceOf(probe: KillingProbe | null | undefined): number {
  const grace = probe?.terminationGracePeriodSeconds;
  return typeof grace === 'number' ? grace : Number.POSITIVE_INFINITY;
}

/**
 * Beyond these limits, reading one pod would delay others. The API server itself refuses more annotations
 * (k8s.io/apimachinery pkg/api/validation, TotalAnnotationSizeLimitB), but only after it has asked its webhooks; no node
 * runs so many containers.
 */
export const POD_LIMITS = { containers: 1_000, labels: 1_000, annotationCharacters: 256 * 1024 } as const;

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

/** Longer than names are. */
const LONGEST_TEXT = 300;

/** The first characters of a text of any length, as many as can matter; other values pass as they are. */
export function shortTextIn(value: unknown): string {
  return isString(value) ? value.slice(0, LONGEST_TEXT) : String(Boolean(value));
}
