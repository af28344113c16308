import {
  API_VERSION,
  BUILT_IN_CONSUMERS,
  type DiscoveryConsumerSpec,
  EVERYTHING,
  isRecord,
  isString,
  isStringMap,
  type Labels,
  LingerError,
  listOf,
  MOST_VALUES,
  memberAt,
  NAMESPACE_NAME_LABEL,
  NO_LABELS,
  namespaceRecord,
  parseDocument,
  recordsAt,
  selects,
  selectsNamespace,
  taken,
  textOf,
  unseenNamespace,
} from '../api/index.ts';
import { type Consumer, consumerOf, sendsThrough } from '../lag/index.ts';
import { CATALOGUE, type Ecosystem } from './catalogue.ts';
import { reduced } from './reduced-objects.ts';
import { type BackendService, backendsOf, balancerToPods, isTrafficKind, marksIn } from './traffic-kinds.ts';

/** A group of pods that sends traffic, and serves the page of its upstreams. */
export interface Instances {
  readonly namespace: string;
  readonly labels: Labels;
  /** All labels of its pods. */
  readonly podLabels?: Labels;
  /**
   * `DaemonSet projectcontour/envoy`; absent: it was not seen, and is assumed to be where the usual installation puts it.
   */
  readonly workload?: string;
}

/** A consumer that was recognised. */
export interface DiscoveredConsumer {
  readonly name: string;
  readonly ecosystem: Ecosystem;
  /** `shop/web`, in order. */
  readonly services: readonly string[];
  /** The objects by which it was recognised: `HTTPProxy shop/root`. */
  readonly seen: readonly string[];
  /** The namespaces of these objects. A mesh sends to any Service, so its namespaces show where it is. */
  readonly namespaces: ReadonlySet<string>;
  readonly instances: Instances | undefined;
  /** The DiscoveryConsumer that already declares it. */
  readonly declaredBy: string | undefined;
  /** Ready to be applied; undefined: a built-in consumer covers its lag. */
  readonly spec: ConsumerDocument | undefined;
}

export interface ConsumerDocument {
  readonly apiVersion: string;
  readonly kind: 'DiscoveryConsumer';
  readonly metadata: { readonly name: string };
  readonly spec: unknown;
}

export interface Discovered {
  readonly consumers: readonly DiscoveredConsumer[];
  /** Senders of traffic to Services that have no class or kind of the catalogue, or whose Gateway was not seen. */
  readonly unrecognised: readonly UnrecognisedRoute[];
}

export interface UnrecognisedRoute {
  /** `Ingress shop/web` */
  readonly seen: string;
  /** `shop/web` */
  readonly services: readonly string[];
}

interface Found {
  readonly services: Set<string>;
  readonly seen: Set<string>;
  readonly namespaces: Set<string>;
  readonly instances: Instances[];
}

/** An object of any kind, not validated. */
interface Thing {
  readonly group: string;
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  readonly object: Readonly<Record<string, unknown>>;
}

const GATEWAY_GROUP = 'gateway.networking.k8s.io';
const CLASS_ANNOTATION = 'kubernetes.io/ingress.class';
const TARGET_TYPE = 'alb.ingress.kubernetes.io/target-type';
const DEFAULT_CLASS = 'ingressclass.kubernetes.io/is-default-class';

/** Kinds that show to which sender a route belongs, and where a mesh is. */
export const ROUTING_KINDS = [
  { apiVersion: 'networking.k8s.io/v1', kind: 'IngressClass' },
  { apiVersion: `${GATEWAY_GROUP}/v1`, kind: 'GatewayClass' },
  { apiVersion: `${GATEWAY_GROUP}/v1`, kind: 'Gateway' },
  { apiVersion: `${GATEWAY_GROUP}/v1beta1`, kind: 'ReferenceGrant' },
  { apiVersion: 'v1', kind: 'Namespace' },
] as const;

