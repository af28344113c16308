import {
  type Explained,
  formatDuration,
  type Labels,
  type NamespaceRecord,
  NO_LABELS,
  type ServiceRecord,
  unseenNamespace,
} from '../api/index.ts';
import { CONTROL_PLANE, type Enough, type Lags, type PlannedLag, sendsTo } from '../lag/index.ts';
import type { ClusterSnapshot } from './cluster-snapshot.ts';
import { effectivePolicy } from './policy-merge.ts';
import type { EffectivePolicy, Origin } from './policy-values.ts';
import { type Note, note } from './reasons.ts';

/** How the wait was chosen: `why` in the plan annotation. */
export const WAIT_REASONS = {
  fixed: {
    means: "A policy's `from: Fixed`, or the annotation `linger.dev/wait`.",
  },
  initial: {
    means:
      '`wait.initial`: fewer samples or less history than `minSamples` and `minHistory`, or no cluster is followed.',
  },
  declared: {
    means: 'As `initial`, but the declared lag of a `DiscoveryConsumer` asks for more.',
  },
  measured: {
    means: 'safetyFactor × percentile + margin, in steps of 5 s.',
  },
  storm: {
    means: 'The tail is beyond `wait.max`: the smallest step that covers nearly as much.',
  },
  floor: {
    means: 'The floor in the API server stamped the pod while no webhook answered.',
  },
} as const satisfies Readonly<Record<string, Explained>>;
export type WaitReason = keyof typeof WAIT_REASONS;

/** The wait that the policy leads to, before the pod's grace limits it. */
export interface WaitChoice {
  /** Whole seconds. */
  readonly seconds: number;
  readonly why: WaitReason;
  /** The layer that decided it. */
  readonly origin: Origin;
  readonly notes: readonly Note[];
  /** The wait where nodes without a budget allow a longer one; absent: the same everywhere. Whole seconds. */
  readonly onOtherNodes?: number;
}

/** Measured waits are multiples of this, so that noise does not make the pods of one workload differ. */
export const STEP_SECONDS = 5;

/** How much coverage a wait during a storm may give up compared with `wait.max`: half a percentage point. */
const NEGLIGIBLE_COVERAGE = 0.005;

export function enoughOf(policy: EffectivePolicy): Enough {
  return { minSamples: policy['wait.minSamples'].value, minHistory: policy['wait.minHistory'].value };
}

export function chooseWait(policy: EffectivePolicy, lag: PlannedLag): WaitChoice {
  const choice = uncappedWait(policy, lag);
  const ceiling = policy['ceiling.wait'];
  // Round the ceiling down, or the result would exceed it.
  const capped = Math.min(choice.seconds, Math.floor(ceiling.value));
  if (capped === choice.seconds) return choice;
  const text = `the wait of ${choice.seconds}s (${choice.origin}) is lowered to ${capped}s by ceiling.wait (${ceiling.origin})`;
  return { ...choice, seconds: capped, notes: [...choice.notes, note('CeilingApplied', text)] };
}

function uncappedWait(policy: EffectivePolicy, lag: PlannedLag): WaitChoice {
  const { value: fixed = 0, origin } = policy['wait.fixed'];
  // The operator's own number is used as it is: no factor, margin, step, minimum or maximum.
  if (isFixed(policy)) return { seconds: wholeSeconds(fixed), why: 'fixed', origin, notes: [] };
  const { known, coverage } = lag;
  return known !== undefined && coverage !== undefined
    ? measuredWait(policy, lag, known, coverage)
    : cautiousWait(policy, lag);
}

/** `wait.initial` within its bounds. Whole seconds. */
export function initialWait(policy: EffectivePolicy): number {
  const initial = bounded(wholeSeconds(policy['wait.initial'].value), policy);
  return Math.min(initial, Math.floor(policy['ceiling.wait'].value));
}

/**
 * An upper bound of what {@link chooseWait} gives under any policy whose values are no larger. It ignores the shorter waits
 * of storms, because whether a lag counts as a storm depends on a policy's other values.
 */
export function boundOfWait(
  policy: EffectivePolicy,
  { known, coverage }: PlannedLag,
): Pick<WaitChoice, 'seconds' | 'why'> {
  const initial = known === undefined || coverage === undefined ? initialWait(policy) : 0;
  const lag = known === undefined ? 0 : protectedLagOf(policy, known) + policy['wait.margin'].value;
  const ceiling = Math.floor(policy['ceiling.wait'].value);
  const measured = known === undefined ? 0 : Math.min(bounded(ceilToStep(lag), policy), ceiling);
  return measured > initial ? { seconds: measured, why: 'measured' } : { seconds: initial, why: 'initial' };
}

