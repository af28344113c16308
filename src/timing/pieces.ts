/**
 * How long to compute in one turn of the event loop: well below what a review may take, but long enough that switching costs
 * little.
 */
const SLICE_MS = 5;
/** How long one computation runs before the next gets its turn. */
const QUANTUM_MS = 2;

interface Task {
  readonly steps: Generator<unknown, unknown>;
  readonly done: (value: unknown) => void;
  readonly failed: (thrown: unknown) => void;
}

/**
 * Runs long computations step by step: in each turn of the event loop, a slice of all of them together, so that other work
 * gets its turn, however many there are.
 */
export class Slices {
  readonly #clock: () => number;
  readonly #later: (turn: () => void) => void;
  readonly #waiting: Task[] = [];
  #isPlanned = false;

  /** @param clock monotonic milliseconds @param later calls its argument in a later turn of the event loop */
  constructor(clock: () => number, later: (turn: () => void) => void) {
    this.#clock = clock;
    this.#later = later;
  }

  /**
   * Runs the steps to their end. A quick computation is done at once if there is no other. Other work may run between steps,
   * so what they read must allow for that.
   */
  run<T>(steps: Generator<unknown, T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ steps, done: resolve as Task['done'], failed: reject });
      if (!this.#isPlanned) this.#slice();
    });
  }

  #slice(): void {
    // A step may start another computation.
    this.#isPlanned = true;
    const end = this.#clock() + SLICE_MS;
    do {
      const task = this.#waiting.shift();
      if (task === undefined) break;
      if (!this.#advance(task, end)) this.#waiting.push(task);
    } while (this.#clock() < end);
    this.#isPlanned = this.#waiting.length > 0;
    if (this.#isPlanned) this.#later(() => this.#slice());
  }

  /** @returns whether the task has ended */
  #advance({ steps, done, failed }: Task, end: number): boolean {
    try {
      // If it is alone, it gets the whole slice.
      const until = this.#waiting.length === 0 ? end : Math.min(end, this.#clock() + QUANTUM_MS);
      do {
        const step = steps.next();
        if (step.done !== true) continue;
        done(step.value);
        return true;
      } while (this.#clock() < until);
      return false;
    } catch (thrown) {
      failed(thrown);
      return true;
    }
  }
}

/** Shared by the whole process, because two would take a slice each. */
const SLICES = new Slices(() => performance.now(), setImmediate);

/** Runs a long computation to its end in {@link Slices}, together with all others of this process. */
export function inPieces<T>(steps: Generator<unknown, T>): Promise<T> {
  return SLICES.run(steps);
}

/** @returns a function that makes the calls of this work one after another, in order */
export function serialize<I, O>(work: (input: I) => Promise<O>): (input: I) => Promise<O> {
  let last: Promise<unknown> = Promise.resolve();
  return (input) => {
    const done = last.then(() => work(input));
    last = done.catch(() => undefined);
    return done;
  };
}
