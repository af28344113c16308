/** Numbers that a seed repeats: SplitMix32. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed | 0;
  }

  /** @returns a whole number from 0 to `bound` - 1; 0 where the bound is 0 */
  below(bound: number): number {
    this.#state = (this.#state + 0x9e3779b9) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 16), 0x21f0aaad);
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
    return bound === 0 ? 0 : ((mixed ^ (mixed >>> 15)) >>> 0) % bound;
  }
}
