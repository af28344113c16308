import type { ConditionReason } from '../../core/catalog/conditions.ts';
import { Arrival, Departure, ENOUGH_SIGHTINGS, type Instant } from '../../core/consumers/sightings.ts';
import type { Answer, Problem } from './attempt.ts';
import { Attempts, type Replicas } from './attempts.ts';
import type { FlipLimits } from './limits.ts';

/** A consumer that a flip is seen through. */
export interface TimedConsumer {
  readonly name: string;
  /** What an attempt is, at the beginning of a sentence: `The probe`. */
  readonly subject: string;
  /** How many attempts in a row must not meet the replica: more where several instances may stand behind. */
  readonly leastMisses: number;
  /** One attempt; it never throws, and ends in time. */
  readonly ask: () => Promise<Answer>;
}

/** What came of one consumer. Seconds. */
export interface ConsumerOutcome {
  readonly removal?: number;
  readonly addition?: number;
  readonly trouble?: { readonly reason: ConditionReason; readonly message: string };
}

interface Shared {
  readonly replicas: Replicas;
  readonly clock: () => number;
  readonly limits: FlipLimits;
}

/** Seen less often than this before, its absence proves nothing. */
const LEAST_SIGHTINGS = 3;

/** What an instant may be off by: so much, or this share of the lag, whichever is more. */
const WITHIN_MS = 500;
const WITHIN_SHARE = 0.1;

/** One consumer during one flip. */
export class FollowedConsumer {
  readonly name: string;
  readonly #consumer: TimedConsumer;
  readonly #shared: Shared;
  readonly #attempts: Attempts;
  readonly #departure: Departure;
  readonly #arrival = new Arrival();
  #outcome: ConsumerOutcome = {};
  #removal: number | undefined;
  #asking = false;
  #gone = false;
  #left = false;
  /** When an attempt last proved anything, and when one last met the replica. */
  #heardAt: number;
  #seenAt = Number.NEGATIVE_INFINITY;

  constructor(consumer: TimedConsumer, shared: Shared) {
    const { replicas, clock } = shared;
    this.name = consumer.name;
    this.#consumer = consumer;
    this.#shared = shared;
    this.#attempts = new Attempts({ replicas, ask: consumer.ask, clock });
    const alone = replicas.fellows.size === 0;
    this.#departure = new Departure({ alone, leastMisses: consumer.leastMisses });
    this.#heardAt = clock();
  }

  get outcome(): ConsumerOutcome {
    return this.#outcome;
  }

  get attempts(): number {
    return this.#attempts.made;
  }

  /** It is still worth following. */
  get present(): boolean {
    return !this.#left;
  }

  /** It is known how often it meets the replica. */
  get familiar(): boolean {
    return this.#departure.seen >= ENOUGH_SIGHTINGS;
  }

  get arrivedSurely(): boolean {
    return this.#arrival.seen >= ENOUGH_SIGHTINGS;
  }

  beat(): void {
    if (this.#asking && !this.#left) this.#attempts.begin();
  }

  stop(): void {
    this.#asking = false;
  }

  followDeparture(): void {
    this.#asking = true;
    this.#attempts.onAttempt = (attempt) => {
      if (this.#departure.add(attempt)) this.#heardAt = attempt.ended;
      if (attempt.met === 'canary') this.#seenAt = attempt.ended;
    };
  }

  followArrival(): void {
    this.#asking = true;
    this.#attempts.onAttempt = (attempt) => {
      this.#arrival.add(attempt);
      if (this.arrivedSurely) this.#asking = false;
    };
  }

  /** One that never met the replica, or hardly, cannot be seen to stop. */
  leaveIfUnseen(): void {
    if (this.#departure.seen >= LEAST_SIGHTINGS) void this.#attempts.takeProblem();
    else this.#leave(this.#trouble('is answered by other replicas only, never by the one that is removed'));
  }

  /** Whether it has certainly followed, or is given up. What is still under way when it seems so is waited for. */
  hasGone(): boolean {
    const { clock, limits } = this.#shared;
    if (this.#gone || this.#left) return true;
    if (!this.#departure.gone) {
      this.#asking = true;
      if (clock() - this.#heardAt > limits.silentMs)
        this.#leave(this.#trouble('gives no useful answer while the replica is removed'));
      return this.#left;
    }
    this.#asking = false;
    this.#gone = this.#attempts.underWay === 0;
    return this.#gone;
  }

  /** @param zero since when the EndpointSlice says so */
  departed(zero: number): void {
    const { end } = this.#departure;
    if (!this.#gone || end === undefined) {
      this.#leave(this.#neverGone());
      return;
    }
    const lag = Math.max(0, end.at - zero);
    if (isPrecise(end, lag)) this.#removal = lag / 1000;
    else {
      const message = `${this.#consumer.subject} meets the removed replica too seldom to time it: within ${Math.round(end.within)} ms.`;
      this.#leave({ reason: 'BadAnswer', message });
    }
  }

  /** @param zero since when the EndpointSlice lists it again; undefined: nobody knows */
  arrived(zero: number | undefined): void {
    if (this.#arrival.seen === 0) {
      this.#leave(this.#trouble('does not meet the replica again after it was added'));
      return;
    }
    const { beginning } = this.#arrival;
    const lag = zero === undefined || beginning === undefined ? undefined : Math.max(0, beginning.at - zero);
    const precise = beginning !== undefined && lag !== undefined && isPrecise(beginning, lag);
    this.#outcome = {
      ...(this.#removal === undefined ? {} : { removal: this.#removal }),
      ...(precise ? { addition: lag / 1000 } : {}),
    };
  }

  #neverGone(): NonNullable<ConsumerOutcome['trouble']> {
    const { clock, limits } = this.#shared;
    if (clock() - this.#seenAt > limits.silentMs)
      return this.#trouble('gives too few useful answers while the replica is removed');
    const message = `${this.#consumer.subject} is still answered by the removed replica after ${limits.longestMs / 60_000} min: it keeps endpoints for longer than that, or answers from a cache.`;
    return { reason: 'Implausible', message };
  }

  #leave(trouble: NonNullable<ConsumerOutcome['trouble']>): void {
    this.#left = true;
    this.#outcome = { trouble };
  }

  #trouble(otherwise: string): NonNullable<ConsumerOutcome['trouble']> {
    const problem: Pick<Problem, 'reason' | 'message'> = this.#attempts.takeProblem() ?? {
      reason: 'BadAnswer',
      message: otherwise,
    };
    return { reason: problem.reason, message: `${this.#consumer.subject} ${problem.message}.` };
  }
}

function isPrecise({ within }: Instant, lagMs: number): boolean {
  return within <= Math.max(WITHIN_MS, WITHIN_SHARE * lagMs);
}
