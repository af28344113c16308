import {
  isStringMap,
  type Labels,
  labelOf,
  memberAt,
  type ServiceRecord,
  selectedLabels,
  selectsPod,
  textOf,
} from '../api/index.ts';
import { hasController, type Workload, workloadKey } from '../decision/index.ts';
import { countOf, isPicked, portsIn } from './rollouts.ts';

/** Pods with the same labels, of one workload. */
export interface PodsOf {
  /** {@link workloadKey} of the workload. */
  readonly of: string;
  /** `StatefulSet ingester-zone-b` */
  readonly by: string;
  readonly labels: Labels;
  /** How many pods there are, or may be at least. */
  readonly count: number;
  /** Whether they have a controller; absent: `of` shows it. */
  readonly managed?: boolean;
  /** {@link portNamesIn} of their template; absent: not known. */
  readonly ports?: ReadonlySet<string>;
}

/** All pods of an input or a cluster that are known. */
export class KnownPods {
  readonly #groups: ReadonlyMap<string, readonly PodsOf[]>;
  readonly #indexed = new Map<string, PodsOfNamespace>();

  /** @param groups by namespace */
  constructor(groups: ReadonlyMap<string, readonly PodsOf[]>) {
    this.#groups = groups;
  }

  in(namespace: string): PodsOfNamespace {
    const known = this.#indexed.get(namespace);
    if (known !== undefined) return known;
    const indexed = new PodsOfNamespace(namespace, this.#groups.get(namespace) ?? []);
    this.#indexed.set(namespace, indexed);
    return indexed;
  }
}

/** What a Service or a PodDisruptionBudget selects. */
interface Selector {
  /** Identifies the selector: its matches are computed only once for this object. */
  readonly of: object;
  /** Labels that every selected pod must have. */
  readonly labels: Labels;
  readonly selects: (pods: PodsOf) => boolean;
}

/** Pods that a selector selects. */
interface Selected {
  readonly pods: number;
  /** How many of them have a controller. */
  readonly managed: number;
  /** How many workloads they belong to. */
  readonly owners: number;
  /** The first few of these workloads, with all of their pods. */
  readonly first: readonly PodsOf[];
}

/** By how many label keys the pods of a namespace are indexed: each takes memory, and selectors use few. */
const MOST_KEYS = 16;
/** How many workloads are kept: a finding names three others, and the workload itself may be among them. */
const NAMED = 3;

/**
 * The pods of a namespace. Because a namespace may have thousands of selectors and workloads, each selector is applied once
 * for all workloads, and only to pods with one of its labels. What is kept for a selector does not grow with the number of
 * pods.
 */
class PodsOfNamespace {
  readonly #all: readonly PodsOf[];
  readonly #unowned: string;
  readonly #byOwner: ReadonlyMap<string, readonly PodsOf[]>;
  /** By key, then by value of a label. */
  readonly #byLabel = new Map<string, ReadonlyMap<string | undefined, readonly PodsOf[]>>();
  readonly #selected = new Map<object, Selected>();

  constructor(namespace: string, all: readonly PodsOf[]) {
    this.#all = all;
    this.#unowned = anyPodOf(namespace);
    this.#byOwner = Map.groupBy(all, ({ of }) => of);
  }

  /** What the selector selects besides the pods of this workload. */
  beside(workload: Workload, namespace: string, selector: Selector): Selected {
    const all = this.#selectedBy(selector);
    const own = this.#ownOf(workload, namespace).filter((each) => selector.selects(each));
    if (own.length === 0) return all;
    const less = new Map<string, number>();
    for (const { of, count } of own) less.set(of, (less.get(of) ?? 0) + count);
    const first = all.first
      .map((each) => ({ ...each, count: each.count - (less.get(each.of) ?? 0) }))
      .filter(({ count }) => count > 0);
    const pods = all.pods - podsIn(own);
    const managed = all.managed - podsIn(own.filter(isManaged));
    return { pods, managed, first, owners: all.owners - (all.first.length - first.length) };
  }

