import { asError } from '../api/index.ts';
import {
  Arrival,
  type ClusterEvent,
  type ConditionReason,
  Departure,
  ENOUGH_SIGHTINGS,
  type Instant,
} from '../lag/index.ts';
import type { pause } from '../timing/index.ts';
import type { Measurement } from './measurement.ts';
import { type Answer, Attempts, type FlipResult, type Problem, type Replicas } from './probe.ts';

/** How fast, how long and how much. Milliseconds. */
export interface FlipLimits {
  /** Between two attempts through a consumer: instants are known to 50 ms, with half the replicas answering. */
  readonly everyMs: number;
  /** For an attempt: what takes longer says too little about when a replica was chosen. */
  readonly attemptMs: number;
  /** Attempts later than this were made by a process that stood still. */
  readonly standstillMs: number;
  /** How long the replica is looked for before it is removed. */
  readonly baselineMs: number;
  /** How soon the EndpointSlice must follow the label. A storm that takes longer is measured by terminations. */
  readonly followWithinMs: number;
  /** How long a consumer may take to follow the EndpointSlice. */
  readonly longestMs: number;
  /** How long a consumer that was seen may give no useful answer. */
  readonly silentMs: number;
}

export const FLIP_LIMITS: FlipLimits = {
  everyMs: 25,
  attemptMs: 2_000,
  standstillMs: 500,
  baselineMs: 5_000,
  followWithinMs: 30_000,
  longestMs: 180_000,
  silentMs: 20_000,
};

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

/** Why an instant could not be had: `interrupted`, the watch was; `ended`, the signal aborted. */
export type NoInstant = 'interrupted' | 'ended';

interface Waiter {
  readonly uid: string;
  readonly service: string;
  readonly ready: boolean;
  readonly settle: (outcome: number | NoInstant) => void;
}

/**
 * Which replicas the slices of the canary's Services list as ready, by the index that the recorder keeps: its instants
 * are those that the control plane's lag is measured by.
 */
export class CanaryEndpoints {
  readonly #index: Pick<Measurement, 'isReady'>;
  readonly #namespace: string;
  readonly #waiters = new Set<Waiter>();

