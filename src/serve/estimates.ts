import type { ConsumerView, LagView } from '../core/consumers/view.ts';
import { estimateOf, type MeasuredLag } from '../core/lag/estimate.ts';
import type { PlannedRow } from '../core/lag/planned.ts';
import { plannedLag } from '../core/lag/published.ts';
import type { WaitChoice } from '../core/plan/wait.ts';
import type { Measurement } from '../measure/measurement.ts';
import type { Waiting, WaitingByStage } from '../measure/unresolved.ts';

/** One list-watch, as far as the page shows it. Instants are milliseconds of a monotonic clock. */
export interface ShownWatch {
  readonly state: string;
  readonly current: boolean;
  readonly objects: number;
  readonly lists: number;
  readonly lastEventAt: number | undefined;
  readonly restarts: Readonly<Record<string, number>>;
  readonly stalls: number;
  readonly handlerErrors: number;
}

export interface EstimatesSource {
  readonly measurement: Measurement;
  /** As far as this replica measures them: where it leads. */
  readonly consumers: readonly ConsumerView[];
  readonly watches: Readonly<Record<string, ShownWatch>>;
  readonly synced: boolean;
  readonly defaultWait: WaitChoice;
  /** Of the watches' instants. */
  readonly clock: () => number;
}

/** Enough to see which team to call. */
const SERVICES_SHOWN = 10;

const PERCENTILES = [50, 90, 99] as const;

/**
 * Everything about the measurement on one page, for people: what waits are planned with, what the lag is now, what has
 * not been withdrawn yet, and whether the watches are well. Seconds throughout; null where nothing is known.
 */
export function estimatesPage(source: EstimatesSource): unknown {
  const { measurement, consumers, synced, watches, clock } = source;
  const { table } = measurement;
  return {
    synced,
    defaultWait: shownWait(source.defaultWait),
    planned: {
      cluster: table.cluster === undefined ? null : shownRow(table.cluster),
      namespaces: shownRows(table.namespaces),
      consumers: shownRows(table.consumers),
    },
    now: shownLag(measurement.now()),
    week: shownLag(measurement.week()),
    unresolved: {
      byStage: shownStages(measurement.unresolved()),
      oldest: measurement.unresolvedServices(SERVICES_SHOWN).map(shownWaiting),
    },
    discarded: measurement.discarded,
    consumers: Object.fromEntries(consumers.map((view) => [view.name, shownConsumer(view)])),
    watches: Object.fromEntries(
      Object.entries(watches).map(([resource, watch]) => [resource, shownWatch(watch, clock())]),
    ),
  };
}

function shownWait({ seconds, why, origin, lag }: WaitChoice): unknown {
  return { seconds, why, origin, coverage: lag?.coverage(seconds) ?? null };
}

function shownRows(rows: ReadonlyMap<string, PlannedRow>): unknown {
  return Object.fromEntries([...rows].map(([name, row]) => [name, shownRow(row)]));
}

function shownConsumer({
  measure,
  removals,
  additions,
  lastSample,
  instances,
  condition,
  limits,
}: ConsumerView) {
  const { status, reason, message, since } = condition;
  return {
    measure,
    removals: shownTiming(removals),
    additions: shownTiming(additions),
    lastSample: lastSample === null ? null : new Date(lastSample * 1000).toISOString(),
    instances,
    measured: { status, reason, message, since: new Date(since * 1000).toISOString() },
    limits,
  };
}

function shownTiming(lag: LagView | null): unknown {
  return lag === null ? null : { samples: lag.samples, p50: rounded(lag.p50), p99: rounded(lag.p99) };
}

function shownRow(row: PlannedRow): unknown {
  const { samples, historySeconds, latest } = row;
  const latestSample = new Date(latest * 1000).toISOString();
  return {
    samples,
    historySeconds: rounded(historySeconds),
    latestSample,
    ...percentilesOf(plannedLag(row)),
  };
}

function shownLag(lag: MeasuredLag | undefined): unknown {
  if (lag === undefined) return null;
  const { samples, historySeconds, stages } = lag;
  const byStage = stages.map(({ stage, samples: count, density }) => [
    stage,
    { samples: count, ...percentilesOf({ ...lag, density }) },
  ]);
  const byStageShown: unknown = Object.fromEntries(byStage);
  return { samples, historySeconds: rounded(historySeconds), ...percentilesOf(lag), stages: byStageShown };
}

function percentilesOf(lag: MeasuredLag): Readonly<Record<string, number>> {
  return Object.fromEntries(
    PERCENTILES.map((percentile) => [`p${percentile}`, rounded(estimateOf(lag, percentile).value)]),
  );
}

function shownWatch({ lastEventAt, restarts, ...watch }: ShownWatch, now: number): unknown {
  const { state, current, objects, lists, stalls, handlerErrors } = watch;
  return {
    state,
    current,
    objects,
    lists,
    lastEventAgeSeconds: lastEventAt === undefined ? null : rounded((now - lastEventAt) / 1000),
    restarts: Object.fromEntries(Object.entries(restarts).filter(([, count]) => count > 0)),
    stalls,
    handlerErrors,
  };
}

function shownStages(waiting: WaitingByStage): unknown {
  return Object.fromEntries(Object.entries(waiting).map(([stage, each]) => [stage, shownWaiting(each)]));
}

function shownWaiting<T extends Waiting>(waiting: T): T {
  return { ...waiting, oldestSeconds: rounded(waiting.oldestSeconds) };
}

/** Three digits: histograms are that good, and people read no more. */
function rounded(value: number): number {
  return value < 100 ? Number(value.toPrecision(3)) : Math.round(value);
}
