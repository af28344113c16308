import {
  isRecord,
  isString,
  isStringMap,
  type LabelRequirement,
  listOf,
  memberAt,
  recordsAt,
  selects,
} from '../api/index.ts';
import type { Workload } from '../decision/index.ts';

/** How a rollout of a workload replaces its running pods. */
export interface Rollout {
  /** Why all old pods may have stopped before a new one is ready; undefined: some keep serving. */
  readonly gap?: string;
  /** How many waits follow each other at most. */
  readonly waits: number;
}

const OVERLAPS: Rollout = { waits: 0 };

/**
 * Source: k8s.io/kubernetes pkg/controller/deployment/util (ResolveFenceposts), pkg/controller/statefulset
 * (getStatefulSetMaxUnavailable), pkg/controller/daemon; argo-rollouts utils/replicaset; kruise pkg/controller/cloneset.
 * @param replicas the smallest number that there may be
 * @param pods how many pods there are, or are specified
 */
export function rolloutOf({ kind, pod }: Workload, object: unknown, replicas: number, pods: number): Rollout {
  const strategy = strategyOf(object);
  const { type } = strategy;
  if (kind === 'Deployment' || kind === 'Rollout') {
    if (type === 'Recreate')
      return { gap: 'strategy Recreate stops every pod before it starts another', waits: 1 };
    if (isRecord(strategy.blueGreen) || keepsStable(strategy.canary)) return OVERLAPS;
    const rolling = recordIn(kind === 'Rollout' ? strategy.canary : strategy.rollingUpdate);
    const unavailable = (of: number) => {
      const most = countOf(rolling.maxUnavailable, '25%', of, Math.floor);
      // If both were 0, a rollout would never end, so the controller assumes 1.
      return most === 0 && countOf(rolling.maxSurge, '25%', of, Math.ceil) === 0 ? 1 : most;
    };
    const waits = takesItsNode(pod) ? Math.ceil(pods / Math.max(1, unavailable(pods))) : 0;
    return { ...gapOf('maxUnavailable', unavailable(replicas), replicas), waits };
  }
  const rolling = recordIn(strategy.rollingUpdate);
  if (kind === 'StatefulSet') {
    const alone =
      replicas === 1 ? { gap: 'a StatefulSet of one replica stops its pod before it starts the next' } : {};
    if (type === 'OnDelete') return { ...alone, waits: 0 };
    const replaced = (of: number) => Math.max(0, of - countOf(rolling.partition, 0, of, Math.ceil));
    const atOnce = (of: number) => Math.max(1, countOf(rolling.maxUnavailable, 1, of, Math.floor));
    const waits = Math.ceil(replaced(pods) / atOnce(pods));
    if (replaced(replicas) === 0) return { waits };
    const stopped = Math.min(replaced(replicas), atOnce(replicas));
    return { ...gapOf('maxUnavailable', stopped, replicas), ...alone, waits };
  }
  if (kind === 'DaemonSet') {
    const surge = countOf(rolling.maxSurge, 0, pods, Math.ceil);
    if (type === 'OnDelete' || surge > 0) return OVERLAPS;
    return { waits: Math.ceil(pods / Math.max(1, countOf(rolling.maxUnavailable, 1, pods, Math.ceil))) };
  }
  if (kind !== 'CloneSet') return OVERLAPS;
  const replaced = (of: number) => Math.max(0, of - countOf(strategy.partition, 0, of, Math.ceil));
  const unavailable = (of: number) => {
    const most = countOf(strategy.maxUnavailable, '20%', of, Math.ceil);
    return most === 0 && countOf(strategy.maxSurge, 0, of, Math.ceil) === 0 ? 1 : most;
  };
  // Containers are restarted in place, so the next pod waits until this one is ready again.
  const inPlace = type !== undefined && type !== 'ReCreate';
  const waits = inPlace || takesItsNode(pod) ? Math.ceil(replaced(pods) / Math.max(1, unavailable(pods))) : 0;
  const stopped = Math.min(replaced(replicas), unavailable(replicas));
  return { ...gapOf('maxUnavailable', stopped, replicas), waits };
}

/**
 * With a traffic router, a canary ignores maxSurge and maxUnavailable and keeps the stable pods until it ends, unless it
 * scales them down as their traffic shrinks. Source: argo-rollouts utils/replicaset/canary.go.
 */
function keepsStable(canary: unknown): boolean {
  return isRecord(memberAt(canary, ['trafficRouting'])) && memberAt(canary, ['dynamicStableScale']) !== true;
}

function strategyOf(object: unknown): Readonly<Record<string, unknown>> {
  return recordIn(memberAt(object, ['spec', 'strategy']) ?? memberAt(object, ['spec', 'updateStrategy']));
}

function recordIn(value: unknown): Readonly<Record<string, unknown>> {
  return isRecord(value) ? value : {};
}

function gapOf(field: string, stopped: number, replicas: number): Pick<Rollout, 'gap'> {
  if (stopped < replicas || replicas < 1) return {};
  const pods = replicas === 1 ? 'its only pod' : `all ${replicas} pods`;
  return { gap: `its ${field} lets a rollout stop ${pods} before a new one is ready` };
}

/** A number, or a percentage of the pods. @param round the rounding that the controller uses */
export function countOf(
  value: unknown,
  otherwise: number | string,
  pods: number,
  round: (value: number) => number,
): number {
  const given = typeof value === 'number' || typeof value === 'string' ? value : otherwise;
  const percent = /^(\d+)%$/.exec(String(given))?.[1];
  const count = percent === undefined ? Number(given) : round((Number(percent) * pods) / 100);
  return Number.isFinite(count) ? Math.max(0, Math.trunc(count)) : 0;
}

/** The ports of all containers that run as long as the pod does, including native sidecars, which are init containers. */
export function portsIn(pod: unknown): readonly Readonly<Record<string, unknown>>[] {
  const spec = memberAt(pod, ['spec']);
  const containers = [
    ...recordsAt(spec, 'containers'),
    ...recordsAt(spec, 'initContainers').filter(({ restartPolicy }) => restartPolicy === 'Always'),
  ];
  return containers.flatMap((each) => recordsAt(each, 'ports'));
}

/** Whether a new pod may need the node of an old one, because of host ports or a required anti-affinity to its own kind. */
function takesItsNode(pod: unknown): boolean {
  const spec = memberAt(pod, ['spec']);
  const ports = portsIn(pod);
  if (ports.some(({ hostPort }) => typeof hostPort === 'number' && hostPort > 0)) return true;
  if (memberAt(spec, ['hostNetwork']) === true && ports.length > 0) return true;
  const required = ['affinity', 'podAntiAffinity', 'requiredDuringSchedulingIgnoredDuringExecution'];
  return listOf(memberAt(spec, required)).some((term) =>
    isPicked(memberAt(term, ['labelSelector']), memberAt(pod, ['metadata', 'labels'])),
  );
}

/** Whether a LabelSelector (not validated) selects these labels. Absent, it selects none. */
export function isPicked(selector: unknown, labels: unknown): boolean {
  if (!isRecord(selector) || !isStringMap(labels)) return false;
  const { matchLabels = {}, matchExpressions = [] } = selector;
  const isRequirement = (each: unknown) =>
    isRecord(each) && isString(each.key) && isString(each.operator) && listOf(each.values).every(isString);
  if (!isStringMap(matchLabels) || !listOf(matchExpressions).every(isRequirement)) return false;
  return selects({ matchLabels, matchExpressions: listOf(matchExpressions) as LabelRequirement[] }, labels);
}
