import { isRecord, isString, readEntries } from '../api/index.ts';
import { BUCKETS, bucketOf, secondsOf } from './buckets.ts';
import { type Density, quantileOf } from './distribution.ts';
import { type BucketValue, bucketsToText, Histogram, isCount, isInstant, readBuckets } from './histogram.ts';

/** 15 minutes, so that a storm like S1's (10 to 12 minutes) fills one or two quarters. */
export const QUARTER_SECONDS = 900;

const HOUR_SECONDS = 3_600;
const DAY_SECONDS = 86_400;

/** A week has each weekday's releases and each night exactly once. */
const WINDOW_DAYS = 7;

/**
 * A quiet cluster looks back up to this many days to find enough samples. Only days with lags are counted, both here and in
 * what is kept: if all days counted, one lag from a clock that is a month ahead would erase all others.
 */
const MOST_DAYS = 28;

/** How old lags may be for a namespace to be judged by its own instead of the cluster's. */
export const OWN_SECONDS: number = MOST_DAYS * DAY_SECONDS;

/** The window is a week, and the hourly curves look back another day: 8 days have 768 quarters. */
const SLOTS_KEPT = 800;

/** Older quarters are kept, too, until there are more samples than any policy is likely to require. */
const SAMPLES_KEPT = 10_000;

/** The widths, in quarters of an hour, of the slots that a text may have (15 minutes to a day); each divides the next. */
const WIDTHS = [1, 4, 24, 96] as const;

/** Each entry is `bucket × 2^22 + times`: 800 buckets need 10 bits. No cluster has 4 million lags of one bucket in a day. */
const TIMES_BITS = 22;
const MOST_TIMES = 2 ** TIMES_BITS - 1;

/** How many entries can be written or read in about a millisecond. */
const MOST_ENTRIES = 5_000;

/** The lags that ended in one quarter of an hour, or in several quarters that were merged to shorten a stored text. */
interface Slot {
  /** The number of its first quarter, counted from the epoch. */
  readonly first: number;
  /** How many quarters it spans. */
  readonly width: number;
  readonly samples: number;
  /** Occupied buckets only; few quarters have more than 300. */
  readonly entries: Uint32Array;
}

const endOf = ({ first, width }: Slot) => (first + width) * QUARTER_SECONDS;
const dayOf = ({ first }: Slot) => Math.floor(first / 96);
const byEnd = (a: Slot, b: Slot) => endOf(a) - endOf(b) || a.first - b.first;

/** @param buckets ascending */
function slotOf(first: number, width: number, buckets: Iterable<BucketValue>): Slot {
  const entries: number[] = [];
  let samples = 0;
  for (const [bucket, count] of buckets) {
    const times = Math.min(count, MOST_TIMES);
    if (times === 0) continue;
    entries.push(bucket * 2 ** TIMES_BITS + times);
    samples += times;
  }
  return { first, width, samples, entries: Uint32Array.from(entries) };
}

function* bucketsIn({ entries }: Slot): Generator<BucketValue> {
  for (const entry of entries) yield [entry >>> TIMES_BITS, entry & MOST_TIMES];
}

function countsOf(slots: readonly Slot[]): Density {
  const counts = new Float64Array(BUCKETS);
  for (const slot of slots) addLags(counts, slot, 1);
  return counts;
}

function addLags(counts: Density, { entries }: Slot, times: 1 | -1): void {
  // By index, because `for…of` takes four times as long.
  for (let at = 0; at < entries.length; at += 1) {
    const entry = entries[at] as number;
    const bucket = entry >>> TIMES_BITS;
    counts[bucket] = (counts[bucket] as number) + times * (entry & MOST_TIMES);
  }
}

/**
 * Sums the lags of successive ranges of slots. Hourly windows share most of their slots, so only the difference is added or
 * subtracted.
 */
class RangeCounts {
  readonly #slots: readonly Slot[];
  readonly #counts: Density = new Float64Array(BUCKETS);
  #first = 0;
  #end = 0;
  samples = 0;

  constructor(slots: readonly Slot[]) {
    this.#slots = slots;
  }

