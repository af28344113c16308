import { quantileOf } from '../lag/combine.ts';
import { Histogram } from '../lag/histogram.ts';
import { LAG_STAGES, type LagStage } from '../lag/sample.ts';
import { CHANGES, type ChangeKind } from './change.ts';
import type { ObservedChange } from './observer.ts';

/** The lags of one source. Seconds; percentiles are within 2 %, the longest is exact. */
export interface SourceSummary {
  readonly source: LagStage;
  readonly changes: Readonly<Record<ChangeKind, number>>;
  readonly samples: number;
  /** Undefined without a sample. */
  readonly lag:
    | { readonly p50: number; readonly p90: number; readonly p99: number; readonly max: number }
    | undefined;
}

/** More would scroll the percentiles away. */
const SLOWEST = 5;

/** What a watch has seen so far, in memory that does not grow. */
export class ChangeSummary {
  readonly #sources = new Map<LagStage, SourceCount>();
  #slowest: readonly (ObservedChange & { readonly lag: number })[] = [];

  add(change: ObservedChange): void {
    if (change.seen === 'initial') return;
    const count = this.#sources.get(change.source) ?? new SourceCount();
    this.#sources.set(change.source, count);
    count.add(change);
    const { lag } = change;
    if (lag === undefined) return;
    // The earlier of two alike stays in front.
    this.#slowest = [...this.#slowest, { ...change, lag }].sort((a, b) => b.lag - a.lag).slice(0, SLOWEST);
  }

  /** In the order of {@link LAG_STAGES}, those of these. */
  sources(wanted: readonly LagStage[]): readonly SourceSummary[] {
    return LAG_STAGES.filter((source) => wanted.includes(source)).map((source) =>
      (this.#sources.get(source) ?? new SourceCount()).summaryOf(source),
    );
  }

  /** The removals that took longest, slowest first. */
  get slowest(): readonly (ObservedChange & { readonly lag: number })[] {
    return this.#slowest;
  }
}

class SourceCount {
  readonly #changes = Object.fromEntries(CHANGES.map((kind) => [kind, 0])) as Record<ChangeKind, number>;
  readonly #lags = new Histogram();
  #min = Number.POSITIVE_INFINITY;
  #max = 0;

  add({ change, lag }: ObservedChange): void {
    this.#changes[change] += 1;
    if (lag === undefined) return;
    this.#lags.record(lag);
    this.#min = Math.min(this.#min, lag);
    this.#max = Math.max(this.#max, lag);
  }

  summaryOf(source: LagStage): SourceSummary {
    const { total, counts } = this.#lags;
    // A cell's value may lie beyond all that was recorded in it.
    const quantile = (percentile: number) =>
      Math.min(Math.max(quantileOf(counts, percentile), this.#min), this.#max);
    const lag =
      total === 0 ? undefined : { p50: quantile(50), p90: quantile(90), p99: quantile(99), max: this.#max };
    return { source, changes: { ...this.#changes }, samples: total, lag };
  }
}
