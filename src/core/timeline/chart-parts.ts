import type { Dot } from './chart.ts';

/** Longer texts are cut before they are processed. */
const LONGEST = 2_000;

/**
 * A text without characters that XML does not allow, that control a terminal, or that change the reading direction of the
 * text around them.
 */
export function shown(text: string): string {
  return text.slice(0, LONGEST).replaceAll(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\uFFFE\uFFFF]/gu, '\uFFFD');
}

/** Columns of a terminal: East Asian characters and emoji take two. */
const WIDE =
  /[\u1100-\u115F\u2E80-\uA4CF\uAC00-\uD7A3\uF900-\uFAFF\uFE30-\uFE6F\uFF00-\uFF60\uFFE0-\uFFE6\u{1F300}-\u{1FAFF}\u{20000}-\u{3FFFD}]/u;
const WITHOUT_WIDTH = /\p{M}/u;

function unitsOfOne(char: string): number {
  if (WITHOUT_WIDTH.test(char)) return 0;
  return WIDE.test(char) ? 2 : 1;
}

export function unitsOf(text: string): number {
  return [...text].reduce((sum, char) => sum + unitsOfOne(char), 0);
}

/** Shortens a text to this many columns. Names of pods differ at their end, so the middle is left out. */
export function clipped(text: string, room: number): string {
  if (unitsOf(text) <= room) return text;
  if (room < 1) return '';
  const chars = [...text];
  const head = taken(chars, Math.ceil((room - 1) / 2));
  const tail = taken(chars.toReversed(), Math.floor((room - 1) / 2)).toReversed();
  return `${head.join('')}…${tail.join('')}`;
}

function taken(chars: readonly string[], room: number): readonly string[] {
  let used = 0;
  const end = chars.findIndex((char) => {
    used += unitsOfOne(char);
    return used > room;
  });
  return chars.slice(0, end === -1 ? undefined : end);
}

const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800, 3_600];

/** Round instants on an axis, about this many. */
export function ticksOf(from: number, to: number, most: number): readonly number[] {
  const least = (to - from) / most;
  const step = STEPS.find((each) => each >= least) ?? 3_600 * Math.ceil(least / 3_600);
  const first = Math.ceil(from / step - 1e-9);
  const last = Math.floor(to / step + 1e-9);
  if (!Number.isFinite(first) || !Number.isFinite(last)) return [];
  return Array.from(
    { length: Math.max(0, last - first + 1) },
    (_, index) => Math.round((first + index) * step * 10) / 10,
  );
}

/** Groups dots into bins along the axis. `share`: the position of a bin's middle on the axis, from 0 at the left to 1. */
export function binsOf(
  dots: readonly Dot[],
  from: number,
  to: number,
  bins: number,
): readonly { readonly index: number; readonly share: number; readonly lost: boolean }[] {
  const lostIn = new Map<number, boolean>();
  for (const { at, lost } of dots) {
    if (!(at >= from && at <= to)) continue;
    const index = to > from ? Math.min(bins - 1, Math.floor(((at - from) / (to - from)) * bins)) : 0;
    lostIn.set(index, lost || lostIn.get(index) === true);
  }
  return [...lostIn]
    .toSorted(([a], [b]) => a - b)
    .map(([index, lost]) => ({ index, share: (index + 0.5) / bins, lost }));
}
