import { isRecord } from '../schema/shape.ts';
import type { Density } from './combine.ts';
import { CELLS } from './grid.ts';
import { Histogram } from './histogram.ts';
import { isInstant } from './integer-text.ts';
import {
  addEntries,
  BLOCK_SCALE,
  merged,
  packed,
  roundedCumulatively,
  type Slot,
  slotFromJson,
  slotToJson,
  storedWeight,
} from './slot.ts';

/** 15 minutes: a storm of S1's kind (10 to 12 minutes) fills one or two slices. */
export const SLICE_SECONDS = 900;

/** 7 days: every weekday's releases and nights are in it once. */
export const SLICES = (7 * 86_400) / SLICE_SECONDS;

/** In a week whose slices all have lags, no slice weighs more than this many times the median slice. */
export const CAP = 4;

/** The widths of blocks that a snapshot may merge slices into: a slice, an hour, 6 hours, a day; each divides the next. */
export const BLOCK_WIDTHS = [1, 4, 24, 96] as const;
export type BlockWidth = (typeof BLOCK_WIDTHS)[number];

const VERSION = 1;

/** What a week of slices comes to. */
export interface WeighedLags {
  /** By cell, after the cap; of whatever total. */
  readonly density: Density;
  /** How many lags there were, before the cap. */
  readonly samples: number;
  /** Seconds from the earliest lag to the instant asked about. */
  readonly historySeconds: number;
  /** When the newest lag ended, in seconds since the caller's epoch. */
  readonly latest: number;
}

/**
 * The heaviest that one slice may be: a multiple of the median of the slices *that have lags*.
 *
 * An empty slice says nothing about lag: not that it was short, only that nobody stopped a pod. Counted as 0, it
 * would make the median, and with it the cap, 0 in every cluster that is quiet for more than half of the week (office
 * hours are 40 of 168 hours), and all that was measured would weigh nothing. Counted or not, it adds no weight.
 * So it is left out. The median is the lower one, hence at least 1.
 *
 * What a storm can do: of N slices with lags, m the median and c × m the cap, at least ⌈(N + 1) ÷ 2⌉ weigh m or more.
 * So k storm slices hold at most ck ÷ (ck + ⌈(N + 1) ÷ 2⌉ − k) of the weight, and ck ÷ ((c − 1)k + N) where the others
 * all weigh about m. With c = {@link CAP} one storm slice in a steady week holds 4 ÷ 675 = 0.6 % and stays beyond p99;
 * with the same c it would be 2 % of two days, or of a week of office hours, and p99 nothing but the storm for days. So
 * c shrinks with N, to 1 at a quarter of a week: a storm weighs 0.6 % there, too, and 1 % of a single day.
 */
export function capOf(totals: readonly number[]): number {
  const occupied = totals.filter((total) => total > 0).sort((a, b) => a - b);
  const multiple = Math.max(1, (CAP * occupied.length) / SLICES);
  return multiple * (occupied[Math.floor((occupied.length - 1) / 2)] ?? 0);
}

/**
 * The lags of one stage in one scope over the last 7 days, in slices. Closed slices are kept as sparse rows, so memory
 * is bounded by {@link SLICES} rows of at most {@link CELLS} entries and in practice is a few hundred kB.
 * Times are seconds since an epoch that the caller chooses, the same for all replicas.
 */
export class LagHistory {
  #closed: Slot[] = [];
  #open: Histogram | undefined;
  #openSlice = 0;
  #openSince = 0;
  #latest = Number.NEGATIVE_INFINITY;
  #weighed: { readonly slots: readonly Slot[]; readonly cap: number; readonly density: Density } | undefined;

  /** @throws RangeError for a negative lag or NaN */
  record(lagSeconds: number, at: number): void {
    const slice = Math.floor(at / SLICE_SECONDS);
    // A clock that was set back writes on in the newest slice.
    if (this.#open !== undefined && slice > this.#openSlice) this.#close();
    if (this.#open === undefined) {
      this.#open = new Histogram();
      this.#openSlice = slice;
      this.#openSince = at;
    }
    this.#open.record(lagSeconds);
    this.#latest = Math.max(this.#latest, at);
  }

  /** @returns undefined when the last 7 days had no lag */
  weighed(now: number): WeighedLags | undefined {
    this.#expire(now);
    const open = this.#openSlot();
    const slots = this.#slots(open);
    const totals = slots.flatMap((slot) => slot.totals);
    if (totals.length === 0) return undefined;
    const cap = capOf(totals);
    // Where the open slice has a first part among the closed ones, the two are one slice.
    const apart = slots.length > this.#closed.length;
    const density = apart ? this.#closedDensity(cap).slice() : densityOf(slots, cap);
    if (apart && open !== undefined) addEntries(density, open, weightOf(open, cap) / storedWeight(open));
    const samples = totals.reduce((sum, total) => sum + total, 0);
    const since = slots.reduce((earliest, slot) => Math.min(earliest, slot.since), now);
    return { density, samples, historySeconds: now - since, latest: this.#latest };
  }

  /** How many lags the last 7 days had. */
  samples(now: number): number {
    this.#expire(now);
    const totals = this.#slots().flatMap((slot) => slot.totals);
    return totals.reduce((sum, total) => sum + total, 0);
  }

  /** The history as it is now: what is recorded from now on does not change it. */
  frozen(): LagHistory {
    const frozen = new LagHistory();
    // Neither slots nor arrays of them are ever changed in place.
    frozen.#closed = this.#slots();
    frozen.#latest = this.#latest;
    return frozen;
  }

  /** Changes only when a slice is closed or the cap moves: asked for every half minute, for every scope. */
  #closedDensity(cap: number): Density {
    if (this.#weighed?.slots !== this.#closed || this.#weighed.cap !== cap) {
      this.#weighed = { slots: this.#closed, cap, density: densityOf(this.#closed, cap) };
    }
    return this.#weighed.density;
  }

