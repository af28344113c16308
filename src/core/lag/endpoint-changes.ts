import { type LabelSelector, type Labels, NO_LABELS, selects } from '../api/index.ts';
import { quantileOf } from './distribution.ts';
import type { EndpointState, EndpointChange as StateChange } from './endpoint-index.ts';
import { type ClusterEvent, ENDPOINT_SOURCES, type EndpointSource, type Stream } from './events.ts';
import { Histogram } from './histogram.ts';
import { type DiscardCounts, INVERSION_MS, LagRecorder, type UnresolvedRemoval } from './recorder.ts';

/** What can happen to an endpoint. One that appears in state ready is both `added` and `ready`. */
export const CHANGES = ['added', 'ready', 'notReady', 'terminating', 'removed'] as const;
export type ChangeKind = (typeof CHANGES)[number];

/** @param before undefined: it was not listed */
function changesBetween(
  before: EndpointState | undefined,
  after: EndpointState | undefined,
): readonly ChangeKind[] {
  if (before === after) return [];
  if (after === undefined) return ['removed'];
  if (before !== undefined) return [after];
  return after === 'notReady' ? ['added'] : ['added', after];
}

/** As many as the recorder follows removals at once. */
const MOST_GONE = 50_000;

/**
 * The pods that a label selector selects. Needed because endpoints refer to pods, but not to their labels. A pod that has
 * matched once stays selected when its labels change, since removing a label is a way to withdraw a pod.
 */
export class PodSelection {
  readonly #selector: LabelSelector;
  /** Whether each pod is selected, by uid. */
  readonly #pods = new Map<string, boolean>();
  /** Deleted pods that endpoints may still list, oldest first. */
  readonly #gone = new Set<string>();
  #any = false;

  constructor(selector: LabelSelector) {
    this.#selector = selector;
  }

  put(uid: string, labels: Labels = NO_LABELS): void {
    const selected = this.#pods.get(uid) === true || selects(this.#selector, labels);
    this.#pods.set(uid, selected);
    this.#any ||= selected;
  }

