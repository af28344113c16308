import { isStringMap, type Labels, memberAt, type ServiceRecord, selectsPod } from '../api/index.ts';
import { type Workload, workloadKey } from '../decision/index.ts';
import { countOf, isPicked } from './rollouts.ts';

/** Pods with the same labels: of one workload as a manifest has it, or as they run. */
export interface PodsOf {
  /** {@link workloadKey} of what they belong to. */
  readonly of: string;
  /** `StatefulSet ingester-zone-b` */
  readonly by: string;
  readonly labels: Labels;
  /** How many there are, or the fewest that there may be. */
  readonly count: number;
}

/** All pods of an input or a cluster that are known, by namespace. */
export type KnownPods = ReadonlyMap<string, readonly PodsOf[]>;
export const NO_PODS: KnownPods = new Map();

export interface DisruptionBudget {
  readonly namespace: string;
  readonly name: string;
  readonly spec: Readonly<Record<string, unknown>>;
}

/** A workload among the other pods of its namespace. */
interface Member {
  readonly workload: Workload;
  readonly namespace: string;
  /** Of its pods. */
  readonly labels: unknown;
  /** How many pods it has. */
  readonly count: number;
}

export function podLabelsIn({ pod }: Workload): Labels | undefined {
  const labels = memberAt(pod, ['metadata', 'labels']);
  return isStringMap(labels) ? labels : undefined;
}

/** For {@link PodsOf.of}: pods without a controller whose names are not known. */
export function anyPodOf(namespace: string): string {
  return workloadKey('Pod', namespace, '');
}

function others({ workload, namespace }: Pick<Member, 'workload' | 'namespace'>, known: KnownPods) {
  const { kind, name } = workload;
  const own = workloadKey(kind, namespace, name);
  const labels = podLabelsIn(workload);
  const beside = known.get(namespace)?.filter(({ of }) => of !== own) ?? [];
  const isWith = ({ of, labels: those }: PodsOf) =>
    kind === 'Pod' && of === anyPodOf(namespace) && isSame(those, labels);
  return beside
    .map((each) => (isWith(each) ? { ...each, count: each.count - 1 } : each))
    .filter(({ count }) => count > 0);
}

function isSame(a: Labels, b: Labels | undefined): boolean {
  const keys = Object.keys(a);
  return keys.length === Object.keys(b ?? {}).length && keys.every((key) => b?.[key] === a[key]);
}

/**
 * The pods of other workloads behind the same Services: while this one has none, they serve. None where one of its Services
 * sends to this workload alone; a headless one is for the pods’ peers where there is another.
 */
export function servingBeside(
  member: Pick<Member, 'workload' | 'namespace'>,
  services: readonly ServiceRecord[],
  known: KnownPods,
): readonly PodsOf[] {
  const beside = others(member, known);
  const forClients = services.filter(({ headless }) => !headless);
  const found = (forClients.length > 0 ? forClients : services).map((service) =>
    beside.filter(({ labels }) => selectsPod(service, labels)),
  );
  return found.every(({ length }) => length > 0) ? [...new Set(found.flat())] : [];
}

/** What PodDisruptionBudgets say of the eviction of one of a workload’s pods while all are healthy. */
export interface Budgeted {
  /** Those that select its pods. */
  readonly all: readonly DisruptionBudget[];
  /** The one that lets none of them go. */
  readonly refusing?: DisruptionBudget;
  /** It does so for any number of replicas. */
  readonly always?: boolean;
}

/** A budget that refuses even with so many (100 %, or none unavailable) does so with any number. */
const MANY_PODS = 1_000_000;

/** No pod with two budgets can be evicted, whatever they say; findings name a few. */
const MOST_BUDGETED = 4;

/** A budget counts all pods that its selector matches, whatever they belong to. */
export function budgetsOf(
  budgets: ReadonlyMap<string, readonly DisruptionBudget[]>,
  member: Member,
  known: KnownPods,
): Budgeted {
  const own = budgets.get(member.namespace) ?? [];
  const all = own.filter(({ spec }) => isPicked(spec.selector, member.labels)).slice(0, MOST_BUDGETED);
  const beside = all.length === 0 ? [] : others(member, known);
  const isManaged = member.workload.kind !== 'Pod';
  const allowed = ({ spec }: DisruptionBudget, own: number) => {
    const selected = beside.filter(({ labels }) => isPicked(spec.selector, labels));
    const sum = (of: readonly PodsOf[]) => of.reduce((total, { count }) => total + count, 0);
    const managed = selected.filter(({ of }) => !of.startsWith('Pod/'));
    return evictable(spec, sum(selected) + own, sum(managed) + (isManaged ? own : 0));
  };
  const refusing = all.find((each) => allowed(each, member.count) <= 0);
  if (refusing === undefined) return { all };
  return { all, refusing, always: isManaged && allowed(refusing, MANY_PODS) <= 0 };
}

/**
 * How many pods may be evicted while all are healthy. Only a number as minAvailable counts pods without a controller.
 * Source: k8s.io/kubernetes pkg/controller/disruption (getExpectedPodCount, updatePdbStatus).
 */
function evictable(
  { minAvailable, maxUnavailable }: DisruptionBudget['spec'],
  pods: number,
  managed: number,
): number {
  if (maxUnavailable === undefined && typeof minAvailable !== 'string')
    return pods - countOf(minAvailable, 0, pods, Math.ceil);
  if (managed <= 0) return 0;
  const desired =
    maxUnavailable === undefined
      ? countOf(minAvailable, 0, managed, Math.ceil)
      : Math.max(0, managed - countOf(maxUnavailable, 0, managed, Math.ceil));
  return pods - desired;
}
