import {
  isRecord,
  isString,
  isStringMap,
  listOf,
  memberAt,
  parseDuration,
  recordsAt,
  textOf,
} from '../api/index.ts';
import { NODE_BUDGET_LABEL, nodeBudgetOf, nodeSelectorTerms, type Pod } from '../decision/index.ts';
import { groupKindOf } from '../discovery/index.ts';

/** A pool of nodes, as described by the object that creates them. */
export interface NodePool {
  /** `NodePool cheap` */
  readonly by: string;
  /** The labels that all its nodes have, each with its possible values. */
  readonly labels: ReadonlyMap<string, readonly string[]>;
  /** Its nodes are gone this many seconds after a drain begins; undefined: not specified. */
  readonly within: number | undefined;
  /** Its nodes are gone this many seconds after a notice; undefined: they are not taken away. */
  readonly notice: number | undefined;
}

type Path = readonly string[];

/** A kind of object that creates nodes. */
interface PoolKind {
  /** The labels of its nodes that have its name as their value. */
  readonly named: readonly string[];
  /** Where it specifies the labels of its nodes. */
  readonly labels?: Path;
  /** Where it specifies labels as requirements, like those of an affinity. */
  readonly requirements?: Path;
  /** Where it specifies how long a drain may take. */
  readonly within?: Path;
  /** The label that marks its nodes as spot instances; undefined unless all of them are. */
  readonly spot?: (spec: unknown) => readonly [label: string, value: string] | undefined;
}

const AWS = ['node.kubernetes.io/lifecycle', 'spot'] as const;
const AZURE = ['kubernetes.azure.com/scalesetpriority', 'spot'] as const;
const GKE = ['cloud.google.com/gke-provisioning', 'spot'] as const;
/** Spot instances of Google Cloud outside GKE, whose kubelets do not shorten the notice: seconds from the notice on. */
const COMPUTE_ENGINE = [NODE_BUDGET_LABEL, '30'] as const;

/**
 * By group and kind, in whatever version. Source: karpenter.sh (labels; terminationGracePeriod), kops pkg/apis/kops and
 * nodelabels, openshift/api machine (provider specs), cloud.google.com/kubernetes-engine (ComputeClass), Config Connector.
 */
const POOL_KINDS: Readonly<Record<string, PoolKind>> = {
  'karpenter.sh/NodePool': {
    named: ['karpenter.sh/nodepool'],
    labels: ['template', 'metadata', 'labels'],
    requirements: ['template', 'spec', 'requirements'],
    within: ['template', 'spec', 'terminationGracePeriod'],
    // Karpenter's own label for the capacity type says less than the cloud provider of its node class.
    spot: (spec) =>
      memberAt(spec, ['template', 'spec', 'nodeClassRef', 'group']) === 'karpenter.azure.com'
        ? AZURE
        : undefined,
  },
  'karpenter.sh/Provisioner': {
    named: ['karpenter.sh/provisioner-name'],
    labels: ['labels'],
    requirements: ['requirements'],
  },
  'cloud.google.com/ComputeClass': {
    named: ['cloud.google.com/compute-class'],
    spot: (spec) => {
      const priorities = recordsAt(spec, 'priorities');
      return priorities.length > 0 && priorities.every(({ spot }) => spot === true) ? GKE : undefined;
    },
  },
  'container.cnrm.cloud.google.com/ContainerNodePool': {
    named: ['cloud.google.com/gke-nodepool'],
    labels: ['nodeConfig', 'labels'],
    spot: (spec) =>
      ['spot', 'preemptible'].some((each) => memberAt(spec, ['nodeConfig', each]) === true) ? GKE : undefined,
  },
  'kops.k8s.io/InstanceGroup': {
    named: ['kops.k8s.io/instancegroup'],
    labels: ['nodeLabels'],
    spot: (spec) => {
      const mixed = memberAt(spec, ['mixedInstancesPolicy']);
      const isMixedSpot =
        memberAt(mixed, ['onDemandAboveBase']) === 0 && (memberAt(mixed, ['onDemandBase']) ?? 0) === 0;
      const isPriced = !isRecord(mixed) && memberAt(spec, ['maxPrice']) !== undefined;
      if (memberAt(spec, ['gcpProvisioningModel']) === 'SPOT') return COMPUTE_ENGINE;
      return isPriced || isMixedSpot ? AWS : undefined;
    },
  },
  'machine.openshift.io/MachineSet': {
    named: [],
    labels: ['template', 'spec', 'metadata', 'labels'],
    spot: (spec) => {
      const provider = memberAt(spec, ['template', 'spec', 'providerSpec', 'value']);
      if (isRecord(memberAt(provider, ['spotMarketOptions']))) return AWS;
      if (isRecord(memberAt(provider, ['spotVMOptions']))) return AZURE;
      return memberAt(provider, ['preemptible']) === true ? COMPUTE_ENGINE : undefined;
    },
  },
  'infrastructure.cluster.x-k8s.io/AzureManagedMachinePool': {
    named: ['kubernetes.azure.com/agentpool'],
    labels: ['nodeLabels'],
    spot: (spec) => (memberAt(spec, ['scaleSetPriority']) === 'Spot' ? AZURE : undefined),
  },
  'infrastructure.cluster.x-k8s.io/AWSManagedMachinePool': {
    named: ['eks.amazonaws.com/nodegroup'],
    labels: ['labels'],
    spot: (spec) => (memberAt(spec, ['capacityType']) === 'spot' ? AWS : undefined),
  },
};

