import { Budget, FOREIGN_LIMITS, GROUP, isRecord, isString, TOLERATE_UNREADY } from '../api/index.ts';
import { BACKENDS_AT, SERVICE_MARKS } from './traffic-kinds.ts';

// What audits and discovery read of the objects around workloads. Tenants write these objects, up to 20,000 of a kind and
// 1.5 MB each, so nothing else of them is kept. Objects of manifests are reduced in the same way, so a test fails whenever a
// member is read that is missing here.

/**
 * Members on the way from the object: `[]` goes through a list, whose entries count as a set; `*` takes all members of a map
 * of texts; `**` takes the whole value.
 */
type Path = string | readonly string[];

const GATEWAY = 'gateway.networking.k8s.io';
const ROUTE = ['group', 'kind', 'namespace', 'name'].map((member) => `spec.parentRefs[].${member}`);
const INGRESS: readonly Path[] = [
  'spec.ingressClassName',
  ['metadata', 'annotations', 'kubernetes.io/ingress.class'],
  ['metadata', 'annotations', 'alb.ingress.kubernetes.io/target-type'],
];
const REFERENCE = ['name', 'namespace', 'kind'];
const SENDER = [
  'spec.selector.matchLabels.*',
  'spec.template.metadata.labels.*',
  ['spec', 'template', 'metadata', 'annotations', 'linkerd.io/inject'],
  'spec.template.spec.containers[].image',
];

/** By group and kind, in whatever version. */
const PATHS: Readonly<Record<string, readonly Path[]>> = {
  '/Service': [
    'metadata.labels.*',
    ...[...Object.keys(SERVICE_MARKS), TOLERATE_UNREADY].map((key) => ['metadata', 'annotations', key]),
    ...[
      'type',
      'loadBalancerClass',
      'clusterIP',
      'publishNotReadyAddresses',
      'externalTrafficPolicy',
      'internalTrafficPolicy',
    ].map((member) => `spec.${member}`),
    ...['externalIPs[]', 'ports[].name', 'ports[].targetPort', 'ports[].protocol'].map(
      (member) => `spec.${member}`,
    ),
  ],
  'inference.networking.k8s.io/InferencePool': ['spec.selector.**'],
  'inference.networking.x-k8s.io/InferencePool': ['spec.selector.**'],
  'networking.istio.io/ServiceEntry': ['spec.workloadSelector.**'],
  'karpenter.sh/NodePool': [
    'spec.template.spec.terminationGracePeriod',
    'spec.template.spec.requirements.**',
    'spec.template.spec.nodeClassRef.group',
    'spec.template.metadata.labels.*',
  ],
  'karpenter.sh/Provisioner': ['spec.requirements.**', 'spec.labels.*'],
  'cloud.google.com/ComputeClass': ['spec.priorities[].spot'],
  'container.cnrm.cloud.google.com/ContainerNodePool': [
    ...['spot', 'preemptible', 'labels.*'].map((member) => `spec.nodeConfig.${member}`),
  ],
  'kops.k8s.io/InstanceGroup': [
    ...['nodeLabels.*', 'maxPrice', 'gcpProvisioningModel'].map((member) => `spec.${member}`),
    ...['onDemandBase', 'onDemandAboveBase'].map((member) => `spec.mixedInstancesPolicy.${member}`),
  ],
  'machine.openshift.io/MachineSet': [
    'spec.template.spec.metadata.labels.*',
    ...['spotMarketOptions', 'spotVMOptions', 'preemptible'].map(
      (member) => `spec.template.spec.providerSpec.value.${member}`,
    ),
  ],
  'infrastructure.cluster.x-k8s.io/AzureManagedMachinePool': ['spec.scaleSetPriority', 'spec.nodeLabels.*'],
  'infrastructure.cluster.x-k8s.io/AWSManagedMachinePool': ['spec.capacityType', 'spec.labels.*'],
  '/Namespace': ['metadata.labels.*', ['metadata', 'annotations', 'linkerd.io/inject']],
  'policy/PodDisruptionBudget': ['spec.selector.**', 'spec.minAvailable', 'spec.maxUnavailable'],
  'autoscaling/HorizontalPodAutoscaler': [
    'spec.scaleTargetRef.kind',
    'spec.scaleTargetRef.name',
    'spec.minReplicas',
  ],
  'keda.sh/ScaledObject': [
    'spec.scaleTargetRef.kind',
    'spec.scaleTargetRef.name',
    'spec.minReplicaCount',
    'spec.idleReplicaCount',
  ],
  'http.keda.sh/HTTPScaledObject': [
    'spec.scaleTargetRef.kind',
    'spec.scaleTargetRef.name',
    'spec.replicas.min',
  ],
  'networking.k8s.io/Ingress': INGRESS,
  'extensions/Ingress': INGRESS,
  'elbv2.k8s.aws/TargetGroupBinding': ['spec.targetType'],
  'eks.amazonaws.com/TargetGroupBinding': ['spec.targetType'],
  'cilium.io/CiliumLocalRedirectPolicy': ['spec.redirectBackend.localEndpointSelector.**'],
  'flagger.app/Canary': ['spec.targetRef.kind', 'spec.targetRef.name'],
  'networking.k8s.io/IngressClass': [
    'spec.controller',
    ['metadata', 'annotations', 'ingressclass.kubernetes.io/is-default-class'],
  ],
  [`${GATEWAY}/GatewayClass`]: ['spec.controllerName'],
  [`${GATEWAY}/Gateway`]: ['spec.gatewayClassName', 'spec.listeners[].allowedRoutes.namespaces.from'],
  [`${GATEWAY}/ReferenceGrant`]: [
    ...['group', 'kind', 'namespace'].map((member) => `spec.from[].${member}`),
    ...['kind', 'name'].map((member) => `spec.to[].${member}`),
  ],
  ...Object.fromEntries(
    ['HTTP', 'GRPC', 'TCP', 'TLS', 'UDP'].map((type) => [`${GATEWAY}/${type}Route`, ROUTE]),
  ),
  'networking.istio.io/VirtualService': ['spec.gateways[]'],
  'projectcontour.io/HTTPProxy': ['spec.virtualhost', 'spec.includes[].name', 'spec.includes[].namespace'],
  ...Object.fromEntries(['Deployment', 'DaemonSet', 'StatefulSet'].map((kind) => [`apps/${kind}`, SENDER])),
  [`${GROUP}/DiscoveryConsumer`]: ['spec.**'],
};

