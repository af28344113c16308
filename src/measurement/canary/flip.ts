import { KubeFailure } from '../../cluster/index.ts';
import { asError } from '../../core/api/index.ts';
import {
  Arrival,
  type Attempt,
  type ClusterEvent,
  Departure,
  ENOUGH_SIGHTINGS,
  type Instant,
  type MeasurementState,
} from '../../core/lag/index.ts';
import type { pause } from '../../timing/index.ts';
import type { Measurement } from '../measurement.ts';
import { type Answer, type FlipResult, type Problem, problem } from '../requests/probe.ts';

export const CANARY_SERVICE = 'linger-canary';

/** The pace and the limits of a flip. Milliseconds. */
export const FLIP_LIMITS = {
  /** Time between two attempts through a consumer. With two replicas, instants are then known to 50 ms. */
  everyMs: 25,
  /** The timeout of an attempt. A longer attempt would say too little about when a replica was chosen. */
  attemptMs: 2_000,
  /** Time between two questions to the replica itself. */
  askMs: 500,
  /** If attempts start later than this, the process was stalled. */
  standstillMs: 500,
  /** For how long the replica must be seen before it is removed. */
  baselineMs: 5_000,
  /** How soon the EndpointSlice must follow the label. Storms that take longer are measured by real terminations. */
  followWithinMs: 30_000,
  /** How long a consumer may take to follow the EndpointSlice. */
  longestMs: 180_000,
  /** How long a consumer that has been seen may go without a conclusive answer. */
  silentMs: 20_000,
};
export type FlipLimits = Readonly<typeof FLIP_LIMITS>;

interface Waiter {
  readonly uid: string;
  readonly service: string;
  readonly ready: boolean;
  readonly settle: (outcome: number | 'Interrupted') => void;
}

/**
 * The replicas that the slices of the canary's Services list as ready. Taken from the recorder's index, so that the instants
 * are those by which the control plane's lag is measured.
 */
export class CanaryEndpoints {
  readonly #index: Pick<Measurement, 'isReady' | 'listing'>;
  readonly #namespace: string;
  readonly #waiters = new Set<Waiter>();
  readonly #listeners = new Set<(uid: string) => void>();
  /** Whether changes arrive as they happen. While a watch is being resumed, their instants would be too late. */
  current = true;

