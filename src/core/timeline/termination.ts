import type { Chart, Lane, Span } from './chart.ts';

/**
 * How an instant is known.
 * - `seen`: it was observed.
 * - `computed`: it follows from the pod's hook, or from the usual lag of that consumer (99th percentile).
 * - `unknown`: nothing is known of it.
 */
export const INSTANT_SOURCES = ['seen', 'computed', 'unknown'] as const;
export type InstantSource = (typeof INSTANT_SOURCES)[number];

/** Seconds after the deletion; null: not known, or, if it was observed, not before the observation ended. */
export type After = number | null;

/** How many withdrawals, and how many consumers, of one termination are kept. */
export const MOST_USERS = 8;

/** The termination of one pod, as seen by the leader. */
export interface Termination {
  readonly namespace: string;
  readonly pod: string;
  readonly uid: string;
  /** The workload of the pod, as `Deployment/web`; empty: it has none. */
  readonly owner: string;
  /** When its deletion was seen. Seconds since the epoch. */
  readonly deletedAt: number;
  /** The hook of its plan: `Sleep`, `Exec`, `Hold`; empty: it has no plan. */
  readonly hook: string;
  /**
   * What listed the pod as ready, and when that stopped; null: that was not measured, because the watches were not current.
   */
  readonly withdrawals:
    | readonly { readonly source: string; readonly service: string; readonly after: After }[]
    | null;
  /** What sends traffic to such a pod. */
  readonly consumers: readonly {
    readonly name: string;
    readonly after: After;
    readonly by: InstantSource;
  }[];
  /** How many withdrawals and consumers are left out. */
  readonly omitted: number;
  /**
   * What the helper of hook Hold counted: when the last connection came, and how many were open at the end; null: it counted
   * nothing.
   */
  readonly witness: { readonly last: After; readonly open: number | null } | null;
  readonly sigterm: { readonly after: After; readonly by: InstantSource };
  /** Why hook Hold was released; empty: it was not. */
  readonly release: string;
  /** When the pod was gone from the API server. */
  readonly gone: After;
}

/** Events of two watches cannot be compared more precisely than this. Seconds. */
const TOLERANCE = 0.25;

/** Something that had not stopped using the pod when it got SIGTERM. */
export interface Overrun {
  readonly what: string;
  /** Seconds after SIGTERM; null: unknown how long. */
  readonly seconds: number | null;
}

/**
 * - `sent`: something may have sent to it after SIGTERM.
 * - `clear`: everything known had stopped using the pod before.
 * - `unknown`: neither is known.
 */
export const AFTER_SIGTERM = ['sent', 'clear', 'unknown'] as const;
export type AfterSigterm = (typeof AFTER_SIGTERM)[number];

export interface Assessment {
  readonly afterSigterm: AfterSigterm;
  readonly overruns: readonly Overrun[];
  /** What is unknown, in words. */
  readonly unknown: readonly string[];
}

/** What the instants show. If any of them is unknown, the result is never `clear`. */
export function assess(termination: Termination): Assessment {
  const { sigterm, withdrawals, omitted } = termination;
  const users = usersOf(termination);
  const stopped = sigterm.after;
  const unknown = [
    ...(stopped === null ? ['when SIGTERM came'] : []),
    ...(withdrawals === null ? ['when its lists withdrew it'] : []),
    ...users.filter(({ by }) => by === 'unknown').map(({ what }) => `when ${what} dropped it`),
    ...(omitted > 0 ? [`${omitted} more that are left out here`] : []),
  ];
  if (stopped === null) return { afterSigterm: 'unknown', overruns: [], unknown };
  const overruns = users.flatMap(({ what, after, by }): Overrun[] => {
    if (by === 'unknown') return [];
    if (after === null) return [{ what, seconds: null }];
    return isLate(after, stopped) ? [{ what, seconds: Math.max(0, after - stopped) }] : [];
  });
  const clear = unknown.length === 0 ? 'clear' : 'unknown';
  return { afterSigterm: overruns.length > 0 ? 'sent' : clear, overruns, unknown };
}

