import type { Density } from './combine.ts';
import { CELLS } from './grid.ts';
import { integersFromText, integersToText, isCount, isInstant } from './integer-text.ts';

/**
 * The lags of one slice of time, or of a block of slices that a snapshot merged to save room.
 * Only what is needed to weigh the slices again later is kept apart: how many lags each slice had.
 */
export interface Slot {
  /** The number of its first slice, counted from the caller's epoch. */
  readonly first: number;
  /** When its earliest lag ended, in seconds since that epoch. */
  readonly since: number;
  /** How many lags each of its slices had, in order; its length is the slot's width. */
  readonly totals: readonly number[];
  /** What the entries of a block add up to for one lag: 1 for whole lags, else {@link BLOCK_SCALE}. */
  readonly scale: number;
  /** Occupied cells only, as `cell × 2^22 + times`: 4 bytes for each, and hardly any slice has over 300. */
  readonly entries: Uint32Array;
}

/**
 * Lags that the cap scales down are fractions; entries are whole. In 16ths of a lag their cumulative rounding is
 * off by at most 1/32 lag for a slot.
 */
export const BLOCK_SCALE = 16;

/** 800 cells need 10 bits, so 22 are left: a cell with more than 4,194,303 takes several entries. */
const TIMES_BITS = 22;
const MOST_TIMES = 2 ** TIMES_BITS - 1;

/** @param weights whole numbers by cell */
export function packed(weights: Density): Uint32Array {
  const entries: number[] = [];
  weights.forEach((weight, cell) => {
    for (let left = weight; left > 0; left -= MOST_TIMES) {
      entries.push(cell * 2 ** TIMES_BITS + Math.min(left, MOST_TIMES));
    }
  });
  return Uint32Array.from(entries);
}

/** Adds `factor` × the slot's entries, in place. */
export function addEntries(target: Density, slot: Slot, factor: number): void {
  for (const entry of slot.entries) {
    const cell = entry >>> TIMES_BITS;
    target[cell] = (target[cell] ?? 0) + factor * (entry & MOST_TIMES);
  }
}

/** What the slot's entries add up to. */
export function storedWeight(slot: Slot): number {
  let weight = 0;
  for (const entry of slot.entries) weight += entry & MOST_TIMES;
  return weight;
}

/** Two slots of the same slices as one, e.g. of two replicas that shared the work. */
export function merged(a: Slot, b: Slot): Slot {
  const scale = Math.max(a.scale, b.scale);
  const weights = new Float64Array(CELLS);
  addEntries(weights, a, scale / a.scale);
  addEntries(weights, b, scale / b.scale);
  return {
    first: a.first,
    since: Math.min(a.since, b.since),
    totals: a.totals.map((total, index) => total + (b.totals[index] ?? 0)),
    scale,
    entries: packed(weights),
  };
}

/**
 * Fractional weights as whole ones with the same cumulative sums, each rounded: no percentile moves by more than
 * half a unit, which rounding cell by cell (a storm's many small fractions all to 0) does not give.
 */
export function roundedCumulatively(weights: Density): Density {
  let upTo = 0;
  let given = 0;
  return weights.map((weight) => {
    upTo += weight;
    const whole = Math.round(upTo) - given;
    given += whole;
    return whole;
  });
}

/** The row of a slot in a snapshot. */
export function slotToJson(slot: Slot): unknown {
  const weights = new Float64Array(CELLS);
  addEntries(weights, slot, 1);
  const { first, since, totals, scale } = slot;
  return [first, since, totals.length, integersToText(totals), scale, integersToText(weights)];
}

/** @returns undefined when it is no such row */
export function slotFromJson(json: unknown, widths: readonly number[]): Slot | undefined {
  if (!Array.isArray(json)) return undefined;
  const [first, since, width, totalsText, scale, entriesText] = json as unknown[];
  if (!isCount(first) || !isInstant(since)) return undefined;
  if (!isCount(width) || !widths.includes(width) || first % width !== 0) return undefined;
  if (scale !== 1 && scale !== BLOCK_SCALE) return undefined;
  const totals = integersFromText(totalsText, width);
  const weights = integersFromText(entriesText, CELLS);
  if (totals === undefined || weights === undefined || weights.every((weight) => weight === 0)) {
    return undefined;
  }
  return { first, since, totals: [...totals], scale, entries: packed(weights) };
}