function isFixed(policy: EffectivePolicy): boolean {
  return policy['wait.from'].value === 'Fixed' && policy['wait.fixed'].value !== undefined;
}

/**
 * Too little knowledge never shortens a wait: if any part is not known well enough, the wait is `initial`, or longer if the
 * known parts need it.
 */
function cautiousWait(policy: EffectivePolicy, lag: PlannedLag): WaitChoice {
  const { value, origin } = policy['wait.initial'];
  const notes = unknownNotes(lag);
  const initial = bounded(wholeSeconds(value), policy);
  const known = lag.known === undefined ? 0 : waitFrom(policy, lag.known);
  if (known <= initial) return { seconds: initial, why: 'initial', origin, notes };
  const measured = lag.parts.some(({ source, enough }) => source === 'measured' && enough);
  const why = measured ? 'measured' : 'declared';
  return { seconds: known, why, origin: policy['wait.from'].origin, notes };
}

/** Built-in consumers are noted only if nothing else is unknown: in a new cluster everything is. */
function unknownNotes({ parts }: PlannedLag): readonly Note[] {
  const plane = parts.find(({ name }) => name === CONTROL_PLANE);
  const names = parts
    .filter((part) => !part.enough && part !== plane && (plane?.enough === true || !part.builtIn))
    .map(({ name }) => name);
  if (names.length === 0) return [];
  const text = `too little is known of the lag of ${names.join(', ')}: the wait is not shorter than wait.initial, and its coverage is not known`;
  return [note('ConsumerNotMeasured', text)];
}

function measuredWait(
  policy: EffectivePolicy,
  lag: PlannedLag,
  known: Lags,
  coverage: (seconds: number) => number,
): WaitChoice {
  const seconds = waitFrom(policy, known);
  const origin = policy['wait.from'].origin;
  const notes: Note[] = [];
  const protectedLag = protectedLagOf(policy, known);
  const max = policy['wait.max'].value;
  if (protectedLag > max) {
    const text =
      `p${policy['wait.percentile'].value} of the lag times the safety factor is ${Math.round(protectedLag)}s, ` +
      `beyond wait.max ${max}s; ${seconds}s covers ${coveredInWords(coverage(seconds))}`;
    notes.push(note('StormNotCovered', text));
  }
  notes.push(...episodeNotes(policy, lag, seconds));
  return { seconds, why: protectedLag > max ? 'storm' : 'measured', origin, notes };
}

/** The wait that a lag needs: with the safety factor and margin, in steps, within min and max. */
function waitFrom(policy: EffectivePolicy, lag: Lags): number {
  const protectedLag = protectedLagOf(policy, lag);
  return protectedLag > policy['wait.max'].value
    ? bounded(stormWait(policy, lag), policy)
    : bounded(ceilToStep(protectedLag + policy['wait.margin'].value), policy);
}

function protectedLagOf(policy: EffectivePolicy, lag: Lags): number {
  return policy['wait.safetyFactor'].value * lag.quantile(policy['wait.percentile'].value);
}

function episodeNotes(policy: EffectivePolicy, { episode }: PlannedLag, seconds: number): readonly Note[] {
  if (episode === undefined) return [];
  const without = waitFrom(policy, episode.without());
  if (without >= seconds) return [];
  const { from, to, share } = episode;
  const span = `${instantInWords(from)} to ${instantInWords(to)} UTC`;
  const text =
    `one episode (${span}, ${(share * 100).toFixed(1)} % of the removals) raises the wait to ${seconds}s; ` +
    `without it, the wait would be ${without}s`;
  return [note('Episode', text)];
}

/** `2026-11-22 07:15`, in UTC. */
function instantInWords(epochSeconds: number): string {
  return new Date(epochSeconds * 1_000).toISOString().slice(0, 16).replace('T', ' ');
}

function coveredInWords(coverage: number): string {
  return coverage === 1
    ? 'the removals measured, but without the whole safety factor'
    : `${shareInWords(coverage)} of the removals measured, and the rest is not covered; faster controllers are the cure`;
}