/** Without any wait, everything is late, because nothing follows in no time. */
function isLate(after: number, stopped: number): boolean {
  return stopped === 0 || after - stopped > TOLERANCE;
}

/** What may send to the pod, and until when. */
function usersOf({ withdrawals, consumers }: Termination) {
  const lists = (withdrawals ?? []).map(({ source, service, after }) => ({
    what: `${source} ${service}`,
    after,
    by: 'seen' as InstantSource,
  }));
  return [...lists, ...consumers.map(({ name, after, by }) => ({ what: name, after, by }))];
}

/** For how long after its deletion something sent to the pod; null: not known, or not before the observation ended. */
export function followedAfter(termination: Termination): After {
  const { withdrawals, omitted } = termination;
  const afters = usersOf(termination).map(({ after, by }) => (by === 'unknown' ? null : after));
  if (withdrawals === null || omitted > 0 || afters.includes(null)) return null;
  return Math.max(0, ...afters.map((after) => after ?? 0));
}

/** One sentence, without the name of the pod. */
export function terminationSummary(termination: Termination): string {
  const { sigterm, gone, release, withdrawals, witness } = termination;
  const { afterSigterm, overruns, unknown } = assess(termination);
  const [worst, ...others] = overruns.toSorted((a, b) => (b.seconds ?? Infinity) - (a.seconds ?? Infinity));
  const more = others.length > 0 ? ` (and ${others.length} more)` : '';
  const verdict =
    afterSigterm === 'sent' && worst !== undefined
      ? `${worst.what}${more} may have sent to it ${worst.seconds === null ? 'after' : `for ${spanOf(worst.seconds)} after`} SIGTERM`
      : afterSigterm === 'clear'
        ? 'Everything known had dropped it before SIGTERM'
        : `Not known whether something sent to it after SIGTERM: ${unknown.join(', ')}`;
  const parts = [
    verdict,
    ...(afterSigterm === 'sent' && unknown.length > 0 ? [`not known: ${unknown.join(', ')}`] : []),
    ...(withdrawals?.length === 0 ? ['nothing listed it'] : []),
    ...(sigterm.after === null ? [] : [`SIGTERM after ${spanOf(sigterm.after)}`]),
    ...(release === '' ? [] : [`Hold released it: ${release}`]),
    ...(witness?.open ? [`${witness.open} connections open at SIGTERM`] : []),
    ...(gone === null ? [] : [`gone after ${spanOf(gone)}`]),
  ];
  return `${parts.join('; ')}.`;
}

/** The chart of one termination. @param day the instant of its deletion, in words */
export function chartOf(termination: Termination, day: string): Chart {
  const { namespace, pod, owner, withdrawals, consumers, witness, sigterm, gone, hook } = termination;
  const users = usersOf(termination);
  const known = [...users.map(({ after }) => after), sigterm.after, gone, witness?.last ?? null];
  const to = Math.max(1, ...known.filter((each) => each !== null)) * 1.04;
  const stopped = sigterm.after;
  const end = gone ?? to;
  const lane = (label: string, after: After, by: InstantSource): Lane => ({
    label,
    note: noteOf(after, by, stopped),
    spans: spansOf(after, by, stopped, end),
  });
  const served: readonly Span[] =
    stopped === null
      ? [{ from: 0, to: end, tone: 'unknown' }]
      : [
          ...(stopped > 0 ? [{ from: 0, to: stopped, tone: 'waits' } as const] : []),
          { from: stopped, to: Math.max(stopped, end), tone: gone === null ? 'unknown' : 'stops' },
        ];
  return {
    title: `Pod ${namespace}/${pod}${owner === '' ? '' : ` of ${owner}`}, deleted ${day}`,
    summary: terminationSummary(termination),
    from: 0,
    to,
    marks: [
      { at: 0, label: 'deleted' },
      ...(stopped === null
        ? []
        : [{ at: stopped, label: sigterm.by === 'seen' ? 'SIGTERM' : 'SIGTERM (planned)' }]),
      ...(gone === null ? [] : [{ at: gone, label: 'gone' }]),
    ],
    lanes: [
      ...(withdrawals === null ? [lane('withdrawn from lists', null, 'unknown')] : []),
      ...(withdrawals ?? []).map(({ source, service, after }) => lane(`${source} ${service}`, after, 'seen')),
      ...consumers.map(({ name, after, by }) => lane(name, after, by)),
      ...(witness === null ? [] : [witnessLane(witness.last)]),
      {
        label: hook === '' ? 'the process' : `the process, hook ${hook}`,
        note: stopNote(termination),
        spans: served,
      },
    ],
  };
}

