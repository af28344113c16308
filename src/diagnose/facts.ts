import type { EndpointSource } from '../core/lag/index.ts';
import type { ControllerActivity, ControllerFlags } from './controller-metrics.ts';

/** Measured removals of one stage. Seconds. */
export interface StageFacts {
  readonly stage: EndpointSource;
  readonly samples: number;
  readonly p50: number | undefined;
  readonly p99: number | undefined;
  /** Removals that have begun and not ended, and the age of the oldest. */
  readonly waiting: number;
  readonly oldestSeconds: number | undefined;
}

export interface LagFacts {
  /** The source of these facts, for display: `linger at http://…`, `watched for 10 s`. */
  readonly from: string;
  /** Removals that ended were not counted, because a single scrape shows only those that are waiting. */
  readonly uncounted?: true;
  /** Over the interval. */
  readonly stages: readonly StageFacts[];
  /** Since a running Linger was started; empty if none was asked. */
  readonly life: readonly StageFacts[];
}

/** Undefined: it could not be read. */
export interface ClusterFacts {
  readonly services: number | undefined;
  /** Services that publish not-ready addresses, and a few of their names. */
  readonly neverWithdrawn: { readonly services: number; readonly examples: readonly string[] } | undefined;
  /** The accounts that are granted Endpoints by name, except those of the control plane and of Linger. */
  readonly endpointsReaders: readonly string[] | undefined;
}

export interface LeaderFacts {
  readonly holder: string;
  /** Since it took over. */
  readonly ageSeconds: number;
  readonly transitions: number;
}

export const CONTROLLER_METRICS = 'controller-manager metrics';

/** A place that was examined, or could not be. */
export interface Look {
  readonly what: string;
  readonly seen: boolean;
  /** What was found, or why it could not be examined. */
  readonly text: string;
  /** If it could not be examined: the command or the right that would help. */
  readonly remedy?: string | undefined;
}

/** Undefined members could not be read; rules then conclude less, and never more. */
export interface Facts {
  readonly controller: ControllerActivity | undefined;
  readonly flags: ControllerFlags;
  readonly leader: LeaderFacts | undefined;
  readonly priority: PriorityFacts | undefined;
  readonly lag: LagFacts | undefined;
  readonly cluster: ClusterFacts | undefined;
  readonly looks: readonly Look[];
}

/** The priority level to which Kubernetes assigns the controller-manager's requests by default (flowcontrol bootstrap). */
const LEVEL = 'workload-high';

export type PriorityFacts = Readonly<NonNullable<ReturnType<typeof priorityFacts>>>;

/**
 * The state of the priority level of the controller-manager's requests over the interval. Reads two responses of
 * `/debug/api_priority_and_fairness/dump_priority_levels`: a table with commas (apf_controller_debug.go). The counts are
 * those of the single API server that answered.
 * @returns undefined if a response is not such a table, or lacks the level
 */
export function priorityFacts(before: string, after: string) {
  const [first, last] = [levelIn(before), levelIn(after)];
  if (first === undefined || last === undefined) return undefined;
  // Another API server may have answered the second request.
  const since = (column: string) => Math.max(0, last(column) - first(column));
  return {
    level: LEVEL,
    /** How many requests were waiting for a seat at the end. */
    waiting: last('WaitingRequests'),
    rejected: since('RejectedRequests'),
    timedOut: since('TimedoutRequests'),
  };
}

/** @returns the values of a row by column; 0 where a version lacks the column */
function levelIn(table: string): ((column: string) => number) | undefined {
  const [head = [], ...rows] = table.split('\n').map((line) => line.split(',').map((cell) => cell.trim()));
  const row = rows.find((cells) => cells[head.indexOf('PriorityLevelName')] === LEVEL);
  return row && ((column) => Number(row[head.indexOf(column)]) || 0);
}
