import type { LagStage } from '../lag/sample.ts';
import {
  changesBetween,
  type EndpointChange,
  type EndpointState,
  type ListedEndpoint,
  unionOf,
} from './change.ts';

/** An EndpointSlice or Endpoints object. */
export interface ListingObject {
  readonly source: LagStage;
  readonly namespace: string;
  readonly name: string;
  readonly service: string | undefined;
  /** What is read as one: all slices of a Service and address family, or an Endpoints object. */
  readonly group: string;
}

type Endpoints = ReadonlyMap<string, ListedEndpoint>;

interface Present {
  readonly object: ListingObject;
  readonly endpoints: Endpoints;
}

const NONE: Endpoints = new Map();

/**
 * Which endpoints there are, and what changes with each new state of an object. Controllers move endpoints from slice
 * to slice, and consumers read their union, so a move is no change.
 */
export class EndpointListings {
  readonly #objects = new Map<string, Present>();
  readonly #groups = new Map<string, Set<Present>>();

  put(object: ListingObject, endpoints: Iterable<ListedEndpoint>, at: number): readonly EndpointChange[] {
    const before = this.#objects.get(keyOf(object));
    // Whoever relabels a slice takes it away from one Service and gives it to another.
    const moved = before !== undefined && before.object.group !== object.group;
    const taken = moved ? this.#replace(before.object, NONE, at) : [];
    return [...taken, ...this.#replace(object, byAddress(endpoints), at)];
  }

  remove(
    { source, namespace, name }: Pick<ListingObject, 'source' | 'namespace' | 'name'>,
    at: number,
  ): readonly EndpointChange[] {
    const before = this.#objects.get(keyOf({ source, namespace, name }));
    return before === undefined ? [] : this.#replace(before.object, NONE, at);
  }

  #replace(object: ListingObject, endpoints: Endpoints, at: number): readonly EndpointChange[] {
    const before = this.#objects.get(keyOf(object))?.endpoints ?? NONE;
    const changes: EndpointChange[] = [];
    const compare = (key: string, endpoint: ListedEndpoint) => {
      const elsewhere = this.#stateElsewhere(object, key);
      const old = unionOf(before.get(key)?.state, elsewhere);
      const now = unionOf(endpoints.get(key)?.state, elsewhere);
      for (const change of changesBetween(old, now)) {
        changes.push(changeOf(object, endpoint, { change, withdrawn: old === 'ready', at }));
      }
    };
    for (const [key, endpoint] of before) if (!endpoints.has(key)) compare(key, endpoint);
    for (const [key, endpoint] of endpoints) compare(key, endpoint);
    this.#keep(object, endpoints);
    return changes;
  }

  #stateElsewhere(object: ListingObject, key: string): EndpointState | undefined {
    let state: EndpointState | undefined;
    for (const { object: other, endpoints } of this.#groups.get(object.group) ?? []) {
      if (other.name !== object.name) state = unionOf(state, endpoints.get(key)?.state);
    }
    return state;
  }

  #keep(object: ListingObject, endpoints: Endpoints): void {
    const key = keyOf(object);
    const group = this.#groups.get(object.group) ?? new Set();
    const before = this.#objects.get(key);
    if (before !== undefined) group.delete(before);
    this.#objects.delete(key);
    if (endpoints.size > 0) {
      const present = { object, endpoints };
      this.#objects.set(key, present);
      group.add(present);
    }
    if (group.size > 0) this.#groups.set(object.group, group);
    else this.#groups.delete(object.group);
  }
}

function keyOf({ source, namespace, name }: Pick<ListingObject, 'source' | 'namespace' | 'name'>): string {
  return `${source}/${namespace}/${name}`;
}

/** A pod has one address in a group, but pods in the host's network share theirs; and not everything is a pod. */
function byAddress(endpoints: Iterable<ListedEndpoint>): Endpoints {
  const found = new Map<string, ListedEndpoint>();
  for (const endpoint of endpoints) {
    const key = `${endpoint.uid ?? ''}/${endpoint.ip}`;
    // Listed once for each set of ports.
    const state = unionOf(found.get(key)?.state, endpoint.state) ?? endpoint.state;
    found.set(key, { ...endpoint, state });
  }
  return found;
}

function changeOf(
  { source, namespace, service }: ListingObject,
  { uid, pod, ip }: ListedEndpoint,
  what: Pick<EndpointChange, 'change' | 'withdrawn' | 'at'>,
): EndpointChange {
  return { ...what, source, namespace, service, uid, pod, ip };
}
