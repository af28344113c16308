import { isDeepStrictEqual } from 'node:util';
import { asFailure, type KubeFailure } from '../cluster/index.ts';
import type { Leadership } from '../manager/index.ts';
import { Backoff } from '../timing/index.ts';
import type { LeaseRecord, LeaseStore, StoredLease } from './lease.ts';

export interface ElectionClock {
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  /** Microseconds since the epoch; only for those who read the Lease. */
  readonly wallMicroseconds: () => number;
  /** In [0, 1). */
  readonly random: () => number;
  /** Resolves after this many milliseconds, or with false as soon as the signal has aborted. */
  readonly pause: (milliseconds: number, signal: AbortSignal) => Promise<boolean>;
}

/** A term as the leader. Once {@link LeaseLeadership.signal} has aborted, it is over for good. */
export class LeaseLeadership implements Leadership {
  readonly #time: Pick<ElectionClock, 'clock' | 'pause'>;
  readonly #ending = new AbortController();
  /** Aborts when the lease has been lost or released, or was not renewed in time. */
  readonly signal = this.#ending.signal;
  /** When the term ends unless it is renewed: milliseconds of the monotonic clock. */
  until: number;
  /** The lease's number of transitions, which is higher than that of any earlier leader. */
  term: number;
  /** The next renewal raises the term to at least this. */
  leastTerm = 0;

  constructor(until: number, term: number, time: Pick<ElectionClock, 'clock' | 'pause'>) {
    this.#time = time;
    this.until = until;
    this.term = term;
    void this.#lapse();
  }

  holds(): boolean {
    return !this.signal.aborted && this.#time.clock() < this.until;
  }

  /**
   * Call this when a ConfigMap carries a higher term than this one. Then either the Lease was deleted and its count started
   * anew, or another replica already leads. The next renewal raises the term or fails, respectively.
   */
  outgrow(term: number): void {
    this.leastTerm = Math.max(this.leastTerm, term + 1);
  }

  /** Extends the term. @returns false if it is over already */
  extend(until: number, term: number): boolean {
    if (!this.holds()) return false;
    this.until = until;
    this.term = term;
    return true;
  }

  end(): void {
    this.#ending.abort();
  }

  async #lapse(): Promise<void> {
    while (this.holds()) await this.#time.pause(this.until - this.#time.clock(), this.signal);
    this.end();
  }
}

/**
 * Milliseconds. The first three are client-go's defaults, as used by the cluster's controllers (leaderelection.go). A
 * follower sees a renewal no earlier than it was sent, so there are never two leaders unless the rates of clocks differ by
 * more than 15 to 10.
 */
export const ELECTION_LIMITS = {
  /** How long a lease lasts, counted by a follower from when it first saw the latest renewal. */
  durationMs: 15_000,
  /** How long a leader leads after it has *sent* the latest renewal that succeeded. */
  leadMs: 10_000,
  renewEveryMs: 2_000,
  /**
   * Time between two reads by a follower, so that a released lease is taken within 2 s; client-go reads every 2 to 4.4 s.
   */
  lookEveryMs: [1_000, 2_000] as readonly [least: number, most: number],
  /**
   * How long a replica that has not read the cluster yet leaves a free lease to others: long enough for a few of their
   * reads.
   */
  yieldMs: 5_000,
  /** A leader must have time for two requests before its lease ends. */
  requestMs: 4_000,
  firstPauseMs: 500,
  longestPauseMs: 2_000,
  longestRetryAfterMs: 30_000,
};
export type ElectionLimits = Readonly<typeof ELECTION_LIMITS>;

/** No replica writes a longer duration; a forged one would keep all replicas waiting. */
const LONGEST_DURATION_MS = 60_000;

/** The duration in a released lease: the shortest that the API server accepts. */
const RELEASED_SECONDS = 1;

interface ObservedLease {
  /** undefined: there is no Lease. */
  readonly record: LeaseRecord | undefined;
  /**
   * When this record was first seen, in milliseconds of this process's monotonic clock, because other hosts' clocks are not
   * comparable.
   */
  readonly since: number;
}

/** Takes a read of the Lease. A change that leaves the record as it is (of a label, say) does not count as a renewal. */
export function observeLease(
  before: ObservedLease | undefined,
  record: LeaseRecord | undefined,
  now: number,
): ObservedLease {
  return before !== undefined && isDeepStrictEqual(before.record, record) ? before : { record, since: now };
}

/**
 * - `prepare`: there is no lease; create one without a holder.
 * - `create`: the lease that this replica held has vanished; create it again.
 * - `take`: no replica holds the lease; take it.
 * - `renew`: this replica holds the lease; renew it.
 * - `follow`: another replica leads, or may still do so; `holder` is empty if it is not known.
 */