/**
 * The smallest step whose coverage is within half a percentage point of what `wait.max` covers: where the tail of the lag
 * lies beyond the maximum, waiting longer slows every rollout and saves almost nothing. Coverage includes the safety factor
 * (factor × lag ≤ wait). So a cluster that is slow throughout, where only the factor carries the lag beyond the maximum,
 * gets the maximum; one with a short and a long mode gets a short wait.
 */
function stormWait(policy: EffectivePolicy, lag: Lags): number {
  const max = policy['wait.max'].value;
  const factor = policy['wait.safetyFactor'].value;
  const covered = (seconds: number) => lag.coverage(seconds / factor);
  const enough = covered(max) - NEGLIGIBLE_COVERAGE;
  // Nothing is covered within the maximum, so there is no short mode that would justify a shorter wait.
  if (enough <= 0) return max;
  for (let seconds = STEP_SECONDS; seconds < max; seconds += STEP_SECONDS) {
    if (covered(seconds) >= enough) return seconds;
  }
  return max;
}

/** Limits to min and max, in whole seconds; if they contradict each other, max wins. */
function bounded(seconds: number, policy: EffectivePolicy): number {
  return Math.min(
    Math.max(seconds, Math.ceil(policy['wait.min'].value)),
    Math.floor(policy['wait.max'].value),
  );
}

/**
 * Rounds fractions up, except for the rounding errors of sums: those are below a nanosecond, the finest a duration can
 * be.
 */
export function wholeSeconds(seconds: number): number {
  return Math.ceil(Math.round(seconds * 1e9) / 1e9);
}

function ceilToStep(seconds: number): number {
  return wholeSeconds(seconds / STEP_SECONDS) * STEP_SECONDS;
}

/** A namespace that cannot exist: names have at least one character. */
const NOWHERE = unseenNamespace('');

/** A typical Service: with a ClusterIP. */
const PLAIN_SERVICE: ServiceRecord = {
  namespace: NOWHERE.name,
  name: '',
  labels: NO_LABELS,
  selector: NO_LABELS,
  headless: false,
  externalName: false,
};

/** A wait with the share of removals that it covers; the share is undefined where a part of the lag is not known. */
export interface DefaultWait extends WaitChoice {
  readonly coverage: number | undefined;
}

/**
 * The cluster-wide default wait: that of a pod without labels or annotations, behind a plain Service, in an unknown
 * namespace. For gauges only; each pod's own wait is decided individually.
 */
export function defaultWait(snapshot: ClusterSnapshot): DefaultWait {
  const subject = { namespace: NOWHERE, labels: NO_LABELS, annotations: NO_LABELS };
  const { policy } = effectivePolicy(snapshot.policies, subject, snapshot.modeLimit);
  const { choice, lag } = waitBehindPlainService(policy, subject, snapshot);
  const coverage = choice.why === 'fixed' ? undefined : lag.coverage?.(choice.seconds);
  return { ...choice, coverage };
}

/** The wait that a policy leads to for a pod behind an ordinary Service, and the lag that it is taken from. */
export function waitBehindPlainService(
  policy: EffectivePolicy,
  { namespace, labels }: { readonly namespace: NamespaceRecord; readonly labels: Labels },
  { lags, consumers }: ClusterSnapshot,
): { readonly choice: WaitChoice; readonly lag: PlannedLag } {
  const sending = consumers.filter((each) => sendsTo(each, namespace, labels, [PLAIN_SERVICE]) === true);
  const lag = lags.planned(namespace.name, sending, enoughOf(policy));
  return { choice: chooseWait(policy, lag), lag };
}

/** `initial: 31 of 200 samples, 7h of 24h`: how a wait was chosen, and for an initial one, what is still missing. */
export function reasonInWords(why: WaitReason, policy: EffectivePolicy, { parts }: PlannedLag): string {
  if (why !== 'initial') return why;
  const lacking = parts.filter(({ enough }) => !enough);
  const plane = lacking.find(({ name }) => name === CONTROL_PLANE);
  if (plane === undefined)
    return `initial: too little known of ${lacking.map(({ name }) => name).join(', ')}`;
  const { minSamples, minHistory } = enoughOf(policy);
  const hours = (seconds: number) => formatDuration(Math.floor(seconds / 3600) * 3600);
  const history = `${hours(plane.historySeconds)} of ${formatDuration(minHistory)}`;
  return `initial: ${plane.samples} of ${minSamples} samples, ${history}`;
}

