/** How much of a limited resource each namespace has taken, in any unit. */
export class Shares {
  readonly #of = new Map<string, number>();
  total = 0;

  add(namespace: string, weight: number): void {
    this.#of.set(namespace, this.of(namespace) + weight);
    if (this.of(namespace) === 0) this.#of.delete(namespace);
    this.total += weight;
  }

  of(namespace: string): number {
    return this.#of.get(namespace) ?? 0;
  }

  /** Only namespaces with a share. */
  get byNamespace(): ReadonlyMap<string, number> {
    return this.#of;
  }

  /**
   * Whether a namespace may take this much more. No namespace may take more than it leaves for the others: a single greedy
   * one leaves half, two leave a third, and namespaces with little always find room.
   */
  hasRoomFor(namespace: string, weight: number, most: number): boolean {
    return this.of(namespace) + weight <= most - this.total;
  }
}

/**
 * The first of each namespace, then the second of each, and so on, in the order within each namespace. So any number of them
 * in one namespace does not delay those of others.
 */
export function inTurns<T>(all: readonly T[], namespaceOf: (each: T) => string): readonly T[] {
  const turns = new Shares();
  const placed = all.map((each) => {
    const namespace = namespaceOf(each);
    turns.add(namespace, 1);
    return { each, turn: turns.of(namespace) };
  });
  return placed.toSorted((a, b) => a.turn - b.turn).map(({ each }) => each);
}

/**
 * Entries by key, kept as long as there is room for their JSON. If there is none, the namespace with the most makes room:
 * the oldest entry of its workload with the most entries is dropped. So no namespace can displace the entries of others.
 */
export class FairLog<T extends { readonly namespace: string; readonly owner: string }> {
  readonly #kept = new Map<string, { readonly key: string; readonly entry: T; readonly length: number }>();
  readonly #limits: { readonly characters: number; readonly longest: number };
  readonly #timeOf: (entry: T) => number;
  readonly #shares = new Shares();

  /** @param limits of all entries together, and of one */
  constructor(
    limits: { readonly characters: number; readonly longest: number },
    timeOf: (entry: T) => number,
  ) {
    this.#limits = limits;
    this.#timeOf = timeOf;
  }

  /** In the order in which they were put. */
  get all(): readonly T[] {
    return [...this.#kept.values()].map(({ entry }) => entry);
  }

  get(key: string): T | undefined {
    return this.#kept.get(key)?.entry;
  }

  /** Replaces the entry of the key. @returns the entries for which there is no room any more */
  put(key: string, entry: T): readonly T[] {
    const { length } = JSON.stringify(entry);
    if (length > this.#limits.longest) return [entry];
    this.#delete(key);
    this.#kept.set(key, { key, entry, length });
    this.#shares.add(entry.namespace, length);
    const dropped: T[] = [];
    while (this.#shares.total > this.#limits.characters) dropped.push(this.#makeRoom());
    return dropped;
  }

  #makeRoom(): T {
    const [namespace] = [...this.#shares.byNamespace].reduce((a, b) => (b[1] > a[1] ? b : a));
    const own = [...this.#kept.values()].filter(({ entry }) => entry.namespace === namespace);
    const counts = new Shares();
    for (const { entry } of own) counts.add(entry.owner, 1);
    const countOf = ({ entry }: (typeof own)[number]) => counts.of(entry.owner);
    const oldest = own.reduce((a, b) => {
      const more = countOf(b) - countOf(a);
      return more > 0 || (more === 0 && this.#timeOf(b.entry) < this.#timeOf(a.entry)) ? b : a;
    });
    this.#delete(oldest.key);
    return oldest.entry;
  }

  #delete(key: string): void {
    const kept = this.#kept.get(key);
    if (kept !== undefined) this.#shares.add(kept.entry.namespace, -kept.length);
    this.#kept.delete(key);
  }
}