  /** Bytes of lag data held: what grows with the number of slices and never with the number of lags. */
  get bytes(): number {
    const dense = (this.#open?.counts.byteLength ?? 0) + (this.#weighed?.density.byteLength ?? 0);
    return this.#closed.reduce((sum, slot) => sum + slot.entries.byteLength + 8 * slot.totals.length, dense);
  }

  /** Takes another's lags in as well. Slices that both have are added. */
  merge(other: LagHistory): void {
    const key = ({ first, totals }: Slot) => `${first}/${totals.length}`;
    const slots = Map.groupBy([...this.#slots(), ...other.#slots()], key);
    this.#closed = [...slots.values()]
      .map((same) => same.reduce(merged))
      .sort((a, b) => a.first - b.first || a.totals.length - b.totals.length);
    this.#open = undefined;
    this.#latest = Math.max(this.#latest, other.#latest);
  }

  /**
   * The same history in fewer rows, each of up to `width` slices. Each slice is capped on the way in, by today's
   * median, so that a storm does not hide among its neighbours; percentiles stay within the rounding of a slot.
   * The price: a block leaves the 7 days as a whole.
   */
  coarsened(width: BlockWidth, now: number): LagHistory {
    this.#expire(now);
    const coarse = new LagHistory();
    coarse.#latest = this.#latest;
    const slots = this.#slots();
    const cap = capOf(slots.flatMap((slot) => slot.totals));
    const kept = slots.filter((slot) => slot.totals.length >= width);
    const blocks = Map.groupBy(
      slots.filter((slot) => slot.totals.length < width),
      (slot) => Math.floor(slot.first / width) * width,
    );
    const made = [...blocks].map(([first, inBlock]) => blockOf(first, width, inBlock, cap));
    coarse.#closed = [...kept, ...made].sort((a, b) => a.first - b.first);
    return coarse;
  }

  toJSON(): unknown {
    const latest = Number.isFinite(this.#latest) ? this.#latest : null;
    return { v: VERSION, latest, slots: this.#slots().map(slotToJson) };
  }

  /** Reads what `JSON.stringify` made of a history. @returns undefined when it is none, or of another version */
  static parse(json: unknown): LagHistory | undefined {
    if (!isRecord(json) || json.v !== VERSION || !Array.isArray(json.slots)) return undefined;
    if (json.slots.length > 2 * SLICES) return undefined;
    const history = new LagHistory();
    for (const each of json.slots as unknown[]) {
      const slot = slotFromJson(each, BLOCK_WIDTHS);
      if (slot === undefined) return undefined;
      history.#closed.push(slot);
    }
    if (isInstant(json.latest)) history.#latest = json.latest;
    else if (history.#closed.length > 0) return undefined;
    return history;
  }

  #slots(open: Slot | undefined = this.#openSlot()): Slot[] {
    if (open === undefined) return this.#closed;
    // A snapshot may hold the first part of the slice that is open now.
    const same = this.#closed.findLastIndex(
      ({ first, totals }) => first === open.first && totals.length === 1,
    );
    const part = this.#closed[same];
    return part === undefined ? [...this.#closed, open] : this.#closed.with(same, merged(part, open));
  }

  #openSlot(): Slot | undefined {
    if (this.#open === undefined) return undefined;
    const { counts, total } = this.#open;
    return {
      first: this.#openSlice,
      since: this.#openSince,
      totals: [total],
      scale: 1,
      entries: packed(counts),
    };
  }

  #close(): void {
    this.#closed = this.#slots();
    this.#open = undefined;
    this.#expire((this.#openSlice + 1) * SLICE_SECONDS);
  }

  /** Forgets the blocks that ended 7 days ago. */
  #expire(now: number): void {
    const oldest = Math.floor(now / SLICE_SECONDS) - SLICES;
    const expired = (slot: Slot) => slot.first + slot.totals.length - 1 <= oldest;
    if (this.#closed.some(expired)) this.#closed = this.#closed.filter((slot) => !expired(slot));
    if (this.#open !== undefined && this.#openSlice <= oldest) this.#open = undefined;
  }
}

function blockOf(first: number, width: number, slots: readonly Slot[], cap: number): Slot {
  const totals = Array<number>(width).fill(0);
  const weights = new Float64Array(CELLS);
  const whole = slots.every((slot) => slot.scale === 1 && slot.totals.every((total) => total <= cap));
  const scale = whole ? 1 : BLOCK_SCALE;
  let since = Number.POSITIVE_INFINITY;
  for (const slot of slots) {
    slot.totals.forEach((total, index) => {
      const at = slot.first - first + index;
      totals[at] = (totals[at] ?? 0) + total;
    });
    addEntries(weights, slot, (scale * weightOf(slot, cap)) / storedWeight(slot));
    since = Math.min(since, slot.since);
  }
  return { first, since, totals, scale, entries: packed(roundedCumulatively(weights)) };
}

function densityOf(slots: readonly Slot[], cap: number): Density {
  const density = new Float64Array(CELLS);
  for (const slot of slots) addEntries(density, slot, weightOf(slot, cap) / storedWeight(slot));
  return density;
}

/** What the slot may weigh, in lags. */
function weightOf(slot: Slot, cap: number): number {
  return slot.totals.reduce((sum, total) => sum + Math.min(total, cap), 0);
}
