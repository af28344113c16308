const TICK_MS = 10;

/** Timers are never exact; shorter gaps do not count as standstills. */
const LEAST_MS = 25;

/** Records standstills of this process: what arrives meanwhile gets the time at which the process goes on. */
export class Standstills {
  readonly #clock: () => number;
  readonly #gaps: { readonly from: number; readonly to: number }[] = [];
  readonly #timer: NodeJS.Timeout;
  #last: number;

  /** @param clock the clock of the instants in question, in milliseconds */
  constructor(clock: () => number) {
    this.#clock = clock;
    this.#last = clock();
    this.#timer = setInterval(() => this.#tick(), TICK_MS);
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#tick();
  }

  get longestMs(): number {
    return Math.max(0, ...this.#gaps.map(({ from, to }) => to - from));
  }

  /** By how much something may have arrived before its recorded time, in milliseconds. */
  doubt(at: number): number {
    const gap = this.#gaps.find(({ from, to }) => from <= at && at <= to);
    return gap === undefined ? 0 : at - gap.from;
  }

  #tick(): void {
    const now = this.#clock();
    if (now - this.#last > LEAST_MS) this.#gaps.push({ from: this.#last, to: now });
    this.#last = now;
  }
}
