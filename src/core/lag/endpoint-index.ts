import { Shares } from '../api/index.ts';
import type { EndpointSource, EndpointsAddress, EndpointsState, PodKey, SliceState } from './events.ts';

/**
 * The state of an endpoint in its group. Ready wins: with publishNotReadyAddresses an endpoint may be both ready and
 * terminating.
 */
export type EndpointState = 'ready' | 'notReady' | 'terminating';

/**
 * The unit that consumers read as a whole: an Endpoints object, or all slices of one Service and address family, because the
 * controller may move an endpoint from one slice to another.
 */
export interface EndpointGroup {
  readonly stage: EndpointSource;
  readonly namespace: string;
  /** Empty: a slice without a Service. */
  readonly service: string;
  /** Copied by Kubernetes from manually written Endpoints. */
  readonly mirrored: boolean;
  /**
   * The object is a truncated Endpoints object, or Linger had no room for it: a pod missing from it may still be an
   * endpoint.
   */
  readonly overCapacity: boolean;
}

interface EndpointAddress {
  readonly pod: string | undefined;
  readonly ip: string;
}

/** A change of an endpoint's state in its group; undefined: it is not listed. */
export interface EndpointChange {
  /** The pod's uid; for an address without a pod, `/` and the address. */
  readonly uid: string;
  readonly group: EndpointGroup;
  readonly before: EndpointState | undefined;
  readonly after: EndpointState | undefined;
  /** undefined unless the index keeps addresses. */
  readonly address: EndpointAddress | undefined;
}

interface Group extends EndpointGroup {
  overCapacity: boolean;
  readonly key: string;
  readonly objects: Set<ListingObject>;
}

interface ListingObject {
  readonly group: Group;
  overCapacity: boolean;
  unread: boolean;
  /** By uid: a combination of the bits {@link READY} and {@link TERMINATING}. */
  states: ReadonlyMap<string, number>;
  /** By uid; filled only if the index keeps addresses. */
  addresses: ReadonlyMap<string, EndpointAddress>;
}

const READY = 1;
const TERMINATING = 2;

const NO_CHANGES: readonly EndpointChange[] = [];

/** Source: k8s.io/kubernetes pkg/controller/endpointslicemirroring (controllerName). */
const MIRRORING_CONTROLLER = 'endpointslicemirroring-controller.k8s.io';

/**
 * Which Services list which endpoints, by object and by pod, and what changes when an object does. Processing a change takes
 * time in proportion to the changed object.
 */
export class EndpointIndex {
  readonly #keepsAddresses: boolean;
  /** The objects that list a pod, in any state, by the pod's namespace and uid. */
  readonly #pods = new Map<string, Map<string, readonly ListingObject[]>>();
  readonly #objects = new Map<string, ListingObject>();
  readonly #groups = new Map<string, Group>();
  readonly #unread = new Shares();

  /**
   * @param options.addresses whether to keep addresses, and also endpoints without a pod and mirrored slices. Measuring
   * needs none of them: mirrored slices copy targetRefs that anyone may have written, and their controller follows
   * Endpoints, not pods.
   */
  constructor({ addresses = false }: { readonly addresses?: boolean } = {}) {
    this.#keepsAddresses = addresses;
  }

  slice(slice: SliceState): readonly EndpointChange[] {
    const { namespace, name, serviceName = '', managedBy, endpoints } = slice;
    const key = listKeyOf('EndpointSlice', namespace, name);
    const mirrored = managedBy === MIRRORING_CONTROLLER;
    if (mirrored && !this.#keepsAddresses) return this.#remove(key);
    const groupKey = sliceGroupKey(slice);
    // If a slice's label has changed, it moves from one Service to another.
    const moved = this.#objects.get(key)?.group.key !== groupKey ? this.#remove(key) : NO_CHANGES;
    const group = { stage: 'EndpointSlice', namespace, service: serviceName, mirrored } as const;
    const changes = this.#put(
      this.#object(key, groupKey, group),
      slice,
      endpoints.map(({ targetUid, targetName, addresses, ready, terminating }) => {
        const state = (ready ? READY : 0) | (terminating === true ? TERMINATING : 0);
        // Further addresses are interchangeable with the first (discovery/v1), and kube-proxy reads only the first.
        return [{ targetUid, targetName, ip: addresses?.[0] ?? '' }, state];
      }),
    );
    return moved.length === 0 ? changes : [...moved, ...changes];
  }

