import { type Note, note } from '../catalog/notes.ts';
import type { CombinedLag, LagDistribution } from '../lag/distribution.ts';
import type { EffectivePolicy, Origin } from '../policy/values.ts';

/** How the wait came about; stands in the plan annotation as `why`. */
export type WaitReason = 'fixed' | 'initial' | 'declared' | 'measured' | 'storm';

/** The wait that the policy comes to, before the grace has its say. */
export interface WaitChoice {
  /** Whole seconds. */
  readonly seconds: number;
  readonly why: WaitReason;
  /** Who decided it. */
  readonly origin: Origin;
  /** What was measured, where the wait came from that: tells the coverage of whatever becomes of the wait. */
  readonly lag?: LagDistribution;
  readonly notes: readonly Note[];
}

/** Measured waits are multiples of this: the pods of one workload do not differ by a second's noise. */
export const STEP_SECONDS = 5;

/** How much coverage a storm-bound wait may give away against `max`: half a point. */
const NEGLIGIBLE_COVERAGE = 0.005;

/** Chooses the wait from policy and measurement. `lag` undefined: nothing has been measured yet. */
export function chooseWait(policy: EffectivePolicy, lag: LagDistribution | undefined): WaitChoice {
  const choice = uncappedWait(policy, lag);
  const ceiling = policy['ceiling.wait'];
  // A ceiling rounds down, or the result would be above it.
  const capped = Math.min(choice.seconds, Math.floor(ceiling.value));
  if (capped === choice.seconds) return choice;
  const text = `the wait of ${choice.seconds}s (${choice.origin}) is lowered to ${capped}s by ceiling.wait (${ceiling.origin})`;
  return { ...choice, seconds: capped, notes: [...choice.notes, note('CeilingApplied', text)] };
}

function uncappedWait(policy: EffectivePolicy, lag: LagDistribution | undefined): WaitChoice {
  const fixed = policy['wait.fixed'];
  if (policy['wait.from'].value === 'Fixed' && fixed.value !== undefined) {
    // Somebody's own number: no factor, no margin, no step, no min or max.
    return { seconds: wholeSeconds(fixed.value), why: 'fixed', origin: fixed.origin, notes: [] };
  }
  return lag !== undefined && hasEnoughHistory(policy, lag)
    ? measuredWait(policy, lag)
    : initialWait(policy, lag?.combined);
}

/** Before there are samples enough: what the policy says, or what consumers are declared to need, if that is longer. */
function initialWait(policy: EffectivePolicy, known: CombinedLag | undefined): WaitChoice {
  const { value, origin } = policy['wait.initial'];
  const notes = known === undefined ? [] : unmeasuredNotes(known);
  const seconds = bounded(wholeSeconds(value), policy);
  const declared = known?.declared && measuredSeconds(policy, known.declared);
  if (declared === undefined || declared <= seconds) return { seconds, why: 'initial', origin, notes };
  return { seconds: declared, why: 'declared', origin: policy['wait.from'].origin, notes };
}

function unmeasuredNotes({ unmeasured }: CombinedLag): readonly Note[] {
  if (unmeasured.length === 0) return [];
  const text = `the lag of ${unmeasured.join(', ')} is not known yet, so the wait is not taken from what is measured`;
  return [note('ConsumerNotMeasured', text)];
}

/** Whether the policy lets a wait be taken from what has been measured. */
export function hasEnoughHistory(policy: EffectivePolicy, lag: LagDistribution): boolean {
  const unknown = lag.combined?.unmeasured.length ?? 0;
  return (
    unknown === 0 &&
    lag.samples >= policy['wait.minSamples'].value &&
    lag.historySeconds >= policy['wait.minHistory'].value
  );
}

function measuredWait(policy: EffectivePolicy, lag: LagDistribution): WaitChoice {
  const percentile = policy['wait.percentile'].value;
  const max = policy['wait.max'].value;
  const protectedLag = policy['wait.safetyFactor'].value * lag.quantile(percentile);
  const origin = policy['wait.from'].origin;
  if (protectedLag <= max) {
    return { seconds: measuredSeconds(policy, lag), why: 'measured', origin, lag, notes: [] };
  }
  const seconds = bounded(stormWait(policy, lag), policy);
  const text =
    `p${percentile} of the lag times the safety factor is ${Math.round(protectedLag)}s, beyond wait.max ${max}s; ` +
    `${seconds}s covers ${coveredInWords(lag.coverage(seconds))}`;
  return { seconds, why: 'storm', origin, lag, notes: [note('StormNotCovered', text)] };
}

function measuredSeconds(policy: EffectivePolicy, lag: Pick<LagDistribution, 'quantile'>): number {
  const protectedLag = policy['wait.safetyFactor'].value * lag.quantile(policy['wait.percentile'].value);
  return bounded(ceilToStep(protectedLag + policy['wait.margin'].value), policy);
}

function coveredInWords(coverage: number): string {
  const percent = (coverage * 100).toFixed(1);
  return percent === '100.0'
    ? 'the removals measured, but without the whole safety factor'
    : `${percent} % of the removals measured, and the rest is not covered; faster controllers are the cure`;
}

/**
 * The smallest step whose coverage is within half a point of what `max` covers: where the tail lies beyond `max`,
 * waiting longer costs every rollout and saves almost nothing. Coverage is taken with the safety factor
 * (factor × lag ≤ wait), so a cluster that is slow throughout, where the factor itself carries the lag beyond
 * `max`, gets `max`, and one with two modes stays short.
 */
function stormWait(policy: EffectivePolicy, lag: LagDistribution): number {
  const max = policy['wait.max'].value;
  const factor = policy['wait.safetyFactor'].value;
  const covered = (seconds: number) => lag.coverage(seconds / factor);
  const enough = covered(max) - NEGLIGIBLE_COVERAGE;
  // Nothing within max is covered, so there is no short mode to stay short for.
  if (enough <= 0) return max;
  for (let seconds = STEP_SECONDS; seconds < max; seconds += STEP_SECONDS) {
    if (covered(seconds) >= enough) return seconds;
  }
  return max;
}

/** min and max, in whole seconds that do not leave them; max wins over min. */
function bounded(seconds: number, policy: EffectivePolicy): number {
  return Math.min(
    Math.max(seconds, Math.ceil(policy['wait.min'].value)),
    Math.floor(policy['wait.max'].value),
  );
}

/** Fractions round up; a nanosecond, the finest that a duration can say, is above what sums of fractions leave. */
function wholeSeconds(seconds: number): number {
  return Math.ceil(Math.round(seconds * 1e9) / 1e9);
}

function ceilToStep(seconds: number): number {
  return wholeSeconds(seconds / STEP_SECONDS) * STEP_SECONDS;
}
