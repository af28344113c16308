import { Shares } from '../api/index.ts';
import type { EndpointsAddress, EndpointsState, LagStage, PodKey, SliceState } from './events.ts';

/** How a group lists an endpoint. Ready wins: with publishNotReadyAddresses it may be both ready and terminating. */
export type EndpointState = 'ready' | 'notReady' | 'terminating';

/**
 * The unit that consumers read: an Endpoints object, or all slices of a Service and address family, since the controller
 * may move an endpoint from slice to slice.
 */
export interface EndpointGroup {
  readonly stage: LagStage;
  readonly namespace: string;
  /** Empty: a slice without a Service. */
  readonly service: string;
  /** Slices that are copied from hand-made Endpoints. */
  readonly mirrored: boolean;
  /** An Endpoints object that is truncated, or an object without room: a pod missing from it may still be an endpoint. */
  readonly overCapacity: boolean;
}

interface EndpointAddress {
  readonly pod: string | undefined;
  readonly ip: string;
}

/** A change of an endpoint's state in its group; undefined: not listed. */
export interface EndpointChange {
  /** The pod's uid; for an address without a pod, `/` and the address. */
  readonly uid: string;
  readonly group: EndpointGroup;
  readonly before: EndpointState | undefined;
  readonly after: EndpointState | undefined;
  /** Only with an index that keeps addresses. */
  readonly address: EndpointAddress | undefined;
}

interface Group extends EndpointGroup {
  overCapacity: boolean;
  readonly key: string;
  objects: readonly ListingObject[];
}

interface ListingObject {
  readonly key: string;
  readonly group: Group;
  overCapacity: boolean;
  unread: boolean;
  pods: ListedPod[];
  /** For each pod, as {@link Entry.state}. */
  states: number[];
  /** For each pod, with an index that keeps addresses. */
  addresses: readonly (EndpointAddress | undefined)[];
}

interface ListedPod extends PodKey {
  /** The objects that list it, in any state. Replaced, never grown; see {@link without}. */
  objects: readonly ListingObject[];
}

/** What an object says of an endpoint. */
interface Entry {
  /** The bits {@link READY} and {@link TERMINATING}. */
  state: number;
  readonly address: EndpointAddress | undefined;
}

const READY = 1;
const TERMINATING = 2;

const NO_CHANGES: readonly EndpointChange[] = [];
const NO_OBJECTS: readonly ListingObject[] = [];

/** Source: k8s.io/kubernetes pkg/controller/endpointslicemirroring (controllerName). */
const MIRRORING_CONTROLLER = 'endpointslicemirroring-controller.k8s.io';

/**
 * Which Services list which endpoints, by object and by pod, and what changes with each new state of an object. A change
 * costs time in proportion to the changed object.
 */
export class EndpointIndex {
  readonly #addresses: boolean;
  /** By namespace and uid. */
  readonly #pods = new Map<string, Map<string, ListedPod>>();
  #podCount = 0;
  readonly #objects = new Map<string, ListingObject>();
  readonly #groups = new Map<string, Group>();
  /** Objects without room. */
  readonly #unread = new Shares();

  /**
   * @param options.addresses whether to keep addresses, those without a pod and mirrored slices, too. Measuring needs
   *   none of them: mirrored slices copy foreign targetRefs, and their writer follows Endpoints and not pods
   */
  constructor({ addresses = false }: { readonly addresses?: boolean } = {}) {
    this.#addresses = addresses;
  }

