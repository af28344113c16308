import type { LagSample } from '../../../src/core/lag/sample.ts';
import type { TrueRemoval } from './endpoint-history.ts';

/** A sample beside what really happened. */
export interface Pairing {
  readonly sample: LagSample;
  readonly truth: TrueRemoval;
  /** Milliseconds by which the sample is longer than the truth. */
  readonly difference: number;
  /** Milliseconds by which it is outside of what the truth can be; 0: it is within. */
  readonly beyond: number;
}

export interface Agreement {
  readonly pairs: readonly Pairing[];
  /** Removals that gave no sample. */
  readonly missing: readonly TrueRemoval[];
  /** Samples of what did not happen. */
  readonly invented: readonly LagSample[];
}

/**
 * Pairs samples with removals of the same Service and stage. A sample says when the withdrawal showed, so that is what
 * decides; where one write withdrew several pods, their starts do.
 * @param within milliseconds by which ends may differ
 */
export function agreement(
  samples: readonly LagSample[],
  removals: readonly TrueRemoval[],
  within: number,
): Agreement {
  const left = new Set(removals.filter(({ end }) => end !== undefined));
  const pairs: Pairing[] = [];
  const invented: LagSample[] = [];
  for (const sample of samples) {
    const truth = nearest(sample, left, within);
    if (truth === undefined) invented.push(sample);
    else {
      left.delete(truth);
      const lag = sample.lag * 1000;
      const [least, most] = truth.bounds;
      const beyond = Math.max(0, least - lag, lag - Math.max(0, most));
      pairs.push({ sample, truth, difference: lag - lagOf(truth), beyond });
    }
  }
  return { pairs, missing: [...left], invented };
}

/** Milliseconds. A withdrawal is answered before the deletion that it follows when that answer is held up. */
export function lagOf({ start, end = Number.POSITIVE_INFINITY }: TrueRemoval): number {
  return Math.max(0, end - start);
}

function nearest(
  sample: LagSample,
  removals: Iterable<TrueRemoval>,
  within: number,
): TrueRemoval | undefined {
  const { stage, name, at, lag } = sample;
  let best: TrueRemoval | undefined;
  let least = Number.POSITIVE_INFINITY;
  for (const removal of removals) {
    if (removal.stage !== stage || removal.service !== name) continue;
    if (Math.abs((removal.end ?? 0) - at) > within) continue;
    const distance = Math.abs(removal.start - (at - lag * 1000));
    if (distance >= least) continue;
    least = distance;
    best = removal;
  }
  return best;
}

/** Of sorted or unsorted values; the smallest that so many per cent do not exceed. */
export function percentileOf(values: readonly number[], percentile: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil((sorted.length * percentile) / 100) - 1)] ?? Number.NaN;
}
