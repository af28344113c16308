import { isRecord, type Labels, labelOf, type NamespaceRecord, parseDuration } from '../api/index.ts';
import type { Pod } from '../decision/index.ts';

// Proxies that another webhook adds to pods at admission. A pod template shows only by its labels and annotations that one
// will be added.

interface AddedSidecar {
  /** The name of its container. */
  readonly name: string;
  readonly by: string;
  isAdded(labels: Labels, annotations: Labels, namespace: NamespaceRecord | undefined): boolean;
  /** Whether it is added as a native sidecar, which outlives the ordinary containers. */
  isNative(annotations: Labels): boolean;
  /** How long its own hook delays SIGTERM, in seconds; undefined: it has no hook. */
  waitOf(annotations: Labels): number | undefined;
  /** Its settings may also be set by annotations of the Namespace. */
  readonly inherits?: true;
  readonly cure: string;
}

function either(labels: Labels, annotations: Labels, key: string): string | undefined {
  return labelOf(annotations, key) ?? labelOf(labels, key);
}

/** Reads a bare number of seconds or a duration; fractions are dropped. */
function secondsIn(text = ''): number | undefined {
  const seconds = Math.floor(/^\d{1,6}(\.\d*)?$/.test(text) ? Number(text) : (parseDuration(text) ?? 0));
  return seconds > 0 ? seconds : undefined;
}

const ADDED: readonly AddedSidecar[] = [
  {
    // Source: linkerd2 charts/partials/templates/_proxy.tpl.
    name: 'linkerd-proxy',
    by: 'Linkerd',
    inherits: true,
    isAdded: (labels, annotations, namespace) => {
      const own = either(labels, annotations, 'linkerd.io/inject');
      return /^(enabled|ingress)$/.test(
        own ?? labelOf(namespace?.annotations ?? {}, 'linkerd.io/inject') ?? '',
      );
    },
    isNative: (annotations) =>
      [
        'config.beta.linkerd.io/proxy-enable-native-sidecar',
        'config.alpha.linkerd.io/proxy-enable-native-sidecar',
      ].some((key) => labelOf(annotations, key) === 'true'),
    waitOf: (annotations) =>
      secondsIn(labelOf(annotations, 'config.alpha.linkerd.io/proxy-wait-before-exit-seconds')),
    cure: 'set config.alpha.linkerd.io/proxy-wait-before-exit-seconds to the wait, or make it a native sidecar (config.beta.linkerd.io/proxy-enable-native-sidecar)',
  },
  {
    // Source: istio.io, the resource annotations and ProxyConfig.
    name: 'istio-proxy',
    by: 'Istio',
    isAdded: (labels, annotations, namespace) => {
      const own = either(labels, annotations, 'sidecar.istio.io/inject');
      const of = namespace?.labels ?? {};
      const ofAll = labelOf(of, 'istio-injection');
      // This overrides any revision label and any label of the pod.
      if (ofAll === 'disabled') return false;
      const revision = labelOf(of, 'istio.io/rev') ?? labelOf(labels, 'istio.io/rev');
      return own === undefined ? ofAll === 'enabled' || revision !== undefined : own === 'true';
    },
    isNative: (annotations) => labelOf(annotations, 'sidecar.istio.io/nativeSidecar') === 'true',
    waitOf: (annotations) =>
      secondsIn(
        /terminationDrainDuration["']?:\s*["']?([\d.a-z]+)/.exec(
          labelOf(annotations, 'proxy.istio.io/config') ?? '',
        )?.[1],
      ),
    cure: 'make it a native sidecar (sidecar.istio.io/nativeSidecar: "true"), or set terminationDrainDuration in proxy.istio.io/config to the wait',
  },
  {
    // Source: docs.dapr.io, the arguments and annotations of Dapr.
    name: 'daprd',
    by: 'Dapr',
    isAdded: (labels, annotations) => either(labels, annotations, 'dapr.io/enabled') === 'true',
    isNative: () => false,
    waitOf: (annotations) => secondsIn(labelOf(annotations, 'dapr.io/block-shutdown-duration')),
    cure: 'set dapr.io/block-shutdown-duration to the wait',
  },
  {
    // Source: developer.hashicorp.com/consul/docs/k8s/annotations-and-labels.
    name: 'consul-dataplane',
    by: 'Consul',
    isAdded: (labels, annotations) =>
      either(labels, annotations, 'consul.hashicorp.com/connect-inject') === 'true',
    isNative: () => false,
    waitOf: (annotations) =>
      secondsIn(
        labelOf(annotations, 'consul.hashicorp.com/sidecar-proxy-lifecycle-shutdown-grace-period-seconds'),
      ),
    cure: 'set consul.hashicorp.com/sidecar-proxy-lifecycle-shutdown-grace-period-seconds to the wait',
  },
];

interface Found {
  readonly name: string;
  readonly by: string;
  readonly wait: number | undefined;
  readonly cure: string;
}

/** The proxies that admission will add to a pod and that stop at the same time as its containers. */
export function addedTo(pod: Pod, namespace: NamespaceRecord | undefined): readonly Found[] {
  const labels = pod.metadata?.labels ?? {};
  const annotations = pod.metadata?.annotations ?? {};
  const there = new Set([...pod.spec.containers, ...(pod.spec.initContainers ?? [])].map(({ name }) => name));
  return ADDED.flatMap(({ name, by, cure, ...of }) => {
    const settings = of.inherits ? { ...namespace?.annotations, ...annotations } : annotations;
    const isComing = !there.has(name) && of.isAdded(labels, annotations, namespace) && !of.isNative(settings);
    return isComing ? [{ name, by, cure, wait: of.waitOf(settings) }] : [];
  });
}

/** The pod with those of the added proxies that have a preStop hook, as admission would make it. */
export function withAdded(object: unknown, namespace: NamespaceRecord | undefined): unknown {
  if (!isRecord(object) || !isRecord(object.spec) || !Array.isArray(object.spec.containers)) return object;
  const added = addedTo(object as unknown as Pod, namespace).flatMap(({ name, wait }) =>
    wait === undefined
      ? []
      : [{ name, lifecycle: { preStop: { exec: { command: ['/bin/sleep', String(wait)] } } } }],
  );
  if (added.length === 0) return object;
  return { ...object, spec: { ...object.spec, containers: [...object.spec.containers, ...added] } };
}
