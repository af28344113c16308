import type { Density } from './combine.ts';

/**
 * How long it takes until nobody sends new connections to a removed endpoint, as far as it is known: what the estimate
 * gives to the decision. Lags are in seconds; a coverage is a share of removals, from 0 to 1.
 */
export interface LagDistribution {
  readonly scope: 'cluster' | 'namespace';
  /** Of the part of which the fewest are known. */
  readonly samples: number;
  /** How far back the samples reach, of the part that is known for the shortest time. */
  readonly historySeconds: number;
  /** What it is made of, where consumers apply; absent: the control plane alone. */
  readonly combined?: CombinedLag;
  /** The lag that `percentile` per cent of the removals do not exceed, e.g. 99. */
  quantile(percentile: number): number;
  /** The share of removals whose lag is at most this long. */
  coverage(seconds: number): number;
}

/** The control plane's lag and those of the consumers that apply. */
export interface CombinedLag {
  /** undefined: not measured yet, so the consumers' parts stand alone. */
  readonly controlPlane: LagPart | undefined;
  readonly consumers: readonly ConsumerPart[];
  /** Consumers that apply and of which nothing is known yet: no wait can be taken from what is known of the others. */
  readonly unmeasured: readonly string[];
  /** The slowest of those whose lag somebody has declared: true before anything is measured. */
  readonly declared: Pick<LagDistribution, 'quantile' | 'coverage'> | undefined;
}

/** One part of a combined lag. */
export interface LagPart extends Pick<LagDistribution, 'quantile'> {
  readonly samples: number;
  readonly historySeconds: number;
}

export interface ConsumerPart extends LagPart {
  readonly name: string;
  readonly source: 'measured' | 'declared';
}

/** A consumer whose own lag follows the control plane's. */
export interface LaggingConsumer {
  readonly name: string;
  /** The same for two that are known to lag alike: for what is computed of it to be kept. */
  readonly lagKey: string;
  /** What somebody says of its lag; undefined: it is measured. */
  readonly declared: Density | undefined;
  /** Left out until it has been measured often enough, where others make waits `initial` until then. */
  readonly builtIn: boolean;
}

/** Where planned (slow, published) lags come from. Answers from memory: it is asked for every pod. */
export interface LagSource {
  /**
   * @param consumers those that send traffic to the pod
   * @returns undefined while nothing is known
   */
  planned(namespace: string, consumers: readonly LaggingConsumer[]): LagDistribution | undefined;
}
