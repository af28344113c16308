import type { EndpointSource } from '../core/lag/index.ts';
import type { ControllerActivity, ControllerFlags } from './controller-metrics.ts';

/** Removals of one stage, as they were measured. Seconds. */
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
  /** Where they come from, for people: `linger at http://…`, `watched for 10 s`. */
  readonly from: string;
  /** Removals that ended were not counted: a single scrape shows only what is waiting. */
  readonly uncounted?: true;
  /** Over the interval. */
  readonly stages: readonly StageFacts[];
  /** Since a running Linger was started; empty where it was not asked. */
  readonly life: readonly StageFacts[];
}

/** Undefined: could not be read. */
export interface ClusterFacts {
  readonly services: number | undefined;
  /** Services that publish not-ready addresses, and a few of their names. */
  readonly neverWithdrawn: { readonly services: number; readonly examples: readonly string[] } | undefined;
  /** The accounts that are granted Endpoints by name, without the control plane and Linger. */
  readonly endpointsReaders: readonly string[] | undefined;
}

export interface LeaderFacts {
  readonly holder: string;
  /** Since it took over. */
  readonly ageSeconds: number;
  readonly transitions: number;
}

export const CONTROLLER_METRICS = 'controller-manager metrics';

/** One place that was looked at, or could not be. */
export interface Look {
  readonly what: string;
  readonly seen: boolean;
  /** What was seen, or why not. */
  readonly text: string;
  /** Where it was not: the command or the right that would help. */
  readonly remedy?: string | undefined;
}

/** What is undefined could not be read; rules then say less, never more. */
export interface Facts {
  readonly controller: ControllerActivity | undefined;
  readonly flags: ControllerFlags;
  readonly leader: LeaderFacts | undefined;
  readonly priority: PriorityFacts | undefined;
  readonly lag: LagFacts | undefined;
  readonly cluster: ClusterFacts | undefined;
  readonly looks: readonly Look[];
}

/** Where Kubernetes puts the controller-manager's requests by default (flowcontrol bootstrap). */
const LEVEL = 'workload-high';

export type PriorityFacts = Readonly<NonNullable<ReturnType<typeof priorityFacts>>>;

/**
 * The priority level that the API server puts the controller-manager's requests into, over the interval.
 * Reads two of `/debug/api_priority_and_fairness/dump_priority_levels`: a table with commas (apf_controller_debug.go).
 * Its counts are of the one API server that answered.
 * @returns undefined if it is not one, or the level is missing
 */
export function priorityFacts(before: string, after: string) {
  const [first, last] = [levelIn(before), levelIn(after)];
  if (first === undefined || last === undefined) return undefined;
  // Another API server may have answered the second time.
  const since = (column: string) => Math.max(0, last(column) - first(column));
  return {
    level: LEVEL,
    /** For a seat, at the end. */
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
