import { type LabelSelector, type Labels, NO_LABELS, selects } from '../api/index.ts';
import { quantileOf } from './distribution.ts';
import type { EndpointState, EndpointChange as StateChange } from './endpoint-index.ts';
import { type ClusterEvent, LAG_STAGES, type LagStage, type StageSample, type Stream } from './events.ts';
import { Histogram } from './histogram.ts';
import { type DiscardCounts, INVERSION_MS, LagRecorder, type UnresolvedRemoval } from './recorder.ts';

/**
 * What can happen to an endpoint. `added` and `removed`: it is listed from here on, or no longer; the others say how: an
 * endpoint that appears ready gives `added` and `ready`.
 */
export const CHANGES = ['added', 'ready', 'notReady', 'terminating', 'removed'] as const;
export type ChangeKind = (typeof CHANGES)[number];

/** What leads from one state to the next; undefined: not listed. */
function changesBetween(
  before: EndpointState | undefined,
  after: EndpointState | undefined,
): readonly ChangeKind[] {
  if (before === after) return [];
  if (after === undefined) return ['removed'];
  if (before !== undefined) return [after];
  return after === 'notReady' ? ['added'] : ['added', after];
}

/** As many as removals can be under way: of pods that are gone and that endpoints may list still. */
const MOST_GONE = 50_000;

/**
 * The pods that a label selector selects, for endpoints, which say whose they are and not which labels those have. A pod
 * whose labels have matched stays selected when they change: taking a label off is a way to withdraw it, and that is
 * what one wants to see.
 */
export class PodSelection {
  readonly #selector: LabelSelector;
  /** Every pod that is known, by uid. */
  readonly #pods = new Map<string, boolean>();
  /** Those of them that are gone, the longest first. */
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

