import type { LagDistribution } from '../lag/distribution.ts';
import type { EffectivePolicy } from '../policy/values.ts';
import { hasEnoughHistory } from './wait.ts';

/** What has been measured and what a policy makes of it, for one wait. In seconds; coverage is a share, 0 to 1. */
export interface WaitEstimate {
  readonly percentile: number;
  /** The lag that `percentile` per cent of the removals did not exceed. */
  readonly lagSeconds: number;
  readonly samples: number;
  readonly historySeconds: number;
  readonly scope: LagDistribution['scope'];
  readonly safetyFactor: number;
  readonly marginSeconds: number;
  readonly maxSeconds: number;
  /** Below these the wait is `initial`. */
  readonly minSamples: number;
  readonly minHistorySeconds: number;
  /** Whether they are reached. */
  readonly enough: boolean;
  /** The share of the removals that the planned wait covers. */
  readonly coverage: number;
}

/**
 * The estimate behind a wait.
 * @param wait whole seconds, as planned
 * @returns undefined where the wait is fixed, or nothing has been measured
 */
export function estimateOfWait(
  policy: EffectivePolicy,
  lag: LagDistribution | undefined,
  wait: number,
): WaitEstimate | undefined {
  const fixed = policy['wait.from'].value === 'Fixed' && policy['wait.fixed'].value !== undefined;
  if (lag === undefined || fixed) return undefined;
  const percentile = policy['wait.percentile'].value;
  return {
    percentile,
    lagSeconds: lag.quantile(percentile),
    samples: lag.samples,
    historySeconds: lag.historySeconds,
    scope: lag.scope,
    safetyFactor: policy['wait.safetyFactor'].value,
    marginSeconds: policy['wait.margin'].value,
    maxSeconds: policy['wait.max'].value,
    minSamples: policy['wait.minSamples'].value,
    minHistorySeconds: policy['wait.minHistory'].value,
    enough: hasEnoughHistory(policy, lag),
    coverage: lag.coverage(wait),
  };
}

/** `p99 4.2s of 812 samples over 5 d, ×1.5 → 10s, covers 99.4 %` */
export function estimateInWords(estimate: WaitEstimate, wait: number): string {
  const { percentile, lagSeconds, samples, historySeconds, scope, coverage } = estimate;
  const whose = scope === 'namespace' ? ' of this namespace' : '';
  // Rounded down: a rare removal that is not covered must not read as 100 %.
  const covers = `covers ${(Math.floor(coverage * 1000) / 10).toFixed(1)} %`;
  return [
    `p${percentile} ${lagInWords(lagSeconds)} of ${samples} samples${whose} over ${spanInWords(historySeconds)}`,
    `${stepInWords(estimate)} → ${wait}s`,
    covers,
  ].join(', ');
}

/** What leads from the percentile to the wait. */
function stepInWords(estimate: WaitEstimate): string {
  const { enough, minSamples, minHistorySeconds, safetyFactor, marginSeconds, maxSeconds } = estimate;
  if (!enough) return `not yet ${minSamples} over ${spanInWords(minHistorySeconds)}: initial`;
  const protectedLag = safetyFactor * estimate.lagSeconds;
  if (protectedLag > maxSeconds)
    return `×${safetyFactor} = ${lagInWords(protectedLag)} is beyond max ${maxSeconds}s`;
  return marginSeconds === 0 ? `×${safetyFactor}` : `×${safetyFactor} + ${marginSeconds}s`;
}

function lagInWords(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)}ms`;
  return seconds < 100 ? `${seconds.toFixed(1)}s` : `${Math.round(seconds)}s`;
}

const UNITS = [
  ['d', 86_400],
  ['h', 3_600],
  ['min', 60],
] as const;

/** In the largest unit of which there is one, rounded down: `5 d`, `3 h`, `12 min`, `8 s`. */
function spanInWords(seconds: number): string {
  const [unit, size] = UNITS.find(([, each]) => seconds >= each) ?? (['s', 1] as const);
  return `${Math.floor(seconds / size)} ${unit}`;
}
