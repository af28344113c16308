/** The API group and the names that Linger puts on objects: the one place that knows them. */
export const GROUP = 'linger.dev';
export const API_VERSION = `${GROUP}/v1alpha1`;

/** Consumers that need no DiscoveryConsumer. */
export const BUILT_IN_CONSUMERS = {
  clusterIp: 'cluster-ip',
  clusterDns: 'cluster-dns',
  witness: 'witness',
} as const;

export const ANNOTATION = {
  inject: 'linger.dev/inject',
  mode: 'linger.dev/mode',
  wait: 'linger.dev/wait',
  hook: 'linger.dev/hook',
  containers: 'linger.dev/containers',
  existingHook: 'linger.dev/existing-hook',
  /** Written by Linger, never read as a wish: the plan that the pod's hooks follow. */
  plan: 'linger.dev/plan',
  /** Written by Linger: SHA-256 of the token that the pod's Hold hooks carry, in hex. */
  holdToken: 'linger.dev/hold-token',
} as const;

export const ANNOTATION_PREFIX = 'linger.dev/';

/** The policy in the API server that stands in for Linger, and the ConfigMap that it reads: see deploy/floor. */
export const FLOOR = {
  policy: 'linger-floor',
  configMap: 'linger-floor',
  /** How the plans begin that the policy writes: it touches no pod with any other. */
  stamp: '{"v":1,"by":"floor",',
  /** The ConfigMap's keys that are no namespaces, whose names have no underscore. */
  newNamespaces: '_',
  validUntil: '_validUntil',
  dropped: '_dropped',
} as const;

/** Set by the kubelet on the API's copy of a static pod. Source: k8s.io/api core/v1 MirrorPodAnnotationKey. */
export const MIRROR_POD_ANNOTATION = 'kubernetes.io/config.mirror';

/** Every Namespace carries its own name as this label. Source: KEP-2161. */
export const NAMESPACE_NAME_LABEL = 'kubernetes.io/metadata.name';
/** The webhook is never called for their pods: see deploy/webhook.yaml. */
export const NEVER_ASKED: readonly string[] = ['kube-system', 'kube-node-lease'];

/** How a replica identifies itself to the canary. Gateways may drop headers, so the body says the same. */
export const CANARY_IDENTITY_HEADER = 'linger-canary';

/** Identifies an object among those of its kind: `shop/web`; `/shop` where it is not namespaced. */
export function objectKey({
  namespace = '',
  name,
}: {
  readonly namespace?: string | undefined;
  readonly name: string;
}): string {
  return `${namespace}/${name}`;
}
