import {
  type InstanceName,
  ReportedSyncs,
  type StageVersions,
  type SyncClaim,
  type SyncResult,
} from '../../../src/core/lag/reported-syncs.ts';

/** One sync of a gateway: what was removed before it began is out of the table when it ends. Milliseconds. */
export interface SimulatedSync {
  readonly gateway: string;
  readonly begin: number;
  readonly end: number;
}

/**
 * - `around`: asks for a cursor before each sync and sends it back after it.
 * - `after`: one report after each sync, with the cursor of the report before.
 */
export const FORMS = ['around', 'after'] as const;
export type Form = (typeof FORMS)[number];

export const NONE: StageVersions = {};

export function instance(key: string): InstanceName {
  return { key, name: key };
}

/** A cursor of this lead. */
export function cursorOf(givenAt: number, versions: StageVersions = NONE): SyncClaim {
  return { by: 'cursor', givenAt, versions };
}

/** Everything that becomes of the syncs when they are reported as they happen. */
export interface Outcome {
  readonly lags: readonly number[];
  readonly lost: number;
  readonly results: readonly SyncResult[];
  readonly book: ReportedSyncs;
}

interface Event {
  readonly at: number;
  readonly gateway: string;
  readonly kind: 'begin' | 'end';
}

/**
 * Reports syncs in the order in which they happen, and lets time pass until `horizon`.
 * @param travelMs how long a report of a sync is on its way
 */
export function reported(
  syncs: readonly SimulatedSync[],
  form: Form,
  horizon: number,
  travelMs = 0,
): Outcome {
  const lags: number[] = [];
  const results: SyncResult[] = [];
  const book = new ReportedSyncs(0, NONE, (lag) => lags.push(lag));
  /** When the cursor that a gateway holds was given. */
  const held = new Map<string, number>();
  const post = (gateway: string, givenAt: number | undefined, now: number) => {
    const claim = givenAt === undefined ? undefined : cursorOf(givenAt);
    results.push(book.report(instance(gateway), claim, now, NONE));
  };
  const events = syncs
    .flatMap(({ gateway, begin, end }): Event[] => [
      { at: begin, gateway, kind: 'begin' },
      { at: end + travelMs, gateway, kind: 'end' },
    ])
    .filter(({ at }) => at <= horizon)
    .toSorted((a, b) => a.at - b.at);
  for (const { at, gateway, kind } of events) {
    if (kind === 'end') {
      post(gateway, held.get(gateway), at);
      if (form === 'after') held.set(gateway, at);
    } else if (form === 'around' || !held.has(gateway)) {
      // A gateway that reports after each sync asks once, when it starts.
      post(gateway, undefined, at);
      held.set(gateway, at);
    }
  }
  book.advance(horizon, NONE);
  return { lags, lost: book.lost, results, book };
}

/** A gateway that syncs again and again. Milliseconds. */
export interface Schedule {
  readonly gateway: string;
  readonly from: number;
  readonly to: number;
  readonly interval: number;
  /** Added to the interval, one after the other. */
  readonly jitter: readonly number[];
  /** How long syncs take, one after the other. */
  readonly took: readonly number[];
  /** Every so many syncs do not happen; 0: all do. */
  readonly missedEvery: number;
}

export function syncsOf(schedule: Schedule): SimulatedSync[] {
  const { gateway, from, to, interval, jitter, took, missedEvery } = schedule;
  const syncs: SimulatedSync[] = [];
  let begin = from;
  for (let count = 1; begin < to; count++) {
    const end = begin + (took[count % took.length] ?? 0);
    if (missedEvery === 0 || count % missedEvery !== 0) syncs.push({ gateway, begin, end });
    begin = end + Math.max(200, interval + (jitter[count % jitter.length] ?? 0));
  }
  return syncs;
}
