/** The API group, and the names that Linger puts on objects. No other file defines them. */
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
  /** The plan that the pod's hooks follow. Linger writes it, and never reads it as a setting. */
  plan: 'linger.dev/plan',
  /** SHA-256, in hex, of the token in the pod's Hold hooks. Written by Linger. */
  holdToken: 'linger.dev/hold-token',
} as const;

export const ANNOTATION_PREFIX = 'linger.dev/';

/** The policy in the API server that replaces Linger while it is down, and the ConfigMap that it reads: see deploy/floor. */
export const FLOOR = {
  policy: 'linger-floor',
  configMap: 'linger-floor',
  /** How plans that the policy writes begin; it does not change pods with any other plan. */
  stamp: '{"v":1,"by":"floor",',
  /** Keys of the ConfigMap that are not namespaces, whose names contain no underscore. */
  newNamespaces: '_',
  validUntil: '_validUntil',
  dropped: '_dropped',
} as const;

/** Set by the kubelet on the API's copy of a static pod. Source: k8s.io/api core/v1 MirrorPodAnnotationKey. */
export const MIRROR_POD_ANNOTATION = 'kubernetes.io/config.mirror';

/** Every Namespace carries its own name as this label. Source: KEP-2161. */
export const NAMESPACE_NAME_LABEL = 'kubernetes.io/metadata.name';
/** Namespaces for whose pods the webhook is never called: see deploy/webhook.yaml. */
export const NEVER_ASKED: readonly string[] = ['kube-system', 'kube-node-lease'];

/**
 * The header with which a replica identifies itself to the canary. Gateways may drop headers, so the body contains the same.
 */
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