export type LeaseStep = { readonly do: WritingStep } | { readonly do: 'follow'; readonly holder: string };
export type WritingStep = 'prepare' | 'create' | 'take' | 'renew';

interface Candidate {
  /** Unique to this run of the process, so a lease with this identity was written by it. */
  readonly identity: string;
  /** Whether the latest renewal is still valid. */
  readonly leading: boolean;
  /** When this replica acquired the lease that it held last; that lease may have expired since. */
  readonly acquiredAt: number | undefined;
}

/**
 * Decides what to do about the lease; pure.
 *
 * - The holder of a deleted lease may still believe that it leads, and nothing shows whether another replica led in between,
 *   because a lease that does not exist has no resourceVersion. So a lease without a holder is created first, and taken only
 *   after it has existed for the usual duration. Only a released one (duration 1 s) is taken at once.
 * - A lease that names this replica although it does not lead (written by a request that it had given up on) is treated like
 *   another's.
 */
export function nextLeaseStep(
  { record, since }: ObservedLease,
  now: number,
  { identity, leading, acquiredAt }: Candidate,
  durationMs: number,
): LeaseStep {
  if (record === undefined) return { do: leading ? 'create' : 'prepare' };
  const { holder, durationSeconds } = record;
  if (holder === identity && record.acquiredAt === acquiredAt) return { do: 'renew' };
  if (holder === '' && (leading || durationSeconds <= RELEASED_SECONDS)) return { do: 'take' };
  const theirs = Math.min(durationSeconds * 1000, LONGEST_DURATION_MS);
  return now - since >= Math.max(durationMs, theirs) ? { do: 'take' } : { do: 'follow', holder };
}

interface LeaseWriter
  extends Pick<ElectionOptions, 'identity' | 'address'>,
    Pick<ElectionLimits, 'durationMs'> {
  /** The smallest number of transitions to write; see {@link LeaseLeadership.outgrow}. */
  readonly leastTransitions: number;
  /** Microseconds since the epoch. */
  readonly wallMicroseconds: number;
}

/** The record to write in a writing step. @param last the last known record, even if the lease has vanished since */
export function recordAfter(
  step: WritingStep,
  last: LeaseRecord | undefined,
  writer: LeaseWriter,
): LeaseRecord {
  const { identity, leastTransitions, wallMicroseconds, durationMs, address } = writer;
  const renewedAt = renewalAfter(last, wallMicroseconds);
  const transitions = (last?.transitions ?? 0) + (step === 'take' ? 1 : 0);
  return {
    holder: step === 'prepare' ? '' : identity,
    durationSeconds: Math.max(RELEASED_SECONDS + 1, Math.round(durationMs / 1000)),
    transitions: Math.max(transitions, leastTransitions),
    acquiredAt: step === 'renew' ? last?.acquiredAt : renewedAt,
    renewedAt,
    address: step === 'prepare' ? undefined : address,
  };
}

/** The record of a released lease, which any replica may take at once; as with client-go's ReleaseOnCancel. */
export function releasedRecord(record: LeaseRecord, wallMicroseconds: number): LeaseRecord {
  const renewedAt = renewalAfter(record, wallMicroseconds);
  const released = { holder: '', durationSeconds: RELEASED_SECONDS, address: undefined };
  return { ...record, ...released, acquiredAt: renewedAt, renewedAt };
}

const DAY_MICROSECONDS = 86_400_000_000;

/** Followers recognise a renewal by a changed record, so it must differ even after the clock was set back. */
function renewalAfter(last: LeaseRecord | undefined, wall: number): number {
  const before = last?.renewedAt ?? 0;
  // A time that is much further ahead differs anyway, and adding 1 to it may not be representable.
  return before >= wall && before - wall < DAY_MICROSECONDS ? before + 1 : wall;
}

/** Calls are synchronous unless they say otherwise. */
export interface ElectionEvents {
  /**
   * This replica leads now. No other one does before {@link LeaseLeadership.signal} aborts, or should have aborted according
   * to the clock.
   */
  onLeading(leadership: LeaseLeadership): void;
  /** Called when the holder changes. @param holder the leader; empty if it is not known */
  onFollowing(holder: string): void;
  /** Called before this replica's lease is released, for its last writes. Awaited, but not longer than the lease lasts. */
  onHandOver(leadership: LeaseLeadership): Promise<void>;
  /** Called with each state of the lease that a request returns. */
  onSeen(record: LeaseRecord | undefined): void;
  onRequest(tookMs: number): void;
  onFailure(failure: KubeFailure, pauseMs: number): void;
}