/** Kinds that run gateways, and declared consumers. */
export const SENDER_KINDS = [
  { apiVersion: 'apps/v1', kind: 'Deployment' },
  { apiVersion: 'apps/v1', kind: 'DaemonSet' },
  { apiVersion: 'apps/v1', kind: 'StatefulSet' },
  { apiVersion: API_VERSION, kind: 'DiscoveryConsumer' },
] as const;

/**
 * Finds in objects (of any kind, not validated) which senders there are of traffic to Services, and how their lag is
 * determined.
 */
export function discover(objects: Iterable<unknown>, defaultNamespace: string): Discovered {
  const known = Array.from(objects, (object) => reduced(object)).filter((each) => each !== undefined);
  return taken(discovering(known, defaultNamespace));
}

/**
 * {@link discover} in steps, so that a leader that audits a large cluster can answer reviews in between.
 * @param objects as returned by {@link reduced}
 */
export function* discovering(
  objects: readonly Readonly<Record<string, unknown>>[],
  defaultNamespace: string,
): Generator<undefined, Discovered> {
  const things: Thing[] = [];
  const index = new Map<string, Thing>();
  for (const object of objects) {
    yield;
    const thing = thingOf(object, defaultNamespace);
    if (thing === undefined) continue;
    things.push(thing);
    index.set(partKey(thing), thing);
  }
  const byKind = Map.groupBy(things, ({ kind }) => kind);
  const found = new Map<string, Found>();
  const unrecognised = new Map<string, readonly string[]>();
  const add = (name: string, namespace: string, seen: string, services: Iterable<string> = []) => {
    let one = found.get(name);
    if (one === undefined) {
      one = { services: new Set(), seen: new Set(), namespaces: new Set(), instances: [] };
      found.set(name, one);
    }
    one.seen.add(seen);
    one.namespaces.add(namespace);
    for (const service of services) one.services.add(service);
  };
  const classes = new Classes(byKind);
  const grants = grantsIn(byKind.get('ReferenceGrant') ?? []);
  const included = includedProxies(byKind.get('HTTPProxy') ?? [], index);
  const ofIngresses = new Set<string>();
  for (const each of byKind.get('Ingress') ?? []) {
    yield;
    for (const service of servicesOf(each, grants, index)) ofIngresses.add(service);
  }
  for (const thing of things) {
    yield;
    const subject = `${thing.kind} ${thing.namespace}/${thing.name}`;
    const owners = new Set(ownersOf(thing, classes, index, included));
    const services = owners.size === 0 ? [] : servicesOf(thing, grants, index);
    for (const owner of owners)
      if (owner === undefined) unrecognised.set(subject, services);
      else if (services.length > 0) add(owner, thing.namespace, subject, services);
    for (const mark of unknownMarksOf(thing))
      unrecognised.set(`${subject} (${mark})`, [`${thing.namespace}/${thing.name}`]);
    const within = thing.kind === 'Namespace' ? thing.name : thing.namespace;
    for (const { name, seen, services } of marksOf(thing, subject, ofIngresses))
      add(name, within, seen, services);
  }
  for (const thing of things) {
    yield;
    const ecosystem = senderOf(thing);
    const one = ecosystem && found.get(ecosystem.name);
    if (one === undefined) continue;
    const labels = memberAt(thing.object, ['spec', 'selector', 'matchLabels']);
    if (!isStringMap(labels) || Object.keys(labels).length === 0) continue;
    const podLabels = memberAt(thing.object, ['spec', 'template', 'metadata', 'labels']);
    one.instances.push({
      namespace: thing.namespace,
      labels,
      podLabels: isStringMap(podLabels) ? podLabels : labels,
      workload: `${thing.kind} ${thing.namespace}/${thing.name}`,
    });
  }
  const declared = new Declared(byKind, index);
  const consumers: DiscoveredConsumer[] = [];
  for (const ecosystem of CATALOGUE) {
    const one = found.get(ecosystem.name);
    if (one !== undefined) consumers.push(...(yield* consumersOf(ecosystem, one, declared)));
  }
  return { consumers, unrecognised: [...unrecognised].map(([seen, services]) => ({ seen, services })) };
}