  /** The lags by bucket of the slots from `first` to before `end`. */
  between(first: number, end: number): Density {
    for (; this.#end < end; this.#end += 1) this.#add(this.#end, 1);
    for (; this.#first > first; this.#first -= 1) this.#add(this.#first - 1, 1);
    for (; this.#end > end; this.#end -= 1) this.#add(this.#end - 1, -1);
    for (; this.#first < first; this.#first += 1) this.#add(this.#first, -1);
    return this.#counts.slice();
  }

  #add(index: number, times: 1 | -1): void {
    const slot = this.#slots[index] as Slot;
    this.samples += times * slot.samples;
    addLags(this.#counts, slot, times);
  }
}

/** Merges slots into blocks of `width` quarters; wider slots stay as they are. */
function coarsened(slots: readonly Slot[], width: number): readonly Slot[] {
  const widthOf = (slot: Slot) => Math.max(width, slot.width);
  const firstOf = (slot: Slot) => Math.floor(slot.first / widthOf(slot)) * widthOf(slot);
  // The key combines position and width; 128 is more than the widest slot's 96 quarters, so keys are unique.
  const blocks = Map.groupBy(slots, (slot) => 128 * firstOf(slot) + widthOf(slot));
  return [...blocks.values()].map((inBlock) => {
    const [slot] = inBlock as [Slot];
    return slotOf(firstOf(slot), widthOf(slot), countsOf(inBlock).entries());
  });
}

/** The most history that has been available so far. It never shrinks: once there was enough, it stays enough. */
export interface Reached {
  readonly samples: number;
  /** Since the first lag, by the clocks of the processes that measured. */
  readonly seconds: number;
}

/** How much history a policy requires before it takes waits from measurements. */
export interface Enough {
  readonly minSamples: number;
  /** Seconds. */
  readonly minHistory: number;
}

export function furthest(a: Reached, b: Reached): Reached {
  return { samples: Math.max(a.samples, b.samples), seconds: Math.max(a.seconds, b.seconds) };
}

export function isEnough({ samples, seconds }: Reached, { minSamples, minHistory }: Enough): boolean {
  return samples >= minSamples && seconds >= minHistory;
}

export interface WindowLags {
  /** The earliest instant of the window, and the instant at which it ends. */
  readonly from: number;
  readonly at: number;
  readonly samples: number;
  /** How many seconds of the window had been measured at that instant. */
  readonly historySeconds: number;
  /** Lags by bucket. */
  readonly counts: Density;
}

/** Seconds since the epoch. */
export interface Period {
  readonly from: number;
  readonly to: number;
}

/** One scope's history, or some days of it, to be stored. */
export interface HistoryPart {
  /** `cluster`, `namespace/NAME` or `consumer/NAME/removal|addition`; with `/1` and so on where it is not the first. */
  readonly key: string;
  /** JSON without a line break. `characters` limits the whole scope; slots are merged to fit, but at most to one per day. */
  readonly text: (characters: number) => string;
}

/** A short span with a large share of the long lags: a storm, or a bad release. */
export interface Episode extends Period {
  /** The removals that ended in it. */
  readonly removals: number;
  /** Their share of all in the window, 0 to 1. */
  readonly share: number;
  readonly p99Seconds: number;
  /** The p99 of the window without the episode. */
  readonly p99WithoutSeconds: number;
}

/** A lag counts as long from this share of the window's p99 on: those lags determine the p99. */
const LONG_SHARE = 0.5;

/** A run of quarters is an episode if it has at least this share of all long lags. */
const EPISODE_SHARE = 0.1;

/** There must be at least this many other lags for an episode to stand out from. */
const LEAST_REST = 100;

const VERSION = 2;

/**
 * The lags of one scope in quarters of an hour, each counted once and all with the same weight. Times are seconds since
 * the epoch by the caller's clock; lags may come in any order of time. Memory is bounded by the number of quarters.
 */
export class LagHistory {
  /** Ordered by their ends. Slots and their arrays are immutable. */
  #closed: readonly Slot[] = [];
  #closedSamples = 0;
  #open: Histogram | undefined;
  #openQuarter = 0;
  /**
   * When measuring began, by this process's clock. A stored history adds its length rather than its start, because the start
   * is from another clock.
   */
  #began = Number.POSITIVE_INFINITY;
  #latest = Number.NEGATIVE_INFINITY;
  #reached: Reached = { samples: 0, seconds: 0 };

  /** −Infinity if there is none. */
  get latest(): number {
    return this.#latest;
  }

  get samples(): number {
    return this.#closedSamples + (this.#open?.total ?? 0);
  }

  /** @throws RangeError for a negative lag or NaN */
  record(lagSeconds: number, at: number): void {
    const quarter = Math.floor(at / QUARTER_SECONDS);
    if (this.#open !== undefined && quarter !== this.#openQuarter) {
      this.reached(at);
      this.#close(this.#slots());
      this.#trim();
    }
    this.#open ??= new Histogram();
    this.#openQuarter = quarter;
    this.#open.record(lagSeconds);
    this.#began = Math.min(this.#began, at);
    this.#latest = Math.max(this.#latest, at);
  }

  /** The most history that has been available up to this instant. */
  reached(now: number): Reached {
    this.#reached = furthest(this.#reached, { samples: this.samples, seconds: now - this.#began });
    return this.#reached;
  }

  /**
   * The lags of the last 7 days, or of as many days (up to 28 with lags) as it takes to hold `minSamples`: first as of now,
   * then as of each full hour of the last 24, latest first. Hours for which there are hardly any lags are left out.
   * @returns nothing if there is no lag
   */
  *windows(now: number, minSamples: number): Generator<WindowLags, void> {
    const slots = this.#slots();
    const sums = new RangeCounts(slots);
    const current = this.#windowOf(slots, sums, slots.length, now, minSamples);
    if (current === undefined) return;
    yield current;
    const least = Math.min(minSamples, current.samples / 2);
    const hour = Math.floor(now / HOUR_SECONDS) * HOUR_SECONDS;
    let end = slots.length;
    for (let at = hour; at > hour - DAY_SECONDS; at -= HOUR_SECONDS) {
      while (end > 0 && endOf(slots[end - 1] as Slot) > at) end -= 1;
      const past = this.#windowOf(slots, sums, end, at, minSamples);
      if (past === undefined) return;
      if (past.samples >= least) yield past;
    }
  }

  /** The first of {@link windows}. */
  window(now: number, minSamples: number): WindowLags | undefined {
    const slots = this.#slots();
    return this.#windowOf(slots, new RangeCounts(slots), slots.length, now, minSamples);
  }

  #windowOf(
    slots: readonly Slot[],
    sums: RangeCounts,
    end: number,
    at: number,
    minSamples: number,
  ): WindowLags | undefined {
    const first = firstOfWindow(slots, end, at, minSamples);
    const slot = slots[first];
    if (slot === undefined || first === end) return undefined;
    const from = slot.first * QUARTER_SECONDS;
    const since = Math.max(this.#began, from);
    const counts = sums.between(first, end);
    return { from, at, samples: sums.samples, historySeconds: Math.max(0, at - since), counts };
  }

  /** The lags by bucket that ended between two instants, counting only slots that lie completely between them. */
  countsWithin(from: number, at: number): Density {
    const isOpen = at >= this.#openQuarter * QUARTER_SECONDS;
    const until = isOpen ? Number.POSITIVE_INFINITY : at;
    const slots = isOpen ? this.#slots() : this.#closed;
    return countsOf(slots.filter((slot) => slot.first * QUARTER_SECONDS >= from && endOf(slot) <= until));
  }

  /** How important this history is when there is no room for all: the number of its lags plus their seconds. */
  get weight(): number {
    let weight = 0;
    for (const slot of this.#slots())
      for (const [bucket, count] of bucketsIn(slot)) weight += count * (1 + secondsOf(bucket));
    return weight;
  }

  /**
   * The lags, as seconds and their number, by the span in which they ended: 15 minutes, or more where old quarters were
   * merged.
   */
  *spans(): Generator<Period & { readonly lags: readonly (readonly [seconds: number, count: number])[] }> {
    for (const slot of this.#slots()) {
      const lags = [...bucketsIn(slot)].map(([bucket, count]) => [secondsOf(bucket), count] as const);
      yield { from: slot.first * QUARTER_SECONDS, to: endOf(slot), lags };
    }
  }

  /** The episodes of the window at this instant, in descending order of their long lags. */
  *episodes(now: number, minSamples: number): Generator<Episode> {
    const all = this.#slots();
    const slots = all.slice(firstOfWindow(all, all.length, now, minSamples));
    if (slots.length === 0) return;
    const long = bucketOf(quantileOf(countsOf(slots), 99) * LONG_SHARE);
    const runs: { from: number; to: number; long: number; slots: Slot[] }[] = [];
    let allLong = 0;
    for (const slot of slots) {
      const count = longLags(slot, long);
      if (count === 0) continue;
      allLong += count;
      const from = slot.first * QUARTER_SECONDS;
      let run = runs.at(-1);
      if (run === undefined || from - run.to > HOUR_SECONDS) {
        run = { from, to: from, long: 0, slots: [] };
        runs.push(run);
      }
      run.from = Math.min(run.from, from);
      run.to = endOf(slot);
      run.long += count;
      run.slots.push(slot);
    }
    const short = runs.filter(
      (run) => run.to - run.from <= DAY_SECONDS && run.long >= EPISODE_SHARE * allLong,
    );
    for (const { from, to, slots: ofRun } of short.sort((a, b) => b.long - a.long)) {
      const rest = this.without(from, to).window(now, minSamples);
      if (rest === undefined || rest.samples < LEAST_REST) continue;
      const removals = samplesOf(ofRun);
      const p99Seconds = quantileOf(countsOf(ofRun), 99);
      const p99WithoutSeconds = quantileOf(rest.counts, 99);
      yield { from, to, removals, share: removals / samplesOf(slots), p99Seconds, p99WithoutSeconds };
    }
  }

  /** Removes all quarters that overlap with this span. @returns how many lags were in them */
  forget(from: number, to: number): number {
    const before = this.samples;
    const kept = this.#slots().filter((slot) => endOf(slot) <= from || slot.first * QUARTER_SECONDS >= to);
    this.#close(kept);
    return before - this.samples;
  }

  without(from: number, to: number): LagHistory {
    const copy = new LagHistory();
    copy.#close(this.#slots());
    copy.#began = this.#began;
    copy.forget(from, to);
    return copy;
  }

  /**
   * Merges another history's slots: where both cover the same time, the one with more lags wins. So nothing is counted
   * twice, however often and in whatever order texts of an earlier process and of other replicas are read. Slots in the
   * future are left out, because they would never expire.
   * @returns how many lags were added
   */
  merge(other: LagHistory, now: number): number {
    const before = this.samples;
    const own = new Set(this.#slots());
    const all = other.#slots();
    const past = all.filter(({ first }) => first * QUARTER_SECONDS <= now + HOUR_SECONDS);
    const merged = overlapping([...own, ...past]).flatMap((slots) => {
      const [ours, theirs] = [slots.filter((slot) => own.has(slot)), slots.filter((slot) => !own.has(slot))];
      return samplesOf(theirs) > samplesOf(ours) ? theirs : ours;
    });
    this.#close(merged.sort(byEnd));
    const { seconds } = other.reached(now);
    if (seconds > 0) this.#began = Math.min(this.#began, now - seconds);
    this.#latest = Math.max(this.#latest, Math.min(other.#latest, now));
    // If some of its lags were left out, the other's reached history is not enough to replace what is published.
    const samples = past.length === all.length ? other.#reached.samples : 0;
    this.#reached = furthest(this.#reached, { samples, seconds });
    this.#trim();
    return Math.max(0, this.samples - before);
  }

  /**
   * The history as text for {@link readPart}, in slots as narrow as there is room for. A busy scope is split into several
   * parts of whole days, so that none takes long to write or to read; each can be merged by itself.
   */
  parts(key: string, now: number): readonly HistoryPart[] {
    const groups: Slot[][] = [[]];
    let entries = 0;
    for (const slot of this.#slots()) {
      const last = groups.at(-1)?.at(-1);
      if (entries > MOST_ENTRIES && last !== undefined && dayOf(last) !== dayOf(slot)) {
        groups.push([]);
        entries = 0;
      }
      groups.at(-1)?.push(slot);
      entries += slot.entries.length;
    }
    return groups.map((slots, index) => ({
      key: index === 0 ? key : `${key}/${index}`,
      text: (characters) => this.#toText(key, characters / groups.length, now, slots),
    }));
  }

  #toText(key: string, characters: number, now: number, all: readonly Slot[]): string {
    const reached = this.reached(now);
    const latest = Number.isFinite(this.#latest) ? this.#latest : null;
    let slots = all;
    let text = '';
    for (const width of WIDTHS) {
      if (width > 1) slots = coarsened(slots, width);
      const rows = slots.map((slot) => [slot.first, slot.width, bucketsToText(bucketsIn(slot))]);
      text = JSON.stringify({ v: VERSION, key, latest, reached, slots: rows });
      if (text.length <= characters) break;
    }
    return text;
  }

  /** Reads one of the {@link parts}, parsed. @returns undefined for anything else, or another version */
  static readPart(json: unknown): { readonly key: string; readonly history: LagHistory } | undefined {
    if (!isRecord(json) || json.v !== VERSION || !isString(json.key)) return undefined;
    if (!Array.isArray(json.slots) || !isRecord(json.reached)) return undefined;
    if (json.slots.length > MOST_DAYS * 96 * 2) return undefined;
    const slots = readEntries(json.slots, slotFromJson).toSorted(byEnd);
    if (slots.length === 0 && json.slots.length > 0) return undefined;
    const history = new LagHistory();
    history.#close(slots);
    const newest = slots.at(-1);
    if (newest !== undefined) history.#latest = isInstant(json.latest) ? json.latest : endOf(newest);
    const { samples, seconds } = json.reached;
    if (isCount(samples) && isInstant(seconds)) history.#reached = { samples, seconds };
    return { key: json.key, history };
  }

  #slots(): readonly Slot[] {
    if (this.#open === undefined) return this.#closed;
    const open = slotOf(this.#openQuarter, 1, this.#open.counts.entries());
    const same = this.#closed.findLastIndex(({ first, width }) => first === open.first && width === 1);
    const part = this.#closed[same];
    if (part !== undefined)
      return this.#closed.with(same, slotOf(open.first, 1, countsOf([part, open]).entries()));
    const last = this.#closed.at(-1);
    const slots = [...this.#closed, open];
    return last === undefined || endOf(last) <= endOf(open) ? slots : slots.sort(byEnd);
  }

  #close(slots: readonly Slot[]): void {
    this.#closed = slots;
    this.#closedSamples = samplesOf(slots);
    this.#open = undefined;
  }

  #trim(): void {
    const slots = this.#closed;
    let [samples, days, day] = [0, 0, Number.NaN];
    const last = slots.findLastIndex((slot, index) => {
      if (dayOf(slot) !== day) days += 1;
      day = dayOf(slot);
      const isOld = days > MOST_DAYS;
      const isSpare = slots.length - 1 - index >= SLOTS_KEPT && samples >= SAMPLES_KEPT;
      samples += slot.samples;
      return isOld || isSpare;
    });
    if (last >= 0) this.#close(slots.slice(last + 1));
  }
}

function samplesOf(slots: readonly Slot[]): number {
  return slots.reduce((sum, slot) => sum + slot.samples, 0);
}

function longLags({ entries }: Slot, bucket: number): number {
  let count = 0;
  // From the end: entries ascend, and few lags are that long.
  for (let at = entries.length - 1; at >= 0; at -= 1) {
    const entry = entries[at] as number;
    if (entry >>> TIMES_BITS < bucket) break;
    count += entry & MOST_TIMES;
  }
  return count;
}

/** The index of the first slot of the window at this instant. @param end index of the slot before which the window ends */
function firstOfWindow(slots: readonly Slot[], end: number, at: number, minSamples: number): number {
  let [days, samples, first] = [WINDOW_DAYS, 0, end];
  for (; first > 0; first -= 1) {
    const slot = slots[first - 1] as Slot;
    const age = at - endOf(slot);
    if (age >= days * DAY_SECONDS) {
      if (samples >= minSamples) break;
      days = Math.floor(age / DAY_SECONDS) + 1;
    }
    samples += slot.samples;
  }
  return first;
}

function overlapping(slots: readonly Slot[]): readonly Slot[][] {
  const groups: Slot[][] = [];
  let end = Number.NEGATIVE_INFINITY;
  for (const slot of slots.toSorted((a, b) => a.first - b.first)) {
    if (slot.first >= end) groups.push([]);
    end = Math.max(end, slot.first + slot.width);
    groups.at(-1)?.push(slot);
  }
  return groups;
}

function slotFromJson(json: unknown): Slot | undefined {
  if (!Array.isArray(json)) return undefined;
  const [first, width, text] = json as unknown[];
  if (!isCount(first) || !isCount(width) || !WIDTHS.some((each) => each === width)) return undefined;
  const buckets = readBuckets(text);
  if (first % width !== 0 || buckets === undefined) return undefined;
  const slot = slotOf(first, width, buckets);
  return slot.samples > 0 ? slot : undefined;
}