  /** Marks a pod as deleted; its changes are still shown while objects list it. */
  delete(uid: string): void {
    if (!this.#pods.has(uid)) return;
    this.#gone.add(uid);
    if (this.#gone.size <= MOST_GONE) return;
    const [oldest = ''] = this.#gone;
    this.#gone.delete(oldest);
    this.#pods.delete(oldest);
  }

  /** @returns undefined for an unknown pod */
  has(uid: string): boolean | undefined {
    return this.#pods.get(uid);
  }

  /** Whether any pod has ever been selected. */
  get any(): boolean {
    return this.#any;
  }
}

/** A span in which a stream delivered nothing, or delivered late. Milliseconds of the monotonic clock. */
export interface Interruption {
  readonly stream: Stream;
  readonly since: number;
  /** Undefined: it is still going on. */
  readonly until: number | undefined;
  /** Undefined: not known. */
  readonly cause: string | undefined;
}

/** The interruptions of each stream, from when it was current for the first time. */
export class Interruptions {
  readonly #ended: Interruption[] = [];
  /** The streams that have been current at least once, each with its ongoing interruption, if any. */
  readonly #begun = new Map<Stream, Interruption | undefined>();

  broken(stream: Stream, at: number): void {
    if (!this.#begun.has(stream) || this.#begun.get(stream) !== undefined) return;
    this.#begun.set(stream, { stream, since: at, until: undefined, cause: undefined });
  }

  /** Sets the cause of the ongoing interruption, unless it already has one. */
  because(stream: Stream, cause: string): void {
    const open = this.#begun.get(stream);
    if (open !== undefined) this.#begun.set(stream, { ...open, cause: open.cause ?? cause });
  }

  current(stream: Stream, at: number): void {
    const open = this.#begun.get(stream);
    this.#begun.set(stream, undefined);
    if (open !== undefined) this.#ended.push({ ...open, until: at });
  }

  /** In the order in which they ended; ongoing ones come last. */
  get all(): readonly Interruption[] {
    return [...this.#ended, ...this.#begun.values()].filter((each) => each !== undefined);
  }

  begun(streams: readonly Stream[]): boolean {
    return streams.every((stream) => this.#begun.has(stream));
  }
}

/** A change of one endpoint of a Service, in one of the two places where consumers read it. */
export interface ObservedChange {
  readonly change: ChangeKind;
  readonly source: EndpointSource;
  readonly namespace: string;
  /** Empty: a slice that belongs to no Service. */
  readonly service: string;
  /** The pod's uid; undefined: there is no pod behind the address. */
  readonly uid: string | undefined;
  readonly pod: string | undefined;
  readonly ip: string;
  /** Whether it was ready before the change. */
  readonly withdrawn: boolean;
  /** When this process learned of it: milliseconds of the caller's monotonic clock. */
  readonly at: number;
  /** Seconds since the start of the pod's termination; undefined for anything but a measured withdrawal. */
  readonly lag: number | undefined;
  /**
   * `live`: it happened at `at`; `late`: at an unknown instant while the watch was interrupted or being renewed;
   * `initial`: before the watch began.
   */
  readonly seen: 'live' | 'late' | 'initial';
}

export interface ObserverOptions {
  /** Whether to show the initial endpoints as changes. */
  readonly initial: boolean;
  /** The pods whose changes and removals are shown; undefined: all, and addresses without a pod. */
  readonly pods?: PodSelection | undefined;
}

/** How long a pod may stay unknown while its stream is interrupted; then it counts as not selected. */
const UNKNOWN_MS = 60_000;

interface Held {
  change: ObservedChange;
  readonly mayGetLag: boolean;
}

/**
 * Turns watch events into changes of endpoints; a change that ends a removal carries its lag. Streams are independent and
 * differ by milliseconds, so a withdrawal may arrive before its termination. A withdrawal without a lag is therefore held
 * back, with all later changes, for as long as the recorder would still accept the termination.
 */
export class ChangeObserver {
  readonly #options: ObserverOptions;
  readonly #recorder = new LagRecorder({ addresses: true });
  /** Streams whose events arrive when they happen. */
  readonly #current = new Set<Stream>();
  /** Streams whose first list is complete. */
  readonly #listed = new Set<Stream>();
  #held: Held[] = [];

  constructor(options: ObserverOptions) {
    this.#options = options;
  }

  apply(event: ClusterEvent): void {
    const { stages, changes } = this.#recorder.apply(event);
    for (const change of changes) this.#hold(change, event.at);
    for (const { uid, stage, namespace, name, lag } of stages) {
      // Usually a change of this event, but an earlier one if the withdrawal arrived before its termination.
      const held = this.#held.findLast(
        ({ mayGetLag, change }) =>
          mayGetLag &&
          change.lag === undefined &&
          change.uid === uid &&
          change.source === stage &&
          change.namespace === namespace &&
          change.service === name,
      );
      if (held !== undefined) held.change = { ...held.change, lag };
    }
    if (!('stream' in event)) return;
    if (event.type === 'StreamCurrent') this.#current.add(event.stream);
    else this.#current.delete(event.stream);
    if (event.type === 'ListEnds') this.#listed.add(event.stream);
  }

  /** The changes that are complete by this instant, in order of arrival. Call again within 250 ms. */
  take(now: number): readonly ObservedChange[] {
    const end = this.#held.findIndex((held) => this.#waits(held, now));
    return this.#takeFirst(end < 0 ? this.#held.length : end);
  }

  /** All remaining changes, when no more events follow. */
  takeAll(): readonly ObservedChange[] {
    return this.#takeFirst(this.#held.length);
  }

  /** Oldest first. */
  *unresolved(): Generator<UnresolvedRemoval> {
    for (const removal of this.#recorder.unresolved()) if (this.#isSelected(removal.uid)) yield removal;
  }

  get discarded(): DiscardCounts {
    return this.#recorder.discarded;
  }

  #takeFirst(count: number): readonly ObservedChange[] {
    const taken = this.#held.splice(0, count);
    return taken.map(({ change }) => change).filter(({ uid }) => this.#isSelected(uid));
  }

  #isSelected(uid: string | undefined): boolean {
    const { pods } = this.#options;
    return pods === undefined || (uid !== undefined && pods.has(uid) === true);
  }

  #waits({ change: { uid, at, lag }, mayGetLag }: Held, now: number): boolean {
    if (mayGetLag && lag === undefined && now - at <= INVERSION_MS) return true;
    const { pods } = this.#options;
    if (pods === undefined || uid === undefined || pods.has(uid) !== undefined) return false;
    // The pods' stream has not shown yet whether the pod is selected.
    return !this.#listed.has('pods') || now - at <= (this.#current.has('pods') ? INVERSION_MS : UNKNOWN_MS);
  }

  #hold({ uid: key, group, before, after, address }: StateChange, at: number): void {
    const { stage: source, namespace, service } = group;
    const seen = this.#listed.has(source) ? (this.#current.has(source) ? 'live' : 'late') : 'initial';
    if (seen === 'initial' && !this.#options.initial) return;
    const { pod, ip = '' } = address ?? {};
    const withdrawn = before === 'ready';
    // An address without a pod has no uid; see EndpointChange.
    const uid = key.startsWith('/') ? undefined : key;
    const of = { source, namespace, service, uid, pod, ip, withdrawn, at, lag: undefined, seen } as const;
    for (const change of changesBetween(before, after))
      this.#held.push({ change: { change, ...of }, mayGetLag: withdrawn && seen === 'live' });
  }
}

/** The lags of one source. Seconds; percentiles are within 2 %, the longest is exact. */
export interface SourceSummary {
  readonly source: EndpointSource;
  readonly changes: Readonly<Record<ChangeKind, number>>;
  readonly samples: number;
  /** Undefined without a sample. */
  readonly lag: Readonly<Record<'p50' | 'p90' | 'p99' | 'max', number>> | undefined;
}

/** Showing more would scroll the percentiles off the screen. */
const SLOWEST = 5;

/** Summarises lags in bounded memory. */
export class ChangeSummary {
  readonly #sources = Object.fromEntries(ENDPOINT_SOURCES.map((source) => [source, newCount()])) as Readonly<
    Record<EndpointSource, SourceCount>
  >;
  #slowest: readonly (ObservedChange & { readonly lag: number })[] = [];

  add(change: ObservedChange): void {
    if (change.seen === 'initial') return;
    const count = this.#sources[change.source];
    count.changes[change.change] += 1;
    const { lag } = change;
    if (lag === undefined) return;
    count.lags.record(lag);
    count.min = Math.min(count.min, lag);
    count.max = Math.max(count.max, lag);
    // The sort is stable: of two equal lags, the earlier one stays first.
    this.#slowest = [...this.#slowest, { ...change, lag }].sort((a, b) => b.lag - a.lag).slice(0, SLOWEST);
  }

  /** In the order of {@link ENDPOINT_SOURCES}. */
  sources(wanted: readonly EndpointSource[]): readonly SourceSummary[] {
    return ENDPOINT_SOURCES.filter((source) => wanted.includes(source)).map((source) => {
      const { changes, lags, min, max } = this.#sources[source];
      // The value that represents a bucket may exceed all lags recorded in it.
      const quantile = (percentile: number) =>
        Math.min(Math.max(quantileOf(lags.counts, percentile), min), max);
      const samples = lags.total;
      const lag = samples > 0 ? { p50: quantile(50), p90: quantile(90), p99: quantile(99), max } : undefined;
      return { source, changes: { ...changes }, samples, lag };
    });
  }

  /** Slowest first. */
  get slowest(): readonly (ObservedChange & { readonly lag: number })[] {
    return this.#slowest;
  }
}

type SourceCount = ReturnType<typeof newCount>;

function newCount() {
  const changes = Object.fromEntries(CHANGES.map((kind) => [kind, 0])) as Record<ChangeKind, number>;
  return { changes, lags: new Histogram(), min: Number.POSITIVE_INFINITY, max: 0 };
}