  slice(slice: SliceState): readonly EndpointChange[] {
    const { namespace, name, serviceName = '', managedBy } = slice;
    const key = listKeyOf('EndpointSlice', namespace, name);
    const mirrored = managedBy === MIRRORING_CONTROLLER;
    if (mirrored && !this.#addresses) return this.#remove(key);
    const groupKey = sliceGroupKey(slice);
    // A relabelled slice moves from one Service to another.
    const moved = this.#objects.get(key)?.group.key !== groupKey ? this.#remove(key) : NO_CHANGES;
    const group = { stage: 'EndpointSlice', namespace, service: serviceName, mirrored } as const;
    const object = this.#object(key, groupKey, group);
    this.#truncate(object, slice);
    const changes = this.#put(object, this.#entriesOfSlice(slice));
    return moved.length === 0 ? changes : [...moved, ...changes];
  }

  endpoints(endpoints: EndpointsState): readonly EndpointChange[] {
    const { namespace, name } = endpoints;
    const key = listKeyOf('Endpoints', namespace, name);
    const group = { stage: 'Endpoints', namespace, service: name, mirrored: false } as const;
    const object = this.#object(key, key, group);
    this.#truncate(object, endpoints);
    return this.#put(object, this.#entriesOfEndpoints(endpoints));
  }

  remove(stage: LagStage, namespace: string, name: string): readonly EndpointChange[] {
    return this.#remove(listKeyOf(stage, namespace, name));
  }

  /** The distinct groups that list the pod as ready. */
  readyGroups({ namespace, uid }: PodKey): readonly EndpointGroup[] {
    const pod = this.#pods.get(namespace)?.get(uid);
    if (pod === undefined) return [];
    const groups = pod.objects
      .filter((object) => (stateIn(object, pod) & READY) !== 0)
      .map(({ group }) => group);
    return groups.length < 2 ? groups : [...new Set(groups)];
  }

  isListed({ namespace, uid }: PodKey): boolean {
    return this.#pods.get(namespace)?.has(uid) === true;
  }

  /** The groups of a Service. FQDN slices list no pods. */
  groupsOf(namespace: string, service: string): readonly EndpointGroup[] {
    const slices = listKeyOf('EndpointSlice', namespace, service);
    const keys = [`${slices}/IPv4`, `${slices}/IPv6`, listKeyOf('Endpoints', namespace, service)];
    return keys.map((key) => this.#groups.get(key)).filter((group) => group !== undefined);
  }

  /** Whether some endpoints of the namespace are unknown for want of room. */
  hasUnread(namespace: string): boolean {
    return this.#unread.of(namespace) > 0;
  }

  get pods(): number {
    return this.#podCount;
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
    const group = this.#groups.get(groupKey) ?? {
      ...newGroup,
      overCapacity: false,
      key: groupKey,
      objects: NO_OBJECTS,
    };
    this.#groups.set(groupKey, group);
    const object: ListingObject = {
      ...{ key, group, overCapacity: false, unread: false, pods: [], states: [], addresses: [] },
    };
    group.objects = group.objects.concat(object);
    this.#objects.set(key, object);
    return object;
  }

  #remove(key: string): readonly EndpointChange[] {
    const object = this.#objects.get(key);
    if (object === undefined) return NO_CHANGES;
    const changes = this.#put(object, new Map());
    const { group } = object;
    this.#truncate(object, {});
    this.#objects.delete(key);
    group.objects = without(group.objects, object);
    if (group.objects.length === 0) this.#groups.delete(group.key);
    return changes;
  }

