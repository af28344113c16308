import type { SyncResult } from '../../../src/core/consumers/reported-syncs.ts';
import { ReportedSyncs } from '../../../src/core/consumers/reported-syncs.ts';

/** One sync of a gateway: what was removed before it began is out of the table when it ends. Milliseconds. */
export interface SimulatedSync {
  readonly gateway: string;
  readonly begin: number;
  readonly end: number;
}

/**
 * - `around`: asks for a cursor before each sync and sends it back after it.
 * - `timed`: one report after each sync, which says how long it took.
 * - `after`: one report after each sync: a line of curl.
 */
export const FORMS = ['around', 'timed', 'after'] as const;
export type Form = (typeof FORMS)[number];

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
  readonly took: number;
}

/** Reports syncs in the order in which they happen, and lets time pass until `horizon`. */
export function reported(syncs: readonly SimulatedSync[], form: Form, horizon: number): Outcome {
  const lags: number[] = [];
  const results: SyncResult[] = [];
  const book = new ReportedSyncs(0, (lag) => lags.push(lag));
  const cursors = new Map<string, number>();
  const post = (gateway: string, cursor: number | undefined, took: number | undefined, now: number) => {
    const answer = book.report({ instance: gateway, cursor, took }, now);
    results.push(answer.result);
    if (answer.cursor !== undefined) cursors.set(gateway, answer.cursor);
  };
  const events = syncs
    .flatMap(({ gateway, begin, end }): Event[] => [
      { at: begin, gateway, kind: 'begin', took: end - begin },
      { at: end, gateway, kind: 'end', took: end - begin },
    ])
    .filter(({ at }) => at <= horizon)
    .toSorted((a, b) => a.at - b.at);
  for (const { at, gateway, kind, took } of events) {
    if (kind === 'begin') {
      // Whoever reports after each sync asks once, when it starts.
      if (form === 'around' || !cursors.has(gateway)) post(gateway, undefined, undefined, at);
    } else post(gateway, cursors.get(gateway), form === 'timed' ? took : undefined, at);
  }
  book.advance(horizon);
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
