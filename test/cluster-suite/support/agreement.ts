import type { StageSample } from '../../../src/core/lag/index.ts';
import type { TrueRemoval } from './endpoint-history.ts';

/** A sample beside what really happened. */
export interface Pairing {
  readonly sample: StageSample;
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
  readonly invented: readonly StageSample[];
}

/**
 * Pairs samples with removals of the same pod, Service and stage; where there are several (two address families), by
 * their ends. Instants alone would not do: of two pods that are deleted in the same moment, one may be withdrawn at once
 * and the other with the next write.
 * @param within milliseconds by which ends may differ
 */
export function agreement(
  samples: readonly StageSample[],
  removals: readonly TrueRemoval[],
  within: number,
): Agreement {
  const left = new Set(removals.filter(({ end }) => end !== undefined));
  const pairs: Pairing[] = [];
  const invented: StageSample[] = [];
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
  { stage, name, uid, at }: StageSample,
  removals: Iterable<TrueRemoval>,
  within: number,
): TrueRemoval | undefined {
  let best: TrueRemoval | undefined;
  let least = Number.POSITIVE_INFINITY;
  for (const removal of removals) {
    if (removal.stage !== stage || removal.service !== name || removal.uid !== uid) continue;
    const distance = Math.abs((removal.end ?? 0) - at);
    if (distance > within || distance >= least) continue;
    least = distance;
    best = removal;
  }
  return best;
}

/** The smallest value that `percentile` per cent of the values do not exceed. They need not be sorted. */
export function percentileOf(values: readonly number[], percentile: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil((sorted.length * percentile) / 100) - 1)] ?? Number.NaN;
}
