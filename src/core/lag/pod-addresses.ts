import { objectKey, Shares } from '../api/index.ts';
import { type ClusterEvent, compareVersions, type PodKey, type SliceState } from './events.ts';

/**
 * The addresses of the pods of certain Services, from their slices, because the index of all endpoints keeps no addresses.
 */

export interface ServiceName {
  readonly namespace: string;
  readonly name: string;
}

/** How a Service lists one of its pods. */
export interface PodAddress {
  readonly uid: string;
  readonly pod: string | undefined;
  readonly service: ServiceName;
  readonly address: string;
  readonly ports: readonly number[];
  readonly ready: boolean;
  /** When it last became ready; undefined: it has not been seen ready. */
  readonly readyAt: number | undefined;
}

interface KeptSlice {
  readonly version: string | undefined;
  readonly service: ServiceName;
  readonly pods: readonly PodAddress[];
  /** Addresses of endpoints that do not refer to a pod. */
  readonly others: readonly string[];
}

/** An address that slices once listed for a pod and that none lists any more. */
export interface Departed extends Pick<PodAddress, 'uid' | 'service' | 'address' | 'ports'> {
  readonly at: number;
}

/**
 * How long departed addresses are watched for: a gateway may keep a dead address for very long, but after a day it has been
 * found or does not exist.
 */
const DEPARTED_MS = 24 * 3_600_000;
const MOST_DEPARTED = 10_000;

const podKeyOf = ({ namespace, uid }: PodKey) => `${namespace}/${uid}`;

/** Streams are independent: a pod may vanish from its slices before its termination is seen. */
const REMEMBERED_MS = 10_000;
const MOST_REMEMBERED = 10_000;

/** Some 400 bytes each. A slice for which there is no room is not kept, and gateways are not asked about its pods. */
const MOST_ADDRESSES = 150_000;
/** The most addresses of one pod; more are ignored. Usually a few Services list a pod, by one address of each family. */
const MOST_OF_POD = 32;
/** A slice has at most a thousand endpoints, of one or more addresses each. */
const MOST_OTHERS = 1_000;

export class PodAddresses {
  readonly #isWanted: (service: ServiceName) => boolean;
  readonly #slices = new Map<string, KeptSlice>();
  readonly #shares = new Shares();
  readonly #services = new Map<string, Set<string>>();
  /** By {@link podKeyOf}. */
  readonly #pods = new Map<string, readonly PodAddress[]>();
  /** Pods that no slice lists any more, oldest first. */
  readonly #gone = new Map<string, { readonly at: number; readonly last: readonly PodAddress[] }>();
  /** By address, oldest first. */
  readonly #departed = new Map<string, Departed>();
  readonly #departedShares = new Shares();
  /** Slices that were deleted while a list was being read. */
  #deleted: Set<string> | undefined;

  /** @param isWanted whether the slices of a Service are to be kept */
  constructor(isWanted: (service: ServiceName) => boolean) {
    this.#isWanted = isWanted;
  }

  /** @returns whether the event is about a wanted Service */
  observe(event: ClusterEvent): boolean {
    if (event.type === 'Slice') return this.#put(event.slice, event.at);
    return event.type === 'SliceDeleted' && this.#delete(`${event.namespace}/${event.name}`, event.at);
  }

