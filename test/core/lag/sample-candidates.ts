import { exactly } from '../../../src/core/lag/combine.ts';
import type { LagDistribution } from '../../../src/core/lag/distribution.ts';
import type { Candidate, Candidates, PlannedTable } from '../../../src/core/lag/planned.ts';
import { plannedLags } from '../../../src/core/lag/planned-lags.ts';

/** Seconds since the epoch, at the beginning of a day. */
export const START = 20_000 * 86_400;

/** A scope whose lags are all this long, newly measured at `latest`. */
export function lag(seconds: number, latest: number, scope: LagDistribution['scope'] = 'cluster'): Candidate {
  const density = exactly(seconds);
  return { lag: { scope, samples: 5_000, historySeconds: 200_000, density, stages: [] }, latest };
}

/** Lags in seconds; `shop` is a namespace that speaks for itself. */
export interface Measured {
  readonly cluster: number;
  readonly shop?: number | undefined;
}

export const candidates = ({ cluster, shop }: Measured, latest: number): Candidates => ({
  cluster: lag(cluster, latest),
  namespaces: new Map(shop === undefined ? [] : [['shop', lag(shop, latest, 'namespace')]]),
});

export const p99 = (table: PlannedTable, namespace = 'nobody') =>
  Math.round(plannedLags(table).planned(namespace, [])?.quantile(99) ?? -1);
