/** Milliseconds. */
const APART = 1_000;

/**
 * One instant in each second, at another fraction of it each time. The fractions are a hash of the second's number: a
 * regular sequence of them would be in step with some consumers' intervals, and see only some of their phases.
 * Milliseconds, ascending.
 */
export function instantOf(index: number): number {
  return (index + hashed(index)) * APART;
}

/** In [0, 1). The finaliser of MurmurHash3, by Austin Appleby, in the public domain. */
function hashed(index: number): number {
  let bits = index | 0;
  bits = Math.imul(bits ^ (bits >>> 16), 0x85ebca6b);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae35);
  return ((bits ^ (bits >>> 16)) >>> 0) / 2 ** 32;
}

/** The first one later than this. */
export function firstIndexAfter(at: number): number {
  const index = Math.floor(at / APART);
  return instantOf(index) > at ? index : index + 1;
}

interface Pending {
  readonly at: number;
  /** How many instances have not applied it yet. */
  waiting: number;
  /** One of them has fallen silent: nobody knows when it would have. */
  lost: boolean;
}

/** Instants at which something could have been removed, and that some instance has not applied yet. */
export class PendingInstants {
  /** Ascending. Those in the middle may be done with. */
  #pending: Pending[] = [];

  /** @param at later than all before */
  open(at: number, waiting: number): void {
    this.#pending.push({ at, waiting, lost: false });
  }

  /**
   * One instance has applied what was removed after one instant and up to another.
   * @param onDone called with each that nobody has to apply any more
   */
  apply(after: number, upTo: number, onDone: (at: number, lost: boolean) => void): void {
    for (let index = this.#firstAfter(after); index < this.#pending.length; index++) {
      const pending = this.#pending[index];
      if (pending === undefined || pending.at > upTo) break;
      pending.waiting -= 1;
      if (pending.waiting === 0) onDone(pending.at, pending.lost);
    }
    this.#forgetDone();
  }

  /** One instance will not say when it has applied what was removed after an instant. */
  lose(after: number, onDone: (at: number, lost: boolean) => void): void {
    for (let index = this.#firstAfter(after); index < this.#pending.length; index++) {
      const pending = this.#pending[index];
      if (pending !== undefined) pending.lost = true;
    }
    this.apply(after, Number.POSITIVE_INFINITY, onDone);
  }

  #firstAfter(instant: number): number {
    let [low, high] = [0, this.#pending.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#pending[middle]?.at ?? 0) <= instant) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #forgetDone(): void {
    const first = this.#pending.findIndex(({ waiting }) => waiting > 0);
    this.#pending = first < 0 ? [] : first === 0 ? this.#pending : this.#pending.slice(first);
  }
}
