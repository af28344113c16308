import type { ElectionClock } from '../../src/leader/election.ts';

interface Scheduled {
  readonly at: number;
  readonly order: number;
  readonly happen: () => void;
}

/** True time, which no process in the simulation can read. Milliseconds from 0. */
export class SimulatedTime {
  now = 0;
  #order = 0;
  readonly #scheduled: Scheduled[] = [];

  after(milliseconds: number, happen: () => void): void {
    const each = { at: this.now + Math.max(0, milliseconds), order: this.#order++, happen };
    let index = this.#scheduled.length;
    while (index > 0 && isLater(this.#scheduled[index - 1]!, each)) index -= 1;
    this.#scheduled.splice(index, 0, each);
  }

  /** Lets everything happen that is due until then; `look` is called after each event. */
  async run(until: number, look: () => void): Promise<void> {
    for (;;) {
      // What waits for a promise continues first.
      await new Promise(setImmediate);
      look();
      const next = this.#scheduled[0];
      if (next === undefined || next.at > until) break;
      this.#scheduled.shift();
      this.now = next.at;
      next.happen();
    }
    this.now = until;
  }
}

function isLater(a: Scheduled, b: Scheduled): boolean {
  return a.at > b.at || (a.at === b.at && a.order > b.order);
}

export interface SimulatedHost {
  /** How fast its clocks run. */
  readonly rate: number;
  /** How far its wall clock is off. Milliseconds. */
  readonly skew: number;
}

/** A process on a host with clocks of its own. It may be stopped for a while, as by SIGSTOP; its clocks run on. */
export class SimulatedProcess implements ElectionClock {
  readonly #time: SimulatedTime;
  readonly #host: SimulatedHost;
  readonly random: () => number;
  #stoppedUntil = 0;

  constructor(time: SimulatedTime, host: SimulatedHost, random: () => number) {
    this.#time = time;
    this.#host = host;
    this.random = random;
  }

  readonly clock = (): number => this.#time.now * this.#host.rate;

  readonly wallMicroseconds = (): number => {
    const epoch = Date.UTC(2026, 0, 1) + this.#time.now * this.#host.rate + this.#host.skew;
    return Math.round(epoch * 1000);
  };

  readonly pause = (milliseconds: number, signal: AbortSignal): Promise<boolean> =>
    new Promise((resolve) => {
      if (signal.aborted) return resolve(false);
      signal.addEventListener('abort', () => resolve(false), { once: true });
      this.after(milliseconds / this.#host.rate, () => resolve(true));
    });

  stopFor(milliseconds: number): void {
    this.#stoppedUntil = Math.max(this.#stoppedUntil, this.#time.now + milliseconds);
  }

  /** Something that this process notices: after so much true time, or when it runs again. */
  after(milliseconds: number, happen: () => void): void {
    this.#time.after(milliseconds, () => {
      const stopped = this.#stoppedUntil - this.#time.now;
      if (stopped > 0) this.after(stopped, happen);
      else happen();
    });
  }
}