  constructor(index: Pick<Measurement, 'isReady' | 'onChange'>, namespace: string) {
    this.#index = index;
    this.#namespace = namespace;
    index.onChange(({ uid }, at) => {
      for (const waiter of this.#waiters)
        if (waiter.uid === uid && this.isReady(uid, waiter.service) === waiter.ready) waiter.settle(at);
    });
  }

  /** Takes in every event of the watches: even a watch that is resumed at once may have missed an instant. */
  observe(event: ClusterEvent): void {
    if (!('stream' in event) || event.stream !== 'EndpointSlice' || event.type === 'StreamCurrent') return;
    for (const { settle } of this.#waiters) settle('interrupted');
  }

  isReady(uid: string, service: string): boolean {
    return this.#index.isReady(uid, { stage: 'EndpointSlice', namespace: this.#namespace, service });
  }

  /**
   * Resolves with the instant, in milliseconds of the watch's clock, at which the Service begins or ceases to list the pod
   * as ready; to be called before that is brought about.
   */
  becomes(waitedFor: Omit<Waiter, 'settle'>, signal: AbortSignal): Promise<number | NoInstant> {
    return new Promise((resolve) => {
      const settle: Waiter['settle'] = (outcome) => {
        this.#waiters.delete(waiter);
        signal.removeEventListener('abort', end);
        resolve(outcome);
      };
      const waiter = { ...waitedFor, settle };
      const end = () => settle('ended');
      signal.addEventListener('abort', end, { once: true });
      this.#waiters.add(waiter);
      if (signal.aborted) end();
    });
  }
}

/** A consumer that a flip is seen through. */
export interface TimedConsumer {
  readonly name: string;
  /** The Service whose slices it follows: its lag counts from when those say so. */
  readonly service: string;
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
  readonly service: string;
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
    this.service = consumer.service;
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

  /** @param zero since when the EndpointSlice lists it again; undefined: that cannot be relied on */
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

/** What is changed of the replica. Both throw KubeFailure. */
export interface CanaryLabel {
  /** Takes it out of the Service. A failure may still come into effect. */
  remove(): Promise<void>;
  /** Puts it back, whatever becomes of the lead; tries for as long as there is any sense in it. */
  restore(): Promise<void>;
}

export interface FlipContext {
  /** Of the pod that is removed and added. */
  readonly uid: string;
  readonly replicas: Replicas;
  readonly consumers: readonly TimedConsumer[];
  readonly endpoints: CanaryEndpoints;
  readonly label: CanaryLabel;
  /** Whether this replica may still do what only a leader may. */
  readonly holds: () => boolean;
  readonly time: FlipTime;
  readonly signal: AbortSignal;
  readonly limits?: Partial<FlipLimits>;
}

export interface FlipOutcome {
  readonly result: FlipResult;
  readonly consumers: ReadonlyMap<string, ConsumerOutcome>;
  /** New connections that it took. */
  readonly attempts: number;
  /** What went wrong with the API. */
  readonly problem?: string;
}

const RESULT_OF: Readonly<Record<NoInstant | 'late', FlipResult>> = {
  interrupted: 'Interrupted',
  late: 'Late',
  ended: 'Ended',
};

/** How a flip came to an end before its time. */
class Over extends Error {
  readonly result: FlipResult;
  constructor(result: FlipResult, message = '') {
    super(message);
    this.result = result;
  }
}

/**
 * One replica out of the Service `linger-canary` and back in. Each consumer is followed by new connections from before
 * the label is changed until it has certainly followed; the zero points are when our own watch shows the slice changed.
 * A removal counts only where the replica was seen before, and is seen again after: what has merely broken down does not
 * look like one that has followed. Never throws. When it resolves, the label is back or has been given up.
 */
export function flip(context: FlipContext): Promise<FlipOutcome> {
  return new Flip(context).run();
}

class Flip {
  readonly #context: FlipContext;
  readonly #limits: FlipLimits;
  readonly #consumers: readonly FollowedConsumer[];
  readonly #pace: Pacemaker;
  readonly #ending = new AbortController();
  #touched = false;
  #problem: string | undefined;

  constructor(context: FlipContext) {
    const { replicas, consumers, time } = context;
    this.#context = context;
    this.#limits = { ...FLIP_LIMITS, ...context.limits };
    const shared = { replicas, clock: time.clock, limits: this.#limits };
    this.#consumers = consumers.map((consumer) => new FollowedConsumer(consumer, shared));
    this.#pace = new Pacemaker(this.#limits, time, () => {
      for (const consumer of this.#consumers) consumer.beat();
    });
  }

  async run(): Promise<FlipOutcome> {
    const { signal } = this.#context;
    const end = () => this.#ending.abort();
    signal.addEventListener('abort', end, { once: true });
    if (signal.aborted) end();
    const paced = this.#pace.run(this.#ending.signal);
    const result = await this.#measure().catch((error: unknown): FlipResult => {
      this.#problem = error instanceof Over && error.message === '' ? undefined : asError(error).message;
      return error instanceof Over ? error.result : 'Interrupted';
    });
    for (const consumer of this.#consumers) consumer.stop();
    signal.removeEventListener('abort', end);
    end();
    await Promise.all([paced, this.#putBack()]);
    return this.#outcome(result);
  }

  async #measure(): Promise<FlipResult> {
    const { baselineMs, longestMs } = this.#limits;
    for (const consumer of this.#consumers) consumer.followDeparture();
    await this.#until(() => this.#consumers.every(({ familiar }) => familiar), baselineMs);
    for (const consumer of this.#consumers) consumer.leaveIfUnseen();
    if (this.#present.length === 0) return 'NotSeen';

    const withdrawn = await this.#withdraw();
    const gone = () => this.#present.every((consumer) => consumer.hasGone());
    const still = () => !this.#pace.stalledSince(withdrawn.asked);
    await this.#until(gone, longestMs, () => {
      if (!still() || this.#isListed()) throw new Over('Interrupted');
    });
    for (const consumer of this.#present) consumer.departed(withdrawn.at(consumer.service));

    const added = await this.#add();
    const seen = () => this.#present.every(({ arrivedSurely }) => arrivedSurely);
    await this.#until(seen, longestMs);
    const trusted = !this.#pace.stalledSince(added.asked);
    for (const consumer of this.#present) consumer.arrived(trusted ? added.at(consumer.service) : undefined);
    return this.#consumers.some(({ outcome }) => outcome.removal !== undefined) ? 'Measured' : 'NotSeen';
  }

  get #present(): readonly FollowedConsumer[] {
    return this.#consumers.filter(({ present }) => present);
  }

  #isListed(): boolean {
    const { endpoints, uid } = this.#context;
    return this.#consumers.some(({ service }) => endpoints.isReady(uid, service));
  }

  #withdraw() {
    if (!this.#context.holds()) throw new Over('Ended');
    this.#touched = true;
    return this.#change(false, () => this.#context.label.remove());
  }

  async #add() {
    for (const consumer of this.#present) consumer.followArrival();
    const change = this.#change(true, () => this.#context.label.restore());
    this.#touched = false;
    return change;
  }

  /**
   * Waiting begins before the change is asked for: the watch may be quicker than the answer.
   * @returns when it was asked for, and when the slices of each Service followed
   */
  async #change(ready: boolean, change: () => Promise<void>) {
    const { endpoints, uid, time } = this.#context;
    const { signal } = this.#ending;
    const asked = time.clock();
    const services = [...new Set(this.#consumers.map(({ service }) => service))];
    const became = services.map((service) => endpoints.becomes({ uid, service, ready }, signal));
    try {
      await change();
    } catch (error) {
      if (signal.aborted) throw new Over('Ended');
      throw new Over('Refused', asError(error).message);
    }
    const late = time
      .pause(this.#limits.followWithinMs, signal)
      .then((passed) => (passed ? ('late' as const) : ('ended' as const)));
    const instants = await Promise.all(became.map((each) => Promise.race([each, late])));
    const at = (service: string): number => {
      const instant = instants[services.indexOf(service)] ?? 'late';
      if (typeof instant !== 'number') throw new Over(RESULT_OF[instant]);
      return instant;
    };
    for (const service of services) at(service);
    return { at, asked };
  }

  /** @throws Over where the lead or the process ends */
  async #until(done: () => boolean, withinMs: number, check: () => void = () => undefined): Promise<void> {
    const { clock, pause } = this.#context.time;
    const until = clock() + withinMs;
    while (!done() && clock() < until) {
      check();
      if (!(await pause(this.#limits.everyMs, this.#ending.signal))) throw new Over('Ended');
    }
    check();
  }

  async #putBack(): Promise<void> {
    if (!this.#touched) return;
    this.#touched = false;
    await this.#context.label.restore().catch((error: unknown) => {
      this.#problem ??= asError(error).message;
    });
  }

  #outcome(result: FlipResult): FlipOutcome {
    return {
      result,
      consumers: new Map(this.#consumers.map(({ name, outcome }) => [name, outcome])),
      attempts: this.#consumers.reduce((sum, { attempts }) => sum + attempts, 0),
      ...(this.#problem === undefined ? {} : { problem: this.#problem }),
    };
  }
}