interface ElectionOptions {
  readonly identity: string;
  /** See {@link LeaseRecord.address}. */
  readonly address?: string | undefined;
  readonly store: LeaseStore;
  readonly limits: ElectionLimits;
  readonly time: ElectionClock;
  readonly events: ElectionEvents;
  /** Whether this replica has read the cluster, so that it could lead at once. Default: true. */
  readonly ready?: (() => boolean) | undefined;
  /** Aborts when the process should end; the lease is then handed over and released. */
  readonly signal: AbortSignal;
}

/**
 * Takes part in elections until the signal aborts.
 * @returns resolves once the lease is released, or cannot be; never rejects
 */
export function campaign(options: ElectionOptions): Promise<void> {
  return new Campaign(options).run();
}

/** Another replica was faster; that is not a failure of the API server. */
const OVERTAKEN: ReadonlySet<string> = new Set(['Conflict', 'AlreadyExists', 'NotFound']);

class Campaign {
  readonly #options: ElectionOptions;
  #observed: ObservedLease | undefined;
  /** The lease that the next write replaces; undefined: it must be read first. */
  #stored: StoredLease | undefined;
  #last: LeaseRecord | undefined;
  #leadership: LeaseLeadership | undefined;
  #acquiredAt: number | undefined;
  #following: string | undefined;
  /** Since when this replica has left a free lease to others. */
  #yieldsSince: number | undefined;
  readonly #backoff: Backoff;

  constructor(options: ElectionOptions) {
    this.#options = options;
    this.#backoff = new Backoff(options.limits, options.time.random);
  }

  async run(): Promise<void> {
    const { signal, time } = this.#options;
    // After the signal, a round still ends within two requests, because a write under way could still make this replica the
    // leader.
    while (!signal.aborted) await time.pause(await this.#round(), signal);
    await this.#leave();
  }

  /** @returns milliseconds until the next round; never rejects */
  async #round(): Promise<number> {
    const { limits, time, signal } = this.#options;
    try {
      if (!this.#leads || this.#stored === undefined) await this.#read();
      if (signal.aborted) return 0;
      const step = this.#nextStep();
      if (step.do === 'follow') this.#follow(step.holder);
      else await this.#write(step.do);
      this.#backoff.reset();
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
    this.#stored = await store.read();
    const now = time.clock();
    events.onRequest(now - askedAt);
    this.#saw(this.#stored?.record, now);
  }

  #saw(record: LeaseRecord | undefined, now: number): void {
    this.#options.events.onSeen(record);
    this.#last = record ?? this.#last;
    this.#observed = observeLease(this.#observed, record, now);
  }

  #nextStep(): LeaseStep {
    const { identity, limits, time, ready } = this.#options;
    const now = time.clock();
    const observed = this.#observed ?? { record: undefined, since: now };
    const candidate = { identity, leading: this.#leads, acquiredAt: this.#acquiredAt };
    const step = nextLeaseStep(observed, now, candidate, limits.durationMs);
    if (step.do !== 'take' || candidate.leading || ready?.() !== false) this.#yieldsSince = undefined;
    else {
      this.#yieldsSince ??= now;
      if (now - this.#yieldsSince < limits.yieldMs) return { do: 'follow', holder: '' };
    }
    return step;
  }

  async #write(step: WritingStep): Promise<void> {
    const { identity, address, limits, store, time, events } = this.#options;
    const record = recordAfter(step, this.#last, {
      identity,
      leastTransitions: this.#leadership?.leastTerm ?? 0,
      wallMicroseconds: time.wallMicroseconds(),
      durationMs: limits.durationMs,
      address,
    });
    const sentAt = time.clock();
    this.#stored = await store.write(record, this.#stored);
    const { record: written } = this.#stored;
    const now = time.clock();
    events.onRequest(now - sentAt);
    this.#saw(written, now);
    if (step === 'prepare') return this.#follow('');
    this.#acquiredAt = written.acquiredAt;
    this.#lead(sentAt + limits.leadMs, written.transitions);
  }

  #lead(until: number, term: number): void {
    const { time, events } = this.#options;
    if (this.#leadership?.extend(until, term) === true) return;
    // The response may have arrived too late.
    if (time.clock() >= until) return;
    // After a pause of the process, the end of the previous term may not have been noticed yet.
    this.#leadership?.end();
    const leadership = new LeaseLeadership(until, term, time);
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
    const failure = asFailure(thrown, 'Malformed');
    this.#stored = undefined;
    const pauseMs = this.#backoff.next(failure.retryAfterMs);
    if (!OVERTAKEN.has(failure.reason)) this.#options.events.onFailure(failure, pauseMs);
    return pauseMs;
  }

  /** Hands over and releases the lease. If that fails, the next leader must wait until it expires. */
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
    // Stop leading before any other replica can take the lease.
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
