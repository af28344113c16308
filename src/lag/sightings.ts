/**
 * When a consumer has stopped sending to the canary, and when it began: from attempts through it, each over a new
 * connection, some answered by the canary and others by its fellows. All instants are milliseconds of one monotonic clock.
 *
 * Which replica answers is chosen between an attempt's beginning and its end: the middle is taken. Where each attempt
 * meets the canary with probability p, its last sighting is on average one gap between sightings, less half of that
 * between attempts, older than the instant since which it cannot be met. That is added, from the last gaps, so no
 * knowledge is needed of how many replicas and how many instances of the consumer there are.
 */

export interface Attempt {
  readonly began: number;
  readonly ended: number;
  /**
   * - `canary`: answered by the replica that is being removed or added.
   * - `fellow`: answered by another replica.
   * - `none`: refused at once, or answered that there is no endpoint to pass it on to.
   * - `unclear`: anything else, such as no answer in time; it proves nothing.
   */
  readonly met: 'canary' | 'fellow' | 'none' | 'unclear';
  /** How many milliseconds a client may go on by its answer, the TTL of a DNS record; default: 0. */
  readonly heldMs?: number;
}

/** An instant that was not seen itself. */
export interface Instant {
  readonly at: number;
  /** How far off it may be: twice the standard deviation, where attempts are answered quickly. */
  readonly within: number;
}

export interface SightingsOptions {
  /** There is no other replica that could answer instead of the canary. */
  readonly alone: boolean;
  /** How many attempts in a row must have met others before it counts as gone. */
  readonly leastMisses: number;
}

/** The gaps that count: few enough to be of the last instance, once the others have followed. */
const GAPS = 8;

/** Sightings in a row that are needed to know how often there are any. */
export const ENOUGH_SIGHTINGS = GAPS + 1;

/** Times the usual number between two sightings: one in e²⁰ consumers that still send is taken for one that does not. */
const MISSES_PER_SIGHTING = 20;

/** What has been seen of the canary through one consumer: first here, then no more. Attempts may come in any order. */
export class Departure {
  readonly #options: SightingsOptions;
  /** The newest, by their beginnings. */
  #sightings: readonly Attempt[] = [];
  /** When conclusive attempts began, since the first of enough sightings. */
  #conclusive: number[] = [];
  #seen = 0;
  /** Until when a client may connect to it by an answer that it was given. */
  #heldUntil = Number.NEGATIVE_INFINITY;

  constructor(options: SightingsOptions) {
    this.#options = options;
  }

  /** @returns whether it is conclusive */
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
    // While there are fewer, a still older one may come after those that began later.
    if (this.#sightings.length < ENOUGH_SIGHTINGS) return;
    const oldest = this.#sightings[0]?.began ?? attempt.began;
    this.#conclusive = this.#conclusive.filter((each) => each >= oldest);
  }

  /** How often it has been seen. */
  get seen(): number {
    return this.#seen;
  }

  /** Whether it can be relied upon that it will not be seen again. */
  get gone(): boolean {
    const last = this.#sightings.at(-1);
    if (last === undefined) return false;
    const first = this.#sightings[0] ?? last;
    const misses = this.#conclusive.filter((began) => began > last.began).length;
    const perSighting = countBetween(first, last, this.#conclusive) / this.#sightings.length;
    return misses >= Math.max(this.#options.leastMisses, MISSES_PER_SIGHTING * perSighting);
  }

  /** Since when it cannot be seen any more. @returns undefined where it has been seen less than twice */
  get end(): Instant | undefined {
    const last = this.#sightings.at(-1);
    const margin = marginOf(this.#sightings, this.#conclusive);
    return last && margin && instant(last, Math.max(middle(last) + margin.mean, this.#heldUntil), margin.gap);
  }
}

/** When the canary was seen through one consumer for the first time. Attempts may come in any order. */
export class Arrival {
  readonly #attempts: Attempt[] = [];

  /** Attempts from before the canary was added belong here, too. */
  add(attempt: Attempt): void {
    if (attempt.met !== 'unclear' && this.seen < ENOUGH_SIGHTINGS) this.#attempts.push(attempt);
  }

  /** How often it has been seen. */
  get seen(): number {
    return this.#sightings.length;
  }

  /** Since when it can be seen. @returns undefined where it has been seen less than twice */
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
 * `mean`: from the last sighting to the end, on average; `gap`: between two sightings.
 * @param sightings by their beginnings
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

/** How many attempts began from the one on until the other, both included. */
function countBetween(first: Attempt, last: Attempt, attempts: readonly number[]): number {
  return attempts.filter((began) => began >= first.began && began <= last.began).length;
}