  constructor(index: Pick<Measurement, 'isReady' | 'listing' | 'onChange'>, namespace: string) {
    this.#index = index;
    this.#namespace = namespace;
    index.onChange(({ uid, group, before, after }, at) => {
      for (const waiter of this.#waiters)
        if (waiter.uid === uid && this.isReady(uid, waiter.service) === waiter.ready) waiter.settle(at);
      const { stage, namespace: of, service } = group;
      if (stage !== 'EndpointSlice' || of !== namespace || service !== CANARY_SERVICE) return;
      if ((before === 'ready') === (after === 'ready')) return;
      for (const listener of this.#listeners) listener(uid);
    });
  }

  /** Takes every event of the watches; even a watch that is resumed at once may have missed an instant. */
  observe(event: ClusterEvent): void {
    if (!('stream' in event) || event.stream !== 'EndpointSlice') return;
    this.current = event.type === 'StreamCurrent';
    if (!this.current) for (const { settle } of this.#waiters) settle('Interrupted');
  }

  isReady(uid: string, service: string): boolean {
    return this.#index.isReady(uid, { stage: 'EndpointSlice', namespace: this.#namespace, service });
  }

  /** Whether a Service lists the pod as ready regardless of its label. */
  isServing(uid: string): boolean {
    return this.#index
      .listing({ namespace: this.#namespace, uid })
      .some(({ service }) => !service.startsWith(CANARY_SERVICE));
  }

  /** Until the signal aborts, calls the listener with each pod that becomes ready in the Service or stops being so. */
  onReadiness(listener: (uid: string) => void, signal: AbortSignal): void {
    this.#listeners.add(listener);
    signal.addEventListener('abort', () => this.#listeners.delete(listener), { once: true });
  }

  /**
   * Resolves when the Service starts or stops listing the pod as ready, with the instant in milliseconds of the watch's
   * clock. Call it before making the change.
   * @param signal aborts with the flip; then waiting ends
   */
  becomes(waitedFor: Omit<Waiter, 'settle'>, signal: AbortSignal): Promise<number | 'Interrupted'> {
    const { promise, resolve: settle } = Promise.withResolvers<number | 'Interrupted'>();
    const waiter = { ...waitedFor, settle };
    this.#waiters.add(waiter);
    signal.addEventListener('abort', () => this.#waiters.delete(waiter), { once: true });
    if (!this.current) settle('Interrupted');
    return promise;
  }
}

/** A consumer through which a flip is observed. */
export interface TimedConsumer {
  readonly name: string;
  /** The Service whose slices it follows; its lag counts from their change. */
  readonly service: string;
  /** The name of an attempt, for the start of a sentence: `The probe`. */
  readonly subject: string;
  /** How many attempts in a row must miss the replica: more if there may be several instances behind the consumer. */
  readonly leastMisses: number;
  /** Makes one attempt, or fetches attempts made elsewhere. Never throws, and ends in time. */
  readonly ask: () => Promise<Answer | readonly AttemptMade[]>;
  /** How often to fetch attempts that are made elsewhere, with one request at a time; undefined: they are made here. */
  readonly fetchMs?: number;
}

/** An attempt that was made elsewhere. It took place within this span, in milliseconds of the watch's clock. */
export interface AttemptMade extends Pick<Attempt, 'began' | 'ended'> {
  readonly answer: Answer;
}

type Trouble = NonNullable<MeasurementState['trouble']>;

/** The result for one consumer. Seconds. */
export interface ConsumerOutcome {
  readonly removal?: number | undefined;
  readonly addition?: number | undefined;
  readonly trouble?: Trouble;
}

/** With fewer sightings before the removal, absence after it proves nothing. */
const LEAST_SIGHTINGS = 3;

/** The tolerated uncertainty of an instant: this much, or this share of the lag if that is larger. */
const WITHIN_MS = 500;
const WITHIN_SHARE = 0.1;

/** How many attempts through one consumer may be under way at the same time; more are skipped. */
const MOST_AT_ONCE = 32;

const STRANGE = problem(
  'NotLinger',
  'is answered by a Linger that is not one of these replicas: another installation, or a cache',
);

/** One consumer during one flip. */
class FollowedConsumer {
  readonly name: string;
  readonly service: string;
  readonly #consumer: TimedConsumer;
  readonly #replicas: Replicas;
  readonly #clock: () => number;
  readonly #limits: FlipLimits;
  /** How many attempts were made. */
  attempts = 0;
  #underWay = 0;
  #askedAt = Number.NEGATIVE_INFINITY;
  /** The reasons why attempts reached no replica. */
  #problems: Problem[] = [];
  #onAttempt: ((attempt: Attempt) => void) | undefined;
  readonly #departure: Departure;
  readonly #arrival = new Arrival();
  outcome: ConsumerOutcome = {};
  #removal: number | undefined;
  #asking = false;
  #gone = false;
  /** When an attempt was last conclusive, and when one last reached the replica. */
  #heardAt: number;
  #seenAt = Number.NEGATIVE_INFINITY;

  constructor(consumer: TimedConsumer, { replicas, time: { clock } }: FlipContext, limits: FlipLimits) {
    this.name = consumer.name;
    this.service = consumer.service;
    this.#consumer = consumer;
    this.#replicas = replicas;
    this.#clock = clock;
    this.#limits = limits;
    const alone = replicas.fellows.size === 0;
    this.#departure = new Departure({ alone, leastMisses: consumer.leastMisses });
    this.#heardAt = clock();
  }

  /** Whether the flip still follows this consumer. */
  get present(): boolean {
    return this.outcome.trouble === undefined;
  }

  /** Whether it is known how often it reaches the replica. */
  get familiar(): boolean {
    return this.#departure.seen >= ENOUGH_SIGHTINGS;
  }

  get arrivedSurely(): boolean {
    return this.#arrival.seen >= ENOUGH_SIGHTINGS;
  }

  /** Starts another attempt, unless too many are under way. */
  beat(): void {
    const { fetchMs } = this.#consumer;
    const isDue = this.#clock() - this.#askedAt >= (fetchMs ?? 0);
    const most = fetchMs === undefined ? MOST_AT_ONCE : 1;
    if (this.#asking && this.present && isDue && this.#underWay < most) void this.#attempt();
  }

  followDeparture(): void {
    this.#asking = true;
    this.#onAttempt = (attempt) => {
      if (this.#departure.add(attempt)) this.#heardAt = attempt.ended;
      if (attempt.met === 'canary') this.#seenAt = attempt.ended;
    };
  }

  followArrival(): void {
    this.#asking = true;
    this.#onAttempt = (attempt) => {
      this.#arrival.add(attempt);
      if (this.arrivedSurely) this.#asking = false;
    };
  }

  /** Stops following a consumer that has hardly ever reached the replica, because it could not be seen to stop. */
  leaveIfUnseen(): void {
    if (this.#departure.seen >= LEAST_SIGHTINGS) this.#problems = [];
    else this.#leave(this.#trouble('is answered by other replicas only, never by the one that is removed'));
  }

  /** Whether it has certainly stopped, or is no longer followed. Waits for attempts that are still under way. */
  hasGone(): boolean {
    if (this.#gone || !this.present) return true;
    if (this.#departure.gone) {
      this.#asking = false;
      this.#gone = this.#underWay === 0;
      return this.#gone;
    }
    this.#asking = true;
    if (this.#clock() - this.#heardAt > this.#limits.silentMs)
      this.#leave(this.#trouble('gives no useful answer while the replica is removed'));
    return !this.present;
  }

  /** @param zero when the EndpointSlice stopped listing the replica */
  departed(zero: number): void {
    const { end } = this.#departure;
    const lag = Math.max(0, (end?.at ?? 0) - zero);
    if (!this.#gone || end === undefined) this.#leave(this.#neverGone());
    else if (isPrecise(end, lag)) this.#removal = lag / 1000;
    else {
      const message = `${this.#consumer.subject} reaches the removed replica too rarely to time it: within ${Math.round(end.within)} ms.`;
      this.#leave({ reason: 'BadAnswer', message });
    }
  }

  /** @param zero when the EndpointSlice listed the replica again */
  arrived(zero: number): void {
    const { seen, beginning } = this.#arrival;
    const lag = Math.max(0, (beginning?.at ?? 0) - zero);
    const addition = beginning && isPrecise(beginning, lag) ? lag / 1000 : undefined;
    if (seen > 0) this.outcome = { removal: this.#removal, addition };
    else this.#leave(this.#trouble('does not reach the replica again after it was added'));
  }

  async #attempt(): Promise<void> {
    this.#underWay += 1;
    const asked = this.#clock();
    this.#askedAt = asked;
    const answers = await this.#consumer.ask();
    this.#underWay -= 1;
    const made = 'length' in answers ? answers : [{ began: asked, ended: this.#clock(), answer: answers }];
    for (const { began, ended, answer } of made) {
      this.attempts += 1;
      const heldMs = answer.identity === undefined ? undefined : answer.heldMs;
      this.#onAttempt?.({
        began,
        ended,
        met: this.#metBy(answer),
        ...(heldMs === undefined ? {} : { heldMs }),
      });
    }
  }

  #metBy(answer: Answer): Attempt['met'] {
    if (answer.identity === undefined) {
      this.#problems.push(answer);
      return answer.turnedAway ? 'none' : 'unclear';
    }
    const { canary, fellows } = this.#replicas;
    if (answer.identity === canary) return 'canary';
    // A replica that started in the meantime is not the canary either.
    if (!fellows.has(answer.identity)) this.#problems.push(STRANGE);
    return 'fellow';
  }

  /** The most frequent problem since the last call. */
  #takeProblem(): Problem | undefined {
    const problems = [...Map.groupBy(this.#problems, ({ message }) => message).values()];
    this.#problems = [];
    return problems.toSorted((a, b) => b.length - a.length)[0]?.[0];
  }

  #neverGone(): Trouble {
    if (this.#clock() - this.#seenAt > this.#limits.silentMs)
      return this.#trouble('gives too few useful answers while the replica is removed');
    const minutes = this.#limits.longestMs / 60_000;
    const message = `${this.#consumer.subject} is still answered by the removed replica after ${minutes} min: it keeps endpoints for longer than that, or answers from a cache.`;
    return { reason: 'Implausible', message };
  }

  #leave(trouble: Trouble): void {
    this.outcome = { trouble };
  }

  /** The most frequent problem of its attempts, or this text if there was none. */
  #trouble(otherwise: string): Trouble {
    const { reason, message } = this.#takeProblem() ?? problem('BadAnswer', otherwise);
    return { reason, message: `${this.#consumer.subject} ${message}.` };
  }
}

function isPrecise({ within }: Instant, lagMs: number): boolean {
  return within <= Math.max(WITHIN_MS, WITHIN_SHARE * lagMs);
}

interface Replicas {
  /** The identity of the replica that is removed and added back. */
  readonly canary: string;
  /** The identities of all others. */
  readonly fellows: ReadonlySet<string>;
}

export interface FlipContext {
  /** The uid of the pod that is removed and added back. */
  readonly uid: string;
  readonly replicas: Replicas;
  readonly consumers: readonly TimedConsumer[];
  readonly endpoints: CanaryEndpoints;
  /** Asks the replica itself, bypassing all consumers. Never throws, and ends in time. */
  readonly askCanary: () => Promise<Answer>;
  /** Both throw KubeFailure. */
  readonly label: {
    /** Removes the replica from the Service. May take effect even if it fails. */
    remove(): Promise<void>;
    /** Puts it back, even after the term has ended; retries for as long as that makes sense. */
    restore(): Promise<void>;
  };
  /** Whether this replica still leads. */
  readonly holds: () => boolean;
  /** The clock of the watches: monotonic milliseconds. */
  readonly time: { readonly clock: () => number; readonly pause: typeof pause };
  readonly signal: AbortSignal;
  readonly limits?: Partial<FlipLimits>;
}

export interface FlipOutcome {
  readonly result: FlipResult;
  readonly consumers: ReadonlyMap<string, ConsumerOutcome>;
  /** How many new connections the flip made. */
  readonly attempts: number;
  /** The failure of the API, if there was one. */
  readonly problem?: string | undefined;
}

/**
 * Removes one replica from the Service `linger-canary` and puts it back. Each consumer is observed by new connections from
 * before the label is changed until it has certainly followed. Lags count from when this process's own watch shows the
 * changed slice. A removal counts only if the replica was seen before and after, and was running all the time, so that
 * neither a broken consumer nor a dead replica looks like a consumer that has followed. Never throws. When it resolves, the
 * label has been restored, or that has been given up.
 */
export function flip(context: FlipContext): Promise<FlipOutcome> {
  return new Flip(context).run();
}

class Flip {
  readonly #context: FlipContext;
  readonly #limits: FlipLimits;
  readonly #consumers: readonly FollowedConsumer[];
  readonly #services: readonly string[];
  readonly #ending = new AbortController();
  /** Whether a Service that lists the replica regardless of its label, such as Linger's own, did so at the beginning. */
  readonly #serving: boolean;
  /** Whether slices should list the replica now; undefined: they are about to change. */
  #listed: boolean | undefined = true;
  #touched = false;
  #result: FlipResult | undefined;
  #problem: string | undefined;
  #lookedAt = Number.POSITIVE_INFINITY;
  /**
   * Whether another replica has started or ended: one that has just started answers late, and one that has ended not at all.
   */
  #disturbed = false;

  constructor(context: FlipContext) {
    this.#context = context;
    this.#limits = { ...FLIP_LIMITS, ...context.limits };
    this.#consumers = context.consumers.map((each) => new FollowedConsumer(each, context, this.#limits));
    this.#services = [...new Set([CANARY_SERVICE, ...this.#consumers.map(({ service }) => service)])];
    this.#serving = context.endpoints.isServing(context.uid);
    const onReadiness = (uid: string) => {
      if (uid !== context.uid) this.#disturbed = true;
    };
    context.endpoints.onReadiness(onReadiness, this.#ending.signal);
  }

  async run(): Promise<FlipOutcome> {
    const { signal } = this.#context;
    const end = () => this.#end('Ended');
    signal.addEventListener('abort', end, { once: true });
    if (signal.aborted) end();
    const background = [this.#pace(), this.#guard()];
    try {
      this.#end(await this.#measure());
    } catch (error) {
      if (this.#result === undefined) this.#problem = asError(error).message;
      this.#end('Interrupted');
    }
    signal.removeEventListener('abort', end);
    await Promise.all([...background, this.#putBack()]);
    return this.#outcome(this.#result ?? 'Interrupted');
  }

  async #measure(): Promise<FlipResult> {
    const { baselineMs, longestMs } = this.#limits;
    for (const consumer of this.#consumers) consumer.followDeparture();
    await this.#until(() => this.#consumers.every(({ familiar }) => familiar), baselineMs);
    for (const consumer of this.#consumers) consumer.leaveIfUnseen();
    if (this.#present.length === 0) return 'NotSeen';

    const withdrawn = await this.#withdraw();
    const gone = () => this.#present.every((consumer) => consumer.hasGone());
    await this.#until(gone, longestMs);
    for (const consumer of this.#present) consumer.departed(withdrawn(consumer.service));

    const added = await this.#add();
    const seen = () => this.#present.every(({ arrivedSurely }) => arrivedSurely);
    await this.#until(seen, longestMs);
    for (const consumer of this.#present) consumer.arrived(added(consumer.service));
    return this.#consumers.some(({ outcome }) => outcome.removal !== undefined) ? 'Measured' : 'NotSeen';
  }

  /** Ends the flip, unless it has ended already. */
  #end(result: FlipResult): void {
    this.#result ??= result;
    this.#ending.abort();
  }

  /** Starts attempts at a steady pace until the flip ends. */
  async #pace(): Promise<void> {
    do {
      this.#look();
      for (const consumer of this.#consumers) consumer.beat();
    } while (await this.#context.time.pause(this.#limits.everyMs, this.#ending.signal));
  }

  /**
   * Asks the replica itself until the flip ends: its process may have ended or been replaced long before any slice shows it.
   */
  async #guard(): Promise<void> {
    const { askCanary, replicas, time } = this.#context;
    while (await time.pause(this.#limits.askMs, this.#ending.signal)) {
      const { identity } = await askCanary();
      if (identity !== replicas.canary) this.#end('ReplicaLost');
    }
  }

  /** Ends the flip if its observations can no longer be relied on. */
  #look(): void {
    const { endpoints, uid, time } = this.#context;
    const now = time.clock();
    // This process was stalled, and all attempts with it.
    if (now - this.#lookedAt > this.#limits.standstillMs) this.#end('Interrupted');
    this.#lookedAt = now;
    if (this.#serving && !endpoints.isServing(uid)) this.#end('ReplicaLost');
    const isOther = (service: string) => endpoints.isReady(uid, service) !== this.#listed;
    if (this.#listed !== undefined && this.#services.some(isOther))
      this.#end(this.#listed ? 'ReplicaLost' : 'Interrupted');
  }

  get #present(): readonly FollowedConsumer[] {
    return this.#consumers.filter(({ present }) => present);
  }

  #withdraw() {
    if (!this.#context.holds()) this.#end('Ended');
    if (!this.#context.endpoints.current) this.#end('Interrupted');
    this.#ending.signal.throwIfAborted();
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
   * Starts to wait before it requests the change, because the watch may be faster than the response.
   * @returns when the slices of a Service followed
   */
  async #change(ready: boolean, change: () => Promise<void>) {
    const { endpoints, uid, time } = this.#context;
    const { signal } = this.#ending;
    this.#listed = undefined;
    const changes = this.#services.map(
      (service) => [service, endpoints.becomes({ uid, service, ready }, signal)] as const,
    );
    try {
      await change();
    } catch (error) {
      const isGone = error instanceof KubeFailure && error.reason === 'NotFound';
      if (!isGone && !signal.aborted) this.#problem = asError(error).message;
      this.#end(isGone ? 'ReplicaLost' : 'Refused');
    }
    const late = time.pause(this.#limits.followWithinMs, signal).then(() => 'Late' as const);
    const at = new Map<string, number>();
    for (const [service, became] of changes) {
      const instant = await Promise.race([became, late]);
      if (typeof instant === 'number') at.set(service, instant);
      else this.#end(instant);
      signal.throwIfAborted();
    }
    this.#listed = ready;
    return (service: string) => at.get(service) as number;
  }

  /** @throws Error once the flip should end */
  async #until(done: () => boolean, withinMs: number): Promise<void> {
    const { clock, pause } = this.#context.time;
    const { signal } = this.#ending;
    const until = clock() + withinMs;
    let over = false;
    while (!over) {
      over = done() || clock() >= until || !(await pause(this.#limits.everyMs, signal));
      this.#look();
      signal.throwIfAborted();
    }
  }

  async #putBack(): Promise<void> {
    if (!this.#touched) return;
    await this.#context.label.restore().catch((error: unknown) => {
      this.#problem ??= asError(error).message;
    });
  }

  #outcome(result: FlipResult): FlipOutcome {
    // If the replica itself was lost, its absence says nothing about consumers.
    const valid = result === 'ReplicaLost' ? [] : this.#consumers;
    // If another replica started or ended, a trouble may be due to that.
    const blameless = (outcome: ConsumerOutcome) => (this.#disturbed && outcome.trouble ? {} : outcome);
    return {
      result: this.#disturbed && result === 'NotSeen' ? 'Interrupted' : result,
      consumers: new Map(valid.map(({ name, outcome }) => [name, blameless(outcome)])),
      attempts: this.#consumers.reduce((sum, { attempts }) => sum + attempts, 0),
      problem: this.#problem,
    };
  }
}
