import { CELLS, cellOf } from './grid.ts';

/** Counts of lags on the shared grid, in memory that never grows (6.4 kB): `counts[cell]` lags fell into that cell. */
export class Histogram {
  readonly counts: Float64Array = new Float64Array(CELLS);
  #total = 0;

  get total(): number {
    return this.#total;
  }

  clear(): void {
    this.counts.fill(0);
    this.#total = 0;
  }

  /** @throws RangeError for a negative lag or NaN */
  record(seconds: number): void {
    const cell = cellOf(seconds);
    this.counts[cell] = (this.counts[cell] ?? 0) + 1;
    this.#total += 1;
  }
}

/**
 * The occupied cells of a histogram or curve as short text, in base 36: `distance.value`, the distance from the cell
 * before where it is not 1, the value after a dot where it is not 1. Two lags of cell 400, one of cell 401 and one of
 * cell 410: `b4.2,1,9.`.
 */
export function cellsToText(values: ArrayLike<number>): string {
  const writer = new CellsWriter();
  for (let cell = 0; cell < values.length; cell += 1) writer.add(cell, values[cell] ?? 0);
  return writer.text;
}

/** As {@link cellsToText}, but from the occupied cells in ascending order: a slot of 15 minutes has only a few. */
export class CellsWriter {
  text = '';
  #previous = 0;

  add(cell: number, value: number): void {
    if (value === 0) return;
    const distance = cell - this.#previous;
    const written = value === 1 && distance !== 1 ? '' : value.toString(36);
    if (this.text !== '') this.text += ',';
    this.text += distance === 1 ? written : `${distance.toString(36)}.${written}`;
    this.#previous = cell;
  }
}

/** Reads the output of {@link cellsToText}. @returns undefined for anything else */
export function cellsFromText(text: unknown): Float64Array | undefined {
  const values = new Float64Array(CELLS);
  const isWhole = readCells(text, (cell, value) => {
    values[cell] = value;
  });
  return isWhole ? values : undefined;
}

const [COMMA, DOT, ZERO, NINE, A, Z] = [44, 46, 48, 57, 97, 122];
/** In base 36: a cell has three digits, and a safe integer ten. */
const MOST_DISTANCE_DIGITS = 3;
const MOST_VALUE_DIGITS = 10;

/**
 * Reads the output of {@link cellsToText} cell by cell, in ascending order. It goes character by character: a history has
 * hundreds of thousands of these tokens, and is read while the process answers reviews.
 * @returns false for anything else
 */
export function readCells(text: unknown, visit: (cell: number, value: number) => void): boolean {
  if (typeof text !== 'string') return false;
  if (text === '') return true;
  let [cell, distance, value, digits] = [0, -1, 0, 0];
  for (let index = 0; index <= text.length; index += 1) {
    const code = index === text.length ? COMMA : text.charCodeAt(index);
    if (code >= ZERO && code <= NINE) {
      value = value * 36 + code - ZERO;
      digits += 1;
    } else if (code >= A && code <= Z) {
      value = value * 36 + code - A + 10;
      digits += 1;
    } else if (code === DOT) {
      if (distance >= 0 || digits === 0 || digits > MOST_DISTANCE_DIGITS) return false;
      [distance, value, digits] = [value, 0, 0];
    } else if (code === COMMA) {
      if (digits > MOST_VALUE_DIGITS || (digits === 0 && distance < 0)) return false;
      cell += distance < 0 ? 1 : distance;
      if (cell >= CELLS) return false;
      visit(cell, digits === 0 ? 1 : value);
      [distance, value, digits] = [-1, 0, 0];
    } else return false;
  }
  return true;
}

export function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;
}

export function isInstant(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}