  /** Call this before listing slices whose watch events were not kept so far. */
  listing(): { readonly take: (slice: SliceState, at: number) => void; readonly end: () => void } {
    const deleted = new Set<string>();
    this.#deleted = deleted;
    return {
      take: (slice, at) => {
        const key = `${slice.namespace}/${slice.name}`;
        const { version: known = '' } = this.#slices.get(key) ?? {};
        const isOlder = (compareVersions(slice.version ?? '', known) ?? 0) < 0;
        if (!isOlder && !deleted.has(key)) this.#put(slice, at);
      },
      end: () => {
        if (this.#deleted === deleted) this.#deleted = undefined;
      },
    };
  }

  prune(at: number): void {
    for (const [key, { service }] of this.#slices) if (!this.#isWanted(service)) this.#delete(key, at, false);
  }

  /** The addresses by which slices list a pod, or last listed it. */
  of(pod: PodKey): readonly PodAddress[] {
    const key = podKeyOf(pod);
    return this.#pods.get(key) ?? this.#gone.get(key)?.last ?? [];
  }

  isReady(pod: PodKey): boolean {
    return this.#pods.get(podKeyOf(pod))?.some(({ ready }) => ready) === true;
  }

  /** Addresses that no slice lists any more, oldest first. */
  get departed(): ReadonlyMap<string, Departed> {
    return this.#departed;
  }

  /** Whether a slice lists the address, for a ready pod or for something other than a pod. Slow: it searches every slice. */
  lists(address: string): boolean {
    const isHere = (pod: PodAddress) => pod.ready && pod.address === address;
    return [...this.#slices.values()].some(
      ({ pods, others }) => others.includes(address) || pods.some(isHere),
    );
  }

  /** Call this when another pod has got the address. */
  forgetDeparted(address: string): void {
    const known = this.#departed.get(address);
    if (known === undefined) return;
    this.#departed.delete(address);
    this.#departedShares.add(known.service.namespace, -1);
  }

  *in(service: ServiceName): Generator<PodAddress> {
    for (const key of this.#services.get(objectKey(service)) ?? []) yield* this.#slices.get(key)?.pods ?? [];
  }

  get size(): number {
    return this.#pods.size;
  }

  #put(slice: SliceState, at: number): boolean {
    const { namespace, name, serviceName, version, ports = [], addressType } = slice;
    const key = `${namespace}/${name}`;
    if (serviceName === undefined || addressType === 'FQDN') return this.#delete(key, at, false);
    const service = { namespace, name: serviceName };
    if (!this.#isWanted(service)) return this.#delete(key, at, false);
    const pods = slice.endpoints.flatMap(({ targetUid: uid, targetName: pod, addresses = [], ready }) =>
      uid === undefined
        ? []
        : addresses.map((address): PodAddress => {
            const readyAt = this.#readyAt(podKeyOf({ namespace, uid }), service, address, ready, at);
            return { uid, pod, service, address, ports, ready, readyAt };
          }),
    );
    const others = slice.endpoints.flatMap(({ targetUid, addresses = [] }) =>
      targetUid === undefined ? addresses : [],
    );
    const before = this.#slices.get(key);
    const more = pods.length - (before?.pods.length ?? 0);
    if (more > 0 && !this.#shares.hasRoomFor(namespace, more, MOST_ADDRESSES))
      return this.#delete(key, at, false);
    this.#shares.add(namespace, more);
    if (before !== undefined && before.service.name !== serviceName) this.#leave(before.service, key);
    this.#slices.set(key, { version, service, pods, others: others.slice(0, MOST_OTHERS) });
    this.#services.set(objectKey(service), (this.#services.get(objectKey(service)) ?? new Set()).add(key));
    this.#replace(before?.pods ?? [], pods, at);
    return true;
  }

  #readyAt(
    pod: string,
    service: ServiceName,
    address: string,
    ready: boolean,
    at: number,
  ): number | undefined {
    const before = this.#pods
      .get(pod)
      ?.find((each) => each.address === address && each.service.name === service.name);
    return ready && before?.ready !== true ? at : before?.readyAt;
  }

  /** @param departs true: the slice was deleted, so its addresses have departed; false: it is just no longer followed */
  #delete(key: string, at: number, departs = true): boolean {
    this.#deleted?.add(key);
    const slice = this.#slices.get(key);
    if (slice === undefined) return false;
    this.#slices.delete(key);
    this.#shares.add(slice.service.namespace, -slice.pods.length);
    this.#leave(slice.service, key);
    this.#replace(slice.pods, [], at, departs);
    return true;
  }

  #leave(service: ServiceName, slice: string): void {
    const others = this.#services.get(objectKey(service));
    others?.delete(slice);
    if (others?.size === 0) this.#services.delete(objectKey(service));
  }

  #replace(before: readonly PodAddress[], after: readonly PodAddress[], at: number, departs = true): void {
    const old = new Set(before);
    const keyed = ({ uid, service: { namespace } }: PodAddress) => podKeyOf({ namespace, uid });
    const added = Map.groupBy(after, keyed);
    for (const key of new Set([...before, ...after].map(keyed))) {
      const known = this.#pods.get(key) ?? [];
      const next = [...known.filter((each) => !old.has(each)), ...(added.get(key) ?? [])].slice(
        0,
        MOST_OF_POD,
      );
      for (const { address } of next) this.forgetDeparted(address);
      if (departs)
        for (const pod of known)
          if (!next.some(({ address }) => address === pod.address)) this.#depart(pod, at);
      if (next.length > 0) this.#pods.set(key, next);
      else {
        this.#pods.delete(key);
        if (departs) this.#remember(key, known, at);
      }
    }
  }

  #depart({ uid, service, address, ports }: PodAddress, at: number): void {
    this.forgetDeparted(address);
    for (const [oldest, { at: since }] of this.#departed) {
      if (at - since < DEPARTED_MS) break;
      this.forgetDeparted(oldest);
    }
    const { namespace } = service;
    if (!this.#departedShares.hasRoomFor(namespace, 1, MOST_DEPARTED)) {
      const oldest = [...this.#departed.values()].find((each) => each.service.namespace === namespace);
      if (oldest === undefined) return;
      this.forgetDeparted(oldest.address);
    }
    this.#departed.set(address, { uid, service, address, ports, at });
    this.#departedShares.add(namespace, 1);
  }

  #remember(key: string, last: readonly PodAddress[], at: number): void {
    this.#gone.delete(key);
    this.#gone.set(key, { at, last });
    for (const [oldest, { at: since }] of this.#gone) {
      if (at - since < REMEMBERED_MS && this.#gone.size <= MOST_REMEMBERED) break;
      this.#gone.delete(oldest);
    }
  }
}
