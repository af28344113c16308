import type { Chart, Dot, Lane, Mark, Tone } from './chart.ts';
import { binsOf, clipped, shown, ticksOf, unitsOf } from './chart-parts.ts';

const STYLE = `
.tl text{font:14px/1 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",Arial,sans-serif;fill:#1f2328;stroke:#fff;stroke-width:4px;stroke-linejoin:round;paint-order:stroke}
.tl .title{font-size:17px;font-weight:600}
.tl .quiet{fill:#59636e;font-size:13px}
.tl .bad{fill:#b42318;font-weight:600}
.tl .paper{fill:#fff}
.tl .grid{stroke:#d8dee4;fill:none}
.tl .mark{stroke:#1f2328;stroke-width:1.5;fill:none}
.tl .sends{fill:#d4a72c}
.tl .lost{fill:#cf222e}
.tl .waits{fill:#1a7f37}
.tl .stops{fill:#0969da}
.tl .unknown{fill:none;stroke:#59636e;stroke-dasharray:4 3}
.tl .ok{stroke:#1a7f37;stroke-width:5;stroke-linecap:round;fill:none}
.tl .cross{stroke:#cf222e;stroke-width:2.5;fill:none}
@media (prefers-color-scheme:dark){
.tl text{fill:#f0f6fc;stroke:#0d1117}
.tl .quiet{fill:#9198a1}
.tl .bad{fill:#ff9d90}
.tl .paper{fill:#0d1117}
.tl .grid{stroke:#2a313c}
.tl .mark{stroke:#f0f6fc}
.tl .sends{fill:#d29922}
.tl .lost{fill:#f85149}
.tl .waits{fill:#3fb950}
.tl .stops{fill:#4493f8}
.tl .unknown{stroke:#9198a1}
.tl .ok{stroke:#3fb950}
.tl .cross{stroke:#f85149}
}
`;

interface SvgOptions {
  /** Pixels; in a narrow drawing, the words of a lane are above it. */
  readonly width?: number;
  /** `none`: the caller includes {@link CHART_STYLE} itself, because its page allows no style inside the SVG. */
  readonly style?: 'within' | 'none';
}

/** The style of {@link chartSvg}, light and dark. */
export const CHART_STYLE = STYLE;

const EDGE = 16;
const NARROW = 600;
const LEAST_WIDTH = 240;
const BAR = 16;
/** Pixels of an average character at 14 px; the widest drawn names are cut before they reach the next column. */
const UNIT = 7.6;
const DOT = 4;
const LINE = 20;

const GAP = 16;

/**
 * Charts as one SVG file, one below the other. It contains no script and nothing from outside, and every text is escaped.
 */
