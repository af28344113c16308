import type { pause } from '../pause.ts';
import type { FlipLimits } from './limits.ts';

/** What time is to a flip. */
export interface FlipTime {
  /** Monotonic milliseconds: those of the watch. */
  readonly clock: () => number;
  readonly pause: typeof pause;
}

/** A steady pace, which notices when it was not kept: then this process stood still, and so did all attempts. */
export class Pacemaker {
  readonly #limits: Pick<FlipLimits, 'everyMs' | 'standstillMs'>;
  readonly #time: FlipTime;
  readonly #onBeat: () => void;
  #last: number | undefined;
  #stalledAt = Number.NEGATIVE_INFINITY;

  constructor(
    limits: Pick<FlipLimits, 'everyMs' | 'standstillMs'>,
    time: FlipTime,
    /** Called at once, and then as often as the limits say. */
    onBeat: () => void,
  ) {
    this.#limits = limits;
    this.#time = time;
    this.#onBeat = onBeat;
  }

  /** Beats until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    do {
      this.#look();
      this.#onBeat();
    } while (await this.#time.pause(this.#limits.everyMs, signal));
  }

  stalledSince(instant: number): boolean {
    this.#look();
    return this.#stalledAt >= instant;
  }

  #look(): void {
    const now = this.#time.clock();
    if (now - (this.#last ?? now) > this.#limits.standstillMs) this.#stalledAt = now;
    this.#last = now;
  }
}
