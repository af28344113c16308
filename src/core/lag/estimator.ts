import { BUCKETS } from './buckets.ts';
import { addTo, type Density, type MeasuredLag, totalOf } from './distribution.ts';
import { ENDPOINT_SOURCES, type EndpointSource, type StageSample } from './events.ts';
import { HeavyHitters } from './heavy-hitters.ts';
import { Histogram } from './histogram.ts';
import { type HistoryPart, LagHistory, type Period } from './lag-history.ts';
import { OWN_SAMPLES } from './planned-lag.ts';
import type { UnresolvedRemoval } from './recorder.ts';

const MINUTE_SECONDS = 60;

/**
 * The window of the current lag: long enough to hold a rollout's removals, short enough that a storm appears and disappears
 * quickly.
 */
const MINUTES = 5;

/**
 * The lags that ended in the last 4 to 5 minutes, by minute of the wall clock. With minutes since each replica's own start,
 * replicas would report a storm for up to a minute longer than others. Instants are seconds since the epoch.
 */
class RecentLags {
  readonly #minutes = new Map<number, Histogram>();

  record(lagSeconds: number, epochSeconds: number): void {
    const minute = Math.floor(epochSeconds / MINUTE_SECONDS);
    if (!this.#minutes.has(minute)) {
      this.#forget(minute);
      this.#minutes.set(minute, new Histogram());
    }
    this.#minutes.get(minute)?.record(lagSeconds);
  }

  /** Counts by bucket; all zeros if no lag ended recently. */
  counts(epochSeconds: number): Density {
    this.#forget(Math.floor(epochSeconds / MINUTE_SECONDS));
    const all = new Float64Array(BUCKETS);
    for (const { counts } of this.#minutes.values()) addTo(all, counts);
    return all;
  }

  /**
   * Drops old minutes. Minutes in the future are dropped too, or they would stay after a clock was set back; the next one is
   * kept, since the clock may only have been corrected slightly.
   */
  #forget(current: number): void {
    for (const minute of this.#minutes.keys())
      if (minute <= current - MINUTES || minute > current + 1) this.#minutes.delete(minute);
  }
}

/**
 * The distribution of lags where some have not ended yet: the product-limit estimator (Kaplan and Meier, 1958).
 *
 * `ended[bucket]` lags ended in that bucket; `waiting[bucket]` have reached that age and have not ended. The weight of a
 * waiting lag is distributed over the lags that ended later than its age; at equal age, ended ones come first. Where nothing
 * ended later, the weight goes to the longest age of all (Efron's rule for the tail).
 *
 * @returns a distribution of total 1, or undefined when there is neither an ended nor a waiting lag
 */
export function withWaiting(ended: Density, waiting: Density): Density | undefined {
  const reached = Float64Array.from(ended);
  addTo(reached, waiting);
  const longest = reached.findLastIndex((count) => count > 0);
  if (longest < 0) return undefined;
  let atRisk = totalOf(reached);
  const density = new Float64Array(BUCKETS);
  let surviving = 1;
  for (let bucket = 0; bucket <= longest; bucket += 1) {
    const ends = ended[bucket] ?? 0;
    if (ends > 0) {
      const share = surviving * Math.min(1, ends / atRisk);
      density[bucket] = share;
      surviving -= share;
    }
    atRisk -= reached[bucket] ?? 0;
  }
  density[longest] = (density[longest] ?? 0) + Math.max(0, surviving);
  return density;
}

/** Limited, because histories of namespaces cost memory, and room in the stored history. */
const NAMESPACES_KEPT = 50;

/** A withdrawal that has not happened yet for a terminating pod. */
export type WaitingRemoval = Pick<UnresolvedRemoval, 'stage' | 'namespace' | 'uid' | 'since'>;

/** The same moment by both clocks. */
export interface Moment {
  /** Milliseconds of the monotonic clock. */
  readonly instant: number;
  readonly epochSeconds: number;
}

class Scope {
  readonly history = new LagHistory();
  /** Lags of whole pods: from the deletion until the last slice or Endpoints object has withdrawn the pod. */
  readonly recent = new RecentLags();
  readonly stages: Readonly<Record<EndpointSource, RecentLags>> = {
    EndpointSlice: new RecentLags(),
    Endpoints: new RecentLags(),
  };
}

/**
 * The control plane's lag, for the cluster and for its busiest namespaces, with one sample per removed pod. It has no
 * clock: `epochSeconds` is the caller's wall clock, `instant` its monotonic milliseconds.
 */
export class LagEstimator {
  readonly #cluster = new Scope();
  readonly #namespaces: HeavyHitters<Scope>;

  constructor(namespacesKept: number = NAMESPACES_KEPT) {
    this.#namespaces = new HeavyHitters(namespacesKept, () => new Scope());
  }

  /** Records a removed pod: the time until the last object that listed it withdrew it. */
  record({ namespace, lag }: Pick<StageSample, 'namespace' | 'lag'>, epochSeconds: number): void {
    // Weighted by duration: a namespace with few but long lags must get a history of its own, or its lags could not be
    // capped in the cluster's.
    const own = this.#namespaces.count(namespace, epochSeconds, 1 + lag);
    for (const scope of [this.#cluster, own]) {
      scope?.history.record(lag, epochSeconds);
      scope?.recent.record(lag, epochSeconds);
    }
  }

