import type { Chart, Lane, Mark, Tone } from './chart.ts';
import { binsOf, clipped, shown, ticksOf, unitsOf } from './chart-parts.ts';

interface TextOptions {
  /** Columns of the terminal. */
  readonly width: number;
  readonly colour: boolean;
}

/** For each tone, the character that shows it without colour, and its colour. */
const TONES: Readonly<Record<Tone, readonly [char: string, colour: number]>> = {
  sends: ['━', 33],
  lost: ['█', 31],
  waits: ['▒', 32],
  stops: ['░', 34],
  unknown: ['┄', 90],
};
const OK = ['·', 32] as const;
const LOST = ['×', 31] as const;
const MARK = '│';
const LEAST_WIDTH = 40;

/** A cell of a line, with its colour. */
type Cell = readonly [char: string, colour: number];
const BLANK: Cell = [' ', 0];

/** The chart for a terminal: the same lanes, marks and words as in the SVG. */
export function chartText(chart: Chart, { width, colour }: TextOptions): string {
  const whole = Math.max(LEAST_WIDTH, width);
  const widest = (texts: readonly string[]) => Math.max(0, ...texts.map((text) => unitsOf(shown(text))));
  const label = Math.min(widest(chart.lanes.map((each) => each.label)), Math.floor(whole * 0.36));
  const note = Math.min(widest(chart.lanes.map((each) => each.note ?? '')), Math.floor(whole * 0.3));
  const plot = Math.max(8, whole - label - note - 4);
  const column = columnOf(chart, plot);
  const marked = new Set(chart.marks.map(({ at }) => column(at)));
  const indent = ' '.repeat(label + 2);
  const lines = [
    clipped(shown(chart.title), whole),
    ...markRows(chart.marks, column, whole - label - 2).map((row) => `${indent}${row}`),
    ...chart.lanes.map((lane) => {
      const bar = painted(cellsOf(lane, chart, plot, column, marked), colour);
      const isBad = lane.spans?.some(({ tone }) => tone === 'lost') === true;
      const noted = clipped(shown(lane.note ?? ''), note);
      const end = isBad && colour ? `\u001b[31m${noted}\u001b[0m` : noted;
      return `${padded(clipped(shown(lane.label), label), label)}  ${bar}  ${end}`;
    }),
    `${indent}${tickRow(chart, column, whole - label - 2)}`,
    ...(chart.summary === '' ? [] : [shown(chart.summary)]),
  ];
  return `${lines.map((line) => line.trimEnd()).join('\n')}\n`;
}

function columnOf({ from, to }: Chart, plot: number): (at: number) => number {
  return (at) => {
    const share = to > from ? (Math.min(to, Math.max(from, at)) - from) / (to - from) : 0;
    return Math.min(plot - 1, Math.floor(share * plot));
  };
}

function padded(text: string, units: number): string {
  return text + ' '.repeat(Math.max(0, units - unitsOf(text)));
}

function cellsOf(
  { spans = [], dots = [] }: Lane,
  { from, to }: Chart,
  plot: number,
  column: (at: number) => number,
  marked: ReadonlySet<number>,
): readonly Cell[] {
  const cells: Cell[] = Array.from({ length: plot }, (_, index) => (marked.has(index) ? [MARK, 0] : BLANK));
  for (const span of spans) {
    const [first, end] = [column(span.from), column(span.to)];
    // A span ends before the cell in which it ends, because the next span begins there. Spans of no duration must be
    // visible, too.
    for (let index = first; index <= Math.max(first, end - 1); index += 1) cells[index] = TONES[span.tone];
  }
  for (const { index, lost } of binsOf(dots, from, to, plot)) cells[index] = lost ? LOST : OK;
  return cells;
}

function painted(cells: readonly Cell[], colour: boolean): string {
  if (!colour) return cells.map(([char]) => char).join('');
  let text = '';
  let current = 0;
  for (const [char, of] of cells) {
    if (of !== current) text += of === 0 ? '\u001b[0m' : `\u001b[${of}m`;
    current = of;
    text += char;
  }
  return current === 0 ? text : `${text}\u001b[0m`;
}

/** The labels of marks, each beginning at its column. A label without enough room gets a row of its own. */
function markRows(marks: readonly Mark[], column: (at: number) => number, room: number): readonly string[] {
  const rows: string[] = [];
  for (const { at, label } of marks) {
    const text = clipped(shown(label), room);
    const start = Math.max(0, Math.min(column(at), room - unitsOf(text)));
    const free = rows.findIndex((row) => row === '' || unitsOf(row) < start);
    const index = free === -1 ? rows.length : free;
    rows[index] = `${padded(rows[index] ?? '', start)}${text}`;
  }
  return rows;
}

function tickRow(chart: Chart, column: (at: number) => number, room: number): string {
  let row = '';
  for (const at of ticksOf(chart.from, chart.to, Math.max(2, Math.floor(room / 10)))) {
    const text = `${at}s`;
    const start = column(at);
    if (row !== '' && unitsOf(row) >= start) continue;
    if (start + text.length > room) break;
    row = `${padded(row, start)}${text}`;
  }
  return row;
}
