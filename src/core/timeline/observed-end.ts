import { type After, MOST_USERS, type Termination } from './termination.ts';

/** What was observed of a pod's end. Spans are seconds since its deletion. */
export interface ObservedEnd
  extends Pick<Termination, 'namespace' | 'pod' | 'uid' | 'owner' | 'hook' | 'deletedAt' | 'gone'> {
  /** Whether an object listed it as ready when its deletion was seen. */
  readonly listed: boolean;
  /** undefined: not measured. */
  readonly withdrawals:
    | readonly { readonly stage: string; readonly name: string; readonly lag: number }[]
    | undefined;
  /** The consumers that apply, with the 99th percentile of their lag after the withdrawal; undefined: not known. */
  readonly consumers: readonly { readonly name: string; readonly seconds: number | undefined }[];
  /** How long its hook delays SIGTERM; undefined: not known. With hook Hold, {@link released} counts instead. */
  readonly wait: number | undefined;
  readonly released: ObservedRelease | undefined;
}

/** The release of hook Hold. */
export interface ObservedRelease {
  readonly reason: string;
  readonly after: number;
  /** How Linger knew about each consumer, and when it had stopped; undefined: it had not. */
  readonly consumers: readonly {
    readonly name: string;
    readonly by: 'time' | 'word' | 'unknown';
    readonly after: number | undefined;
  }[];
  readonly witness: Termination['witness'];
}

/** Reasons for which pods are released although something is known to use them. */
const KNOWN_IN_USE: ReadonlySet<string> = new Set(['Max', 'NodeShutdown', 'Observed']);
/** After this reason, the helper continues to wait by itself. */
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

/** Latest first, because those matter if there are many. */
function withdrawalsOf({ withdrawals, listed }: ObservedEnd) {
  if (withdrawals === undefined) return listed ? undefined : [];
  return withdrawals
    .map(({ stage, name, lag }) => ({ source: stage, service: name, after: Math.max(0, lag) }))
    .toSorted((a, b) => b.after - a.after);
}

/** Unknown ones first, then the latest. */
function consumersOf(
  { consumers, released }: ObservedEnd,
  withdrawals: readonly { readonly after: number }[] | undefined,
): Termination['consumers'] {
  // If no object listed the pod, its consumers find pods by themselves, and learn of the deletion.
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
