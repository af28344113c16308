import { taken } from '../../src/core/api/index.ts';
import { BUILT_IN_POLICY, chooseWait, type WaitChoice } from '../../src/core/decision/index.ts';
import {
  BUILT_IN_ENOUGH,
  LagEstimator,
  NOTHING_PLANNED,
  nextPlanned,
  type PlannedTable,
  plannedLags,
  type StageSample,
} from '../../src/core/lag/index.ts';

export interface SimulatedDays {
  readonly days: number;
  /** Lags that were measured in calm, and in a storm. */
  readonly calm: readonly StageSample[];
  readonly storm: readonly StageSample[];
  /** Hours after the beginning at which the whole measured storm strikes. */
  readonly stormsAt: readonly number[];
  readonly calmTerminationsPerHour: number;
}

/** The wait by the built-in policy, at an hour since the beginning. */
export interface PlannedWait {
  readonly hour: number;
  readonly choice: WaitChoice;
}

/** An arbitrary instant at which a slice begins. */
const EPOCH = 1_800_000_000;
const HOUR = 3_600;
/** A table is published at most every ten minutes. */
const STEP_SECONDS = 600;

/** Simulates days in which only the lags are real. */
export function simulateDays(simulation: SimulatedDays): readonly PlannedWait[] {
  const estimator = new LagEstimator();
  const waits: PlannedWait[] = [];
  let table: PlannedTable = NOTHING_PLANNED;
  for (let seconds = 0; seconds < simulation.days * 24 * HOUR; seconds += STEP_SECONDS) {
    for (const sample of removalsIn(simulation, seconds)) {
      estimator.record(sample, EPOCH + seconds);
    }
    const now = EPOCH + seconds + STEP_SECONDS;
    const { cluster, namespaces } = estimator;
    table = taken(nextPlanned(table, { cluster, namespaces, consumers: undefined }, now));
    // Not of a particular namespace: the cluster's.
    const choice = chooseWait(BUILT_IN_POLICY, plannedLags(table).planned('', [], BUILT_IN_ENOUGH));
    waits.push({ hour: (seconds + STEP_SECONDS) / HOUR, choice });
  }
  return waits;
}

interface Removal {
  readonly namespace: string;
  readonly lag: number;
}

/** A pod is removed when the last stage has withdrawn it. */
function removalsOf(samples: readonly StageSample[]): readonly Removal[] {
  const pods = Map.groupBy(samples, ({ uid }) => uid);
  return [...pods.values()].map((withdrawals) => ({
    namespace: withdrawals[0]?.namespace ?? '',
    lag: Math.max(...withdrawals.map(({ lag }) => lag)),
  }));
}

/** The lags of one step: calm ones in turn, and all lags of a storm that begins in it. */
function removalsIn(
  { calm, storm, stormsAt, calmTerminationsPerHour }: SimulatedDays,
  seconds: number,
): readonly Removal[] {
  const perStep = (calmTerminationsPerHour * STEP_SECONDS) / HOUR;
  const calmRemovals = removalsOf(calm);
  const first = (seconds / STEP_SECONDS) * perStep;
  const quiet = Array.from(
    { length: perStep },
    (_, index) => calmRemovals[(first + index) % calmRemovals.length] as Removal,
  );
  const strikes = stormsAt.some((hour) => hour * HOUR >= seconds && hour * HOUR < seconds + STEP_SECONDS);
  return strikes ? [...quiet, ...removalsOf(storm)] : quiet;
}
