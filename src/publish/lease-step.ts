import type { LeaseRecord } from './lease-record.ts';
import { sameRecord } from './lease-record.ts';

/** The numbers of an election. Milliseconds. */
export interface ElectionLimits {
  /** How long a lease lasts after its last renewal. Whoever waits counts from when *he* first saw that renewal. */
  readonly durationMs: number;
  /** How long a leader leads after he *sent* his last successful renewal. */
  readonly leadMs: number;
  /** Between two renewals. */
  readonly renewEveryMs: number;
  /** Between two looks of who does not lead: drawn from this range. */
  readonly lookEveryMs: readonly [least: number, most: number];
  /** How long a request may take. */
  readonly requestMs: number;
  /** The pause after the first failure, drawn from its upper half; it doubles with each further one. */
  readonly firstPauseMs: number;
  /** The longest pause, while leading and else. */
  readonly longestPauseMs: readonly [leading: number, otherwise: number];
  /** The longest that a server's Retry-After is followed. */
  readonly longestRetryAfterMs: number;
}

export const ELECTION_LIMITS: ElectionLimits = {
  // client-go's own defaults, which the cluster's controllers use: 15 s, 10 s, 2 s (leaderelection.go). Whoever waits
  // saw a renewal no sooner than it was sent, so there is never a second leader as long as clocks do not run at rates
  // that differ by more than 15 ÷ 10.
  durationMs: 15_000,
  leadMs: 10_000,
  renewEveryMs: 2_000,
  // A released lease is taken within 2 s and the time of two requests. client-go looks every 2 to 4.4 s.
  lookEveryMs: [1_000, 2_000],
  // Two tries fit into the time that is left to a leader.
  requestMs: 4_000,
  firstPauseMs: 500,
  longestPauseMs: [2_000, 5_000],
  longestRetryAfterMs: 30_000,
};

/** Beyond this a lease was not written by anything that renews it: it would keep everybody waiting. */
const LONGEST_DURATION_MS = 60_000;

/** The duration that a released lease says: the least that the API server takes. */
const RELEASED_SECONDS = 1;

/** What is known of the lease. */
export interface ObservedLease {
  /** undefined: there is none. */
  readonly record: LeaseRecord | undefined;
  /** When it was first seen as it is. Milliseconds of the own monotonic clock: other hosts' clocks say nothing. */
  readonly since: number;
}

/** Takes in what a read has brought. Whatever does not change the record (a label, say) is no sign of life. */
export function observeLease(
  before: ObservedLease | undefined,
  record: LeaseRecord | undefined,
  now: number,
): ObservedLease {
  return before !== undefined && sameRecord(before.record, record) ? before : { record, since: now };
}

/**
 * - `prepare`: there is no lease, so make one that nobody holds.
 * - `create`: the one that we held has vanished; make it anew.
 * - `take`: nobody leads.
 * - `renew`: it is ours.
 * - `follow`: somebody leads, or may still do so; `holder` is empty where nobody can say who.
 */
export type LeaseStep = { readonly do: WritingStep } | { readonly do: 'follow'; readonly holder: string };
export type WritingStep = 'prepare' | 'create' | 'take' | 'renew';

export interface Candidate {
  /** Of this process and no other, nor of an earlier life: a lease that bears it was written by us. */
  readonly identity: string;
  /** Whether our last renewal still counts. */
  readonly leading: boolean;
  /** When the lease was acquired that we last knew to be ours; it may have lapsed since. */
  readonly acquiredAt: number | undefined;
}

/**
 * What to do about the lease, given what is known of it; pure.
 *
 * - Whoever held one that has vanished may not know it yet, and leads on until then. Absence has no version by which it
 *   could be seen that nobody has led meanwhile; so a lease that nobody holds is made first, and taken only when that
 *   one has lasted for the usual time. Only a released one (duration 1 s) is taken at once.
 * - One that bears our name without our knowing (a write that we had given up came into effect late) is as good as
 *   another's: what was true when it was sent need not be so now.
 */
export function nextLeaseStep(
  { record, since }: ObservedLease,
  now: number,
  { identity, leading, acquiredAt }: Candidate,
  { durationMs }: Pick<ElectionLimits, 'durationMs'>,
): LeaseStep {
  if (record === undefined) return { do: leading ? 'create' : 'prepare' };
  const { holder, durationSeconds } = record;
  if (holder === identity && record.acquiredAt === acquiredAt) return { do: 'renew' };
  if (holder === '' && (leading || durationSeconds <= RELEASED_SECONDS)) return { do: 'take' };
  const theirs = Math.min(durationSeconds * 1000, LONGEST_DURATION_MS);
  return now - since >= Math.max(durationMs, theirs) ? { do: 'take' } : { do: 'follow', holder };
}

export interface LeaseWriter {
  readonly identity: string;
  /** The lowest number of transitions to write; see the fencing of ConfigMaps. */
  readonly leastTransitions: number;
  /** Microseconds since the epoch. */
  readonly wallMicroseconds: number;
  readonly durationMs: number;
}

/** The record of a step that writes. @param last the last record that was there, even if it has vanished since */
export function recordAfter(
  step: WritingStep,
  last: LeaseRecord | undefined,
  writer: LeaseWriter,
): LeaseRecord {
  const { identity, leastTransitions, wallMicroseconds, durationMs } = writer;
  const renewedAt = renewalAfter(last, wallMicroseconds);
  const transitions = (last?.transitions ?? 0) + (step === 'take' ? 1 : 0);
  return {
    holder: step === 'prepare' ? '' : identity,
    durationSeconds: Math.max(RELEASED_SECONDS + 1, Math.round(durationMs / 1000)),
    transitions: Math.max(transitions, leastTransitions),
    acquiredAt: step === 'renew' ? last?.acquiredAt : renewedAt,
    renewedAt,
  };
}

/** What a holder leaves behind when it goes: anybody may take it at once. As client-go's ReleaseOnCancel does it. */
export function releasedRecord(record: LeaseRecord, wallMicroseconds: number): LeaseRecord {
  const renewedAt = renewalAfter(record, wallMicroseconds);
  return { ...record, holder: '', durationSeconds: RELEASED_SECONDS, acquiredAt: renewedAt, renewedAt };
}

const DAY_MICROSECONDS = 86_400_000_000;

/** A renewal must differ from the one before, also where the clock was set back, or nobody would see it. */
function renewalAfter(last: LeaseRecord | undefined, wall: number): number {
  const before = last?.renewedAt ?? 0;
  // One that lies further ahead differs anyway, and may be too large a number to add 1 to.
  return before >= wall && before - wall < DAY_MICROSECONDS ? before + 1 : wall;
}