/** The shortest and the longest hold, before the grace limits them. Seconds. */
export function holdBounds(policy: EffectivePolicy, wait: number) {
  const max = Math.max(wait, Math.floor(Math.min(policy['hold.max'].value, policy['ceiling.wait'].value)));
  return { min: Math.min(wholeSeconds(policy['hold.min'].value), max), max };
}

/** The estimate behind one wait, and what the policy made of it. In seconds; coverage is a share, 0 to 1. */
export type WaitEstimate = NonNullable<ReturnType<typeof estimateOfWait>>;

/**
 * The estimate behind a wait.
 * @param wait whole seconds, as planned
 * @returns undefined where the wait is fixed, or nothing is known
 */
export function estimateOfWait(policy: EffectivePolicy, lag: PlannedLag, wait: number) {
  const { seen, samples, historySeconds, scope } = lag;
  if (seen === undefined || isFixed(policy)) return undefined;
  const percentile = policy['wait.percentile'].value;
  // Percentiles of parts do not add up to the percentile of the whole. Null where nothing is known.
  const parts = lag.parts.map(({ name, source, lags, ...part }) => {
    const lagSeconds = lags?.quantile(percentile) ?? null;
    return { name, source, lagSeconds, samples: part.samples, historySeconds: part.historySeconds };
  });
  return {
    percentile,
    /** The lag that `percentile` per cent of the removals did not exceed. */
    lagSeconds: seen.quantile(percentile),
    samples,
    historySeconds,
    scope,
    safetyFactor: policy['wait.safetyFactor'].value,
    marginSeconds: policy['wait.margin'].value,
    maxSeconds: policy['wait.max'].value,
    /** Until these have been reached once, the wait is at least `initial`. */
    minSamples: policy['wait.minSamples'].value,
    minHistorySeconds: policy['wait.minHistory'].value,
    /** Whether that has been reached for the control plane and for every consumer that applies. */
    enough: lag.coverage !== undefined,
    /** The share of the removals that the planned wait covers; null while not enough is known. */
    coverage: lag.coverage?.(wait) ?? null,
    /** The parts of the lag, where consumers apply. */
    ...(parts.length > 1 && { parts }),
  };
}

/**
 * `p99 4.2s of 812 samples over 5 d, ×1.5 → 10s, covers 99.4 %`; with consumers, their parts follow the first number in
 * brackets.
 */
export function estimateInWords(estimate: WaitEstimate, wait: number): string {
  const { percentile, lagSeconds, samples, historySeconds, scope, coverage } = estimate;
  const whose = scope === 'namespace' ? ' of this namespace' : '';
  const covers = coverage === null ? '' : `, covers ${shareInWords(coverage)}`;
  const measured = `p${percentile} ${lagInWords(lagSeconds)}${partsInWords(estimate.parts)}`;
  const extent = `${samples} samples${whose} over ${spanInWords(historySeconds)}`;
  return `${measured} of ${extent}, ${stepInWords(estimate)} → ${wait}s${covers}`;
}

/** `99.4 %`; rounded down, so that a rare uncovered removal never reads as 100 %. @param share 0 to 1 */
export function shareInWords(share: number): string {
  return `${(Math.floor(share * 1000) / 10).toFixed(1)} %`;
}

function partsInWords(parts: WaitEstimate['parts']): string {
  if (parts === undefined) return '';
  const each = parts.map(({ name, source, lagSeconds }) => {
    const lag = lagSeconds === null ? 'unknown' : lagInWords(lagSeconds);
    return source === 'declared' ? `${name} ${lag} declared` : `${name} ${lag}`;
  });
  return ` (${each.join(', ')})`;
}

/** How the wait follows from the percentile, in words. */
function stepInWords(estimate: WaitEstimate): string {
  const { enough, minSamples, minHistorySeconds, safetyFactor, marginSeconds, maxSeconds } = estimate;
  if (estimate.parts?.some(({ source }) => source === 'unknown')) return 'not all of them known';
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

const UNITS = Object.entries({ d: 86_400, h: 3_600, min: 60 });

/** In the largest unit that fits, rounded down: `5 d`, `3 h`, `12 min`, `8 s`. */
export function spanInWords(seconds: number): string {
  const [unit, size] = UNITS.find(([, each]) => seconds >= each) ?? ['s', 1];
  return `${Math.floor(seconds / size)} ${unit}`;
}