  #ownOf(workload: Workload, namespace: string): readonly PodsOf[] {
    const { kind, name } = workload;
    const own = this.#byOwner.get(workloadKey(kind, namespace, name)) ?? [];
    if (kind !== 'Pod') return own;
    const labels = podLabelsIn(workload);
    const among = this.#byOwner.get(this.#unowned)?.find((each) => isSame(each.labels, labels));
    return among === undefined ? own : [...own, { ...among, count: 1 }];
  }

  #selectedBy({ of, labels, selects }: Selector): Selected {
    const known = this.#selected.get(of);
    if (known !== undefined) return known;
    const found = this.#having(labels).filter((each) => each.count > 0 && selects(each));
    const owners = new Map<string, PodsOf>();
    for (const each of found) {
      const { count = 0 } = owners.get(each.of) ?? {};
      owners.set(each.of, { ...each, count: count + each.count });
    }
    const selected: Selected = {
      pods: podsIn(found),
      managed: podsIn(found.filter(isManaged)),
      owners: owners.size,
      first: [...owners.values()].slice(0, NAMED + 1),
    };
    this.#selected.set(of, selected);
    return selected;
  }

  /** The pods with the rarest of these labels. */
  #having(labels: Labels): readonly PodsOf[] {
    let fewest = this.#all;
    for (const [key, value] of Object.entries(labels)) {
      if (!this.#byLabel.has(key)) {
        if (this.#byLabel.size >= MOST_KEYS) continue;
        this.#byLabel.set(
          key,
          Map.groupBy(this.#all, (each) => labelOf(each.labels, key)),
        );
      }
      const having = this.#byLabel.get(key)?.get(value) ?? [];
      if (having.length < fewest.length) fewest = having;
    }
    return fewest;
  }
}

const podsIn = (groups: readonly PodsOf[]) => groups.reduce((total, { count }) => total + count, 0);
const isManaged = ({ of, managed }: PodsOf) => managed ?? !of.startsWith('Pod/');

export interface DisruptionBudget {
  readonly namespace: string;
  readonly name: string;
  readonly spec: Readonly<Record<string, unknown>>;
}

/** A workload for which to find other pods of its namespace. */
interface Member {
  readonly workload: Workload;
  readonly namespace: string;
  /** The labels of its pods. */
  readonly labels: unknown;
  /** How many pods it has. */
  readonly count: number;
}

export function podLabelsIn({ pod }: Workload): Labels | undefined {
  const labels = memberAt(pod, ['metadata', 'labels']);
  return isStringMap(labels) ? labels : undefined;
}

/** A key for {@link PodsOf.of}, for pods without a controller whose names are not known. */
export function anyPodOf(namespace: string): string {
  return workloadKey('Pod', namespace, '');
}

/** Whether its pods have a controller. That of an exported Pod need not be in the input. */
export function isControlled({ kind, pod }: Workload): boolean {
  return kind !== 'Pod' || hasController(pod);
}

function isSame(a: Labels, b: Labels | undefined): boolean {
  const keys = Object.keys(a);
  return keys.length === Object.keys(b ?? {}).length && keys.every((key) => b?.[key] === a[key]);
}

/** A port of a Service that leads to container ports of this name and protocol. */
export interface NamedPort {
  /** `http/TCP` */
  readonly target: string;
}

/** The ports to which a Service leads, as far as they depend on the pod. */
export interface TargetPorts {
  /** Whether one of them leads to a port number, which is the same for every pod. */
  readonly numbered: boolean;
  readonly named: readonly NamedPort[];
}

/** The named ports of a pod, such as `http/TCP`. Source: k8s.io/kubernetes pkg/api/v1/pod (FindPort). */
export function portNamesIn({ pod }: Workload): ReadonlySet<string> {
  return new Set(portsIn(pod).map(({ name, protocol = 'TCP' }) => `${textOf(name)}/${textOf(protocol)}`));
}

