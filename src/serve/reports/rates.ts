/** So many at once, and so many a second in the long run. */
export interface Rate {
  readonly burst: number;
  readonly perSecond: number;
}

interface Bucket {
  tokens: number;
  at: number;
}

/** How often each of many may do something. What is known of those that were not heard for longest is forgotten. */
export class Rates {
  readonly #rate: Rate;
  readonly #most: number;
  readonly #buckets = new Map<string, Bucket>();

  /** @param most so many are told apart */
  constructor(rate: Rate, most: number) {
    this.#rate = rate;
    this.#most = most;
  }

  /** @param now milliseconds of a monotonic clock @returns false: too often; that costs nothing further */
  allows(who: string, now: number): boolean {
    const { burst, perSecond } = this.#rate;
    const known = this.#buckets.get(who);
    const bucket = known ?? { tokens: burst, at: now };
    bucket.tokens = Math.min(burst, bucket.tokens + ((now - bucket.at) / 1000) * perSecond);
    bucket.at = now;
    // Put last: a Map's order is that of insertion.
    if (known !== undefined) this.#buckets.delete(who);
    else this.#makeRoom();
    this.#buckets.set(who, bucket);
    if (bucket.tokens < 1) return false;
    bucket.tokens -= 1;
    return true;
  }

  #makeRoom(): void {
    const [first] = this.#buckets.size >= this.#most ? this.#buckets.keys() : [];
    if (first !== undefined) this.#buckets.delete(first);
  }
}
