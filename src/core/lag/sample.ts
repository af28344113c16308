/**
 * What of the control plane a lag belongs to. Slices and Endpoints are written by different controllers with
 * separate rate limits, so they are measured apart.
 */
export const LAG_STAGES = ['EndpointSlice', 'Endpoints'] as const;
export type LagStage = (typeof LAG_STAGES)[number];

/** One endpoint removal that was seen from its beginning to its end. */
export interface LagSample {
  readonly stage: LagStage;
  readonly namespace: string;
  /** The Service whose slices or Endpoints withdrew the pod. */
  readonly name: string;
  /** Seconds from the start of the termination until the withdrawal showed. */
  readonly lag: number;
  /** When the withdrawal showed: milliseconds of the caller's monotonic clock. */
  readonly at: number;
}

/** A sample and whose removal it was. */
export interface RemovalSample extends LagSample {
  /** Of the pod. */
  readonly uid: string;
}
