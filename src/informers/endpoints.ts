import { OVER_CAPACITY, type RawObject, type Resource, type ResourceEvent } from '../cluster/index.ts';
import { isRecord, isString, listOf, recordsAt, Shares } from '../core/api/index.ts';
import { type EndpointsState, HEARTBEAT_ANNOTATION, type SliceState } from '../core/lag/index.ts';

interface WithHeartbeat {
  /** Annotation linger.dev/heartbeat. */
  readonly heartbeat: string | undefined;
  /** The object names targets in other namespaces, which are ignored. */
  readonly foreign?: true;
}

export type EndpointsProjection = EndpointsState & WithHeartbeat;
export type SliceProjection = SliceState & WithHeartbeat;

/** Deprecated since 1.33, but still what older ingress controllers read. */
export function endpointsResource(path = '/api/v1/endpoints'): Resource<EndpointsProjection> {
  return { path, project: projectEndpoints };
}

/** Merges all subsets. A subset contains the addresses that share a set of ports, and ports do not matter here. */
export function projectEndpoints(raw: RawObject): EndpointsProjection {
  const { namespace = '', name, resourceVersion: version, annotations } = raw.metadata;
  const subsets = recordsAt(raw, 'subsets');
  return {
    namespace,
    name,
    version,
    heartbeat: annotations?.[HEARTBEAT_ANNOTATION],
    overCapacity: annotations?.[OVER_CAPACITY] === 'truncated',
    ready: subsets.flatMap(({ addresses }) => recordsAt(addresses).map(addressOf)),
    notReady: subsets.flatMap(({ notReadyAddresses }) => recordsAt(notReadyAddresses).map(addressOf)),
    ...foreignIn(
      subsets.flatMap(({ addresses: ready, notReadyAddresses }) =>
        [ready, notReadyAddresses].flatMap((each) => recordsAt(each)),
      ),
      namespace,
    ),
  };

  function addressOf(address: Record<string, unknown>) {
    return { ...targetOf(address, namespace), ip: textOf(address.ip) ?? '' };
  }
}

/** Source: k8s.io/api discovery/v1 (LabelServiceName, LabelManagedBy). */
const SERVICE_NAME = 'kubernetes.io/service-name';
const MANAGED_BY = 'endpointslice.kubernetes.io/managed-by';

export function endpointSlicesResource(
  path = '/apis/discovery.k8s.io/v1/endpointslices',
): Resource<SliceProjection> {
  return { path, project: projectSlice };
}

export function projectSlice(raw: RawObject): SliceProjection {
  const { namespace = '', name, resourceVersion: version, labels, annotations } = raw.metadata;
  const { addressType, endpoints, ports } = raw as RawObject & Readonly<Partial<Record<string, unknown>>>;
  return {
    namespace,
    name,
    version,
    heartbeat: annotations?.[HEARTBEAT_ANNOTATION],
    serviceName: labels?.[SERVICE_NAME],
    managedBy: labels?.[MANAGED_BY],
    addressType: isString(addressType) ? addressType : '',
    endpoints: recordsAt(endpoints).map((each) => endpointOf(each, namespace)),
    ...foreignIn(recordsAt(endpoints), namespace),
    ports: recordsAt(ports).flatMap(({ port }) => (typeof port === 'number' ? [port] : [])),
  };
}

/** Applies the defaults of discovery/v1 for absent conditions: ready and serving are true, terminating is false. */
function endpointOf(endpoint: Record<string, unknown>, namespace: string) {
  const { addresses, conditions } = endpoint;
  const { ready, serving, terminating } = isRecord(conditions) ? conditions : {};
  return {
    ...targetOf(endpoint, namespace),
    addresses: listOf(addresses)
      .slice(0, MOST_ADDRESSES)
      .flatMap((each) => textOf(each) ?? []),
    ready: ready !== false,
    serving: (serving ?? ready !== false) === true,
    terminating: terminating === true,
  };
}

/** How many addresses of an endpoint are kept: discovery/v1 allows 100, but consumers read the first. */
const MOST_ADDRESSES = 8;

