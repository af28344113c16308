/** How fast, how long and how much. Milliseconds. */
export interface FlipLimits {
  /** Between two attempts through a consumer: instants are known to 50 ms, with half the replicas answering. */
  readonly everyMs: number;
  /** For an attempt: what takes longer says too little about when a replica was chosen. */
  readonly attemptMs: number;
  /** Attempts later than this were made by a process that stood still. */
  readonly standstillMs: number;
  /** How long the replica is looked for before it is removed. */
  readonly baselineMs: number;
  /** How soon the EndpointSlice must follow the label. A storm that takes longer is measured by terminations. */
  readonly followWithinMs: number;
  /** How long a consumer may take to follow the EndpointSlice. */
  readonly longestMs: number;
  /** How long a consumer that was seen may give no useful answer. */
  readonly silentMs: number;
}

export const FLIP_LIMITS: FlipLimits = {
  everyMs: 25,
  attemptMs: 2_000,
  standstillMs: 500,
  baselineMs: 5_000,
  followWithinMs: 30_000,
  longestMs: 180_000,
  silentMs: 20_000,
};