  /** It does not exist any more; changes of what still lists it are shown all the same. */
  delete(uid: string): void {
    if (!this.#pods.has(uid)) return;
    this.#gone.add(uid);
    if (this.#gone.size <= MOST_GONE) return;
    const [longest = ''] = this.#gone;
    this.#gone.delete(longest);
    this.#pods.delete(longest);
  }

  /** @returns undefined: nothing is known of this pod */
  has(uid: string): boolean | undefined {
    return this.#pods.get(uid);
  }

  /** Whether a pod was ever selected. */
  get any(): boolean {
    return this.#any;
  }

  /** How much is held. */
  get size(): number {
    return this.#pods.size;
  }
}

/** A span in which a stream brought nothing, or brought it late. */
export interface Interruption {
  readonly stream: Stream;
  /** Milliseconds of the monotonic clock. */
  readonly since: number;
  /** Undefined: it goes on. */
  readonly until: number | undefined;
  /** Undefined: not known. */
  readonly cause: string | undefined;
}

/** Notes when streams are interrupted, from the first time on that each is current. */
export class Interruptions {
  readonly #ended: Interruption[] = [];
  readonly #open = new Map<Stream, Interruption>();
  readonly #begun = new Set<Stream>();

  /** @returns the interruption that this begins */
  broken(stream: Stream, at: number): Interruption | undefined {
    if (!this.#begun.has(stream) || this.#open.has(stream)) return undefined;
    const interruption = { stream, since: at, until: undefined, cause: undefined };
    this.#open.set(stream, interruption);
    return interruption;
  }

  /** Why the stream is interrupted: what is said last before it is current again is forgotten, the first counts. */
  because(stream: Stream, cause: string): void {
    const open = this.#open.get(stream);
    if (open?.cause === undefined && open !== undefined) this.#open.set(stream, { ...open, cause });
  }

  /** @returns the interruption that this ends */
  current(stream: Stream, at: number): Interruption | undefined {
    this.#begun.add(stream);
    const open = this.#open.get(stream);
    if (open === undefined) return undefined;
    this.#open.delete(stream);
    const ended = { ...open, until: at };
    this.#ended.push(ended);
    return ended;
  }

  /** In the order in which they ended; those that go on come last. */
  get all(): readonly Interruption[] {
    return [...this.#ended, ...this.#open.values()];
  }

  /** Whether every stream of these has been current at least once. */
  begun(streams: readonly Stream[]): boolean {
    return streams.every((stream) => this.#begun.has(stream));
  }
}

/** What happened to one endpoint of a Service, in one of the two places where consumers read it. */
export interface ObservedChange {
  readonly change: ChangeKind;
  readonly source: LagStage;
  readonly namespace: string;
  /** Empty: a slice that belongs to no Service. */
  readonly service: string;
  /** Of the pod; undefined: there is no pod behind the address. */
  readonly uid: string | undefined;
  readonly pod: string | undefined;
  readonly ip: string;
  /** It was ready until now. */
  readonly withdrawn: boolean;
  /** When this process learned of it: milliseconds of the caller's monotonic clock. */
  readonly at: number;
  /** Seconds from the start of the pod's termination until this; undefined: it is no withdrawal that was measured. */
  readonly lag: number | undefined;
  /**
   * Whether `at` is when it happened (`live`), or it had happened before: at an unknown instant while the watch was
   * interrupted or being renewed (`late`), or before it began (`initial`).
   */
  readonly seen: 'live' | 'late' | 'initial';
}

export interface ObserverOptions {
  /** Whether to show what is there at the beginning, as changes. */
  readonly initial: boolean;
  /** The pods whose changes and removals are shown; undefined: all, and addresses without a pod. */
  readonly pods?: PodSelection | undefined;
}

/** How long a pod may be unknown while its stream is interrupted; after that it counts as not selected. */
const UNKNOWN_MS = 60_000;

interface Held {
  readonly change: ObservedChange;
  readonly mayGetLag: boolean;
}

/**
 * Turns events of the watches into changes, with the lag of those that end a removal: the sample that the recorder has
 * taken of it. Streams differ by milliseconds, so a withdrawal may show before its termination does; one that has no
 * lag yet is held back for as long as the recorder would still accept that, and so is what comes after it.
 */
export class ChangeObserver {
  readonly #options: ObserverOptions;
  readonly #recorder = new LagRecorder({ addresses: true });
  /** Streams that come when things happen. */
  readonly #current = new Set<Stream>();
  /** Streams whose first list is complete. */
  readonly #listed = new Set<Stream>();
  #held: Held[] = [];

  constructor(options: ObserverOptions) {
    this.#options = options;
  }

  apply(event: ClusterEvent): void {
    const { stages, changes } = this.#recorder.apply(event);
    const samples = [...stages];
    for (const change of changes) this.#hold(change, event.at, samples);
    // What is left belongs to withdrawals that showed before their termination.
    for (const sample of samples) this.#giveLag(sample);
    if ('stream' in event) this.#note(event);
  }

  /** What is known in full by this instant, in the order in which it was learned. Ask again within 250 ms. */
  take(now: number): readonly ObservedChange[] {
    const end = this.#held.findIndex((held) => this.#waits(held, now));
    return this.#takeFirst(end < 0 ? this.#held.length : end);
  }

  /** The rest, whatever may still become known of it: nothing comes any more. */
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
    const taken = this.#held.slice(0, count);
    this.#held = this.#held.slice(count);
    return taken.map(({ change }) => change).filter(({ uid }) => this.#isSelected(uid));
  }

  #isSelected(uid: string | undefined): boolean {
    const { pods } = this.#options;
    return pods === undefined || (uid !== undefined && pods.has(uid) === true);
  }

  #waits({ change: { uid, at }, mayGetLag }: Held, now: number): boolean {
    if (mayGetLag && now - at <= INVERSION_MS) return true;
    const { pods } = this.#options;
    if (pods === undefined || uid === undefined || pods.has(uid) !== undefined) return false;
    // Whether the pod is selected will show, when its stream brings it.
    return !this.#listed.has('pods') || now - at <= (this.#current.has('pods') ? INVERSION_MS : UNKNOWN_MS);
  }

  /** Takes the sample of a withdrawal out of the samples. */
  #hold({ uid, group, before, after, address }: StateChange, at: number, samples: StageSample[]): void {
    const { stage: source, namespace, service } = group;
    const seen = this.#seen(source);
    if (seen === 'initial' && !this.#options.initial) return;
    const { pod, ip = '' } = address ?? {};
    const withdrawn = before === 'ready';
    // An address without a pod has no uid; see EndpointChange.
    const of = { source, namespace, service, uid: uid.startsWith('/') ? undefined : uid };
    const own = withdrawn ? samples.findIndex((sample) => isOf(sample, of)) : -1;
    const lag = own < 0 ? undefined : samples.splice(own, 1)[0]?.lag;
    const mayGetLag = withdrawn && lag === undefined && seen === 'live';
    for (const change of changesBetween(before, after))
      this.#held.push({ change: { change, ...of, pod, ip, withdrawn, at, lag, seen }, mayGetLag });
  }

  #giveLag(sample: StageSample): void {
    const index = this.#held.findIndex(
      ({ change, mayGetLag }) => mayGetLag && change.lag === undefined && isOf(sample, change),
    );
    const held = this.#held[index];
    if (held === undefined) return;
    this.#held[index] = { change: { ...held.change, lag: sample.lag }, mayGetLag: false };
  }

  #seen(source: LagStage): ObservedChange['seen'] {
    if (!this.#listed.has(source)) return 'initial';
    return this.#current.has(source) ? 'live' : 'late';
  }

  #note({ type, stream }: Extract<ClusterEvent, { readonly stream: Stream }>): void {
    if (type === 'StreamCurrent') this.#current.add(stream);
    else this.#current.delete(stream);
    if (type === 'ListEnds') this.#listed.add(stream);
  }
}

