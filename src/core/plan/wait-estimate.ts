import type { CombinedLag, LagDistribution, LagPart } from '../lag/distribution.ts';
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
  /** What the lag is made of, where consumers apply. */
  readonly parts?: readonly EstimatePart[];
}

/** The control plane, or one consumer. */
export interface EstimatePart {
  /** `control plane`, or the consumer's name. */
  readonly name: string;
  readonly source: 'measured' | 'declared' | 'unknown';
  /** Its own percentile, in seconds; null where nothing is known. Percentiles of parts do not add up to the whole's. */
  readonly lagSeconds: number | null;
  readonly samples: number;
  readonly historySeconds: number;
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
    ...(lag.combined === undefined ? {} : { parts: partsOf(lag.combined, percentile) }),
  };
}

function partsOf(
  { controlPlane, consumers, unmeasured }: CombinedLag,
  percentile: number,
): readonly EstimatePart[] {
  const known = (name: string, source: EstimatePart['source'], part: LagPart): EstimatePart => {
    const { samples, historySeconds } = part;
    return { name, source, lagSeconds: part.quantile(percentile), samples, historySeconds };
  };
  const unknown = (name: string): EstimatePart => {
    return { name, source: 'unknown', lagSeconds: null, samples: 0, historySeconds: 0 };
  };
  return [
    controlPlane === undefined ? unknown(CONTROL_PLANE) : known(CONTROL_PLANE, 'measured', controlPlane),
    ...consumers.map((part) => known(part.name, part.source, part)),
    ...unmeasured.map(unknown),
  ];
}

const CONTROL_PLANE = 'control plane';

/**
 * `p99 4.2s of 812 samples over 5 d, ×1.5 → 10s, covers 99.4 %`; with consumers, what their parts are follows the first
 * number in brackets.
 */
export function estimateInWords(estimate: WaitEstimate, wait: number): string {
  const { percentile, lagSeconds, samples, historySeconds, scope, coverage } = estimate;
  const whose = scope === 'namespace' ? ' of this namespace' : '';
  // Rounded down: a rare removal that is not covered must not read as 100 %.
  const covers = `covers ${(Math.floor(coverage * 1000) / 10).toFixed(1)} %`;
  const parts = [
    `p${percentile} ${lagInWords(lagSeconds)}${partsInWords(estimate.parts)} of ${samples} samples${whose} over ${spanInWords(historySeconds)}`,
    `${stepInWords(estimate)} → ${wait}s`,
    ...(isWhole(estimate) ? [covers] : []),
  ];
  return parts.join(', ');
}

function partsInWords(parts: WaitEstimate['parts']): string {
  if (parts === undefined) return '';
  const each = parts.map(({ name, source, lagSeconds }) => {
    const lag = lagSeconds === null ? 'unknown' : lagInWords(lagSeconds);
    return source === 'declared' ? `${name} ${lag} declared` : `${name} ${lag}`;
  });
  return ` (${each.join(', ')})`;
}

/** Whether something is known of all its parts. */
function isWhole({ parts = [] }: WaitEstimate): boolean {
  return parts.every(({ source }) => source !== 'unknown');
}

/** What leads from the percentile to the wait. */
function stepInWords(estimate: WaitEstimate): string {
  const { enough, minSamples, minHistorySeconds, safetyFactor, marginSeconds, maxSeconds } = estimate;
  if (!isWhole(estimate)) return 'not all of them known';
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
