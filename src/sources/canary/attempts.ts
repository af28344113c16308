import type { Attempt } from '../../core/consumers/sightings.ts';
import type { Answer, Problem } from './attempt.ts';

/** Attempts through one consumer that go on at the same time; beyond that, some are left out. */
const MOST_AT_ONCE = 32;

/** Who may answer an attempt. */
export interface Replicas {
  /** The identity of the one that is removed and added. */
  readonly canary: string;
  /** Those of all others. */
  readonly fellows: ReadonlySet<string>;
}

export interface AttemptsOptions {
  readonly replicas: Replicas;
  readonly ask: () => Promise<Answer>;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
}

const STRANGE: Problem = {
  reason: 'SomebodyElse',
  message: 'is answered by a Linger that is none of these replicas: another installation, or a cache',
  turnedAway: false,
};

/** Attempts through one consumer, and what has kept them from meeting anybody. */
export class Attempts {
  readonly #options: AttemptsOptions;
  #under: Promise<void>[] = [];
  #problems = new Map<string, { readonly problem: Problem; times: number }>();
  #made = 0;
  /** Who hears of each attempt that ends, if anybody. */
  onAttempt: ((attempt: Attempt) => void) | undefined;

  constructor(options: AttemptsOptions) {
    this.#options = options;
  }

  get made(): number {
    return this.#made;
  }

  get underWay(): number {
    return this.#under.length;
  }

  /** One more, unless too many are under way. */
  begin(): void {
    if (this.#under.length >= MOST_AT_ONCE) return;
    this.#made += 1;
    const attempt = this.#attempt().finally(() => {
      this.#under = this.#under.filter((each) => each !== attempt);
    });
    this.#under.push(attempt);
  }

  /** What has gone wrong most often since it was asked last. */
  takeProblem(): Problem | undefined {
    const problems = [...this.#problems.values()].toSorted((a, b) => b.times - a.times);
    this.#problems = new Map();
    return problems[0]?.problem;
  }

  /** Resolves once none is under way; that takes no longer than an attempt may. */
  async settled(): Promise<void> {
    await Promise.all(this.#under);
  }

  async #attempt(): Promise<void> {
    const { ask, clock } = this.#options;
    const began = clock();
    const answer = await ask();
    const ended = clock();
    this.onAttempt?.({ began, ended, met: this.#metBy(answer) });
  }

  #metBy(answer: Answer): Attempt['met'] {
    if (answer.identity === undefined) {
      this.#count(answer);
      return answer.turnedAway ? 'nobody' : 'unclear';
    }
    const { canary, fellows } = this.#options.replicas;
    if (answer.identity === canary) return 'canary';
    if (fellows.has(answer.identity)) return 'fellow';
    this.#count(STRANGE);
    return 'unclear';
  }

  #count(problem: Problem): void {
    const { message } = problem;
    const counted = this.#problems.get(message);
    if (counted === undefined) this.#problems.set(message, { problem, times: 1 });
    else counted.times += 1;
  }
}
