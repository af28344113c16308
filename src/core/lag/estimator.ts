import { isRecord } from '../schema/shape.ts';
import { Busiest } from './busiest.ts';
import { withWaiting } from './censored.ts';
import { totalOf } from './combine.ts';
import { type MeasuredLag, type StageLag, slowestStage } from './estimate.ts';
import { CELLS, cellOf } from './grid.ts';
import type { Candidate, Candidates } from './planned.ts';
import { RecentLags } from './recent.ts';
import { LAG_STAGES, type LagSample, type LagStage } from './sample.ts';
import { LagHistory } from './slices.ts';
import { snapshotSteps } from './snapshot.ts';

/** Enough for a namespace to speak for itself: its p99 then rests on ten lags, not on one or two. */
export const OWN_SAMPLES = 1000;

/** Namespaces with a history of their own: the busiest. What memory and snapshot cost grows with them. */
export const NAMESPACES_KEPT = 32;

const VERSION = 1;

/** A removal that has begun and not ended. `since`: milliseconds of the monotonic clock. */
export interface WaitingRemoval {
  readonly stage: LagStage;
  readonly namespace: string;
  readonly since: number;
}

/** The same moment by both clocks. */
export interface Now {
  /** Milliseconds of the monotonic clock. */
  readonly instant: number;
  readonly epochSeconds: number;
}

type Scope = Readonly<Record<LagStage, { readonly history: LagHistory; readonly recent: RecentLags }>>;

function newScope(history: (stage: LagStage) => LagHistory = () => new LagHistory()): Scope {
  const of = (stage: LagStage) => ({ history: history(stage), recent: new RecentLags() });
  return { EndpointSlice: of('EndpointSlice'), Endpoints: of('Endpoints') };
}

/**
 * Everything measured, for the cluster and for its busiest namespaces. It has no clock: `epochSeconds` is the caller's
 * wall clock (slices of several replicas and lives must be the same), `instant` its monotonic milliseconds.
 */
export class LagEstimator {
  #cluster = newScope();
  readonly #namespaces = new Map<string, Scope>();
  readonly #busiest: Busiest;

  constructor(namespacesKept: number = NAMESPACES_KEPT) {
    this.#busiest = new Busiest(namespacesKept);
  }

  record(sample: LagSample, epochSeconds: number): void {
    const { stage, namespace, lag } = sample;
    this.#into(this.#cluster[stage], lag, epochSeconds);
    const { kept, displaced } = this.#busiest.count(namespace, epochSeconds);
    if (displaced !== undefined) this.#namespaces.delete(displaced);
    if (!kept) return;
    const scope = this.#namespaces.get(namespace) ?? newScope();
    this.#namespaces.set(namespace, scope);
    this.#into(scope[stage], lag, epochSeconds);
  }

  /** What the slow, published waits follow; see `nextPlanned`. A week of all namespaces takes some 0.2 s. */
  candidates(epochSeconds: number): Candidates {
    const steps = this.candidateSteps(epochSeconds);
    for (;;) {
      const step = steps.next();
      if (step.done === true) return step.value;
    }
  }

