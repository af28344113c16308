import type { NamespaceRecord } from '../api/index.ts';
import type { LagReport } from '../dashboard/index.ts';
import { type ClusterSnapshot, namespaceView } from '../decision/index.ts';
import { type LagHistory, lagsOf, stepsOf, totalOf } from '../lag/index.ts';

/** Seconds. A factor of about three: what differs by less is no other kind of lag. */
const EDGES = [0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300] as const;

/** A curve needs no more. */
const MOST_POINTS = 200;

/** What is drawn of the history of one scope. @param now seconds since the epoch */
export function lagReportOf(
  scopes: ReadonlyMap<string, LagHistory>,
  scope: string,
  snapshot: ClusterSnapshot | undefined,
  now: number,
): Omit<LagReport, 'unseen'> | undefined {
  const history = scopes.get(scope);
  if (history === undefined) return undefined;
  const spans = [...history.spans()];
  const { samples, curve, quantile, covered } = curveOf(history);
  const [, own] = /^namespace\/(.+)$/.exec(scope) ?? [];
  const about = [...(snapshot?.namespaces.values() ?? [])].filter(({ name }) => (own ?? name) === name);
  const every = Math.ceil(curve.length / MOST_POINTS);
  return {
    asOf: now,
    scopes: [...scopes.keys()].toSorted(),
    ...{ scope, samples, p50: quantile(50), p90: quantile(90), p99: quantile(99) },
    max: quantile(100),
    edges: [...EDGES],
    spans: spans.map(({ from, to, lags: ended }) => ({ from, to, counts: bandsOf(ended) })),
    // The last point is the longest lag.
    distribution: curve.filter((_, index) => (curve.length - 1 - index) % every === 0),
    waits: waitsOf(about, snapshot).map((each) => ({ ...each, covered: covered(each.seconds) })),
    episodes: [...history.episodes(now, 0)].map(({ from, to, removals }) => ({ from, to, removals })),
  };
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

/** The distribution of all lags of a history; of one without lags, all is 0. */
export function curveOf({ counts }: LagHistory) {
  const samples = totalOf(counts);
  const { quantile, coverage } = lagsOf(counts);
  return {
    samples,
    curve: stepsOf(counts),
    quantile: (percentile: number) => (samples === 0 ? 0 : quantile(percentile)),
    /** The share of removals that were through within so many seconds. */
    covered: (seconds: number) => (samples === 0 ? 0 : coverage(seconds)),
  };
}

/** The waits that pods of these namespaces get, without policies and annotations of their own. */
export function waitsOf(namespaces: readonly NamespaceRecord[], snapshot: ClusterSnapshot | undefined) {
  if (snapshot === undefined) return [];
  const views = namespaces.map((each) => namespaceView(each, snapshot)).filter(({ mode }) => mode !== 'Off');
  return [...Map.groupBy(views, ({ seconds }) => seconds)]
    .map(([seconds, these]) => ({ seconds, namespaces: these.length }))
    .toSorted((a, b) => a.seconds - b.seconds);
}
