/** What time and chance are to an election. */
export interface ElectionClock {
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  /** Microseconds since the epoch: for people who read the Lease. */
  readonly wallMicroseconds: () => number;
  /** In [0, 1). */
  readonly random: () => number;
  /** Resolves after so many milliseconds, or with false as soon as the signal has aborted. */
  readonly pause: (milliseconds: number, signal: AbortSignal) => Promise<boolean>;
}

/** A lead, as those see it who do what only a leader may do. */
export interface Lead {
  /** Aborts when it is over. */
  readonly signal: AbortSignal;
  /** To be asked right before anything that only a leader may do: a process that was paused learns of its end late. */
  holds(): boolean;
}

/** A term as the leader, from its beginning to its end. Over for good once {@link Leadership.signal} has aborted. */
export class Leadership implements Lead {
  readonly #time: Pick<ElectionClock, 'clock' | 'pause'>;
  readonly #ending = new AbortController();
  #until: number;
  #term: number;
  #leastTerm = 0;

  /** @param until milliseconds of the monotonic clock */
  constructor(until: number, term: number, time: Pick<ElectionClock, 'clock' | 'pause'>) {
    this.#time = time;
    this.#until = until;
    this.#term = term;
    void this.#lapse();
  }

  /** Aborts when the lease is lost, released or not renewed in time. */
  get signal(): AbortSignal {
    return this.#ending.signal;
  }

  holds(): boolean {
    return !this.signal.aborted && this.#time.clock() < this.#until;
  }

  /** The lease's number of transitions: higher than that of every leader before. */
  get term(): number {
    return this.#term;
  }

  get until(): number {
    return this.#until;
  }

  get leastTerm(): number {
    return this.#leastTerm;
  }

  /**
   * A higher number has been found where this leader wants to write: the Lease was deleted and counts anew, or we are
   * deposed and do not know it yet. The next renewal tells: it raises the term, or fails.
   */
  outgrow(term: number): void {
    this.#leastTerm = Math.max(this.#leastTerm, term + 1);
  }

  /** @returns false when it is too late */
  extend(until: number, term: number): boolean {
    if (!this.holds()) return false;
    this.#until = until;
    this.#term = term;
    return true;
  }

  end(): void {
    this.#ending.abort();
  }

  async #lapse(): Promise<void> {
    while (this.holds()) await this.#time.pause(this.#until - this.#time.clock(), this.signal);
    this.end();
  }
}
