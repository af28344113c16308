import { ELECTION_LIMITS, type ElectionLimits } from './lease-step.ts';

/** The numbers of publishing. Milliseconds unless they say otherwise. */
export interface PublishLimits {
  readonly election: ElectionLimits;
  /** How often the leader looks whether something is to be done. */
  readonly tickMs: number;
  /** Between two steps of the planned lags. */
  readonly stepMs: number;
  /** The same while there are too few samples for anything to be held back. */
  readonly firstStepMs: number;
  /** The planned lags are written when waits change, and looked after this often. */
  readonly plannedEveryMs: number;
  readonly historyEveryMs: number;
  /** From the beginning of a term to its first history. */
  readonly firstHistoryMs: number;
  /** What is told of consumers is written when it is news, at most this often; */
  readonly toldEveryMs: number;
  /** and whenever it is this old, or, in a status, this long after the last time if there are new samples. */
  readonly toldAgainMs: number;
  readonly statusAgainMs: number;
  /** From the beginning of a term: until then whoever measures has only begun. */
  readonly firstToldMs: number;
  /** After failures, for all. */
  readonly firstPauseMs: number;
  readonly longestPauseMs: number;
  /** How long a request for a ConfigMap may take. */
  readonly requestMs: number;
  /** A request that took longer, or failed, says that the API server has other things to do. */
  readonly slowMs: number;
  /** For how long that keeps histories from being written. */
  readonly calmAfterMs: number;
  /** How long the last words of a leader may take. */
  readonly handOverMs: number;
  /** The most that a snapshot of the histories may be, before gzip. Characters, all ASCII. */
  readonly historyCharacters: number;
  /** The same for the planned lags, which are not compressed. */
  readonly plannedCharacters: number;
}

export const PUBLISH_LIMITS: PublishLimits = {
  election: ELECTION_LIMITS,
  tickMs: 1_000,
  // A change is held back for ten minutes at least, so half a minute adds little.
  stepMs: 30_000,
  firstStepMs: 5_000,
  // What says only how many samples there are changes with each of them, and matters where a policy's minSamples or
  // minHistory is just being reached.
  plannedEveryMs: 300_000,
  // What is lost when a leader dies without a last word: ten minutes of the week.
  historyEveryMs: 600_000,
  firstHistoryMs: 60_000,
  // With nothing new 12 writes an hour, and 6 for each DiscoveryConsumer that is measured; with news all the time 60.
  toldEveryMs: 60_000,
  toldAgainMs: 300_000,
  statusAgainMs: 600_000,
  firstToldMs: 15_000,
  firstPauseMs: 2_000,
  longestPauseMs: 300_000,
  requestMs: 10_000,
  // Renewals take some milliseconds; the API server's own objective for them is 1 s at the 99th percentile.
  slowMs: 1_000,
  calmAfterMs: 60_000,
  // Well under the drain of 15 s, and under the time that is left of the lease.
  handOverMs: 4_000,
  // Written in 0.2 s of a processor's time, in pieces of 5 to 20 ms between which reviews are answered; four times as
  // much takes 1 s. In gzip that is 60 to 110 kB, and could not be more than half of the 1 MiB that a ConfigMap may hold
  // whatever is in it.
  historyCharacters: 500_000,
  // The cluster and 32 namespaces take 50 kB; those that have just fallen silent come on top.
  plannedCharacters: 500_000,
};
