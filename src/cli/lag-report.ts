import { type NamespaceRecord, unseenNamespace } from '../core/api/index.ts';
import { type ClusterSnapshot, namespaceView } from '../core/decision/index.ts';
import {
  BUILT_IN_ENOUGH,
  CONTROL_PLANE,
  type Density,
  type LagHistory,
  type Lags,
  lagsOf,
  stepsOf,
  totalOf,
  wholeOf,
} from '../core/lag/index.ts';
import type { LagReport } from '../dashboard/index.ts';

/** Seconds. The edges differ by a factor of about three; lags that differ by less are similar. */
const EDGES = [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300] as const;

const MOST_POINTS = 200;
const NAMED = [50, 90, 99] as const;

/** @param now seconds since the epoch */
export function lagReportOf(
  scopes: ReadonlyMap<string, () => LagHistory>,
  scope: string,
  snapshot: ClusterSnapshot | undefined,
  now: number,
): Omit<LagReport, 'unseen'> | undefined {
  const history = scopes.get(scope)?.();
  if (history === undefined) return undefined;
  const [, own] = /^namespace\/(.+)$/.exec(scope) ?? [];
  const about = [...(snapshot?.namespaces.values() ?? [])].filter(({ name }) => (own ?? name) === name);
  const plane = densityOf(history, now);
  const parts =
    !/^(?:cluster$|namespace\/)/.test(scope) || !snapshot ? [] : partsOf(scopes, plane, own, snapshot, now);
  const consumers = parts.slice(1).flatMap(({ density }) => density ?? []);
  const { samples } = curveOf(plane);
  const { curve, quantile, covered } = curveOf(wholeOf(plane, consumers));
  return {
    asOf: now,
    scopes: [...scopes.keys()].toSorted(),
    scope,
    samples,
    p50: quantile(50),
    p90: quantile(90),
    p99: quantile(99),
    max: quantile(100),
    edges: [...EDGES],
    spans: [...history.spans()].map(({ from, to, lags: ended }) => ({ from, to, counts: bandsOf(ended) })),
    distribution: curve,
    parts: parts.map(({ density, ...part }) => {
      const of = curveOf(density);
      const [p50, p99] = density === undefined ? [null, null] : [of.quantile(50), of.quantile(99)];
      return { ...part, p50, p99, distribution: of.curve };
    }),
    waits: waitsOf(about, snapshot).map(({ seconds, namespaces }) => ({
      seconds,
      namespaces: namespaces.length,
      covered: covered(seconds),
    })),
    episodes: [...history.episodes(now, 0)].map((each) => ({ scope, ...each })),
  };
}

/** The distribution of lags on which waits are based; undefined: there are none. */
function densityOf(history: LagHistory | undefined, now: number): Density | undefined {
  return history?.window(now, BUILT_IN_ENOUGH.minSamples)?.counts;
}

/** The parts of the lag for pods of an ordinary Service, the control plane first. @param namespace undefined: any */
function partsOf(
  scopes: ReadonlyMap<string, () => LagHistory>,
  plane: Density | undefined,
  namespace: string | undefined,
  snapshot: ClusterSnapshot,
  now: number,
) {
  const record = snapshot.namespaces.get(namespace ?? '') ?? unseenNamespace(namespace ?? '');
  return namespaceView(record, snapshot).lag.parts.map(({ name, source }) => {
    const isDeclared = source === 'declared';
    const density =
      name === CONTROL_PLANE
        ? plane
        : isDeclared
          ? snapshot.consumers.find((each) => each.name === name)?.declared
          : densityOf(scopes.get(`consumer/${name}/removal`)?.(), now);
    const known = isDeclared ? 'declared' : density === undefined ? 'unknown' : 'measured';
    return { name, density, source: known, samples: isDeclared ? 0 : curveOf(density).samples } as const;
  });
}

function bandsOf(lags: readonly (readonly [seconds: number, count: number])[]): readonly number[] {
  const counts: number[] = Array(EDGES.length + 1).fill(0);
  for (const [lag, count] of lags) {
    const band = EDGES.findIndex((edge) => lag <= edge);
    const at = band < 0 ? EDGES.length : band;
    counts[at] = (counts[at] ?? 0) + count;
  }
  return counts;
}

/** The curve for a distribution of lags; without any lags, all values are 0. */
export function curveOf(density: Density | undefined) {
  const samples = density === undefined ? 0 : totalOf(density);
  const lags = density === undefined || samples === 0 ? undefined : lagsOf(density);
  const steps = density === undefined ? [] : stepsOf(density);
  const every = Math.ceil(steps.length / MOST_POINTS);
  // The curve includes the points that the page also states in words.
  const named = new Set(
    NAMED.map((percentile) => steps.findIndex(([seconds]) => seconds === lags?.quantile(percentile))),
  );
  return {
    samples,
    // The last point must be the longest lag.
    curve: steps.filter((_, index) => (steps.length - 1 - index) % every === 0 || named.has(index)),
    quantile: (percentile: number) => lags?.quantile(percentile) ?? 0,
    /** The share of removals that were complete within this many seconds. */
    covered: (seconds: number) => lags?.coverage(seconds) ?? 0,
  };
}

/** Seconds: the shortest lag on the axis. */
const SHORTEST = 0.001;

/** The curve of a distribution of which only coverages are known, exact at the drawn points. @param longest seconds */
export function sampledCurve({ coverage }: Pick<Lags, 'coverage'>, longest: number) {
  const growth = Math.max(longest, 2 * SHORTEST) / SHORTEST;
  return Array.from({ length: MOST_POINTS }, (_, index) => {
    const seconds = SHORTEST * growth ** (index / (MOST_POINTS - 1));
    return [seconds, coverage(seconds)] as const;
  });
}

type View = ReturnType<typeof namespaceView>;

/** Cached, because computing them for hundreds of namespaces takes a while. */
const viewsKept = new WeakMap<ClusterSnapshot, Map<string, View>>();

function viewOf(namespace: NamespaceRecord, snapshot: ClusterSnapshot): View {
  const kept = viewsKept.get(snapshot) ?? new Map<string, View>();
  viewsKept.set(snapshot, kept);
  const view = kept.get(namespace.name) ?? namespaceView(namespace, snapshot);
  kept.set(namespace.name, view);
  return view;
}

/** What pods of these namespaces get without annotations and without policies that select pods, shortest wait first. */
export function waitsOf(namespaces: readonly NamespaceRecord[], snapshot: ClusterSnapshot | undefined) {
  if (snapshot === undefined) return [];
  const views = namespaces.map((each) => viewOf(each, snapshot)).filter(({ mode }) => mode !== 'Off');
  return [...Map.groupBy(views, ({ seconds, hold }) => `${seconds} ${hold?.min} ${hold?.max}`).values()]
    .flatMap((these) => {
      const [first] = these;
      return first === undefined ? [] : [{ seconds: first.seconds, hold: first.hold, namespaces: these }];
    })
    .toSorted((a, b) => a.seconds - b.seconds);
}
