/** So many, and one long pause is forgotten after as many syncs. */
const REMEMBERED = 8;

/** A silence of so many of the longest intervals is more than jitter and a missed sync or two. */
const INTERVALS_OF_SILENCE = 3;

/** Whoever syncs every second may still be restarted or wait for a slow discovery. Milliseconds. */
export const LEAST_PATIENCE = 30_000;
/** How long one instance can hold up what the others have done. Milliseconds. */
export const MOST_PATIENCE = 900_000;

/** How far apart the latest syncs of one instance ended. Milliseconds. */
export class SyncIntervals {
  readonly #latest: number[] = [];

  record(interval: number): void {
    this.#latest.push(interval);
    if (this.#latest.length > REMEMBERED) this.#latest.shift();
  }

  /** @returns undefined before the second sync */
  get longest(): number | undefined {
    return this.#latest.length === 0 ? undefined : Math.max(...this.#latest);
  }

  /** The median, which jitter and missed syncs hardly move. @returns undefined before the second sync */
  get typical(): number | undefined {
    return this.#latest.toSorted((a, b) => a - b)[this.#latest.length >> 1];
  }
}

/**
 * How long after its last sync an instance is taken to be gone.
 * @param longest its own longest interval, or where it has none yet, that of the others
 */
export function patienceFor(longest: number | undefined): number {
  if (longest === undefined) return MOST_PATIENCE;
  return Math.min(MOST_PATIENCE, Math.max(LEAST_PATIENCE, INTERVALS_OF_SILENCE * longest));
}
