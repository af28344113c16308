import { lagOf } from '../cluster-suite/support/agreement.ts';
import type { TrueRemoval } from '../cluster-suite/support/endpoint-history.ts';
import type { HeldPod } from './churn.ts';

export interface Slope {
  /** Per hour. */
  readonly perHour: number;
  /** Its standard error, per hour. */
  readonly error: number;
  readonly first: number;
  readonly last: number;
}

/** The line of least squares through values at instants (milliseconds). */
export function slopeOf(points: readonly (readonly [at: number, value: number])[]): Slope {
  const count = points.length;
  const mean = (values: readonly number[]) => values.reduce((sum, each) => sum + each, 0) / count;
  const hours = points.map(([at]) => (at - (points[0]?.[0] ?? 0)) / 3_600_000);
  const values = points.map(([, value]) => value);
  const [meanHour, meanValue] = [mean(hours), mean(values)];
  const spread = hours.reduce((sum, hour) => sum + (hour - meanHour) ** 2, 0);
  const shared = hours.reduce((sum, hour, i) => sum + (hour - meanHour) * ((values[i] ?? 0) - meanValue), 0);
  const perHour = shared / spread;
  const off = values.reduce(
    (sum, value, i) => sum + (value - meanValue - perHour * ((hours[i] ?? 0) - meanHour)) ** 2,
    0,
  );
  const error = Math.sqrt(off / (count - 2) / spread);
  return { perHour, error, first: values[0] ?? Number.NaN, last: values.at(-1) ?? Number.NaN };
}

/** By stage: how many lags, and how many longer than each bound (seconds). */
export type Lags = ReadonlyMap<
  string,
  { readonly count: number; readonly above: ReadonlyMap<number, number> }
>;

/** What a page of metrics says of lags. */
export function lagsIn(page: readonly string[]): Lags {
  const found = new Map<string, { count: number; above: Map<number, number> }>();
  const of = (stage: string) => {
    const known = found.get(stage) ?? { count: 0, above: new Map<number, number>() };
    found.set(stage, known);
    return known;
  };
  for (const line of page) {
    const [, kind, labels = '', value] =
      /^linger_removal_lag_seconds_(bucket|count)\{(.*)\} (\S+)$/.exec(line) ?? [];
    const stage = /stage="(\w+)"/.exec(labels)?.[1];
    if (stage === undefined) continue;
    if (kind === 'count') of(stage).count = Number(value);
    const bound = /le="([\d.e+-]+)"/.exec(labels)?.[1];
    if (kind === 'bucket' && bound !== undefined) of(stage).above.set(Number(bound), Number(value));
  }
  for (const { count, above } of found.values())
    for (const [bound, within] of above) above.set(bound, count - within);
  return found;
}

/** Events reach a replica this much later than the API server's account says, on a machine that does much else. Seconds. */
const TOLERANCE = 0.5;

/** Lags that a replica counted between two pages, and that no removal of the account can have had. */
export function inventedLags(before: Lags, after: Lags, truth: readonly TrueRemoval[]): readonly string[] {
  return [...after].flatMap(([stage, { count, above }]) => {
    const was = before.get(stage);
    const lags = truth.filter((each) => each.stage === stage).map((each) => lagOf(each) / 1_000);
    const inventions: string[] = [];
    const samples = count - (was?.count ?? 0);
    if (samples > lags.length) inventions.push(`${stage}: ${samples} samples of ${lags.length} removals`);
    for (const [bound, now] of above) {
      const longer = now - (was?.above.get(bound) ?? 0);
      const most = lags.filter((lag) => lag > bound - TOLERANCE).length;
      if (longer > most)
        inventions.push(`${stage}: ${longer} samples longer than ${bound} s of ${most} removals`);
    }
    return inventions;
  });
}

/** What a replica has counted between two pages. */
export function sampleCount(before: Lags, after: Lags): number {
  return [...after].reduce((sum, [stage, { count }]) => sum + count - (before.get(stage)?.count ?? 0), 0);
}

/** What may end a hold, in milliseconds; see the policies of the soak. */
export interface HoldTerms {
  readonly declaredMs: number;
  readonly syncMs: number;
  readonly staticMs: number;
  readonly maxMs: number;
}

/** Ends that were asked for in the same moment are noted in any order. */
const SAME_MOMENT_MS = 20;

/**
 * Hooks that ended before everything had dropped their pods: the objects that list them and then the declared consumers, by the
 * API server's account; the gateway, by its own page. With the static wait over, a hook may end: Linger may be unsure, or away.
 */
export function earlyHolds(
  held: readonly HeldPod[],
  truth: readonly TrueRemoval[],
  gone: ReadonlyMap<string, number>,
  { declaredMs, syncMs, staticMs }: HoldTerms,
): readonly string[] {
  const removals = Map.groupBy(truth, ({ pod }) => pod);
  return held.flatMap(({ pod: name, address, startedAt, endedAt }) => {
    if (endedAt - startedAt >= staticMs - SAME_MOMENT_MS) return [];
    const own = removals.get(name) ?? [];
    const withdrawnAt = Math.max(
      ...own.map(({ start, end, bounds: [least] }) =>
        end === undefined ? Number.POSITIVE_INFINITY : start + least,
      ),
    );
    const due = Math.max(withdrawnAt + declaredMs, (gone.get(address) ?? Number.POSITIVE_INFINITY) + syncMs);
    if (endedAt >= due - SAME_MOMENT_MS) return [];
    const said =
      own.length === 0 ? 'no removal in the account' : `${Math.round(due - endedAt)} ms before it was due`;
    return [`${name}: released after ${Math.round(endedAt - startedAt)} ms, ${said}`];
  });
}
