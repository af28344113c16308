import { coverageOf, type Density, maxOf, quantileOf, sumOf } from './combine.ts';
import type { LagDistribution } from './distribution.ts';
import type { LagStage } from './sample.ts';

/** One stage's part in a lag. */
export interface StageLag {
  readonly stage: LagStage;
  readonly samples: number;
  readonly density: Density;
}

/** A lag as it was measured, for any percentile to be taken. */
export interface MeasuredLag {
  readonly scope: LagDistribution['scope'];
  /** Removals behind it: those of the stage that saw most of them, since both stages see the same terminations. */
  readonly samples: number;
  /** How far back they reach. */
  readonly historySeconds: number;
  /** Of the slowest stage. */
  readonly density: Density;
  /** What it was combined from; empty where only the result is known (a published table). */
  readonly stages: readonly StageLag[];
}

/** A percentile of the lag and what stands behind it. Values in seconds, coverage from 0 to 1. */
export interface Estimate {
  readonly value: number;
  readonly percentile: number;
  /** The share of removals that a wait covers: of the wait asked about, else of `value`. */
  readonly coverage: number;
  readonly samples: number;
  readonly scope: LagDistribution['scope'];
  readonly stages: readonly { readonly stage: LagStage; readonly value: number; readonly samples: number }[];
}

/** @param wait seconds whose coverage is wanted; the value itself when left out */
export function estimateOf(lag: MeasuredLag, percentile: number, wait?: number): Estimate {
  const value = quantileOf(lag.density, percentile);
  return {
    value,
    percentile,
    coverage: coverageOf(lag.density, wait ?? value),
    samples: lag.samples,
    scope: lag.scope,
    stages: lag.stages.map(({ stage, samples, density }) => ({
      stage,
      value: quantileOf(density, percentile),
      samples,
    })),
  };
}

/** A removal is done when the slowest of what consumers read says so. @returns undefined without any stage */
export function slowestStage(
  scope: LagDistribution['scope'],
  stages: readonly StageLag[],
  historySeconds: number,
): MeasuredLag | undefined {
  if (stages.length === 0) return undefined;
  const density = maxOf(stages.map((stage) => stage.density));
  const samples = Math.max(...stages.map((stage) => stage.samples));
  return { scope, samples, historySeconds, density, stages };
}

/** The control plane's lag followed by the slowest of the consumers' own. */
export function withConsumers<L extends Pick<MeasuredLag, 'density'>>(
  lag: L,
  consumers: readonly Density[],
): L {
  if (consumers.length === 0) return lag;
  return { ...lag, density: sumOf(lag.density, maxOf(consumers)) };
}

export function distributionOf(lag: MeasuredLag): LagDistribution {
  return {
    scope: lag.scope,
    samples: lag.samples,
    historySeconds: lag.historySeconds,
    quantile: (percentile) => quantileOf(lag.density, percentile),
    coverage: (seconds) => coverageOf(lag.density, seconds),
  };
}
