import { type ControllerFlags, controllerFlags } from '../../core/diagnose/controller-flags.ts';
import type { LeaderFacts } from '../../core/diagnose/facts.ts';
import { isRecord, isString } from '../../core/schema/shape.ts';
import type { ApiReader } from './api-reader.ts';

/** A kube-controller-manager that runs as a pod. */
export interface ControllerPod {
  readonly name: string;
  readonly node: string | undefined;
  readonly flags: ControllerFlags;
  /** Where it serves its metrics. */
  readonly port: number;
}

const PODS = '/api/v1/namespaces/kube-system/pods';
const LEASE = '/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager';

/** kubeadm, and what follows it; kops. By label, since a large cluster has thousands of pods in kube-system. */
const LABELS = ['component=kube-controller-manager', 'k8s-app=kube-controller-manager'];

/** --secure-port */
const DEFAULT_PORT = 10_257;

/** @throws WatchFailure */
export async function controllerPods(api: ApiReader): Promise<readonly ControllerPod[]> {
  for (const label of LABELS) {
    const { items } = await api.json(`${PODS}?labelSelector=${encodeURIComponent(label)}`);
    const pods = Array.isArray(items) ? items.flatMap(podOf) : [];
    if (pods.length > 0) return pods;
  }
  return [];
}

/**
 * Who leads, and since when.
 * @param epochSeconds now
 * @throws WatchFailure
 */
export async function controllerLeader(
  api: ApiReader,
  epochSeconds: number,
): Promise<LeaderFacts | undefined> {
  const { spec } = await api.json(LEASE);
  if (!isRecord(spec) || !isString(spec.holderIdentity)) return undefined;
  const acquired = isString(spec.acquireTime) ? Date.parse(spec.acquireTime) / 1000 : Number.NaN;
  if (Number.isNaN(acquired)) return undefined;
  return {
    holder: spec.holderIdentity,
    ageSeconds: Math.max(0, epochSeconds - acquired),
    transitions: typeof spec.leaseTransitions === 'number' ? spec.leaseTransitions : 0,
  };
}

/** The leader first: its identity is its host's name and a UUID (controllermanager.go), and it runs on the host. */
export function leaderFirst(
  pods: readonly ControllerPod[],
  leader: LeaderFacts | undefined,
): readonly ControllerPod[] {
  const host = leader?.holder.split('_')[0];
  return pods.toSorted((a, b) => Number(b.node === host) - Number(a.node === host));
}

export function metricsPathOf({ name, port }: ControllerPod): string {
  return `${PODS}/https:${name}:${port}/proxy/metrics`;
}

function podOf(item: unknown): readonly ControllerPod[] {
  const { metadata, spec } = isRecord(item) ? item : {};
  if (!isRecord(metadata) || !isString(metadata.name) || !isRecord(spec)) return [];
  const containers = Array.isArray(spec.containers) ? spec.containers.filter(isRecord) : [];
  const words = containers.flatMap(({ command, args }) => [...wordsOf(command), ...wordsOf(args)]);
  const port = words.map((word) => /^--secure-port=(\d+)$/.exec(word)?.[1]).findLast(isString);
  return [
    {
      name: metadata.name,
      node: isString(spec.nodeName) ? spec.nodeName : undefined,
      flags: controllerFlags(words),
      port: port === undefined ? DEFAULT_PORT : Number(port),
    },
  ];
}

function wordsOf(value: unknown): readonly string[] {
  return Array.isArray(value) ? value.filter(isString) : [];
}