function thingOf(object: Readonly<Record<string, unknown>>, defaultNamespace: string): Thing | undefined {
  if (!isString(object.kind) || !isString(object.apiVersion)) return undefined;
  const name = memberAt(object, ['metadata', 'name']);
  if (!isString(name)) return undefined;
  const given = memberAt(object, ['metadata', 'namespace']);
  const [group = ''] = object.apiVersion.includes('/') ? object.apiVersion.split('/') : [''];
  const namespace = isString(given) && given !== '' ? given : defaultNamespace;
  return { group, kind: object.kind, namespace, name, object };
}

function partKey({
  group,
  kind,
  namespace,
  name,
}: Pick<Thing, 'group' | 'kind' | 'namespace' | 'name'>): string {
  return `${group}/${kind}/${namespace}/${name}`;
}

const BY_CONTROLLER = new Map(
  CATALOGUE.flatMap(({ name, controllers = [] }) => controllers.map((each) => [each, name] as const)),
);
const BY_CLASS = new Map(
  CATALOGUE.flatMap(({ name, classes = [] }) => classes.map((each) => [each, name] as const)),
);
const BY_KIND = new Map(
  CATALOGUE.flatMap(({ name, kinds = [] }) => kinds.map((each) => [each, name] as const)),
);

/** Finds the ecosystem to which the class of an Ingress or a Gateway belongs. */
class Classes {
  readonly #controllers = new Map<string, string>();
  readonly #default: string | undefined;
  /** Whether the objects include Gateways. Manifests of an application often contain only its routes. */
  readonly withGateways: boolean;

  constructor(byKind: ReadonlyMap<string, readonly Thing[]>) {
    for (const { name, object } of byKind.get('IngressClass') ?? []) {
      const controller = memberAt(object, ['spec', 'controller']);
      this.#controllers.set(`Ingress/${name}`, textOf(controller));
      if (memberAt(object, ['metadata', 'annotations', DEFAULT_CLASS]) === 'true') this.#default = name;
    }
    this.withGateways = byKind.get('Gateway')?.some(({ group }) => group === GATEWAY_GROUP) === true;
    for (const { name, object } of byKind.get('GatewayClass') ?? [])
      this.#controllers.set(`Gateway/${name}`, textOf(memberAt(object, ['spec', 'controllerName'])));
  }

  /** @returns undefined for a class that is not known */
  ecosystemOf(kind: 'Ingress' | 'Gateway', given: unknown): string | undefined {
    const name = isString(given) ? given : kind === 'Ingress' ? this.#default : undefined;
    if (name === undefined) return undefined;
    const controller = this.#controllers.get(`${kind}/${name}`);
    return controller === undefined ? BY_CLASS.get(name) : BY_CONTROLLER.get(controller);
  }
}

