import type { WatchStats } from '../cluster/index.ts';
import { isRecord } from '../core/api/index.ts';
import type { DefaultWait } from '../core/decision/index.ts';
import {
  type ConsumerView,
  type Density,
  type MeasuredLag,
  type PlannedRow,
  quantileOf,
} from '../core/lag/index.ts';
import type { Measurement } from '../measurement/index.ts';

/** The state of a list-watch that the page shows. Instants are milliseconds of a monotonic clock. */
export type ShownWatch = Pick<
  WatchStats,
  'state' | 'current' | 'objects' | 'lists' | 'lastEventAt' | 'stalls' | 'handlerErrors'
> & { readonly restarts: Readonly<Record<string, number>> };

interface EstimatesSource {
  readonly measurement: Measurement;
  /** Empty if this replica does not lead, and so does not measure. */
  readonly consumers: readonly ConsumerView[];
  readonly watches: Readonly<Record<string, ShownWatch>>;
  readonly synced: boolean;
  readonly defaultWait: DefaultWait;
  readonly clock: () => number;
}

/** Enough to see which team to contact. */
const SERVICES_SHOWN = 10;

const PERCENTILES = [50, 90, 99] as const;

/** All facts about the measurement on one page, for people. Seconds throughout; null if nothing is known. */
export function estimatesPage(source: EstimatesSource): unknown {
  const { measurement, consumers, synced, watches, defaultWait, clock } = source;
  const { table } = measurement;
  const { seconds, why, origin, coverage } = defaultWait;
  return forPeople({
    synced,
    // Rounded down, so that 1 always means that every removal is covered.
    defaultWait: { seconds, why, origin, coverage: coverage && Math.floor(coverage * 1_000) / 1_000 },
    planned: {
      cluster: table.cluster && shownRow(table.cluster),
      namespaces: shownEach(table.namespaces, shownRow),
      consumers: shownEach(table.consumers, shownRow),
    },
    now: shownLag(measurement.now()),
    week: shownLag(measurement.week()),
    unresolved: {
      byStage: measurement.unresolved(),
      oldest: measurement.unresolvedServices(SERVICES_SHOWN),
    },
    discarded: measurement.discarded,
    consumers: Object.fromEntries(consumers.map((view) => [view.name, shownConsumer(view)])),
    watches: shownEach(Object.entries(watches), (watch) => shownWatch(watch, clock())),
  });
}

function shownEach<T>(all: Iterable<readonly [string, T]>, shown: (each: T) => unknown): unknown {
  return Object.fromEntries([...all].map(([name, each]) => [name, shown(each)]));
}

function shownConsumer({ name: _, condition, lastSample, ...view }: ConsumerView): unknown {
  return {
    ...view,
    lastSample: lastSample === null ? null : instantOf(lastSample),
    measured: { ...condition, since: instantOf(condition.since) },
  };
}

function instantOf(epochSeconds: number): string {
  return new Date(epochSeconds * 1000).toISOString();
}

function shownRow({ samples, historySeconds, reached, kept, slow }: PlannedRow): unknown {
  return { samples, historySeconds, reached, ...(kept && { kept }), ...percentilesOf(slow) };
}

function shownLag(lag: MeasuredLag | undefined): unknown {
  if (lag === undefined) return undefined;
  const { samples, historySeconds, density, stages } = lag;
  const byStage = stages.map((each) => [each.stage, each] as const);
  return {
    samples,
    historySeconds,
    ...percentilesOf(density),
    stages: shownEach(byStage, (each) => ({ samples: each.samples, ...percentilesOf(each.density) })),
  };
}

function percentilesOf(lag: Density): Readonly<Record<string, number>> {
  return Object.fromEntries(PERCENTILES.map((percentile) => [`p${percentile}`, quantileOf(lag, percentile)]));
}

function shownWatch({ lastEventAt, restarts, ...watch }: ShownWatch, now: number): unknown {
  const { state, current, objects, lists, stalls, handlerErrors } = watch;
  return {
    state,
    current,
    objects,
    lists,
    stalls,
    handlerErrors,
    lastEventAgeSeconds: lastEventAt === undefined ? null : (now - lastEventAt) / 1000,
    restarts: Object.fromEntries(Object.entries(restarts).filter(([, count]) => count > 0)),
  };
}

/** Rounds numbers to three digits, the precision of the histograms, and turns undefined into null. */
function forPeople(value: unknown): unknown {
  if (value === undefined) return null;
  if (typeof value === 'number') return value < 100 ? Number(value.toPrecision(3)) : Math.round(value);
  if (Array.isArray(value)) return value.map(forPeople);
  if (!isRecord(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, forPeople(each)]));
}
