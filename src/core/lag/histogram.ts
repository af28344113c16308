import { isRecord } from '../schema/shape.ts';
import { CELLS, cellOf } from './grid.ts';
import { integersFromText, integersToText } from './integer-text.ts';

/** The grid is part of the format: another grid is another version. */
const VERSION = 1;

/**
 * Counts of lags on the shared grid, in memory that never grows (6.4 kB): `counts[cell]` lags fell into that cell.
 * Counts are whole and exact up to 2^53, so merging is associative and commutative.
 */
export class Histogram {
  readonly counts: Float64Array = new Float64Array(CELLS);
  #total = 0;

  get total(): number {
    return this.#total;
  }

  /** @throws RangeError for a negative lag or NaN */
  record(seconds: number): void {
    this.add(cellOf(seconds), 1);
  }

  add(cell: number, times: number): void {
    this.counts[cell] = (this.counts[cell] ?? 0) + times;
    this.#total += times;
  }

  merge(other: Histogram): void {
    other.counts.forEach((times, cell) => {
      if (times > 0) this.add(cell, times);
    });
  }

  clear(): void {
    this.counts.fill(0);
    this.#total = 0;
  }

  toJSON(): unknown {
    return { v: VERSION, counts: integersToText(this.counts) };
  }

  /** Reads what `JSON.stringify` made of a histogram. @returns undefined when it is none, or of another version */
  static parse(json: unknown): Histogram | undefined {
    if (!isRecord(json) || json.v !== VERSION) return undefined;
    const counts = integersFromText(json.counts, CELLS);
    if (counts === undefined) return undefined;
    const histogram = new Histogram();
    counts.forEach((times, cell) => {
      if (times > 0) histogram.add(cell, times);
    });
    return histogram;
  }
}