export function chartSvg(
  charts: Chart | readonly Chart[],
  { width = 960, style = 'within' }: SvgOptions = {},
): string {
  const drawn = (isList(charts) ? charts : [charts]).map((chart) => drawing(chart, width));
  const height = drawn.reduce((sum, each) => sum + each.height + GAP, -GAP);
  const whole = Math.max(LEAST_WIDTH, Math.round(width));
  const said = drawn.map((each) => each.said).join(' ');
  let y = -GAP;
  const parts = drawn.map((each) => {
    const top = y + GAP;
    y = top + each.height;
    return `<g transform="translate(0 ${top})">\n${each.body}\n</g>`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" class="tl" viewBox="0 0 ${whole} ${height}" width="${whole}" height="${height}" role="img" aria-label="${escaped(said)}">`,
    ...(style === 'within' ? [`<style>${STYLE}</style>`] : []),
    ...parts,
    '</svg>',
  ].join('\n');
}

function isList(charts: Chart | readonly Chart[]): charts is readonly Chart[] {
  return Array.isArray(charts);
}

function drawing(chart: Chart, width: number) {
  const whole = Math.max(LEAST_WIDTH, Math.round(width));
  const narrow = whole < NARROW;
  const noted = chart.lanes.some(({ note = '' }) => note !== '');
  const label = narrow ? 0 : Math.min(280, Math.round(whole * 0.3));
  const note = narrow || !noted ? 0 : Math.min(190, Math.round(whole * 0.2));
  const [left, right] = [EDGE + label, whole - EDGE - note];
  const place: Layout = { chart, left, right, narrow, label, note: note - 12, whole };
  const title = [...wrapped(chart.title, whole, 'title', 2), ...wrapped(chart.summary, whole, 'quiet', 3)];
  const begin = EDGE + title.length * LINE + 8;
  const marks = placedMarks(chart.marks, place);
  const rows = Math.max(0, ...marks.map(({ row }) => row + 1));
  const top = begin + rows * LINE + 4;
  const laneHeight = narrow ? BAR + LINE + 10 : BAR + 12;
  const bottom = top + chart.lanes.length * laneHeight + 4;
  const height = bottom + LINE + EDGE;
  const said = [chart.title, chart.summary, ...chart.lanes.map(laneInWords)].map(shown).join('. ');
  const body = [
    `<rect class="paper" width="${whole}" height="${height}" rx="10"/>`,
    ...title.map((line, index) => textAt(EDGE, EDGE + 14 + index * LINE, line.text, line.of)),
    ...axis(place, top - 4, bottom),
    ...marks.map((mark) => drawnMark(mark, begin, bottom)),
    ...chart.lanes.map((lane, index) => drawnLane(lane, top + index * laneHeight, place)),
  ].join('\n');
  return { body, height, said };
}

interface Layout {
  readonly chart: Chart;
  /** Where the axis begins and ends, in pixels. */
  readonly left: number;
  readonly right: number;
  readonly narrow: boolean;
  readonly label: number;
  readonly note: number;
  readonly whole: number;
}

function xOf(at: number, { chart: { from, to }, left, right }: Layout): number {
  const share = to > from ? (Math.min(to, Math.max(from, at)) - from) / (to - from) : 0;
  return Math.round((left + share * (right - left)) * 10) / 10;
}

function laneInWords({ label, note = '' }: Lane): string {
  return note === '' ? label : `${label}: ${note}`;
}

/** Lines as wide as the drawing. */
function wrapped(text: string, whole: number, of: string, most: number) {
  const room = Math.floor((whole - 2 * EDGE) / (of === 'title' ? UNIT * 1.5 : UNIT));
  const lines: string[] = [];
  for (const word of shown(text).split(' ').filter(Boolean)) {
    const last = lines.at(-1);
    if (last !== undefined && unitsOf(`${last} ${word}`) <= room) lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  const kept = lines.length > most ? [...lines.slice(0, most - 1), lines.slice(most - 1).join(' ')] : lines;
  return kept.map((line) => ({ text: clipped(line, room), of }));
}

/** The labels of marks that are close together are put into different rows. */
function placedMarks(marks: readonly Mark[], place: Layout) {
  const ends: number[] = [];
  return marks.map(({ at, label }) => {
    const text = clipped(shown(label), Math.floor((place.whole - 2 * EDGE) / UNIT));
    const [x, half] = [xOf(at, place), (unitsOf(text) * UNIT) / 2];
    const middle = Math.min(place.whole - EDGE - half, Math.max(EDGE + half, x));
    const free = ends.findIndex((end) => end < middle - half);
    const row = free === -1 ? ends.length : free;
    ends[row] = middle + half + 8;
    return { x, middle, row, text };
  });
}

function drawnMark(
  { x, middle, row, text }: ReturnType<typeof placedMarks>[number],
  begin: number,
  bottom: number,
): string {
  const y = begin + row * LINE;
  return `<path class="mark" d="M${x} ${y + LINE - 2}V${bottom}"/>${textAt(middle, y + 12, text, 'strong', 'middle')}`;
}

function axis(place: Layout, top: number, bottom: number): readonly string[] {
  const { from, to } = place.chart;
  return ticksOf(from, to, Math.max(2, Math.floor((place.right - place.left) / 70))).flatMap((at) => {
    const x = xOf(at, place);
    const text = textAt(x, bottom + 16, `${at} s`, 'quiet', 'middle');
    return [`<path class="grid" d="M${x} ${top}V${bottom}"/>${text}`];
  });
}

function drawnLane(lane: Lane, y: number, place: Layout): string {
  const { label, note = '', spans = [], dots = [] } = lane;
  const { narrow, whole } = place;
  const bar = narrow ? y + LINE : y;
  const base = narrow ? y + 13 : y + 13;
  const noteUnits = Math.floor((narrow ? (whole - 2 * EDGE) * 0.45 : place.note) / UNIT);
  const noted = clipped(shown(note), Math.max(0, noteUnits));
  const labelPixels = narrow ? whole - 2 * EDGE - unitsOf(noted) * UNIT - 12 : place.label - 12;
  const labelled = clipped(shown(label), Math.floor(labelPixels / UNIT));
  const bad = spans.some(({ tone }) => tone === 'lost') || dots.some(({ lost }) => lost);
  return [
    `<g><title>${escaped(shown(laneInWords(lane)))}</title>`,
    textAt(EDGE, base, labelled),
    ...spans.map(({ from, to, tone }) => drawnSpan(from, to, tone, bar, place)),
    ...drawnDots(dots, bar + BAR / 2, place),
    noted === '' ? '' : textAt(whole - EDGE, base, noted, bad ? 'bad' : 'quiet', 'end'),
    '</g>',
  ].join('');
}

function drawnSpan(from: number, to: number, tone: Tone, y: number, place: Layout): string {
  const [a, b] = [xOf(from, place), xOf(to, place)];
  // Spans of no duration must be visible, too.
  const width = Math.max(2, Math.round((b - a) * 10) / 10);
  return `<rect class="${tone}" x="${a}" y="${y}" width="${width}" height="${BAR}" rx="2"/>`;
}

/** Draws one dot per column; if any of its dots is lost, that is the one drawn. */
function drawnDots(dots: readonly Dot[], y: number, place: Layout): readonly string[] {
  const { chart, left, right } = place;
  const bins = binsOf(dots, chart.from, chart.to, Math.max(1, Math.floor((right - left) / DOT)));
  const paths = { ok: '', cross: '' };
  for (const { share, lost } of bins) {
    const x = Math.round((left + share * (right - left)) * 10) / 10;
    if (lost) paths.cross += `M${x - 4} ${y - 4}l8 8m0 -8l-8 8`;
    else paths.ok += `M${x} ${y}h0`;
  }
  return Object.entries(paths).flatMap(([of, d]) => (d === '' ? [] : [`<path class="${of}" d="${d}"/>`]));
}

function textAt(x: number, y: number, text: string, of = '', anchor = 'start'): string {
  const styled = of === '' ? '' : ` class="${of}"`;
  // A name that reads from right to left keeps its position.
  const side = anchor === 'start' ? '' : ` text-anchor="${anchor}"`;
  return `<text x="${x}" y="${y}" direction="ltr"${side}${styled}>${escaped(text)}</text>`;
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

function escaped(text: string): string {
  return text.replaceAll(/[&<>"']/g, (char) => ENTITIES[char] ?? '');
}
