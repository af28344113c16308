/**
 * Estimates when a consumer stopped or started sending to the canary, from attempts through the consumer. Each attempt opens
 * a new connection; some are answered by the canary, others by other replicas. Instants are milliseconds of one monotonic
 * clock.
 *
 * The answering replica is chosen between an attempt's beginning and its end, so the middle is used. If each attempt reaches
 * the canary with probability p, the last sighting is, on average, older than the true end by the gap between two sightings
 * less half the gap between two attempts. That is added, from the latest gaps, so the numbers of replicas and of the
 * consumer's instances need not be known.
 */

export interface Attempt {
  readonly began: number;
  readonly ended: number;
  /**
   * - `canary`: answered by the replica that is being removed or added.
   * - `fellow`: answered by another replica.
   * - `none`: refused at once, or answered that there is no endpoint.
   * - `unclear`: anything else, such as no answer in time; it proves nothing.
   */
  readonly met: 'canary' | 'fellow' | 'none' | 'unclear';
  /** How many milliseconds a client may keep using the answer: the TTL of a DNS record; default: 0. */
  readonly heldMs?: number;
}

/** An estimated instant. */
export interface Instant {
  readonly at: number;
  /** Its uncertainty: twice the standard deviation, where attempts are answered quickly. */
  readonly within: number;
}

interface SightingsOptions {
  /** Whether no other replica exists that could answer instead of the canary. */
  readonly alone: boolean;
  /** How many attempts in a row must have reached other replicas before it counts as gone. */
  readonly leastMisses: number;
}

/** Only the latest gaps count, so that they reflect the slowest instance once the others have followed. */
const GAPS = 8;

/** How many sightings in a row are needed to know their rate. */
export const ENOUGH_SIGHTINGS = GAPS + 1;

/**
 * The consumer counts as gone after this many times the usual gap without a sighting: the chance that it still sends is then
 * e⁻²⁰.
 */
const MISSES_PER_SIGHTING = 20;

/** After this many times the usual gap, the chance that it still sends is e⁻⁵: less than one in a hundred. */
const DOUBTFUL_PER_SIGHTING = 5;

/** The departure of the canary as seen through one consumer. Attempts may be added in any order. */
export class Departure {
  readonly #options: SightingsOptions;
  /** The newest ones, in order of their beginnings. */
  #sightings: readonly Attempt[] = [];
  /** When conclusive attempts began, since the first of enough sightings. */
  #conclusive: number[] = [];
  #seen = 0;
  /** Until when a client may still use an earlier answer. */
  #heldUntil = Number.NEGATIVE_INFINITY;

  constructor(options: SightingsOptions) {
    this.#options = options;
  }

  /** @returns whether the attempt is conclusive */
  add(attempt: Attempt): boolean {
    const { met, began } = attempt;
    if (met === 'unclear' || (met === 'none' && !this.#options.alone)) return false;
    this.#conclusive.push(began);
    if (met === 'canary') this.#sighted(attempt);
    return true;
  }

  #sighted(attempt: Attempt): void {
    this.#seen += 1;
    const { ended, heldMs } = attempt;
    if (heldMs !== undefined) this.#heldUntil = Math.max(this.#heldUntil, ended + heldMs);
    this.#sightings = [...this.#sightings, attempt].sort(byBeginning).slice(-ENOUGH_SIGHTINGS);
    // With fewer sightings, an older one may still arrive after later ones.
    if (this.#sightings.length < ENOUGH_SIGHTINGS) return;
    const oldest = this.#sightings[0]?.began ?? attempt.began;
    this.#conclusive = this.#conclusive.filter((each) => each >= oldest);
  }

  get seen(): number {
    return this.#seen;
  }

  /** Whether the consumer has certainly stopped sending to the canary. */
  get gone(): boolean {
    const last = this.#sightings.at(-1);
    if (last === undefined) return false;
    const { leastMisses } = this.#options;
    const misses = this.#missesAfter(last).length;
    return misses >= Math.max(leastMisses, MISSES_PER_SIGHTING * this.#perSighting(last));
  }

  /** The instant from which it can no longer be seen. @returns undefined with fewer than two sightings */
  get end(): Instant | undefined {
    const last = this.#sightings.at(-1);
    const margin = marginOf(this.#sightings, this.#conclusive);
    if (last === undefined || margin === undefined) return undefined;
    const { at, within } = instant(last, Math.max(middle(last) + margin.mean, this.#heldUntil), margin.gap);
    return { at, within: Math.max(within, this.#silentAfter(last)) };
  }

  /**
   * The longest time without a conclusive attempt while the canary may still have been there: it may have left at any
   * instant in it.
   */
  #silentAfter(last: Attempt): number {
    const doubtful = Math.ceil(DOUBTFUL_PER_SIGHTING * this.#perSighting(last));
    const began = [last.began, ...this.#missesAfter(last).slice(0, doubtful)];
    return Math.max(...began.map((at, index) => at - (began[index - 1] ?? at)));
  }

  #missesAfter(last: Attempt): readonly number[] {
    return this.#conclusive.filter((began) => began > last.began).sort((a, b) => a - b);
  }

  /** How many conclusive attempts there are per sighting. */
  #perSighting(last: Attempt): number {
    return countBetween(this.#sightings[0] ?? last, last, this.#conclusive) / this.#sightings.length;
  }
}

/** The arrival of the canary as seen through one consumer. Attempts may be added in any order. */
export class Arrival {
  readonly #attempts: Attempt[] = [];

  /** Attempts from before the canary was added may be included; those before the first sighting have no effect. */
  add(attempt: Attempt): void {
    if (attempt.met !== 'unclear' && this.seen < ENOUGH_SIGHTINGS) this.#attempts.push(attempt);
  }

  get seen(): number {
    return this.#sightings.length;
  }

  /** The instant from which it can be seen. @returns undefined with fewer than two sightings */
  get beginning(): Instant | undefined {
    const [first] = this.#sightings;
    const attempts = this.#attempts.map(({ began }) => began);
    const margin = marginOf(this.#sightings, attempts);
    return first && margin && instant(first, middle(first) - margin.mean, margin.gap);
  }

  get #sightings(): readonly Attempt[] {
    return this.#attempts.filter(({ met }) => met === 'canary').sort(byBeginning);
  }
}

const byBeginning = (a: Attempt, b: Attempt) => a.began - b.began;
const middle = ({ began, ended }: Attempt) => (began + ended) / 2;
const instant = ({ began, ended }: Attempt, at: number, gap: number): Instant => {
  return { at, within: (ended - began) / 2 + 2 * gap };
};

/**
 * `mean`: the average time from the last sighting to the end; `gap`: that between two sightings.
 * @param sightings in order of their beginnings
 * @param attempts when each conclusive one began
 */
function marginOf(sightings: readonly Attempt[], attempts: readonly number[]) {
  const [first, last] = [sightings[0], sightings.at(-1)];
  if (first === undefined || last === undefined || sightings.length < 2) return undefined;
  const span = last.began - first.began;
  const gap = span / (sightings.length - 1);
  const among = countBetween(first, last, attempts);
  return { mean: gap - span / Math.max(1, among - 1) / 2, gap };
}

function countBetween(first: Attempt, last: Attempt, attempts: readonly number[]): number {
  return attempts.filter((began) => began >= first.began && began <= last.began).length;
}
