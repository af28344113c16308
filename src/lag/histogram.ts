import { isString } from '../api/index.ts';
import { CELLS, cellOf } from './grid.ts';

/** Counts of lags on the shared grid, in memory that never grows (6.4 kB): `counts[cell]` lags fell into that cell. */
export class Histogram {
  readonly counts: Float64Array = new Float64Array(CELLS);
  #total = 0;

  get total(): number {
    return this.#total;
  }

  /** @throws RangeError for a negative lag or NaN */
  record(seconds: number): void {
    const cell = cellOf(seconds);
    this.counts[cell] = (this.counts[cell] ?? 0) + 1;
    this.#total += 1;
  }
}

/** A cell of the grid, and how often it occurs or what it weighs. */
export type CellValue = readonly [cell: number, value: number];

/**
 * The occupied cells of a histogram or curve as short text, in base 36: `distance.value`, the distance from the cell
 * before where it is not 1, the value after a dot where it is not 1. Two lags of cell 400, one of cell 401 and one of
 * cell 410: `b4.2,1,9.`.
 * @param cells ascending
 */
export function cellsToText(cells: Iterable<CellValue>): string {
  const tokens: string[] = [];
  let previous = 0;
  for (const [cell, value] of cells) {
    if (value === 0) continue;
    const distance = cell - previous;
    const written = value === 1 && distance !== 1 ? '' : value.toString(36);
    tokens.push(distance === 1 ? written : `${distance.toString(36)}.${written}`);
    previous = cell;
  }
  return tokens.join(',');
}

/** In base 36 a cell has three digits, and a safe integer ten. */
const TOKEN = /^(?:([0-9a-z]{1,3})\.)?([0-9a-z]{0,10})$/;

/** Reads the output of {@link cellsToText}. @returns undefined for anything else */
export function readCells(text: unknown): readonly CellValue[] | undefined {
  if (!isString(text)) return undefined;
  const tokens = text === '' ? [] : text.split(',', CELLS + 1);
  if (tokens.length > CELLS) return undefined;
  const cells: CellValue[] = [];
  let cell = 0;
  for (const token of tokens) {
    const [, distance, value] = TOKEN.exec(token) ?? [];
    if (value === undefined || token === '') return undefined;
    cell += distance === undefined ? 1 : Number.parseInt(distance, 36);
    if (cell >= CELLS) return undefined;
    cells.push([cell, value === '' ? 1 : Number.parseInt(value, 36)]);
  }
  return cells;
}

export function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}

export function isInstant(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}