/** The ecosystems whose gateways route by this object; undefined stands for an unknown one. */
function ownersOf(
  thing: Thing,
  classes: Classes,
  index: ReadonlyMap<string, Thing>,
  included: ReadonlySet<string>,
): readonly (string | undefined)[] {
  const { group, kind, namespace, object } = thing;
  const type = `${group}/${kind}`;
  if (kind === 'Ingress' && (group === 'networking.k8s.io' || group === 'extensions')) {
    const annotated = memberAt(object, ['metadata', 'annotations', CLASS_ANNOTATION]);
    const owner = classes.ecosystemOf('Ingress', memberAt(object, ['spec', 'ingressClassName']) ?? annotated);
    const targets = memberAt(object, ['metadata', 'annotations', TARGET_TYPE]);
    return [targetedBy(owner, targets)];
  }
  if (group === GATEWAY_GROUP && /^(HTTP|GRPC|TCP|TLS|UDP)Route$/.test(kind))
    return recordsAt(object, 'spec', 'parentRefs').flatMap((parent) => {
      const { group: ofParent = GATEWAY_GROUP, kind: parentKind = 'Gateway', name } = parent;
      // Such a route tells a mesh how to route requests to the Service.
      if (ofParent === '' && parentKind === 'Service') return [undefined];
      if (ofParent !== GATEWAY_GROUP || parentKind !== 'Gateway' || !isString(name)) return [];
      const within = isString(parent.namespace) ? parent.namespace : namespace;
      const gateway = index.get(partKey({ group: GATEWAY_GROUP, kind: 'Gateway', namespace: within, name }));
      // If the objects include Gateways and this one is missing, it attaches nothing.
      if (gateway === undefined) return classes.withGateways ? [] : [undefined];
      if (!admits(gateway, namespace)) return [];
      return [classes.ecosystemOf('Gateway', memberAt(gateway.object, ['spec', 'gatewayClassName']))];
    });
  if (type === 'networking.istio.io/VirtualService') {
    const gateways = listOf(memberAt(object, ['spec', 'gateways'])).filter((each) => each !== 'mesh');
    return gateways.length > 0 ? ['istio-gateway'] : [];
  }
  if (type === 'projectcontour.io/HTTPProxy' && !included.has(partKey(thing))) return [];
  const owner = BY_KIND.get(type);
  if (owner !== undefined) return [targetedBy(owner, memberAt(object, ['spec', 'targetType']))];
  // A TraefikService is reached through the route that refers to it.
  return kind !== 'TraefikService' && isTrafficKind(object) ? [undefined] : [];
}

/** A target group of instances sends to node ports. */
function targetedBy(owner: string | undefined, targetType: unknown): string | undefined {
  return owner === 'aws-target-groups' && targetType === 'instance' ? 'node-ports' : owner;
}

/** Whether a listener accepts routes from this namespace. Source: Gateway API, allowedRoutes (`Same` if absent). */
function admits({ namespace, object }: Thing, from: string): boolean {
  if (from === namespace) return true;
  return recordsAt(object, 'spec', 'listeners').some((listener) => {
    const allowed = memberAt(listener, ['allowedRoutes', 'namespaces', 'from']);
    return allowed === 'All' || allowed === 'Selector';
  });
}

/** The HTTPProxies that are roots, or are included by one; others have no effect. Includes may be cyclic. */
function includedProxies(proxies: readonly Thing[], index: ReadonlyMap<string, Thing>): ReadonlySet<string> {
  const queue = proxies.filter(({ object }) => isRecord(memberAt(object, ['spec', 'virtualhost'])));
  const reached = new Set(queue.map(partKey));
  for (let next = queue.pop(); next !== undefined; next = queue.pop()) {
    const { group, kind, namespace, object } = next;
    for (const include of recordsAt(object, 'spec', 'includes')) {
      const within = isString(include.namespace) ? include.namespace : namespace;
      const key = partKey({ group, kind, namespace: within, name: textOf(include.name) });
      const child = index.get(key);
      if (child === undefined || reached.has(key)) continue;
      reached.add(key);
      queue.push(child);
    }
  }
  return reached;
}

/** `FROM-KIND/FROM-NAMESPACE → TO-NAMESPACE/SERVICE`, with `*` for every Service. */
function grantsIn(things: readonly Thing[]): ReadonlySet<string> {
  const grants = new Set<string>();
  for (const { namespace, object } of things)
    for (const from of recordsAt(object, 'spec', 'from'))
      for (const to of recordsAt(object, 'spec', 'to')) {
        if (to.kind !== 'Service' || from.group !== GATEWAY_GROUP) continue;
        const which = isString(to.name) ? to.name : '*';
        grants.add(`${textOf(from.kind)}/${textOf(from.namespace)} → ${namespace}/${which}`);
      }
  return grants;
}

/** How many TraefikServices are followed for one route, because any number of routes may lead to the same ones. */
const MOST_THROUGH = 16;