/** The pool that an object describes. @returns undefined for objects that create no nodes */
export function nodePoolIn(object: Readonly<Record<string, unknown>>): NodePool | undefined {
  const kind = POOL_KINDS[groupKindOf(object)];
  if (kind === undefined) return undefined;
  const { spec } = object;
  const at = (path: Path | undefined) => (path === undefined ? undefined : memberAt(spec, path));
  const name = textOf(memberAt(object, ['metadata', 'name']));
  const given = at(kind.labels);
  const required = listOf(at(kind.requirements)).filter(
    (each) => isRecord(each) && each.operator === 'In',
  ) as Readonly<Record<string, unknown>>[];
  const labels = new Map<string, readonly string[]>([
    ...required.map(({ key, values }) => [textOf(key), listOf(values).filter(isString)] as const),
    ...Object.entries(isStringMap(given) ? given : {}).map(([key, value]) => [key, [value]] as const),
    ...kind.named.map((key) => [key, [name]] as const),
  ]);
  const certain = [...labels].flatMap(([key, [value, ...more]]) =>
    value === undefined || more.length > 0 ? [] : [[key, value] as const],
  );
  const spot = kind.spot?.(spec);
  const within = at(kind.within);
  return {
    by: `${textOf(object.kind)} ${name}`,
    labels,
    within: isString(within) ? parseDuration(within) : undefined,
    notice: nodeBudgetOf(Object.fromEntries([...(spot ? [spot] : []), ...certain])),
  };
}

/** When the nodes that a pod may be on are gone, whichever it is on. */
export interface NodesGone {
  /** The longest time that any of them leaves the pod. */
  readonly seconds: number;
  /** `on NodePool cheap, whose nodes are gone 60s after a drain of them begins (terminationGracePeriod)` */
  readonly text: string;
  /** Seconds from a notice on, as the webhook would see them on these nodes; undefined: some of the nodes get no notice. */
  readonly notice: number | undefined;
}

/**
 * Whether all nodes that a pod may run on go away, judged by the known pools and by what the pod asks for.
 * @param asked the notice that the pod's own constraints imply; undefined: none
 */
export function nodesGone(
  pod: Pod,
  pools: readonly NodePool[],
  asked: number | undefined,
): NodesGone | undefined {
  const possible = nodesAsked(pod).map((each) => pools.filter((pool) => mayHold(pool, each)));
  const known = [...new Set(possible.flat())];
  if (!possible.every(({ length }) => length > 0))
    return asked === undefined
      ? undefined
      : {
          seconds: asked,
          notice: asked,
          text: `on spot instances, which are gone ${asked}s after the notice`,
        };
  const noticeOf = (pool: NodePool) => least(pool.notice, asked);
  const mostOf = (pool: NodePool) => least(pool.within, noticeOf(pool));
  const longest = known.toSorted((a, b) => mostOf(b) - mostOf(a))[0];
  if (longest === undefined || !Number.isFinite(mostOf(longest))) return undefined;
  const seconds = mostOf(longest);
  const gone =
    seconds === longest.within
      ? `gone ${seconds}s after a drain of them begins (terminationGracePeriod)`
      : `spot instances, which are gone ${seconds}s after the notice`;
  const notice = Math.max(...known.map(noticeOf));
  return {
    seconds,
    text: `on ${known.map(({ by }) => by).join(', ')}, whose nodes are ${gone}`,
    notice: Number.isFinite(notice) ? notice : undefined,
  };
}

function least(...of: readonly (number | undefined)[]): number {
  return Math.min(...of.map((each) => each ?? Number.POSITIVE_INFINITY));
}

/** A label that the node must have, with one of these values. */
interface NodeLabel {
  readonly key: string;
  readonly values: readonly unknown[];
}

/** The labels that a pod requires of its node, for each term of its affinity. */
function nodesAsked({ spec }: Pod): readonly (readonly NodeLabel[])[] {
  const selected = Object.entries(spec.nodeSelector ?? {}).map(([key, value]) => ({ key, values: [value] }));
  const terms = listOf(nodeSelectorTerms(spec));
  if (terms.length === 0) return [selected];
  return terms.map((term) => [
    ...selected,
    ...recordsAt(term, 'matchExpressions')
      .filter(({ operator }) => operator === 'In')
      .map(({ key, values }) => ({ key: textOf(key), values: listOf(values) })),
  ]);
}

/** Whether the pool has one of the labels asked for, and none with a different value. */
function mayHold({ labels }: NodePool, asked: readonly NodeLabel[]): boolean {
  const known = asked.filter(({ key }) => labels.has(key));
  return (
    known.length > 0 &&
    known.every(({ key, values }) => labels.get(key)?.some((each) => values.includes(each)))
  );
}
