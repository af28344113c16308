import type { LagSource } from '../core/lag/distribution.ts';
import type { Measurement } from '../measure/measurement.ts';
import { pause } from '../sources/pause.ts';

/** The steps of the planned lags: a change is held back for ten minutes at least, so half a minute adds little. */
const EVERY_MS = 30_000;

/** While there are too few samples for anything to be held back: the first ones are followed at once. */
const AT_FIRST_EVERY_MS = 2_000;

export interface PlanningOptions {
  readonly signal: AbortSignal;
  readonly epochSeconds: () => number;
  /** Called with the planned lags whenever they have changed. */
  readonly onLags: (lags: LagSource) => void;
}

/** Lets the planned lags follow what this replica measures, until the signal aborts: for a replica that is alone. */
export async function planAlone(
  measurement: Measurement,
  { signal, epochSeconds, onLags }: PlanningOptions,
): Promise<void> {
  const everyMs = () => (measurement.table.cluster?.smoothed === true ? EVERY_MS : AT_FIRST_EVERY_MS);
  while (await pause(everyMs(), signal)) {
    const before = measurement.table;
    if ((await measurement.replan(epochSeconds())) !== before) onLags(measurement.lags());
  }
}
