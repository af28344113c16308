/**
 * The one grid of lags that all histograms share, so that they can be merged and combined cell by cell. Cell 0 holds
 * exactly 0; cell 1 what is above 0 and up to 1 ms; every further cell ends 2 % above where it begins. A cell stands for
 * one value, and no lag from 1 ms to 2 h is further than {@link CELL_ERROR} from the value of its cell.
 */

/**
 * Neighbouring edges differ by 2 %, so a cell's value (the harmonic middle of its edges) is at most
 * (1.02 − 1) ÷ (1.02 + 1) = 0.99 % off. A sum puts two cells into a third: (1 + 0.0099)² − 1 = 1.99 %, within 2 %.
 */
const RATIO = 1.02;
export const CELL_ERROR = (RATIO - 1) / (RATIO + 1);

/** Events of two watches cannot be ordered to better than a millisecond; below this the grid's error is absolute. */
const FLOOR_SECONDS = 0.001;

/** Two cells below the floor, and ⌈ln(7200 s ÷ 1 ms) ÷ ln 1.02⌉ = 798 up to 2 h (in fact to 7,293 s). */
export const CELLS = 800;

/** Whatever is longer stands in the last cell: beyond any wait, so only "very long" is left to say. */
export const LONGEST_SECONDS = 7200;

const LOG_RATIO = Math.log(RATIO);

const VALUES: Float64Array = Float64Array.from({ length: CELLS }, (_, cell) => {
  if (cell === 0) return 0;
  if (cell === 1) return FLOOR_SECONDS;
  return (FLOOR_SECONDS * RATIO ** (cell - 1) * 2) / (RATIO + 1);
});

/**
 * The cell of a lag in seconds.
 * @throws RangeError for a negative lag or NaN
 */
export function cellOf(seconds: number): number {
  if (!(seconds >= 0)) throw new RangeError(`expected a lag of 0 s or more, got ${seconds}`);
  if (seconds === 0) return 0;
  if (seconds <= FLOOR_SECONDS) return 1;
  return Math.min(CELLS - 1, 1 + Math.ceil(Math.log(seconds / FLOOR_SECONDS) / LOG_RATIO));
}

/** The lag in seconds that a cell stands for. */
export function secondsOf(cell: number): number {
  return VALUES[cell] ?? LONGEST_SECONDS;
}

/** The last cell whose value is at most this many seconds; −1 when they are negative. */
export function lastCellWithin(seconds: number): number {
  if (!(seconds >= 0)) return -1;
  const cell = cellOf(seconds);
  return secondsOf(cell) <= seconds ? cell : cell - 1;
}

/**
 * How many cells above the larger addend the sum of two lags lies, by the distance d of their cells: both values
 * are on the same geometric ladder, so the sum is the larger one × (1 + ratio^−d), whichever the cell.
 */
const SUM_OFFSETS: Uint8Array = Uint8Array.from({ length: CELLS }, (_, distance) =>
  Math.ceil(Math.log((2 * (1 + RATIO ** -distance)) / (RATIO + 1)) / LOG_RATIO),
);

/** The cell of the sum of two cells' values. */
export function sumCell(a: number, b: number): number {
  const large = Math.max(a, b);
  const small = Math.min(a, b);
  if (small === 0) return large;
  // Cell 1 is not on the ladder.
  if (small === 1) return cellOf(secondsOf(large) + FLOOR_SECONDS);
  return Math.min(CELLS - 1, large + (SUM_OFFSETS[large - small] ?? 0));
}