/** The length of an address, a uid, or the name of a pod. */
const LONGEST_TEXT = 253;

function textOf(value: unknown): string | undefined {
  return isString(value) && value.length <= LONGEST_TEXT ? value : undefined;
}

/**
 * The pod to which a targetRef (core/v1 ObjectReference) refers; undefined for any other kind. A reference may name any
 * namespace, but only pods of the object's own namespace count: its writer has no authority over the pods of others.
 */
function targetOf(endpoint: Record<string, unknown>, namespace: string) {
  const { targetRef } = endpoint;
  const isPod = isRecord(targetRef) && targetRef.kind === 'Pod' && !isForeign(endpoint, namespace);
  const { uid, name } = isPod ? targetRef : {};
  return { targetUid: textOf(uid), targetName: textOf(name) };
}

/** An empty namespace means the object's own. */
function isForeign({ targetRef }: Record<string, unknown>, namespace: string): boolean {
  const { namespace: named = '' } = isRecord(targetRef) ? targetRef : {};
  return named !== '' && named !== namespace;
}

function foreignIn(
  endpoints: readonly Record<string, unknown>[],
  namespace: string,
): { readonly foreign?: true } {
  return endpoints.some((each) => isForeign(each, namespace)) ? { foreign: true } : {};
}

/** Characters of all slices and Endpoints together: enough for 150,000 pods, each listed by both. */
const MOST_WEIGHT = 80 * 1024 * 1024;
const WEIGHT_OF_OBJECT = 512;
const WEIGHT_OF_ENDPOINT = 150;

type Projection = SliceProjection | EndpointsProjection;

/**
 * The room that slices and Endpoints take, by namespace. If there is no room for an object, it is kept without its
 * endpoints.
 */
export class EndpointRoom {
  readonly #most: number;
  readonly #shares = new Shares();
  readonly #unread = new Shares();
  /** By object; 0: there is no room for it. */
  readonly #weights = new Map<string, number>();

  constructor(most = MOST_WEIGHT) {
    this.#most = most;
  }

  /** @returns the event with what is kept of the object */
  apply<T extends Projection>(kind: string, event: ResourceEvent<T>): ResourceEvent<T> {
    const { namespace, name } = event.identity;
    const key = `${kind}/${namespace}/${name}`;
    this.#leave(namespace, key);
    if (event.type === 'deleted') return event;
    const weight = weightOf(event.object);
    const hasRoom = this.#shares.hasRoomFor(namespace, weight, this.#most);
    this.#weights.set(key, hasRoom ? weight : 0);
    if (hasRoom) this.#shares.add(namespace, weight);
    else this.#unread.add(namespace, 1);
    return hasRoom ? event : { ...event, object: { ...event.object, ...NOTHING_KEPT } };
  }

  #leave(namespace: string, key: string): void {
    const weight = this.#weights.get(key);
    if (!this.#weights.delete(key)) return;
    if (weight === 0) this.#unread.add(namespace, -1);
    else this.#shares.add(namespace, -(weight ?? 0));
  }

  /** For how many objects there is no room, by namespace. */
  get unread(): ReadonlyMap<string, number> {
    return this.#unread.byNamespace;
  }

  /** Whether there may be room now for objects that were left out. */
  get hasRoomAgain(): boolean {
    return this.#unread.total > 0 && 2 * this.#shares.total < this.#most;
  }
}

const NOTHING_KEPT = { endpoints: [], ready: [], notReady: [], unread: true } as const;

function weightOf(object: Projection): number {
  const listed =
    'endpoints' in object
      ? object.endpoints.map((each) => [each.targetUid, each.targetName, ...(each.addresses ?? [])])
      : [...object.ready, ...object.notReady].map((each) => [each.targetUid, each.targetName, each.ip]);
  return listed
    .flat()
    .reduce((sum, text = '') => sum + text.length, WEIGHT_OF_OBJECT + listed.length * WEIGHT_OF_ENDPOINT);
}