  #truncate(
    object: ListingObject,
    { overCapacity = false, unread: isUnread }: Partial<EndpointsState>,
  ): void {
    const { group } = object;
    const unread = isUnread === true;
    this.#unread.add(group.namespace, Number(unread) - Number(object.unread));
    object.unread = unread;
    object.overCapacity = overCapacity || unread;
    group.overCapacity = group.objects.some((each) => each.overCapacity);
  }

  /** @param next by uid */
  #put(object: ListingObject, next: ReadonlyMap<string, Entry>): readonly EndpointChange[] {
    const changes: EndpointChange[] = [];
    const before = new Map<string, number>();
    object.pods.forEach((pod, index) => {
      const state = object.states[index] ?? 0;
      before.set(pod.uid, state);
      if (next.has(pod.uid)) return;
      pod.objects = without(pod.objects, object);
      noteChange(changes, object, pod, state, undefined, object.addresses[index]);
      if (pod.objects.length === 0) this.#forget(pod);
    });
    const pods: ListedPod[] = [];
    for (const [uid, { state, address }] of next) {
      const pod = this.#pod({ namespace: object.group.namespace, uid });
      pods.push(pod);
      if (!before.has(uid)) pod.objects = pod.objects.concat(object);
      noteChange(changes, object, pod, before.get(uid), state, address);
    }
    const entries = [...next.values()];
    object.pods = pods.slice();
    object.states = entries.map(({ state }) => state);
    object.addresses = this.#addresses ? entries.map(({ address }) => address) : [];
    return changes;
  }

  #pod({ namespace, uid }: PodKey): ListedPod {
    const pods = this.#pods.get(namespace) ?? new Map<string, ListedPod>();
    this.#pods.set(namespace, pods);
    let pod = pods.get(uid);
    if (pod === undefined) {
      pod = { namespace, uid, objects: NO_OBJECTS };
      pods.set(uid, pod);
      this.#podCount += 1;
    }
    return pod;
  }

  #forget({ namespace, uid }: ListedPod): void {
    const pods = this.#pods.get(namespace);
    if (pods?.delete(uid)) this.#podCount -= 1;
    if (pods?.size === 0) this.#pods.delete(namespace);
  }

  #entriesOfSlice({ endpoints }: SliceState): ReadonlyMap<string, Entry> {
    const entries = new Map<string, Entry>();
    for (const { targetUid, targetName, addresses, ready, terminating } of endpoints) {
      const state = (ready ? READY : 0) | (terminating === true ? TERMINATING : 0);
      // Further addresses mean the same endpoint (discovery/v1), and kube-proxy reads the first.
      this.#add(entries, { targetUid, targetName, ip: addresses?.[0] ?? '' }, state);
    }
    return entries;
  }

  #entriesOfEndpoints({ ready, notReady }: EndpointsState): ReadonlyMap<string, Entry> {
    const entries = new Map<string, Entry>();
    for (const address of ready) this.#add(entries, address, READY);
    for (const address of notReady) this.#add(entries, address, 0);
    return entries;
  }

  #add(
    entries: Map<string, Entry>,
    { targetUid, targetName, ip = '' }: EndpointsAddress,
    state: number,
  ): void {
    if (targetUid === undefined && !this.#addresses) return;
    const uid = targetUid ?? `/${ip}`;
    const same = entries.get(uid);
    // Listed several times, in different subsets or with different addresses: usable if one of them is.
    if (same !== undefined) same.state |= state;
    else entries.set(uid, { state, address: this.#addresses ? { pod: targetName, ip } : undefined });
  }
}

/** The slices of one Service and address family form a group; a slice without a Service is its own. */
function sliceGroupKey({ namespace, name, serviceName, addressType }: SliceState): string {
  return serviceName === undefined
    ? `EndpointSlice/${namespace}//${addressType}/${name}`
    : `EndpointSlice/${namespace}/${serviceName}/${addressType}`;
}

function listKeyOf(stage: LagStage, namespace: string, name: string): string {
  return `${stage}/${namespace}/${name}`;
}

/** Long-lived arrays have exactly the length they need: those that push or filter made reserve room for 17 or more elements. */
function without<T>(all: readonly T[], one: T): readonly T[] {
  return all.filter((each) => each !== one).slice();
}

function stateIn(object: ListingObject, pod: ListedPod): number {
  return object.states[object.pods.indexOf(pod)] ?? 0;
}

function endpointStateOf(bits: number | undefined): EndpointState | undefined {
  if (bits === undefined) return undefined;
  if ((bits & READY) !== 0) return 'ready';
  return (bits & TERMINATING) !== 0 ? 'terminating' : 'notReady';
}

/** Consumers read the union of a group's objects, so a move from one slice to another is not a change. */
function noteChange(
  changes: EndpointChange[],
  object: ListingObject,
  pod: ListedPod,
  before: number | undefined,
  after: number | undefined,
  address: EndpointAddress | undefined,
): void {
  if (before === after) return;
  const { group } = object;
  const elsewhere = group.objects.length > 1 ? stateElsewhere(object, pod) : undefined;
  const was = endpointStateOf(union(before, elsewhere));
  const is = endpointStateOf(union(after, elsewhere));
  if (was !== is) changes.push({ uid: pod.uid, group, before: was, after: is, address });
}

function stateElsewhere(object: ListingObject, pod: ListedPod): number | undefined {
  let state: number | undefined;
  for (const other of pod.objects) {
    if (other !== object && other.group === object.group) state = union(state, stateIn(other, pod));
  }
  return state;
}

function union(a: number | undefined, b: number | undefined): number | undefined {
  return a === undefined || b === undefined ? (a ?? b) : a | b;
}
