import type { FlipResult } from '../../core/catalog/canary.ts';
import { asError } from '../../core/catalog/errors.ts';
import type { Replicas } from './attempts.ts';
import type { CanaryEndpoints, NoInstant } from './endpoints.ts';
import { type ConsumerOutcome, FollowedConsumer, type TimedConsumer } from './followed-consumer.ts';
import { FLIP_LIMITS, type FlipLimits } from './limits.ts';
import { type FlipTime, Pacemaker } from './pacemaker.ts';

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
      if (!still() || this.#context.endpoints.isReady(this.#context.uid)) throw new Over('Interrupted');
    });
    for (const consumer of this.#present) consumer.departed(withdrawn.at);

    const added = await this.#add();
    const seen = () => this.#present.every(({ arrivedSurely }) => arrivedSurely);
    await this.#until(seen, longestMs);
    const trusted = !this.#pace.stalledSince(added.asked);
    for (const consumer of this.#present) consumer.arrived(trusted ? added.at : undefined);
    return this.#consumers.some(({ outcome }) => outcome.removal !== undefined) ? 'Measured' : 'NotSeen';
  }

  get #present(): readonly FollowedConsumer[] {
    return this.#consumers.filter(({ present }) => present);
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

  /** Waiting begins before the change is asked for: the watch may be quicker than the answer. */
  async #change(ready: boolean, change: () => Promise<void>) {
    const { endpoints, uid, time } = this.#context;
    const asked = time.clock();
    const became = endpoints.becomes({ uid, ready }, this.#ending.signal);
    try {
      await change();
    } catch (error) {
      if (this.#ending.signal.aborted) throw new Over('Ended');
      throw new Over('Refused', asError(error).message);
    }
    const late = time
      .pause(this.#limits.followWithinMs, this.#ending.signal)
      .then((passed) => (passed ? ('late' as const) : ('ended' as const)));
    const at = await Promise.race([became, late]);
    if (typeof at !== 'number') throw new Over(RESULT_OF[at]);
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
