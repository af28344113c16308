/** A number in [0, 2), 1 on average, and seldom near either end: the sum of two throws. */
export type Throw = () => number;

/** @param random in [0, 1) */
export function throwOf(random: () => number): Throw {
  return () => random() + random();
}

/** How many of the last flips say how long consumers take. */
const REMEMBERED = 8;

/** Even where consumers follow at once, flips are no closer together than this. Milliseconds. */
const SHORTEST_REST_MS = 500;

/**
 * When flips begin. A gateway that polls every 10 s is timed truly only if removals fall evenly on its intervals. So
 * they must be neither in step with it, nor begin when the last one ended, which is just after it has polled: spans are
 * thrown, from the last flip's beginning, and from its end, there by as much as consumers take to follow.
 */
export class FlipSchedule {
  readonly #throw: Throw;
  #lags: readonly number[] = [];

  constructor(thrown: Throw) {
    this.#throw = thrown;
  }

  /** How long the slowest consumer of a flip took, or was waited for. */
  followed(lagMs: number): void {
    this.#lags = [...this.#lags, lagMs].slice(-REMEMBERED);
  }

  /**
   * When the next flip begins. Instants and spans: milliseconds.
   * @param began the last one's beginning; @param ended its end
   * @param everyMs how far beginnings are to be apart on average
   */
  next({ began, ended, everyMs }: { began: number; ended: number; everyMs: number }): number {
    const rest = Math.max(SHORTEST_REST_MS, ...this.#lags);
    return Math.max(began + (everyMs * (1 + this.#throw())) / 2, ended + rest * this.#throw());
  }
}

/** A consumer that flips are for, and when one was last tried. Milliseconds. */
export interface FlipTurn {
  readonly everyMs: number;
  /** undefined: never. */
  readonly triedAt: number | undefined;
}

/**
 * Who takes part in a flip now: flips are shared, so whoever has waited for half of its time does. Those that have waited
 * for the largest share of it come first.
 */
export function takingPart<T extends FlipTurn>(turns: readonly T[], now: number, most: number): readonly T[] {
  const waited = ({ triedAt, everyMs }: FlipTurn) =>
    triedAt === undefined ? Number.POSITIVE_INFINITY : (now - triedAt) / everyMs;
  return turns
    .filter((turn) => waited(turn) >= 0.5)
    .toSorted((a, b) => (waited(a) === waited(b) ? 0 : waited(b) - waited(a)))
    .slice(0, most);
}