  /** The same, a namespace a step. What is measured in between may or may not be in it. */
  *candidateSteps(epochSeconds: number): Generator<undefined, Candidates> {
    const cluster = candidateOf('cluster', this.#cluster, epochSeconds);
    const namespaces = new Map<string, Candidate>();
    for (const [name, scope] of [...this.#namespaces]) {
      yield;
      const candidate = candidateOf('namespace', scope, epochSeconds);
      if (candidate !== undefined && candidate.lag.samples >= OWN_SAMPLES) namespaces.set(name, candidate);
    }
    return { cluster, namespaces };
  }

  /**
   * The week's lag before smoothing: the namespace's own from {@link OWN_SAMPLES} on, else the cluster's.
   * @returns undefined when nothing was measured in the last 7 days
   */
  measured(namespace: string | undefined, epochSeconds: number): MeasuredLag | undefined {
    const scope = namespace === undefined ? undefined : this.#namespaces.get(namespace);
    const own = scope && candidateOf('namespace', scope, epochSeconds);
    if (own !== undefined && own.lag.samples >= OWN_SAMPLES) return own.lag;
    return candidateOf('cluster', this.#cluster, epochSeconds)?.lag;
  }

  /**
   * The lag of the last minutes, of one namespace or (undefined) of the cluster, with the removals that still wait
   * counted by their age; see `withWaiting` for the rule.
   * @returns undefined when nothing ended lately and nothing waits
   */
  now(
    namespace: string | undefined,
    { instant, epochSeconds }: Now,
    waiting: Iterable<WaitingRemoval>,
  ): MeasuredLag | undefined {
    const scope = namespace === undefined ? this.#cluster : this.#namespaces.get(namespace);
    const ages = { EndpointSlice: new Float64Array(CELLS), Endpoints: new Float64Array(CELLS) };
    let longest = 0;
    for (const removal of waiting) {
      if (namespace !== undefined && removal.namespace !== namespace) continue;
      const age = Math.max(0, (instant - removal.since) / 1000);
      const counts = ages[removal.stage];
      const cell = cellOf(age);
      counts[cell] = (counts[cell] ?? 0) + 1;
      longest = Math.max(longest, age);
    }
    const stages = LAG_STAGES.flatMap((stage): StageLag[] => {
      const ended = scope?.[stage].recent.counts(epochSeconds) ?? new Float64Array(CELLS);
      const density = withWaiting(ended, ages[stage]);
      return density === undefined
        ? []
        : [{ stage, samples: totalOf(ended) + totalOf(ages[stage]), density }];
    });
    const kind = namespace === undefined ? 'cluster' : 'namespace';
    return slowestStage(kind, stages, Math.max(RecentLags.windowSeconds, longest));
  }

  /** Bytes of lag data held. */
  get bytes(): number {
    return [this.#cluster, ...this.#namespaces.values()]
      .flatMap((scope) => LAG_STAGES.map((stage) => scope[stage].history.bytes + scope[stage].recent.bytes))
      .reduce((sum, bytes) => sum + bytes, 0);
  }

  /**
   * A snapshot that {@link restore} reads, of what has been measured until now; see `snapshotSteps` for what it holds, and
   * for the steps in which it is written. What is measured in between is not in it.
   * @param beside goes along as it is
   */
  snapshotWithin(
    characters: number,
    epochSeconds: number,
    beside: Readonly<Record<string, unknown>> = {},
  ): Generator<undefined, string> {
    const namespaces = [...this.#namespaces].map(([name, scope]) => [name, frozen(scope)] as const);
    const cluster = frozen(this.#cluster);
    const source = { version: VERSION, cluster, namespaces: new Map(namespaces), beside };
    return snapshotSteps(source, characters, epochSeconds);
  }

  /**
   * Takes in a snapshot of an earlier life, beside what has been measured in this one.
   * @returns false, and nothing is changed, when it is none or of another version
   */
  restore(json: unknown, epochSeconds: number): boolean {
    if (!isRecord(json) || json.v !== VERSION || !isRecord(json.namespaces)) return false;
    const cluster = parseScope(json.cluster);
    const namespaces = Object.entries(json.namespaces).map(
      ([name, each]) => [name, parseScope(each)] as const,
    );
    if (cluster === undefined || namespaces.some(([, scope]) => scope === undefined)) return false;
    mergeScope(this.#cluster, cluster);
    for (const [name, scope] of namespaces) {
      if (scope !== undefined) this.#restoreNamespace(name, scope, epochSeconds);
    }
    return true;
  }

  #restoreNamespace(name: string, scope: Scope, epochSeconds: number): void {
    const { kept, displaced } = this.#busiest.count(name, epochSeconds, weekOf(scope, epochSeconds));
    if (displaced !== undefined) this.#namespaces.delete(displaced);
    if (!kept) return;
    const present = this.#namespaces.get(name);
    if (present === undefined) this.#namespaces.set(name, scope);
    else mergeScope(present, scope);
  }

  #into(of: Scope[LagStage], lag: number, epochSeconds: number): void {
    of.history.record(lag, epochSeconds);
    of.recent.record(lag, epochSeconds);
  }
}

function candidateOf(kind: MeasuredLag['scope'], scope: Scope, epochSeconds: number): Candidate | undefined {
  let historySeconds = 0;
  let latest = Number.NEGATIVE_INFINITY;
  const stages = LAG_STAGES.flatMap((stage): StageLag[] => {
    const weighed = scope[stage].history.weighed(epochSeconds);
    if (weighed === undefined) return [];
    historySeconds = Math.max(historySeconds, weighed.historySeconds);
    latest = Math.max(latest, weighed.latest);
    return [{ stage, samples: weighed.samples, density: weighed.density }];
  });
  const lag = slowestStage(kind, stages, historySeconds);
  return lag && { lag, latest };
}

function weekOf(scope: Scope, epochSeconds: number): number {
  return Math.max(...LAG_STAGES.map((stage) => scope[stage].history.samples(epochSeconds)));
}

/** The histories as they are now: what is measured from now on does not change them. */
function frozen(scope: Scope): Readonly<Record<LagStage, LagHistory>> {
  return {
    EndpointSlice: scope.EndpointSlice.history.frozen(),
    Endpoints: scope.Endpoints.history.frozen(),
  };
}

function mergeScope(target: Scope, source: Scope): void {
  for (const stage of LAG_STAGES) target[stage].history.merge(source[stage].history);
}

function parseScope(json: unknown): Scope | undefined {
  if (!isRecord(json)) return undefined;
  const slices = LagHistory.parse(json.EndpointSlice);
  const endpoints = LagHistory.parse(json.Endpoints);
  if (slices === undefined || endpoints === undefined) return undefined;
  return newScope((stage) => (stage === 'EndpointSlice' ? slices : endpoints));
}
