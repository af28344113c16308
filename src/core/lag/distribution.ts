/**
 * How long endpoint removals take, as far as it has been measured: what the estimate gives to the decision.
 * Lags are in seconds; a coverage is a share of removals, from 0 to 1.
 */
export interface LagDistribution {
  readonly scope: 'cluster' | 'namespace';
  readonly samples: number;
  /** How far back the samples reach. */
  readonly historySeconds: number;
  /** The lag that `percentile` per cent of the removals do not exceed, e.g. 99. */
  quantile(percentile: number): number;
  /** The share of removals whose lag is at most this long. */
  coverage(seconds: number): number;
}

/** Where planned (slow, published) lags come from. Answers from memory: it is asked for every pod. */
export interface LagSource {
  /** @returns undefined while nothing has been measured */
  planned(namespace: string): LagDistribution | undefined;
}

/** No measurement yet: every wait is `initial`. */
export const NONE_YET: LagSource = { planned: () => undefined };
