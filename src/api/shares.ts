/** How much of something limited each namespace has taken, by whatever measure. */
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
   * Whether a namespace may take this much more: no namespace takes more than what it leaves to the others. So one that
   * takes all it can get leaves half, and two leave a third; those with little always find room.
   */
  hasRoomFor(namespace: string, weight: number, most: number): boolean {
    return this.of(namespace) + weight <= most - this.total;
  }
}
