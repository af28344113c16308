import { LagEstimator } from '../../src/core/lag/estimator.ts';
import { NOTHING_PLANNED, nextPlanned, type PlannedTable } from '../../src/core/lag/planned.ts';
import { plannedLags } from '../../src/core/lag/planned-lags.ts';
import type { LagSample } from '../../src/core/lag/sample.ts';
import { chooseWait, type WaitChoice } from '../../src/core/plan/wait.ts';
import { BUILT_IN_POLICY } from '../../src/core/policy/values.ts';

export interface SimulatedDays {
  readonly days: number;
  /** What was measured with nothing going on, and in a storm. */
  readonly calm: readonly LagSample[];
  readonly storm: readonly LagSample[];
  /** Hours after the beginning at which the storm strikes, as it was measured, all of it. */
  readonly stormsAt: readonly number[];
  readonly calmTerminationsPerHour: number;
}

/** The wait that the built-in policy comes to, at an hour since the beginning. */
export interface PlannedWait {
  readonly hour: number;
  readonly choice: WaitChoice;
}

/** Any; whole slices from there. */
const EPOCH = 1_800_000_000;
const HOUR = 3_600;
/** A wait rises when a longer lag has held for ten minutes: with steps as long, whatever may rise does. */
const STEP_SECONDS = 600;

/** Lives through days of which only the lags are real. */
export function simulateDays(simulation: SimulatedDays): readonly PlannedWait[] {
  const estimator = new LagEstimator();
  const waits: PlannedWait[] = [];
  let table: PlannedTable = NOTHING_PLANNED;
  for (let seconds = 0; seconds < simulation.days * 24 * HOUR; seconds += STEP_SECONDS) {
    for (const sample of samplesOf(simulation, seconds)) {
      estimator.record({ ...sample, at: seconds * 1000 }, EPOCH + seconds);
    }
    const now = EPOCH + seconds + STEP_SECONDS;
    table = nextPlanned(table, estimator.candidates(now), now);
    // Of no namespace in particular: the cluster's.
    const choice = chooseWait(BUILT_IN_POLICY, plannedLags(table).planned('', []));
    waits.push({ hour: (seconds + STEP_SECONDS) / HOUR, choice });
  }
  return waits;
}

/** Those of one step: calm ones in turn, and all of a storm that begins in it. */
function samplesOf(
  { calm, storm, stormsAt, calmTerminationsPerHour }: SimulatedDays,
  seconds: number,
): readonly LagSample[] {
  const perStep = (calmTerminationsPerHour * STEP_SECONDS) / HOUR;
  const stages = Map.groupBy(calm, ({ stage }) => stage);
  const first = (seconds / STEP_SECONDS) * perStep;
  const quiet = [...stages.values()].flatMap((samples) =>
    Array.from({ length: perStep }, (_, index) => samples[(first + index) % samples.length] as LagSample),
  );
  const strikes = stormsAt.some((hour) => hour * HOUR >= seconds && hour * HOUR < seconds + STEP_SECONDS);
  return strikes ? [...quiet, ...storm] : quiet;
}
