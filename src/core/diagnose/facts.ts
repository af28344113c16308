import type { LagStage } from '../lag/sample.ts';
import type { ControllerActivity } from './controller-activity.ts';
import type { ControllerFlags } from './controller-flags.ts';

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

/** The priority level that the API server puts the controller-manager's requests into, over the interval. */
export interface PriorityFacts {
  readonly level: string;
  /** Requests that wait for a seat, at the end. */
  readonly waiting: number;
  readonly rejected: number;
  readonly timedOut: number;
}

/** The looks that tell whether the controller-manager's metrics were seen. */
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
