import { type After, MOST_USERS, type Termination } from './termination.ts';

/** What has been observed of a pod's end. Spans are seconds since its deletion. */
export interface ObservedEnd
  extends Pick<Termination, 'namespace' | 'pod' | 'uid' | 'owner' | 'hook' | 'deletedAt' | 'gone'> {
  /** Whether something listed it as ready when its deletion showed. */
  readonly listed: boolean;
  /** undefined: not measured. */
  readonly withdrawals:
    | readonly { readonly stage: string; readonly name: string; readonly lag: number }[]
    | undefined;
  /** The consumers that apply: the 99th percentile of their lag after the withdrawal; undefined: not known. */
  readonly consumers: readonly { readonly name: string; readonly seconds: number | undefined }[];
  /** For how long its hook holds SIGTERM back; undefined: that is not known. Of hook Hold, {@link released} counts. */
  readonly wait: number | undefined;
  readonly released: ObservedRelease | undefined;
}

/** The release of hook Hold. */
export interface ObservedRelease {
  readonly reason: string;
  readonly after: number;
  /** How each consumer was judged, and when it had stopped; undefined: it had not. */
  readonly consumers: readonly {
    readonly name: string;
    readonly by: 'time' | 'word' | 'unknown';
    readonly after: number | undefined;
  }[];
  readonly witness: Termination['witness'];
}

/** Released while something was known to use the pod. */
const KNOWN_IN_USE: ReadonlySet<string> = new Set(['Max', 'NodeShutdown', 'Observed']);
/** The helper waits on by itself after this one. */
const ON_ITS_OWN = 'Unsure';

export function terminationOf(end: ObservedEnd): Termination {
  const { namespace, pod, uid, owner, hook, deletedAt, gone, released } = end;
  const withdrawals = withdrawalsOf(end);
  const consumers = consumersOf(end, withdrawals);
  const kept = {
    withdrawals: withdrawals?.slice(0, MOST_USERS) ?? null,
    consumers: consumers.slice(0, MOST_USERS),
  };
  return {
    namespace,
    pod,
    uid,
    owner,
    hook,
    deletedAt,
    gone,
    ...kept,
    omitted:
      (withdrawals?.length ?? 0) - (kept.withdrawals?.length ?? 0) + consumers.length - kept.consumers.length,
    witness: released?.witness ?? null,
    sigterm: sigtermOf(end),
    release: released?.reason ?? '',
  };
}

function sigtermOf({ hook, wait, released }: ObservedEnd): Termination['sigterm'] {
  if (released !== undefined && released.reason !== ON_ITS_OWN) return { after: released.after, by: 'seen' };
  if (hook === 'Hold' || wait === undefined) return { after: null, by: 'unknown' };
  return { after: wait, by: 'computed' };
}

/** The latest first: those are what matters where there are many. */
function withdrawalsOf({ withdrawals, listed }: ObservedEnd) {
  if (withdrawals === undefined) return listed ? undefined : [];
  return withdrawals
    .map(({ stage, name, lag }) => ({ source: stage, service: name, after: Math.max(0, lag) }))
    .toSorted((a, b) => b.after - a.after);
}

/** What is not known comes first, then the latest. */
function consumersOf(
  { consumers, released }: ObservedEnd,
  withdrawals: readonly { readonly after: number }[] | undefined,
): Termination['consumers'] {
  // What nothing listed is found by itself, and its consumers learn of the deletion.
  const withdrawn = withdrawals?.reduce((latest, { after }) => Math.max(latest, after), 0);
  const lags = new Map(consumers.map(({ name, seconds }) => [name, seconds]));
  const usual = (name: string): Termination['consumers'][number] => {
    const seconds = lags.get(name);
    return seconds === undefined || withdrawn === undefined
      ? { name, after: null, by: 'unknown' }
      : { name, after: withdrawn + seconds, by: 'computed' };
  };
  const all =
    released === undefined
      ? consumers.map(({ name }) => usual(name))
      : released.consumers.map(({ name, by, after }): Termination['consumers'][number] => {
          if (by !== 'word') return by === 'time' ? usual(name) : { name, after: null, by };
          if (after !== undefined) return { name, after, by: 'seen' };
          return { name, after: null, by: KNOWN_IN_USE.has(released.reason) ? 'seen' : 'unknown' };
        });
  const last = ({ after }: { readonly after: After }) => after ?? Number.POSITIVE_INFINITY;
  return all.toSorted((a, b) => (last(a) === last(b) ? 0 : last(b) - last(a)));
}