/** What is kept of a value: members of a record, or entries of a list. */
interface Part {
  readonly members: Map<string, Part>;
  items?: Part;
  /** Keeps all members that are texts. */
  texts?: true;
  whole?: true;
}

const newPart = (): Part => ({ members: new Map() });

function partOf(paths: readonly Path[]): Part {
  const root = newPart();
  for (const path of paths) {
    let part = root;
    for (const step of isString(path) ? path.split('.') : path) {
      if (step === '**') part.whole = true;
      else if (step === '*') part.texts = true;
      else {
        const isList = step.endsWith('[]');
        const name = isList ? step.slice(0, -2) : step;
        const next = part.members.get(name) ?? newPart();
        part.members.set(name, next);
        if (isList) next.items ??= newPart();
        part = isList ? (next.items ?? next) : next;
      }
    }
  }
  return root;
}

const IDENTITY: readonly Path[] = ['apiVersion', 'kind', 'metadata.name', 'metadata.namespace'];
const UNKNOWN_KIND = partOf(IDENTITY);
const PARTS: ReadonlyMap<string, Part> = new Map(
  [...new Set([...Object.keys(PATHS), ...BACKENDS_AT.keys()])].map((kind) => {
    const backends = (BACKENDS_AT.get(kind) ?? []).flatMap((path) => [
      `spec.${path}`,
      ...REFERENCE.map((member) => `spec.${path}.${member}`),
    ]);
    return [kind, partOf([...IDENTITY, ...(PATHS[kind] ?? []), ...backends])] as const;
  }),
);

/**
 * Names have at most 253 characters; the longest text that is read is the JSON that tells GKE about network endpoint groups.
 */
const LONGEST_TEXT = 1_024;

/**
 * An object of any kind, not validated, reduced to what audits and discovery read. In lists, equal entries count once.
 * @returns undefined: reading it exceeds its budget, so it is unknown
 */
export function reduced(
  object: unknown,
  budget = new Budget(FOREIGN_LIMITS.related),
): Readonly<Record<string, unknown>> | undefined {
  if (!isRecord(object)) return undefined;
  // If the apiVersion or the kind is too long to be kept, the rest would look like an object of another kind.
  const apiVersion = nameOf(object.apiVersion);
  const group = apiVersion.includes('/') ? apiVersion.slice(0, apiVersion.indexOf('/')) : '';
  const part = PARTS.get(`${group}/${nameOf(object.kind)}`) ?? UNKNOWN_KIND;
  const found = pick(object, part, budget);
  return budget.isSpent ? undefined : (found as Readonly<Record<string, unknown>>);
}

const nameOf = (value: unknown) => (isString(value) && isText(value) ? value : '');

function pick(value: unknown, part: Part, budget: Budget): unknown {
  if (part.whole) return copied(value, budget, 0);
  if (Array.isArray(value)) return part.items && entriesOf(value, part.items, budget);
  if (!isRecord(value)) return isText(value) ? value : undefined;
  // Not by assignment, which would take a member `__proto__` for the prototype.
  const kept: [string, unknown][] = [];
  if (part.texts)
    for (const name in value) {
      budget.spend();
      if (budget.isSpent) return undefined;
      const text = Object.hasOwn(value, name) ? value[name] : undefined;
      if (isText(text) && isText(name)) kept.push([name, text]);
    }
  for (const [name, member] of part.members) {
    const found = Object.hasOwn(value, name) ? pick(value[name], member, budget) : undefined;
    if (found !== undefined) kept.push([name, found]);
  }
  return Object.fromEntries(kept);
}

function entriesOf(list: readonly unknown[], part: Part, budget: Budget): readonly unknown[] {
  const kept = new Map<string, unknown>();
  for (const entry of list) {
    budget.spend();
    if (budget.isSpent) break;
    const found = pick(entry, part, budget);
    if (found !== undefined) kept.set(JSON.stringify(found), found);
  }
  return [...kept.values()];
}

/** Longer texts are neither names nor labels. */
function isText(value: unknown): boolean {
  return !isString(value) ? typeof value !== 'object' : value.length <= LONGEST_TEXT;
}

function copied(value: unknown, budget: Budget, depth: number): unknown {
  budget.spend();
  if (depth > budget.limits.depth) budget.spend(Number.POSITIVE_INFINITY);
  if (budget.isSpent) return undefined;
  if (Array.isArray(value)) return value.map((each) => copied(each, budget, depth + 1));
  if (isRecord(value))
    return Object.fromEntries(
      Object.entries(value).map(([name, each]) => [name, copied(each, budget, depth + 1)]),
    );
  if (value === null || isText(value)) return value;
  budget.spend(Number.POSITIVE_INFINITY);
  return undefined;
}