/** Whether one of a Service’s ports leads to pods of this workload. */
export function leadsTo(workload: Workload, { numbered, named }: TargetPorts): boolean {
  const own = portNamesIn(workload);
  return numbered || named.some(({ target }) => own.has(target));
}

/**
 * The pods of other workloads that serve behind the same Services while this workload has none, in words; undefined where at
 * least one port of one of its Services leads to this workload alone. Headless Services are ignored if there are others,
 * since they are for the pods’ peers.
 */
export function servingBeside(
  { workload, namespace }: Pick<Member, 'workload' | 'namespace'>,
  services: readonly ServiceRecord[],
  known: KnownPods,
  targetsOf: (service: ServiceRecord) => TargetPorts | undefined = () => undefined,
): string | undefined {
  const pods = known.in(namespace);
  const own = portNamesIn(workload);
  const forClients = services.filter(({ headless }) => !headless);
  const others = (forClients.length > 0 ? forClients : services).flatMap((service) => {
    const { named = [], numbered = true } = targetsOf(service) ?? {};
    const onlyNamed = named.filter(({ target }) => own.has(target));
    const through = [...(numbered || onlyNamed.length === 0 ? [undefined] : []), ...onlyNamed];
    return through.map((port) =>
      pods.beside(workload, namespace, {
        of: port ?? service,
        labels: selectedLabels(service),
        selects: ({ labels, ports }) =>
          selectsPod(service, labels) && (port === undefined || (ports?.has(port.target) ?? true)),
      }),
    );
  });
  if (others.length === 0 || others.some((each) => each.pods === 0)) return undefined;
  const named = new Map(others.flatMap(({ first }) => first.map((each) => [each.of, each] as const)));
  const isMore = named.size > NAMED || others.some(({ first, owners }) => owners > first.length);
  const words = [...named.values()].slice(0, NAMED).map(({ by, count }) => `${by} (${count})`);
  return `${words.join(', ')}${isMore ? ' and others' : ''}`;
}

/** What PodDisruptionBudgets allow when one of a workload’s pods is to be evicted while all are healthy. */
export interface Budgeted {
  /** The budgets that select its pods. */
  readonly all: readonly DisruptionBudget[];
  /** One that allows no eviction. */
  readonly refusing?: DisruptionBudget;
  /** Whether it allows none for any number of replicas. */
  readonly always?: boolean;
}

/** A budget that refuses even with this many pods (100 %, or none unavailable) refuses with any number. */
const MANY_PODS = 1_000_000;

/** How many budgets are listed. A pod with two budgets cannot be evicted anyway, and findings name only a few. */
const MOST_BUDGETED = 4;

/** The budgets of a workload. A budget counts all pods that its selector matches, including those of other workloads. */
export function budgetsOf(
  budgets: ReadonlyMap<string, readonly DisruptionBudget[]>,
  member: Member,
  known: KnownPods,
): Budgeted {
  const own = budgets.get(member.namespace) ?? [];
  const all = own.filter(({ spec }) => isPicked(spec.selector, member.labels)).slice(0, MOST_BUDGETED);
  const controlled = isControlled(member.workload);
  const pods = known.in(member.namespace);
  const allowed = (budget: DisruptionBudget, own: number) => {
    const { spec } = budget;
    const matchLabels = memberAt(spec, ['selector', 'matchLabels']);
    const beside = pods.beside(member.workload, member.namespace, {
      of: budget,
      labels: isStringMap(matchLabels) ? matchLabels : {},
      selects: ({ labels }) => isPicked(spec.selector, labels),
    });
    return evictable(spec, beside.pods + own, beside.managed + (controlled ? own : 0));
  };
  const refusing = all.find((each) => allowed(each, member.count) <= 0);
  if (refusing === undefined) return { all };
  return { all, refusing, always: controlled && allowed(refusing, MANY_PODS) <= 0 };
}

/**
 * How many pods may be evicted while all are healthy. Pods without a controller count only if minAvailable is a number.
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
