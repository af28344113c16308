import { taken } from '../../../src/core/api/index.ts';
import { BUCKETS, secondsOf } from '../../../src/core/lag/buckets.ts';
import type { Density } from '../../../src/core/lag/distribution.ts';
import { LagHistory } from '../../../src/core/lag/lag-history.ts';
import {
  type MeasuredHistories,
  NOTHING_PLANNED,
  nextPlanned,
  type PlannedTable,
} from '../../../src/core/lag/planned-lag.ts';

/** Seconds since the epoch, at the beginning of a day. */
export const START = 20_000 * 86_400;

/** Two days before {@link START} the first lag, just before it the last. */
const SPAN = 2 * 86_400;

/** A history of so many lags of these lengths in turn, spread over two days before an instant. */
export function historyOf(
  seconds: readonly number[],
  samples = 5_000,
  until = START,
  span = SPAN,
): LagHistory {
  const history = new LagHistory();
  for (let index = 0; index < samples; index += 1) {
    history.record(seconds[index % seconds.length] ?? 0, until - span + (index * span) / samples);
  }
  history.reached(until);
  return history;
}

/** So many lags in the proportions of a density, as near as whole lags can be. */
export function historyOfDensity(density: Density, samples = 5_000): LagHistory {
  const lags: number[] = [];
  let upTo = 0;
  const total = density.reduce((sum, weight) => sum + weight, 0);
  for (let bucket = 0; bucket < BUCKETS; bucket += 1) {
    upTo += (density[bucket] ?? 0) / total;
    while (lags.length < Math.round(upTo * samples)) lags.push(secondsOf(bucket));
  }
  return historyOf(lags, samples);
}

/** The table that a leader would publish first. */
export function tableOf(
  { cluster, namespaces, consumers }: Partial<MeasuredHistories>,
  now = START,
): PlannedTable {
  const measured = {
    cluster: cluster ?? new LagHistory(),
    namespaces: namespaces ?? new Map<string, LagHistory>(),
    consumers,
  };
  return taken(nextPlanned(NOTHING_PLANNED, measured, now));
}

/** A cluster whose removals all take this long, and consumers that do. */
export function measuredTable(
  cluster: number | undefined,
  consumers: Readonly<Record<string, number>> = {},
  samples?: number,
): PlannedTable {
  return tableOf({
    ...(cluster === undefined ? {} : { cluster: historyOf([cluster]) }),
    consumers: new Map(
      Object.entries(consumers).map(([name, seconds]) => [name, historyOf([seconds], samples)]),
    ),
  });
}
