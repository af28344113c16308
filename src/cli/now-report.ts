import {
  isShortfall,
  type Shortfall,
  type TerminationFinding,
  type TerminationRecord,
} from '../audit/index.ts';
import { assess, followedAfter, spanOf } from '../core/timeline/index.ts';
import type { NowReport } from '../dashboard/index.ts';

const SHORTFALL_SECONDS = 86_400;
const MOST_SHORTFALLS = 20;

/**
 * Pods of the last day that got SIGTERM too early, with one line for each workload and cause. @param now seconds since the
 * epoch
 */
export function shortfallsOf({ findings }: TerminationRecord, now: number): NowReport['shortfalls'] {
  const recent = findings.filter(
    (each): each is Shortfall => isShortfall(each) && each.at > now - SHORTFALL_SECONDS,
  );
  const causeOf = ({ wait, consumer = '' }: Shortfall) => `${wait === 0} ${consumer}`;
  const alike = Map.groupBy(recent, (each) => `${each.namespace} ${ownerOf(each)} ${causeOf(each)}`);
  return [...alike.values()]
    .flatMap((all) => {
      const [worst] = all.toSorted((a, b) => b.seconds - a.seconds);
      if (worst === undefined) return [];
      const { namespace, seconds } = worst;
      const at = Math.max(...all.map((each) => each.at));
      return [{ at, namespace, owner: ownerOf(worst), pods: all.length, seconds, text: causeInWords(worst) }];
    })
    .toSorted((a, b) => b.pods - a.pods || b.seconds - a.seconds)
    .slice(0, MOST_SHORTFALLS);
}

function ownerOf({ owner, pod }: TerminationFinding): string {
  return owner === '' ? `Pod/${pod}` : owner;
}

function causeInWords({ wait, lag, consumer, services }: Shortfall): string {
  const waits = wait === 0 ? 'no wait' : `waited ${spanOf(wait)}`;
  const follows =
    consumer === undefined
      ? `${services.join(', ')} listed them for up to ${spanOf(lag)}`
      : `${consumer} follows within ${spanOf(lag)} (p99)`;
  return `${waits}; ${follows}`;
}

const DRAWN_SECONDS = 6 * 3_600;
const MOST_DRAWN = 500;

/** The latest terminations: how long each pod waited, and how long something sent to it. The latest first. */
export function endedOf({ terminations }: TerminationRecord, now: number): NowReport['ended'] {
  return terminations
    .filter(({ deletedAt }) => deletedAt > now - DRAWN_SECONDS)
    .toSorted((a, b) => b.deletedAt - a.deletedAt)
    .slice(0, MOST_DRAWN)
    .map((each) => ({
      uid: each.uid,
      namespace: each.namespace,
      pod: each.pod,
      owner: each.owner,
      at: each.deletedAt,
      waitSeconds: each.sigterm.after,
      lagSeconds: followedAfter(each),
      afterSigterm: assess(each).afterSigterm,
    }));
}
