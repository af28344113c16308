import { canonicalAddress, type PageEndpoint, type PageFindings } from '../../core/api/index.ts';
import type { Departed } from '../../core/lag/index.ts';

/** Milliseconds. */
export const STALE_LIMITS = {
  /** Time between two questions about dead addresses to an instance that keeps none. */
  rest: 120_000,
  /** An address counts as dead once slices have not listed it for this long, or for longer than the consumer's p99.9. */
  least: 30_000,
  /**
   * How long after the first page with a dead address a second page must still list it. From then on the instance is asked
   * at this interval, so that its recovery is noticed soon.
   */
  confirm: 20_000,
};

/** A dead address that an instance keeps. */
export interface StaleUpstream {
  readonly consumer: string;
  readonly instance: string;
  readonly departed: Departed;
}

export function endpointOf({ address, ports }: Departed): PageEndpoint {
  return { address: canonicalAddress(address) ?? address, ports };
}

interface Sighting {
  readonly departed: Departed;
  /** When it was first seen. */
  readonly at: number;
  confirmed: boolean;
}

/**
 * The dead addresses that instances of one consumer keep. An address is dead once no slice has listed it for longer than the
 * consumer takes to follow. An instance keeps it if two of its pages list it as in use. All times are milliseconds of one
 * clock.
 */
export class StaleUpstreams {
  /** By instance and address. */
  readonly #seen = new Map<string, Map<string, Sighting>>();
  /** By instance: the departed addresses that it has dropped. */
  readonly #cleared = new Map<string, WeakSet<Departed>>();

  /** The departed addresses about which to ask an instance, because it has not dropped them; longest departed first. */
  open(instance: string, departed: Iterable<Departed>, deadBefore: number): readonly Departed[] {
    const cleared = this.#cleared.get(instance);
    return [...departed].filter((each) => each.at <= deadBefore && cleared?.has(each) !== true);
  }

  /** When the first of the dead addresses that the instance keeps was seen, confirmed or not; undefined: it keeps none. */
  keptSince(instance: string, departed: ReadonlyMap<string, Departed>): number | undefined {
    const seen = this.#seen.get(instance);
    for (const [address, sighting] of seen ?? [])
      if (departed.get(address) !== sighting.departed) seen?.delete(address);
    return [...(seen?.values() ?? [])][0]?.at;
  }

  /**
   * Takes a page that was requested to ask about these departed addresses.
   * @returns those that two pages have listed by now, to be confirmed
   */
  judge(
    instance: string,
    asked: readonly Departed[],
    page: PageFindings,
    askedAt: number,
    confirmMs: number,
  ): readonly Departed[] {
    const seen = this.#seen.get(instance) ?? new Map<string, Sighting>();
    const cleared = this.#cleared.get(instance) ?? new WeakSet();
    const lasting: Departed[] = [];
    for (const departed of asked) {
      const known = seen.get(departed.address);
      if (page.of(endpointOf(departed)) !== 'using') {
        cleared.add(departed);
        seen.delete(departed.address);
      } else if (known === undefined || known.departed !== departed)
        seen.set(departed.address, { departed, at: askedAt, confirmed: false });
      else if (!known.confirmed && askedAt - known.at >= confirmMs) lasting.push(departed);
    }
    this.#cleared.set(instance, cleared);
    if (seen.size > 0) this.#seen.set(instance, seen);
    else this.#seen.delete(instance);
    return lasting;
  }

  confirm(instance: string, { address }: Departed): void {
    const sighting = this.#seen.get(instance)?.get(address);
    if (sighting !== undefined) sighting.confirmed = true;
  }

  /** Forgets an instance whose page no longer exists or has changed. */
  forget(instance: string): void {
    this.#seen.delete(instance);
    this.#cleared.delete(instance);
  }

  /** The dead addresses that each instance keeps. @param departed the addresses that no slice lists */
  kept(departed: ReadonlyMap<string, Departed>): ReadonlyMap<string, readonly Departed[]> {
    const all = [...this.#seen].map(([instance, seen]) => {
      const sightings = [...seen.values()].filter(
        (each) => each.confirmed && departed.get(each.departed.address) === each.departed,
      );
      return [instance, sightings.map((each) => each.departed)] as const;
    });
    return new Map(all.filter(([, kept]) => kept.length > 0));
  }
}
