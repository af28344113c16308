import { batchPeriod, leaderChanged, neverWithdrawn, notLeading, writeStorm } from './cluster-rules.ts';
import type { Facts } from './facts.ts';
import { FINDINGS, type Finding, type FindingCode } from './findings.ts';
import { controllerNotSeen, lagUnexplained, nothingWrong, slowBefore, slowWithdrawals } from './lag-rules.ts';
import {
  backlogBefore,
  clientThrottled,
  queueBacklog,
  stuckWorker,
  throttledBefore,
  tooFewWorkers,
} from './queue-rules.ts';
import { apiServerRejects, apiServerSlow, syncErrors } from './server-rules.ts';

/** What a rule sees, and what the rules before it have found. */
type Rule = (facts: Facts, found: readonly Finding[]) => Finding | undefined;

const RULES: Readonly<Record<FindingCode, Rule>> = {
  ClientThrottled: clientThrottled,
  StuckWorker: stuckWorker,
  TooFewWorkers: tooFewWorkers,
  QueueBacklog: queueBacklog,
  WriteStorm: writeStorm,
  ApiServerSlow: apiServerSlow,
  ApiServerRejects: apiServerRejects,
  SyncErrors: syncErrors,
  BatchPeriod: batchPeriod,
  SlowWithdrawals: slowWithdrawals,
  LeaderChanged: leaderChanged,
  NotLeading: notLeading,
  LagUnexplained: lagUnexplained,
  ThrottledBefore: throttledBefore,
  BacklogBefore: backlogBefore,
  SlowBefore: slowBefore,
  NeverWithdrawn: neverWithdrawn,
  ControllerNotSeen: controllerNotSeen,
  NothingWrong: nothingWrong,
};

/**
 * Why endpoints are withdrawn late in this cluster, and what to do about it. Each code at most once, in the order of
 * the catalogue: the worst first. Never empty.
 */
export function diagnose(facts: Facts): readonly Finding[] {
  const found: Finding[] = [];
  for (const code of Object.keys(FINDINGS) as FindingCode[]) {
    const said = RULES[code](facts, found);
    if (said !== undefined) found.push(said);
  }
  return found;
}