function servicesOf(
  thing: Thing,
  grants: ReadonlySet<string>,
  index: ReadonlyMap<string, Thing>,
): readonly string[] {
  const { group, kind, namespace, object } = thing;
  const granted = ({ namespace: other, service }: BackendService) => {
    if (group !== GATEWAY_GROUP || other === namespace) return true;
    const from = `${kind}/${namespace} → ${other}`;
    return grants.has(`${from}/*`) || grants.has(`${from}/${service}`);
  };
  const direct = backendsOf(object, namespace).filter(granted);
  // A TraefikService stands for the Services that it weighs or mirrors to, or for other TraefikServices.
  const reached = new Set<string>();
  const queue = traefikServicesOf(object, namespace, group);
  const through: BackendService[] = [];
  for (let key = queue.pop(); key !== undefined && reached.size < MOST_THROUGH; key = queue.pop()) {
    const next = index.get(key);
    if (next === undefined || reached.has(key)) continue;
    reached.add(key);
    through.push(...backendsOf(next.object, next.namespace));
    queue.push(...traefikServicesOf(next.object, next.namespace, next.group));
  }
  return [...direct, ...through].map((each) => `${each.namespace}/${each.service}`);
}

function traefikServicesOf(object: unknown, namespace: string, group: string): string[] {
  if (!group.startsWith('traefik.')) return [];
  const spec = memberAt(object, ['spec']);
  const references = [
    ...recordsAt(spec, 'routes').flatMap((route) => recordsAt(route, 'services')),
    ...recordsAt(spec, 'weighted', 'services'),
    ...[memberAt(spec, ['mirroring'])].filter(isRecord),
    ...recordsAt(spec, 'mirroring', 'mirrors'),
  ];
  return references
    .filter((each) => each.kind === 'TraefikService' && isString(each.name))
    .map(({ name, namespace: other }) =>
      partKey({
        group,
        kind: 'TraefikService',
        name: textOf(name),
        namespace: isString(other) ? other : namespace,
      }),
    );
}

interface Mark {
  readonly name: string;
  readonly seen: string;
  readonly services: readonly string[];
}

/**
 * What an object shows by labels, annotations and types: meshes, and ways into a Service.
 * @param ofIngresses Services to which an Ingress leads
 */
function marksOf(
  { group, kind, namespace, name, object }: Thing,
  subject: string,
  ofIngresses: ReadonlySet<string>,
): readonly Mark[] {
  const service = `${namespace}/${name}`;
  if (kind === 'Service' && group === '') {
    const type = memberAt(object, ['spec', 'type']);
    const neg = memberAt(object, ['metadata', 'annotations', 'cloud.google.com/neg']);
    // GKE itself annotates Services with {"ingress": true}, just in case an Ingress is added.
    const exposed =
      isString(neg) &&
      (/"exposed_ports"/.test(neg) || (/"ingress"\s*:\s*true/.test(neg) && ofIngresses.has(service)));
    const toPods = balancerToPods(object);
    const isLocal = memberAt(object, ['spec', 'externalTrafficPolicy']) === 'Local';
    // The sender to a node port is known only from its load balancer, or from a health check.
    const isThroughNodes = type === 'LoadBalancer' || (type === 'NodePort' && isLocal);
    const onNodes = {
      name: isLocal ? 'node-health-checks' : 'node-ports',
      seen: `${subject} (${textOf(type)}${isLocal ? ', externalTrafficPolicy Local' : ''})`,
      services: [service],
    };
    return [
      ...(toPods?.name
        ? [{ name: toPods.name, seen: `${subject} (${toPods.mark})`, services: [service] }]
        : []),
      ...(isThroughNodes && toPods === undefined ? [onNodes] : []),
      ...(exposed
        ? [{ name: 'gke-neg', seen: `${subject} (cloud.google.com/neg)`, services: [service] }]
        : []),
    ];
  }
  if (group === 'networking.istio.io' && kind === 'VirtualService') {
    const gateways = listOf(memberAt(object, ['spec', 'gateways']));
    const isOfMesh = gateways.length === 0 || gateways.includes('mesh');
    return isOfMesh ? [{ name: 'istio-sidecars', seen: subject, services: [] }] : [];
  }
  const isNamespace = kind === 'Namespace' && group === '';
  const metadata = isNamespace
    ? memberAt(object, ['metadata'])
    : group === 'apps'
      ? memberAt(object, ['spec', 'template', 'metadata'])
      : undefined;
  if (metadata === undefined) return [];
  const seen = isNamespace ? `Namespace ${name}` : subject;
  const label = (key: string) => memberAt(metadata, ['labels', key]);
  const isIstio =
    label('istio-injection') === 'enabled' ||
    label('sidecar.istio.io/inject') === 'true' ||
    label('istio.io/dataplane-mode') === 'ambient' ||
    (isNamespace && isString(label('istio.io/rev')));
  const inject = memberAt(metadata, ['annotations', 'linkerd.io/inject']);
  const isGateway = senderOf({ group, kind, namespace, name, object }) !== undefined;
  return [
    ...(isIstio && !isGateway ? [{ name: 'istio-sidecars', seen, services: [] }] : []),
    ...(inject === 'enabled' || inject === 'ingress' ? [{ name: 'linkerd', seen, services: [] }] : []),
  ];
}