  /** Records the withdrawal of a pod in one stage. It counts only for the current lag by stage. */
  recordStage(sample: Pick<StageSample, 'stage' | 'namespace' | 'lag'>, epochSeconds: number): void {
    const { stage, namespace, lag } = sample;
    this.#cluster.stages[stage].record(lag, epochSeconds);
    this.#namespaces.kept.get(namespace)?.stages[stage].record(lag, epochSeconds);
  }

  get cluster(): LagHistory {
    return this.#cluster.history;
  }

  get namespaces(): ReadonlyMap<string, LagHistory> {
    return new Map([...this.#namespaces.kept].map(([name, { history }]) => [name, history]));
  }

  /**
   * The lag of the last 7 days as measured: the namespace's own if it has at least {@link OWN_SAMPLES}, else the cluster's.
   * @returns undefined when nothing was measured
   */
  measured(namespace: string | undefined, epochSeconds: number): MeasuredLag | undefined {
    const scope = namespace === undefined ? undefined : this.#namespaces.kept.get(namespace);
    const own = scope?.history.window(epochSeconds, 0);
    const isOwn = own !== undefined && own.samples >= OWN_SAMPLES;
    const week = isOwn ? own : this.cluster.window(epochSeconds, 0);
    return week && { ...week, scope: isOwn ? 'namespace' : 'cluster', density: week.counts, stages: [] };
  }

  /**
   * The lag of the last minutes, of one namespace or (undefined) of the cluster. Removals that have not ended count by their
   * age; see {@link withWaiting}.
   * @returns undefined when nothing ended recently and nothing is waiting
   */
  now(
    namespace: string | undefined,
    { instant, epochSeconds }: Moment,
    waiting: Iterable<WaitingRemoval>,
  ): MeasuredLag | undefined {
    const scope = namespace === undefined ? this.#cluster : this.#namespaces.kept.get(namespace);
    const ages = { EndpointSlice: new Histogram(), Endpoints: new Histogram() };
    const pods = new Map<string, number>();
    for (const removal of waiting) {
      if (namespace !== undefined && removal.namespace !== namespace) continue;
      const age = Math.max(0, (instant - removal.since) / 1000);
      ages[removal.stage].record(age);
      pods.set(removal.uid, Math.max(age, pods.get(removal.uid) ?? 0));
    }
    const podAges = new Histogram();
    for (const age of pods.values()) podAges.record(age);
    const lagOf = (recent: RecentLags | undefined, waitingAges: Histogram) => {
      const ended = recent?.counts(epochSeconds) ?? new Float64Array(BUCKETS);
      const density = withWaiting(ended, waitingAges.counts);
      return density && { samples: totalOf(ended) + waitingAges.total, density };
    };
    const whole = lagOf(scope?.recent, podAges);
    if (whole === undefined) return undefined;
    const stages = ENDPOINT_SOURCES.flatMap((stage) => {
      const lag = lagOf(scope?.stages[stage], ages[stage]);
      return lag === undefined ? [] : [{ stage, ...lag }];
    });
    const historySeconds = Math.max(MINUTES * MINUTE_SECONDS, ...pods.values());
    return { scope: namespace === undefined ? 'cluster' : 'namespace', historySeconds, stages, ...whole };
  }

  /** Most important first: the cluster’s history, then those of the busiest namespaces. */
  *parts(now: number): Generator<HistoryPart> {
    yield* this.cluster.parts(CLUSTER_KEY, now);
    const weighed = [...this.namespaces].map(([name, history]) => ({
      name,
      history,
      weight: history.weight,
    }));
    for (const { name, history } of weighed.sort((a, b) => b.weight - a.weight))
      yield* history.parts(`${NAMESPACE_KEY}${name}`, now);
  }

  /** Merges a part that an earlier process or another replica has stored. @returns false for anything else */
  restorePart(json: unknown, now: number): boolean {
    const part = LagHistory.readPart(json);
    if (part?.key === CLUSTER_KEY) this.cluster.merge(part.history, now);
    else if (part?.key.startsWith(NAMESPACE_KEY) === true) {
      const name = part.key.slice(NAMESPACE_KEY.length);
      // Only the weight that the part added is counted: removals may have been recorded before it, and a history has several
      // parts.
      const kept = this.#namespaces.kept.get(name);
      const before = kept?.history.weight ?? 0;
      kept?.history.merge(part.history, now);
      const weight = (kept?.history ?? part.history).weight - before;
      const scope = this.#namespaces.count(name, now, weight);
      if (kept === undefined) scope?.history.merge(part.history, now);
    } else return false;
    return true;
  }

  /**
   * Removes a span from a namespace's history, or (undefined) from all. @returns how many removals of the scope were in
   * it
   */
  forget(namespace: string | undefined, { from, to }: Period): number {
    if (namespace !== undefined) return this.#namespaces.kept.get(namespace)?.history.forget(from, to) ?? 0;
    for (const { history } of this.#namespaces.kept.values()) history.forget(from, to);
    return this.cluster.forget(from, to);
  }
}

const CLUSTER_KEY = 'cluster';
const NAMESPACE_KEY = 'namespace/';