  endpoints(endpoints: EndpointsState): readonly EndpointChange[] {
    const { namespace, name, ready, notReady } = endpoints;
    const key = listKeyOf('Endpoints', namespace, name);
    const group = { stage: 'Endpoints', namespace, service: name, mirrored: false } as const;
    return this.#put(this.#object(key, key, group), endpoints, [
      ...ready.map((each) => [each, READY] as const),
      ...notReady.map((each) => [each, 0] as const),
    ]);
  }

  remove(stage: EndpointSource, namespace: string, name: string): readonly EndpointChange[] {
    return this.#remove(listKeyOf(stage, namespace, name));
  }

  readyGroups({ namespace, uid }: PodKey): readonly EndpointGroup[] {
    const objects = this.#pods.get(namespace)?.get(uid) ?? [];
    const ready = objects.filter(({ states }) => ((states.get(uid) ?? 0) & READY) !== 0);
    return [...new Set(ready.map(({ group }) => group))];
  }

  /** @param stage the kind of objects that count; undefined: both */
  isListed({ namespace, uid }: PodKey, stage?: EndpointSource): boolean {
    const objects = this.#pods.get(namespace)?.get(uid) ?? [];
    return objects.some(({ group }) => stage === undefined || group.stage === stage);
  }

  /** The groups of a Service. FQDN slices list no pods. */
  groupsOf(namespace: string, service: string): readonly EndpointGroup[] {
    const slices = listKeyOf('EndpointSlice', namespace, service);
    const keys = [`${slices}/IPv4`, `${slices}/IPv6`, listKeyOf('Endpoints', namespace, service)];
    return keys.map((key) => this.#groups.get(key)).filter((group) => group !== undefined);
  }

  /** Whether some endpoints of the namespace are unknown because Linger had no room for them. */
  hasUnread(namespace: string): boolean {
    return this.#unread.of(namespace) > 0;
  }

  get pods(): number {
    return [...this.#pods.values()].reduce((sum, { size }) => sum + size, 0);
  }

  get objects(): number {
    return this.#objects.size;
  }

  #object(
    key: string,
    groupKey: string,
    newGroup: Pick<EndpointGroup, 'stage' | 'namespace' | 'service' | 'mirrored'>,
  ): ListingObject {
    const present = this.#objects.get(key);
    if (present !== undefined) return present;
    const group: Group = this.#groups.get(groupKey) ?? {
      ...newGroup,
      overCapacity: false,
      key: groupKey,
      objects: new Set(),
    };
    this.#groups.set(groupKey, group);
    const object = { group, overCapacity: false, unread: false, states: new Map(), addresses: new Map() };
    group.objects.add(object);
    this.#objects.set(key, object);
    return object;
  }

  #remove(key: string): readonly EndpointChange[] {
    const object = this.#objects.get(key);
    if (object === undefined) return NO_CHANGES;
    const changes = this.#put(object, {}, []);
    const { group } = object;
    this.#objects.delete(key);
    group.objects.delete(object);
    if (group.objects.size === 0) this.#groups.delete(group.key);
    return changes;
  }

  #put(
    object: ListingObject,
    { overCapacity = false, unread: isUnread }: Partial<EndpointsState>,
    listed: readonly (readonly [EndpointsAddress, number])[],
  ): readonly EndpointChange[] {
    const { group } = object;
    const unread = isUnread === true;
    this.#unread.add(group.namespace, Number(unread) - Number(object.unread));
    Object.assign(object, { unread, overCapacity: overCapacity || unread });
    group.overCapacity = [...group.objects].some((each) => each.overCapacity);

    const before = { states: object.states, addresses: object.addresses };
    const states = new Map<string, number>();
    const addresses = new Map<string, EndpointAddress>();
    for (const [{ targetUid, targetName, ip = '' }, state] of listed) {
      if (targetUid === undefined && !this.#keepsAddresses) continue;
      const uid = targetUid ?? `/${ip}`;
      // An endpoint may be listed several times, in different subsets or with different addresses: it is ready if one of
      // them is.
      states.set(uid, (states.get(uid) ?? 0) | state);
      if (this.#keepsAddresses && !addresses.has(uid)) addresses.set(uid, { pod: targetName, ip });
    }
    Object.assign(object, { states, addresses });

    const changes: EndpointChange[] = [];
    const gone = [...before.states.keys()].filter((uid) => !states.has(uid));
    for (const uid of [...gone, ...states.keys()]) {
      const [was, is] = [before.states.get(uid), states.get(uid)];
      if (was === is) continue;
      if (was === undefined) this.#list(uid, object);
      if (is === undefined) this.#unlist(uid, object);
      // Consumers read the union of a group's objects, so moving an endpoint from one slice to another changes nothing.
      const others = [...group.objects].filter((each) => each !== object).map((each) => each.states.get(uid));
      const [then, now] = [was, is].map((own) => endpointStateOf([own, ...others]));
      const address = (is === undefined ? before : { addresses }).addresses.get(uid);
      if (then !== now) changes.push({ uid, group, before: then, after: now, address });
    }
    return changes;
  }

  #list(uid: string, object: ListingObject): void {
    const { namespace } = object.group;
    const pods = this.#pods.get(namespace) ?? new Map<string, readonly ListingObject[]>();
    this.#pods.set(namespace, pods.set(uid, (pods.get(uid) ?? []).concat(object)));
  }

  #unlist(uid: string, object: ListingObject): void {
    const { namespace } = object.group;
    const pods = this.#pods.get(namespace);
    const others = pods?.get(uid)?.filter((each) => each !== object) ?? [];
    if (others.length > 0) pods?.set(uid, others);
    else pods?.delete(uid);
    if (pods?.size === 0) this.#pods.delete(namespace);
  }
}

/** The slices of one Service and address family form a group; a slice without a Service is its own. */
function sliceGroupKey({ namespace, name, serviceName, addressType }: SliceState): string {
  return serviceName === undefined
    ? `EndpointSlice/${namespace}//${addressType}/${name}`
    : `EndpointSlice/${namespace}/${serviceName}/${addressType}`;
}

function listKeyOf(stage: EndpointSource, namespace: string, name: string): string {
  return `${stage}/${namespace}/${name}`;
}

/** @param bits of the endpoint in each object of its group; undefined: not listed there */
function endpointStateOf(bits: readonly (number | undefined)[]): EndpointState | undefined {
  const listed = bits.filter((each) => each !== undefined);
  if (listed.length === 0) return undefined;
  const all = listed.reduce((union, each) => union | each, 0);
  if ((all & READY) !== 0) return 'ready';
  return (all & TERMINATING) !== 0 ? 'terminating' : 'notReady';
}