/** Marks of a Service by which something outside the known ecosystems sends to its pods, or follows them. */
function unknownMarksOf({ group, kind, object }: Thing): readonly string[] {
  if (kind !== 'Service' || group !== '') return [];
  const toPods = balancerToPods(object);
  const known = toPods?.name === null ? '' : toPods?.mark;
  const spec = memberAt(object, ['spec']);
  const isPlainPort =
    memberAt(spec, ['type']) === 'NodePort' && memberAt(spec, ['externalTrafficPolicy']) !== 'Local';
  return [
    ...(isPlainPort ? ['NodePort'] : []),
    ...(listOf(memberAt(spec, ['externalIPs'])).length > 0 ? ['externalIPs'] : []),
    ...marksIn(object).filter((mark) => mark !== known && mark !== 'cloud.google.com/neg'),
  ];
}

/** The ecosystem whose gateways this workload runs. */
function senderOf({ group, kind, object }: Thing): Ecosystem | undefined {
  if (group !== 'apps' || !/^(Deployment|DaemonSet|StatefulSet)$/.test(kind)) return undefined;
  const template = memberAt(object, ['spec', 'template']);
  const images = recordsAt(template, 'spec', 'containers').map(({ image }) => textOf(image));
  const labels = memberAt(template, ['metadata', 'labels']);
  const has = (wanted: Labels) =>
    Object.entries(wanted).every(([key, value]) => memberAt(labels, [key]) === value);
  return CATALOGUE.find(
    ({ image, marked }) =>
      image !== undefined && images.some((each) => image.test(each)) && (marked?.some(has) ?? true),
  );
}

/** A generator, because there may be thousands of instances, and each may send to thousands of Services. */
function* consumersOf(
  ecosystem: Ecosystem,
  found: Found,
  declared: Declared,
): Generator<undefined, readonly DiscoveredConsumer[]> {
  const { measure, usual, name } = ecosystem;
  const services = [...found.services].toSorted();
  const seen = [...found.seen].toSorted();
  yield;
  const routed = { services, seen, namespaces: found.namespaces };
  const appliesTo = appliesToOf(services);
  const standing = yield* declared.sendingTo(services);
  const workloads = found.instances.toSorted((a, b) => (String(a.workload) < String(b.workload) ? -1 : 1));
  const places: (Instances | undefined)[] =
    measure.by === 'inspect' ? (workloads.length > 0 ? workloads : [usual]) : [undefined];
  const times = new Map<string, number>();
  const consumers: DiscoveredConsumer[] = [];
  for (const instances of places) {
    yield;
    const place =
      places.length === 1 ? name : `${name}-${(instances?.workload ?? '').split(' ')[1]?.replace('/', '-')}`;
    // At most 63 characters, because it becomes the label of a metric, and a column in kubectl's output.
    const short = place
      .toLowerCase()
      .replaceAll(/[^a-z0-9-]/g, '-')
      .slice(0, 63)
      .replace(/-+$/, '');
    // Two places may lead to the same name, and a second document of that name would replace the first.
    const nth = (times.get(short) ?? 0) + 1;
    times.set(short, nth);
    const own = nth === 1 ? short : `${short.slice(0, 58)}-${nth}`;
    const spec = specOf(ecosystem, appliesTo, instances);
    const document: ConsumerDocument | undefined = spec && {
      apiVersion: API_VERSION,
      kind: 'DiscoveryConsumer',
      metadata: { name: own },
      spec,
    };
    const named = document?.metadata.name ?? name;
    const declaredBy =
      measure.by === 'clusterIp'
        ? BUILT_IN_CONSUMERS.clusterIp
        : declared.by(named, { ecosystem, instances }, standing);
    consumers.push({ name: named, ecosystem, ...routed, instances, declaredBy, spec: document });
  }
  return consumers;
}