function witnessLane(last: After): Lane {
  return {
    label: 'last connection',
    note: last === null ? 'none seen' : spanOf(last),
    spans: last === null ? [] : [{ from: 0, to: last, tone: 'sends' }],
  };
}

function stopNote({ sigterm, gone }: Termination): string {
  if (sigterm.after === null) return 'SIGTERM: not known';
  return gone === null ? 'end: not known' : `${spanOf(Math.max(0, gone - sigterm.after))} to stop`;
}

function spansOf(after: After, by: InstantSource, stopped: After, end: number): readonly Span[] {
  if (by === 'unknown') return [{ from: 0, to: end, tone: 'unknown' }];
  const until = after ?? end;
  if (stopped === null || !isLate(until, stopped)) return [{ from: 0, to: until, tone: 'sends' }];
  return [
    ...(stopped > 0 ? [{ from: 0, to: stopped, tone: 'sends' } as const] : []),
    { from: stopped, to: until, tone: 'lost' },
  ];
}

function noteOf(after: After, by: InstantSource, stopped: After): string {
  if (by === 'unknown') return 'not known';
  if (after === null) return stopped === null ? 'not seen to drop it' : 'not before SIGTERM';
  return by === 'computed' ? `${spanOf(after)} (99 %)` : spanOf(after);
}

/** A span for people: `38 ms`, `4.2 s`, `38 s`, `3 min`, `2 h`; from 1e9 on `for ever`. */
export function spanOf(seconds: number): string {
  if (seconds >= 1e9) return 'for ever';
  if (seconds > 0 && seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

/** Whether a value has the shape of a termination, because a tenant may have written it. */
export function isTermination(value: unknown): value is Termination {
  if (!isObject(value)) return false;
  const { namespace, pod, uid, owner, hook, release, deletedAt, omitted, gone } = value;
  const { withdrawals, consumers, witness, sigterm } = value;
  if (![namespace, pod, uid, owner, hook, release].every((each) => typeof each === 'string')) return false;
  if (!Number.isFinite(deletedAt) || !Number.isInteger(omitted) || !isAfter(gone)) return false;
  if (withdrawals !== null && !isListOf(withdrawals, ['source', 'service'], isWithdrawal)) return false;
  if (!isListOf(consumers, ['name'], isUse) || !isUse(sigterm)) return false;
  return witness === null || (isObject(witness) && isAfter(witness.last) && isAfter(witness.open));
}

function isListOf(value: unknown, texts: readonly string[], is: (each: Members) => boolean): boolean {
  if (!Array.isArray(value) || value.length > MOST_USERS) return false;
  return value.every(
    (each) => isObject(each) && texts.every((text) => typeof each[text] === 'string') && is(each),
  );
}

function isWithdrawal({ after }: Members): boolean {
  return isAfter(after);
}

function isUse(value: unknown): boolean {
  return isObject(value) && isAfter(value.after) && INSTANT_SOURCES.some((source) => source === value.by);
}

function isAfter(value: unknown): boolean {
  return value === null || Number.isFinite(value);
}

type Members = Readonly<Record<string, unknown>>;

function isObject(value: unknown): value is Members {
  return typeof value === 'object' && value !== null;
}
