import { asObjectFailure, type ObjectFailure } from '../kube/object-request.ts';
import { type ElectionClock, Leadership } from './leadership.ts';
import type { LeaseRecord } from './lease-record.ts';
import {
  type ElectionLimits,
  type LeaseStep,
  nextLeaseStep,
  type ObservedLease,
  observeLease,
  recordAfter,
  releasedRecord,
  type WritingStep,
} from './lease-step.ts';
import type { LeaseStore, StoredLease } from './lease-store.ts';

/** Calls are synchronous unless they say otherwise. */
export interface ElectionEvents {
  /** We lead. Nobody else does so until {@link Leadership.signal} has aborted, or the clock says that it should have. */
  onLeading(leadership: Leadership): void;
  /** We do not lead. @param holder who does; empty where nobody can say. Called when that changes. */
  onFollowing(holder: string): void;
  /** Called before a lease that is held is released, to write a last word; awaited as long as the lease lasts. */
  onHandOver(leadership: Leadership): Promise<void>;
  /** A request has succeeded: how the lease stands, and how many milliseconds it took. */
  onRequest(record: LeaseRecord | undefined, tookMs: number): void;
  onFailure(failure: ObjectFailure, pauseMs: number): void;
}

export interface ElectionOptions {
  readonly identity: string;
  readonly store: LeaseStore;
  readonly limits: ElectionLimits;
  readonly time: ElectionClock;
  readonly events: ElectionEvents;
  /** Aborts when the process is to end: what is held is handed over and released. */
  readonly signal: AbortSignal;
}

/**
 * Takes part in an election until the signal aborts: leads when nobody does, follows when somebody does.
 * @returns once the lease is released, or cannot be; never rejects
 */
export function campaign(options: ElectionOptions): Promise<void> {
  return new Campaign(options).run();
}

/** Others were quicker, which is no failure of the server's: look again soon. */
const OVERTAKEN: ReadonlySet<string> = new Set(['Conflict', 'AlreadyExists', 'NotFound']);

class Campaign {
  readonly #options: ElectionOptions;
  #observed: ObservedLease | undefined;
  /** What to write over; undefined: it has to be read first. */
  #stored: StoredLease | undefined;
  /** The last record that was there, even if it has vanished since. */
  #last: LeaseRecord | undefined;
  #leadership: Leadership | undefined;
  #acquiredAt: number | undefined;
  #following: string | undefined;
  #failures = 0;
  #writing = false;

  constructor(options: ElectionOptions) {
    this.#options = options;
  }

  async run(): Promise<void> {
    const { time, signal } = this.#options;
    while (!signal.aborted) {
      const round = this.#round();
      await this.#settledOrStopped(round);
      // What is only being read may stay unanswered; what is being written could make us the leader.
      if (signal.aborted && !this.#writing && !this.#leads) break;
      const pauseMs = await round;
      if (!signal.aborted) await time.pause(pauseMs, signal);
    }
    await this.#leave();
  }

  /** A race with one promise that lives for months would keep something of every round. */
  #settledOrStopped(round: Promise<unknown>): Promise<void> {
    const { signal } = this.#options;
    return new Promise((resolve) => {
      const settle = () => {
        signal.removeEventListener('abort', settle);
        resolve();
      };
      signal.addEventListener('abort', settle, { once: true });
      void round.then(settle);
    });
  }

  /** @returns how long to pause before the next; never rejects */
  async #round(): Promise<number> {
    const { limits, time } = this.#options;
    try {
      if (!this.#leads || this.#stored === undefined) await this.#read();
      if (this.#options.signal.aborted) return 0;
      const step = this.#nextStep();
      if (step.do === 'follow') this.#follow(step.holder);
      else await this.#write(step.do);
      this.#failures = 0;
      if (this.#leads) return limits.renewEveryMs;
      const [least, most] = limits.lookEveryMs;
      return least + (most - least) * time.random();
    } catch (thrown) {
      return this.#failed(thrown);
    }
  }

  get #leads(): boolean {
    return this.#leadership?.holds() ?? false;
  }

  async #read(): Promise<void> {
    const { store, time, events } = this.#options;
    const askedAt = time.clock();
    const stored = await store.read();
    const now = time.clock();
    events.onRequest(stored?.record, now - askedAt);
    this.#saw(stored, now);
  }

