import { FOREIGN_LIMITS, setNewest } from '../core/api/index.ts';

/** 13,000 Services with 150,000 pods fit, each listed by two objects. */
const MOST_LISTED = FOREIGN_LIMITS.push.parts.most;

/**
 * For how long an address counts as listed before. What is told of the same change may come first, and the question whether
 * an address is in use only afterwards; no other pod has got the address and ended that soon. Milliseconds.
 */
const REMEMBERED_MS = 10_000;

/** Addresses, by the objects that list them and the Services that these are of. */
export class ListedAddresses {
  readonly #clock: () => number;
  readonly #objects = new Map<string, { readonly service: string; readonly addresses: readonly string[] }>();
  /** By address, the objects that list it. */
  readonly #listing = new Map<string, Set<string>>();
  /** By address, of which Service the object was that ceased to list it, and when. */
  readonly #left = new Map<string, { readonly service: string; readonly at: number }>();
  #count = 0;
  /** The objects that there was no room for. */
  readonly #leftOut = new Set<string>();

  constructor(clock: () => number) {
    this.#clock = clock;
  }

  /** Why nothing is known; undefined: it is. */
  get trouble(): string | undefined {
    return this.#leftOut.size > 0 ? `list more than ${MOST_LISTED} addresses` : undefined;
  }

  /** @param addresses none: the object is gone */
  set(key: string, service: string, addresses: readonly string[] = []): void {
    const { addresses: before = [], service: of = service } = this.#objects.get(key) ?? {};
    const next = new Set(addresses);
    const at = this.#clock();
    this.#objects.delete(key);
    this.#leftOut.delete(key);
    for (const address of before) {
      if (!next.has(address)) setNewest(this.#left, address, { service: of, at }, MOST_LISTED);
      const keys = this.#listing.get(address);
      keys?.delete(key);
      if (keys?.size === 0) this.#listing.delete(address);
    }
    this.#count -= before.length;
    if (next.size === 0) return;
    // As long as an object is left out, no address is known to be absent.
    if (this.#count + next.size > MOST_LISTED) return void this.#leftOut.add(key);
    this.#count += next.size;
    this.#objects.set(key, { service, addresses: [...next] });
    for (const address of next)
      this.#listing.set(address, (this.#listing.get(address) ?? new Set()).add(key));
  }

  has(key: string): boolean {
    return this.#objects.has(key);
  }

  /** Of these addresses, those that the Services' objects list now, and when those left that they listed until just now. */
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
