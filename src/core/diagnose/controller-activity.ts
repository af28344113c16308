import { QUEUES, type QueueName } from './controller-flags.ts';
import type { Answers, ControllerScrape, QueueScrape, Tally } from './controller-scrape.ts';

/** A scrape, and when it was taken. */
export interface TakenScrape {
  readonly scrape: ControllerScrape;
  /** Seconds of any clock that both scrapes share. */
  readonly at: number;
  /** Seconds since the epoch; undefined for a file, which does not say. */
  readonly epochSeconds?: number | undefined;
}

/** A work queue over a while. */
export interface QueueActivity {
  readonly name: QueueName;
  /** At the end, and at the beginning where there was a scrape. */
  readonly depth: number;
  readonly depthBefore: number | undefined;
  readonly longestSeconds: number;
  readonly adds: number;
  readonly done: number;
  /** Of the items taken up; undefined when there was none. */
  readonly meanWaitSeconds: number | undefined;
  /** Of the items finished. */
  readonly meanWorkSeconds: number | undefined;
  /** How many were worked on at a time, on average; undefined without two scrapes. */
  readonly busyWorkers: number | undefined;
  /** Since the controller-manager's start: items taken up, and how many of them had waited for more than a second. */
  readonly life: { readonly taken: number; readonly overSecond: number };
}

/** What the controller-manager did, between two scrapes or (with one) since its start. */
export interface ControllerActivity {
  /** Between the scrapes; undefined: there was only one that counts, and there are no rates. */
  readonly seconds: number | undefined;
  /** It was started anew between the scrapes, or another instance answered. */
  readonly restarted: boolean;
  /** Since the process was started, at the end; undefined where it is not known. */
  readonly ageSeconds: number | undefined;
  readonly version: string | undefined;
  readonly leading: boolean | undefined;
  readonly queues: readonly QueueActivity[];
  /** Writes and their waits for the client's own limiter. */
  readonly limiter: Tally | undefined;
  readonly limiterLife: Tally | undefined;
  /**
   * Writes and the API server's time for them, without the wait for the limiter. `overSecond` is 0 where they waited for
   * that: there it cannot be told.
   */
  readonly server: Tally | undefined;
  readonly answers: Answers | undefined;
  readonly failedSyncs: number | undefined;
  readonly changes: number | undefined;
}

/** @param first undefined when there is but one scrape */
export function activityOf(first: TakenScrape | undefined, last: TakenScrape): ControllerActivity {
  const after = last.scrape;
  const elapsed = first === undefined ? 0 : last.at - first.at;
  const restarted = first !== undefined && isAnotherLife(first.scrape, after);
  const before = restarted || elapsed <= 0 ? undefined : first?.scrape;
  const seconds = before === undefined ? undefined : elapsed;
  const limiter = difference(before?.limiter, after.limiter);
  return {
    seconds,
    restarted,
    ageSeconds: ageOf(after.startedAt, last.epochSeconds),
    version: after.version,
    leading: after.leading,
    queues: QUEUES.flatMap((name) => {
      const queue = after.queues.get(name);
      return queue === undefined ? [] : [queueActivity(name, before?.queues.get(name), queue, seconds)];
    }),
    limiter,
    limiterLife: after.limiter,
    server: withoutLimiter(difference(before?.requests, after.requests), limiter),
    answers: after.answers && answersSince(before?.answers, after.answers),
    failedSyncs: after.failedSyncs === undefined ? undefined : after.failedSyncs - (before?.failedSyncs ?? 0),
    changes: after.changes === undefined ? undefined : after.changes - (before?.changes ?? 0),
  };
}

/** The mean of a tally. @returns undefined when nothing was counted */
export function meanOf(tally: Tally | undefined): number | undefined {
  return tally === undefined || tally.count <= 0 ? undefined : tally.sum / tally.count;
}

/** Counters only grow; one that does not has begun anew. */
function isAnotherLife(before: ControllerScrape, after: ControllerScrape): boolean {
  if (before.startedAt !== undefined && after.startedAt !== undefined) {
    // To the second: the kernel's clock that it is worked out from is slewed.
    if (Math.abs(before.startedAt - after.startedAt) > 1) return true;
  }
  return QUEUES.some((name) => {
    const [old, now] = [before.queues.get(name), after.queues.get(name)];
    return old !== undefined && (now === undefined || now.adds < old.adds || now.work.count < old.work.count);
  });
}

function ageOf(startedAt: number | undefined, epochSeconds: number | undefined): number | undefined {
  if (startedAt === undefined || epochSeconds === undefined) return undefined;
  return Math.max(0, epochSeconds - startedAt);
}

/** What was not there before was 0: client-go's series begin with their first value. */
function difference(before: Tally | undefined, after: Tally | undefined): Tally | undefined {
  if (after === undefined) return undefined;
  const since = (key: keyof Tally) => Math.max(0, after[key] - (before?.[key] ?? 0));
  return { count: since('count'), sum: since('sum'), overSecond: since('overSecond') };
}

/** From here on, whether a request took over a second tells of the limiter as much as of the API server. */
const LIMITER_MATTERS_SECONDS = 0.01;

function withoutLimiter(requests: Tally | undefined, limiter: Tally | undefined): Tally | undefined {
  if (requests === undefined) return undefined;
  const matters = (meanOf(limiter) ?? 0) >= LIMITER_MATTERS_SECONDS;
  return {
    count: requests.count,
    sum: Math.max(0, requests.sum - (limiter?.sum ?? 0)),
    overSecond: matters ? 0 : requests.overSecond,
  };
}

function answersSince(before: Answers | undefined, after: Answers): Answers {
  const since = (key: keyof Answers) => Math.max(0, after[key] - (before?.[key] ?? 0));
  return {
    total: since('total'),
    tooMany: since('tooMany'),
    serverErrors: since('serverErrors'),
    unanswered: since('unanswered'),
  };
}

function queueActivity(
  name: QueueName,
  before: QueueScrape | undefined,
  after: QueueScrape,
  seconds: number | undefined,
): QueueActivity {
  const work = difference(before?.work, after.work);
  const unfinished = after.unfinishedSeconds - (before?.unfinishedSeconds ?? 0);
  return {
    name,
    depth: after.depth,
    depthBefore: seconds === undefined ? undefined : (before?.depth ?? 0),
    longestSeconds: after.longestSeconds,
    adds: after.adds - (before?.adds ?? 0),
    done: work?.count ?? 0,
    meanWaitSeconds: meanOf(difference(before?.wait, after.wait)),
    meanWorkSeconds: meanOf(work),
    // Work that was finished counts in full when it ends, so what of it lies before the beginning is taken off again.
    busyWorkers: seconds === undefined ? undefined : Math.max(0, (work?.sum ?? 0) + unfinished) / seconds,
    life: { taken: after.wait.count, overSecond: after.wait.overSecond },
  };
}