type Asked = Pick<DiscoveredConsumer, 'ecosystem' | 'instances'>;

/** The DiscoveryConsumers among the objects. */
class Declared {
  readonly #names: ReadonlySet<string>;
  readonly #consumers: readonly Consumer[];
  readonly #namespaces: ReadonlyMap<string, Labels>;
  readonly #index: ReadonlyMap<string, Thing>;

  constructor(byKind: ReadonlyMap<string, readonly Thing[]>, index: ReadonlyMap<string, Thing>) {
    const things = byKind.get('DiscoveryConsumer') ?? [];
    this.#names = new Set(things.map(({ name }) => name));
    this.#consumers = things.flatMap(consumerIn);
    this.#namespaces = new Map((byKind.get('Namespace') ?? []).map((each) => [each.name, labelsOf(each)]));
    this.#index = index;
  }

  /** The consumers that send to all of these Services, in steps. */
  *sendingTo(services: readonly string[]): Generator<undefined, readonly Consumer[]> {
    let left = this.#consumers;
    for (const service of services) {
      if (left.length === 0) break;
      yield;
      left = left.filter((each) => this.#sends(each, service));
    }
    return left;
  }

  /** The declared consumer that stands for a discovered one: it has its name, or asks the same pods, and is among these. */
  by(name: string, asked: Asked, sending: readonly Consumer[]): string | undefined {
    if (this.#names.has(name)) return name;
    return sending.find((each) => asksSame(each, asked))?.name;
  }

  #sends(consumer: Consumer, service: string): boolean {
    const [namespace = '', name = ''] = service.split('/');
    const labels = this.#namespaces.get(namespace);
    const within =
      labels === undefined ? unseenNamespace(namespace) : namespaceRecord(namespace, labels, NO_LABELS);
    const seen = this.#index.get(partKey({ group: '', kind: 'Service', namespace, name }));
    const of = { namespace, name, selector: undefined, headless: false, externalName: false };
    return sendsThrough(consumer, within, seen === undefined ? 'unknown' : { ...of, labels: labelsOf(seen) });
  }
}

function consumerIn({ name, object }: Thing): readonly Consumer[] {
  try {
    const document = parseDocument(object, name);
    return document.kind === 'DiscoveryConsumer' ? [consumerOf(name, document.spec)] : [];
  } catch (thrown) {
    if (thrown instanceof LingerError) return [];
    throw thrown;
  }
}

function labelsOf({ object }: Thing): Labels {
  const labels = memberAt(object, ['metadata', 'labels']);
  return isStringMap(labels) ? labels : NO_LABELS;
}

/**
 * Whether a consumer asks the pods of a discovered one. If these were not seen, its labels must agree with those in the
 * catalogue: at least one must match, and none contradict.
 */
export function asksSame({ measure }: Consumer, { ecosystem, instances }: Asked): boolean {
  if (measure.kind === 'xds') return ecosystem.measure.by === 'xds';
  if (measure.kind !== 'inspect' || measure.inspect.instances === undefined) return false;
  const { namespaceSelector, podSelector = EVERYTHING } = measure.inspect.instances;
  if (instances?.podLabels !== undefined)
    return (
      selects(podSelector, instances.podLabels) &&
      selectsNamespace(namespaceSelector, unseenNamespace(instances.namespace)) !== false
    );
  const asked = Object.entries(podSelector.matchLabels ?? {});
  const known = [...(ecosystem.marked ?? []), ...(ecosystem.usual ? [ecosystem.usual.labels] : [])];
  return known.some(
    (labels) =>
      asked.some(([key, value]) => labels[key] === value) &&
      asked.every(([key, value]) => (labels[key] ?? value) === value),
  );
}

/**
 * Finds the discovered consumers that send to pods, given their Services and namespace, and for which no declared consumer
 * stands. A declared consumer that is none of those discovered may stand for any of them, so then there are none.
 */
export type UndeclaredSenders = (
  pods: { readonly namespace: string; readonly services: readonly string[] },
  /** The consumers that send to these pods. */
  applying: readonly Consumer[],
) => readonly DiscoveredConsumer[];

/** Indexed, because thousands of workloads look up senders among thousands of Services and instances. */
export function undeclaredAmong({ consumers }: Discovered): UndeclaredSenders {
  // Those of one ecosystem send to the same Services.
  const ecosystems = [...Map.groupBy(consumers, ({ ecosystem }) => ecosystem)].flatMap(([ecosystem, all]) => {
    const [one] = all;
    return one === undefined || ecosystem.measure.by === 'clusterIp'
      ? []
      : [{ all, services: new Set(one.services), namespaces: one.namespaces }];
  });
  const standing = new Map<Consumer, ReadonlySet<DiscoveredConsumer>>();
  const stoodForBy = (each: Consumer) => {
    const known = standing.get(each);
    if (known !== undefined) return known;
    const isFor = (found: DiscoveredConsumer) =>
      each.name === found.name || each.name === found.ecosystem.name || asksSame(each, found);
    const those = new Set(consumers.filter(isFor));
    standing.set(each, those);
    return those;
  };
  return ({ namespace, services }, applying) => {
    const stoodFor = applying.map(stoodForBy);
    if (applying.some(({ builtIn }, index) => !builtIn && stoodFor[index]?.size === 0)) return [];
    const reaching = ecosystems.filter((each) =>
      each.services.size === 0
        ? each.namespaces.has(namespace)
        : services.some((service) => each.services.has(service)),
    );
    return reaching.flatMap(({ all }) => all.filter((found) => !stoodFor.some((those) => those.has(found))));
  };
}

/** With durations as text, as an author would write them, since it is printed. */
type WrittenSpec = { readonly [M in keyof DiscoveryConsumerSpec]?: unknown };

type AppliesTo = { readonly appliesTo?: unknown };

function appliesToOf(services: readonly string[]): AppliesTo {
  const values = [...new Set(services.map((each) => each.split('/')[0] ?? ''))];
  // A mesh's proxies send to any Service; and a selector has room for only so many values.
  if (values.length === 0 || values.length > MOST_VALUES) return {};
  const expression = { key: NAMESPACE_NAME_LABEL, operator: 'In', values };
  return { appliesTo: { namespaceSelector: { matchExpressions: [expression] } } };
}

function specOf(
  { measure }: Ecosystem,
  appliesTo: AppliesTo,
  instances: Instances | undefined,
): WrittenSpec | undefined {
  if (measure.by === 'clusterIp') return undefined;
  if (measure.by === 'declared' || measure.by === 'xds') {
    const { by, ...how } = measure;
    return { mode: 'Observe', ...appliesTo, measure: { [by]: how } };
  }
  if (instances === undefined) return undefined;
  const { format, port, path } = measure;
  const pods = {
    namespaceSelector: { matchLabels: { [NAMESPACE_NAME_LABEL]: instances.namespace } },
    podSelector: { matchLabels: instances.labels },
    port,
    ...(path !== undefined && { path }),
  };
  return { mode: 'Observe', ...appliesTo, measure: { inspect: { format, instances: pods } } };
}