  #saw(stored: StoredLease | undefined, now: number): void {
    this.#stored = stored;
    this.#last = stored?.record ?? this.#last;
    this.#observed = observeLease(this.#observed, stored?.record, now);
  }

  #nextStep(): LeaseStep {
    const { identity, limits, time } = this.#options;
    const now = time.clock();
    const observed = this.#observed ?? { record: undefined, since: now };
    const candidate = { identity, leading: this.#leads, acquiredAt: this.#acquiredAt };
    return nextLeaseStep(observed, now, candidate, limits);
  }

  async #write(step: WritingStep): Promise<void> {
    const { identity, limits, store, time, events } = this.#options;
    const record = recordAfter(step, this.#last, {
      identity,
      leastTransitions: this.#leadership?.leastTerm ?? 0,
      wallMicroseconds: time.wallMicroseconds(),
      durationMs: limits.durationMs,
    });
    const sentAt = time.clock();
    this.#writing = true;
    const stored = await store.write(record, this.#stored).finally(() => {
      this.#writing = false;
    });
    const now = time.clock();
    events.onRequest(stored.record, now - sentAt);
    this.#saw(stored, now);
    if (step === 'prepare') return this.#follow('');
    this.#acquiredAt = stored.record.acquiredAt;
    this.#lead(sentAt + limits.leadMs, stored.record.transitions);
  }

  #lead(until: number, term: number): void {
    const { time, events } = this.#options;
    if (this.#leadership?.extend(until, term) === true) return;
    // The answer may have come too late to lead by it.
    if (time.clock() >= until) return;
    // A process that was paused may not have heard of its end yet.
    this.#leadership?.end();
    const leadership = new Leadership(until, term, time);
    this.#leadership = leadership;
    this.#following = undefined;
    const ended = () => this.#leadership === leadership && this.#follow('');
    leadership.signal.addEventListener('abort', ended, { once: true });
    events.onLeading(leadership);
  }

  #follow(holder: string): void {
    const leadership = this.#leadership;
    this.#leadership = undefined;
    leadership?.end();
    if (this.#following === holder) return;
    this.#following = holder;
    this.#options.events.onFollowing(holder);
  }

  #failed(thrown: unknown): number {
    const { limits, time, events } = this.#options;
    const failure = asObjectFailure(thrown);
    this.#stored = undefined;
    this.#failures += 1;
    const { firstPauseMs, longestPauseMs, longestRetryAfterMs } = limits;
    const full = Math.min(longestPauseMs[this.#leads ? 0 : 1], firstPauseMs * 2 ** (this.#failures - 1));
    const asked = Math.min(failure.retryAfterMs ?? 0, longestRetryAfterMs);
    const pauseMs = asked + (full * (1 + time.random())) / 2;
    if (!OVERTAKEN.has(failure.reason)) events.onFailure(failure, pauseMs);
    return pauseMs;
  }

  /** Hands over and releases what is held. If that fails, the next leader has to wait until the lease has expired. */
  async #leave(): Promise<void> {
    const { events, time } = this.#options;
    const leadership = this.#leadership;
    if (leadership === undefined || !leadership.holds()) return this.#follow('');
    const left = new AbortController();
    await Promise.race([
      events.onHandOver(leadership).catch(() => undefined),
      time.pause(leadership.until - time.clock(), left.signal),
    ]);
    left.abort();
    // Nobody may take the lease before we have stopped leading.
    this.#follow('');
    await this.#release().catch(() => undefined);
  }

  async #release(): Promise<void> {
    const { identity, store, time } = this.#options;
    const stored = this.#stored ?? (await store.read());
    if (stored?.record.holder !== identity) return;
    await store.write(releasedRecord(stored.record, time.wallMicroseconds()), stored);
  }
}
