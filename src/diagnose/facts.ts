import { LAG_STAGES, type LagStage, type StageSample } from '../lag/index.ts';
import type { WaitingByStage } from '../measurement/index.ts';
import {
  bucketsOf,
  type Choice,
  type ControllerActivity,
  type ControllerFlags,
  chosen,
  type Exposition,
  growthBetween,
  parseExposition,
} from './controller-metrics.ts';

/** Removals of one stage, as they were measured. Seconds. */
export interface StageFacts {
  readonly stage: LagStage;
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
  /** Over the interval. */
  readonly stages: readonly StageFacts[];
  /** Since a running Linger was started; empty where it was not asked. */
  readonly life: readonly StageFacts[];
}

/** Undefined: could not be read. */
export interface ClusterFacts {
  readonly services: number | undefined;
  readonly endpointSlices: number | undefined;
  readonly pods: number | undefined;
  readonly nodes: number | undefined;
  /** Services that publish not-ready addresses, and a few of their names. */
  readonly neverWithdrawn: { readonly services: number; readonly examples: readonly string[] } | undefined;
}

/** The Lease of the controller-manager. */
export interface LeaderFacts {
  readonly holder: string;
  /** Since it took over. */
  readonly ageSeconds: number;
  readonly transitions: number;
}

/** The looks for the controller-manager's metrics. */
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

/** Everything that is known about a cluster. What is undefined could not be learnt; rules then say less, never more. */
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

/** @returns what its row says in a column; 0 where a version has no such column */
function levelIn(table: string): ((column: string) => number) | undefined {
  const [head = [], ...rows] = table.split('\n').map((line) => line.split(',').map((cell) => cell.trim()));
  const row = rows.find((cells) => cells[head.indexOf('PriorityLevelName')] === LEVEL);
  return row && ((column) => Number(row[head.indexOf(column)]) || 0);
}

/** What a watch of one's own has seen. */
export function watchedLag(
  from: string,
  samples: readonly Pick<StageSample, 'stage' | 'lag'>[],
  waiting: WaitingByStage,
): LagFacts {
  const stages = LAG_STAGES.map((stage): StageFacts => {
    const mine = samples.filter((sample) => sample.stage === stage);
    const lags = mine.map(({ lag }) => lag).toSorted((a, b) => a - b);
    // The nearest rank: with few samples the p99 is the longest.
    const quantile = (share: number) => lags[Math.ceil(share * lags.length) - 1];
    const [p50, p99] = [quantile(0.5), quantile(0.99)];
    return { stage, samples: lags.length, p50, p99, ...waitingOf(waiting[stage]) };
  });
  return { from, stages, life: [] };
}

const LAG = 'linger_removal_lag_seconds';
const UNRESOLVED = 'linger_removals_unresolved';
const OLDEST = 'linger_removals_oldest_unresolved_seconds';

/**
 * Reads what /metrics of a Linger says of lags.
 * @returns undefined when there is nothing of it: another program's, or a Linger that measures nothing
 * @throws MalformedExposition
 */
export function readLagScrape(text: string): Exposition | undefined {
  const exposition = parseExposition(text, new Set([`${LAG}_bucket`, UNRESOLVED, OLDEST]));
  return exposition.has(`${LAG}_bucket`) ? exposition : undefined;
}

/** @param first undefined when there is but one scrape: then nothing is known of now but what is waiting */
export function scrapedLag(from: string, first: Exposition | undefined, last: Exposition): LagFacts {
  const growth = first === undefined ? new Map() : growthBetween(first, last);
  return {
    from,
    stages: LAG_STAGES.map((stage) => scrapedStage(stage, growth, last)),
    life: LAG_STAGES.map((stage) => scrapedStage(stage, last, last)),
  };
}

/** @param ended what says which removals have ended @param now what says which are waiting */
function scrapedStage(stage: LagStage, ended: Exposition, now: Exposition): StageFacts {
  const mine: Choice = (labels) => labels.get('stage') === stage;
  const within = bucketsOf(ended, LAG, mine);
  // Several replicas' scrapes in one file: each sees every removal, so the most that one says.
  const most = (name: string) => Math.max(0, ...chosen(now, name, mine).map(({ value }) => value));
  return {
    stage,
    samples: within.get(Number.POSITIVE_INFINITY) ?? 0,
    p50: quantileOf(within, 0.5),
    p99: quantileOf(within, 0.99),
    ...waitingOf({ count: most(UNRESOLVED), oldestSeconds: most(OLDEST) }),
  };
}

/** Interpolated within its bucket, as Prometheus' histogram_quantile does. @returns undefined without samples */
function quantileOf(within: ReadonlyMap<number, number>, share: number): number | undefined {
  const total = within.get(Number.POSITIVE_INFINITY) ?? 0;
  if (total <= 0) return undefined;
  const rank = share * total;
  let [lower, below] = [0, 0];
  for (const [edge, count] of within) {
    if (count >= rank) {
      if (edge === Number.POSITIVE_INFINITY) return lower;
      return lower + ((edge - lower) * (rank - below)) / (count - below);
    }
    [lower, below] = [edge, count];
  }
  return lower;
}

function waitingOf({ count, oldestSeconds }: WaitingByStage[LagStage]) {
  return { waiting: count, oldestSeconds: count > 0 ? oldestSeconds : undefined };
}
