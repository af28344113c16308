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

/** A pool of nodes, as the object that makes them has it. */
export interface NodePool {
  /** `NodePool cheap` */
  readonly by: string;
  /** The labels of its nodes, with the values that each label may have. */
  readonly labels: ReadonlyMap<string, readonly string[]>;
  /** Within how many seconds after a drain begins its nodes are gone; undefined: it does not say. */
  readonly within: number | undefined;
  /** Within how many seconds after the notice its nodes are gone; undefined: they stay. */
  readonly notice: number | undefined;
}

type Path = readonly string[];

/** A kind of object that makes nodes. */
interface PoolKind {
  /** The labels of its nodes that say its name. */
  readonly named: readonly string[];
  /** Where the labels of its nodes stand. */
  readonly labels?: Path;
  /** Where it requires labels, as an affinity does. */
  readonly requirements?: Path;
  /** Where it says how long a drain may take. */
  readonly within?: Path;
  /** The label that its nodes have where all of them are spot instances, and none otherwise. */
  readonly spot?: (spec: unknown) => readonly [label: string, value: string] | undefined;
}

const AWS = ['node.kubernetes.io/lifecycle', 'spot'] as const;
const AZURE = ['kubernetes.azure.com/scalesetpriority', 'spot'] as const;
const GKE = ['cloud.google.com/gke-provisioning', 'spot'] as const;
/** Without GKE’s kubelets: from the notice on, in seconds. */
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
    // Its capacity type is a label, which says less than the cloud that the class of its nodes is of.
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

/** An object that makes nodes, of any kind. @returns undefined for others */
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

/** How soon the nodes are gone that a pod is on, whichever of them it is. */
export interface NodesGone {
  /** The longest that one of them leaves it. */
  readonly seconds: number;
  /** `on NodePool cheap, whose nodes are gone 60s after a drain of them begins (terminationGracePeriod)` */
  readonly text: string;
  /** From the notice on, as the webhook takes it where it sees such nodes; undefined: they go by themselves only. */
  readonly notice: number | undefined;
}

/**
 * Where every node that a pod may be on goes away, by the pools that are known and what the pod asks for.
 * @param asked what its own constraints say of the notice; undefined: nothing
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

/** A label that the node has, with one of these values. */
interface NodeLabel {
  readonly key: string;
  readonly values: readonly unknown[];
}

/** What the nodes of a pod have, for each term of its affinity. */
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

/** The pool has a label that is asked for, and none of another value. */
function mayHold({ labels }: NodePool, asked: readonly NodeLabel[]): boolean {
  const known = asked.filter(({ key }) => labels.has(key));
  return (
    known.length > 0 &&
    known.every(({ key, values }) => labels.get(key)?.some((each) => values.includes(each)))
  );
}