function isOf(
  sample: StageSample,
  { uid, source, namespace, service }: Pick<ObservedChange, 'uid' | 'source' | 'namespace' | 'service'>,
): boolean {
  return (
    sample.uid === uid && sample.stage === source && sample.namespace === namespace && sample.name === service
  );
}

/** The lags of one source. Seconds; percentiles are within 2 %, the longest is exact. */
export interface SourceSummary {
  readonly source: LagStage;
  readonly changes: Readonly<Record<ChangeKind, number>>;
  readonly samples: number;
  /** Undefined without a sample. */
  readonly lag:
    | { readonly p50: number; readonly p90: number; readonly p99: number; readonly max: number }
    | undefined;
}

/** More would scroll the percentiles away. */
const SLOWEST = 5;

/** What a watch has seen so far, in memory that does not grow. */
export class ChangeSummary {
  readonly #sources = new Map<LagStage, SourceCount>();
  #slowest: readonly (ObservedChange & { readonly lag: number })[] = [];

  add(change: ObservedChange): void {
    if (change.seen === 'initial') return;
    const count = this.#sources.get(change.source) ?? new SourceCount();
    this.#sources.set(change.source, count);
    count.add(change);
    const { lag } = change;
    if (lag === undefined) return;
    // The earlier of two alike stays in front.
    this.#slowest = [...this.#slowest, { ...change, lag }].sort((a, b) => b.lag - a.lag).slice(0, SLOWEST);
  }

  /** In the order of {@link LAG_STAGES}, those of these. */
  sources(wanted: readonly LagStage[]): readonly SourceSummary[] {
    return LAG_STAGES.filter((source) => wanted.includes(source)).map((source) =>
      (this.#sources.get(source) ?? new SourceCount()).summaryOf(source),
    );
  }

  /** The removals that took longest, slowest first. */
  get slowest(): readonly (ObservedChange & { readonly lag: number })[] {
    return this.#slowest;
  }
}

class SourceCount {
  readonly #changes = Object.fromEntries(CHANGES.map((kind) => [kind, 0])) as Record<ChangeKind, number>;
  readonly #lags = new Histogram();
  #min = Number.POSITIVE_INFINITY;
  #max = 0;

  add({ change, lag }: ObservedChange): void {
    this.#changes[change] += 1;
    if (lag === undefined) return;
    this.#lags.record(lag);
    this.#min = Math.min(this.#min, lag);
    this.#max = Math.max(this.#max, lag);
  }

  summaryOf(source: LagStage): SourceSummary {
    const { total, counts } = this.#lags;
    // A cell's value may lie beyond all that was recorded in it.
    const quantile = (percentile: number) =>
      Math.min(Math.max(quantileOf(counts, percentile), this.#min), this.#max);
    const lag =
      total === 0 ? undefined : { p50: quantile(50), p90: quantile(90), p99: quantile(99), max: this.#max };
    return { source, changes: { ...this.#changes }, samples: total, lag };
  }
}
