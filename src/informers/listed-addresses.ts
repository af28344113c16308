import { setNewest } from '../core/api/index.ts';

/** Enough for 13,000 Services with 150,000 pods, each listed by two objects. */
const MOST_LISTED = 400_000;

/**
 * How long a removed address is remembered: the event of its removal may arrive before the question whether it was in use.
 * In so short a time, no other pod gets the address and ends. Milliseconds.
 */
const REMEMBERED_MS = 10_000;

/** How many addresses can be added or removed in about a millisecond. */
const AT_ONCE = 1_000;

const NONE: ReadonlySet<string> = new Set();

/** Addresses, with the objects that list them and the Services of these objects. */
export class ListedAddresses {
  readonly #clock: () => number;
  readonly #objects = new Map<
    string,
    { readonly service: string; readonly addresses: ReadonlySet<string> }
  >();
  /** The objects that list an address, by address. */
  readonly #listing = new Map<string, Set<string>>();
  /** By address: the Service of the object that stopped listing it, and when. */
  readonly #left = new Map<string, { readonly service: string; readonly at: number }>();
  #count = 0;
  /** The objects for which there was no room. */
  readonly #leftOut = new Set<string>();

  constructor(clock: () => number) {
    this.#clock = clock;
  }

  /** Why the list of addresses is incomplete; undefined: it is complete. */
  get trouble(): string | undefined {
    return this.#leftOut.size > 0 ? `list more than ${MOST_LISTED} addresses` : undefined;
  }

  /** @param addresses none: the object is gone */
  set(key: string, service: string, addresses: readonly string[] = []): void {
    for (const _ of this.setting(key, service, addresses));
  }

  /** {@link set} in steps. In between, {@link find} returns addresses from before and after the change. */
  *setting(key: string, service: string, addresses: readonly string[]): Generator<undefined, void> {
    const { addresses: before = NONE, service: of = service } = this.#objects.get(key) ?? {};
    const listed = new Set(addresses);
    // While any object is left out, no address is known to be absent.
    const hasRoom = this.#count - before.size + listed.size <= MOST_LISTED;
    const next = hasRoom ? listed : NONE;
    if (hasRoom) this.#leftOut.delete(key);
    else this.#leftOut.add(key);
    this.#count += next.size - before.size;
    if (next.size > 0) this.#objects.set(key, { service, addresses: next });
    let steps = 0;
    for (const address of next) {
      if (before.has(address)) continue;
      this.#listing.set(address, (this.#listing.get(address) ?? new Set()).add(key));
      steps += 1;
      if (steps % AT_ONCE === 0) yield;
    }
    const at = this.#clock();
    for (const address of before) {
      if (next.has(address)) continue;
      if (!listed.has(address)) setNewest(this.#left, address, { service: of, at }, MOST_LISTED);
      const keys = this.#listing.get(address);
      keys?.delete(key);
      if (keys?.size === 0) this.#listing.delete(address);
      steps += 1;
      if (steps % AT_ONCE === 0) yield;
    }
    if (next.size === 0) this.#objects.delete(key);
  }

  has(key: string): boolean {
    return this.#objects.has(key);
  }

  /** Which of these addresses the objects of certain Services list (true), or listed until recently (when that ended). */
  find(wanted: Iterable<string>, isAsked: (service: string) => boolean): ReadonlyMap<string, true | number> {
    const found = new Map<string, true | number>();
    const since = this.#clock() - REMEMBERED_MS;
    for (const address of wanted) {
      const keys = [...(this.#listing.get(address) ?? [])];
      const left = this.#left.get(address);
      if (keys.some((key) => isAsked(this.#objects.get(key)?.service ?? ''))) found.set(address, true);
      else if (left !== undefined && left.at > since && isAsked(left.service)) found.set(address, left.at);
    }
    return found;
  }
}
