import type { DiscardCounts } from '../lag/discards.ts';
import { INVERSION_MS } from '../lag/early-ends.ts';
import type { Stream } from '../lag/events.ts';
import { LagRecorder, type UnresolvedRemoval } from '../lag/recorder.ts';
import type { LagStage, RemovalSample } from '../lag/sample.ts';
import type { EndpointChange } from './change.ts';
import { EndpointListings } from './listings.ts';
import {
  endpointsObject,
  endpointsOfEndpoints,
  endpointsOfSlice,
  type ObservedEvent,
  sliceObject,
} from './observed.ts';
import type { PodSelection } from './pod-selection.ts';

export interface ObservedChange extends EndpointChange {
  /** Seconds from the start of the pod's termination until this; undefined: it is no withdrawal that was measured. */
  readonly lag: number | undefined;
  /**
   * Whether `at` is when it happened (`live`), or it had happened before: at an unknown instant while the watch was
   * interrupted or being renewed (`late`), or before it began (`initial`).
   */
  readonly seen: 'live' | 'late' | 'initial';
}

export interface ObserverOptions {
  /** Whether to tell what is there at the beginning, as changes. */
  readonly initial: boolean;
  /** Whose changes and removals are told; undefined: all, and those of addresses that are no pod's. */
  readonly pods?: PodSelection | undefined;
}

/** So long a pod may be unknown while its stream is interrupted; what is never told of is not selected. */
const UNKNOWN_MS = 60_000;

interface Held {
  readonly change: ObservedChange;
  readonly mayGetLag: boolean;
}

/**
 * Makes changes of what the watches say, and tells the lag of those that end a removal: the sample that the recorder
 * has taken of it. Streams differ by milliseconds, so a withdrawal may show before its termination does; one that has no
 * lag yet is held back for as long as the recorder would still accept that, and so is what comes after it.
 */
export class ChangeObserver {
  readonly #options: ObserverOptions;
  readonly #recorder = new LagRecorder();
  readonly #listings = new EndpointListings();
  /** Streams that come when things happen. */
  readonly #current = new Set<Stream>();
  /** Streams whose first list is complete. */
  readonly #listed = new Set<Stream>();
  #held: Held[] = [];

  constructor(options: ObserverOptions) {
    this.#options = options;
  }

  apply(event: ObservedEvent): void {
    const samples = [...this.#recorder.apply(event)];
    for (const change of this.#changesOf(event)) this.#hold(change, samples);
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

  #changesOf(event: ObservedEvent): readonly EndpointChange[] {
    const { at } = event;
    switch (event.type) {
      case 'Slice':
        return this.#listings.put(sliceObject(event.slice), endpointsOfSlice(event.slice), at);
      case 'Endpoints':
        return this.#listings.put(
          endpointsObject(event.endpoints),
          endpointsOfEndpoints(event.endpoints),
          at,
        );
      case 'SliceDeleted':
        return this.#listings.remove({ source: 'EndpointSlice', ...event }, at);
      case 'EndpointsDeleted':
        return this.#listings.remove({ source: 'Endpoints', ...event }, at);
      default:
        return [];
    }
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

  /** Takes the sample that it is given out of the samples. */
  #hold(change: EndpointChange, samples: RemovalSample[]): void {
    const seen = this.#seen(change.source);
    if (seen === 'initial' && !this.#options.initial) return;
    const own = change.withdrawn ? samples.findIndex((sample) => isOf(sample, change)) : -1;
    const lag = own < 0 ? undefined : samples.splice(own, 1)[0]?.lag;
    const mayGetLag = change.withdrawn && lag === undefined && seen === 'live';
    this.#held.push({ change: { ...change, lag, seen }, mayGetLag });
  }

  #giveLag(sample: RemovalSample): void {
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

  #note({ type, stream }: Extract<ObservedEvent, { readonly stream: Stream }>): void {
    if (type === 'StreamCurrent') this.#current.add(stream);
    else this.#current.delete(stream);
    if (type === 'ListEnds') this.#listed.add(stream);
  }
}

function isOf(sample: RemovalSample, { uid, source, namespace, service }: EndpointChange): boolean {
  return (
    sample.uid === uid &&
    sample.stage === source &&
    sample.namespace === namespace &&
    // The recorder calls a slice without a Service by the empty name.
    sample.name === (service ?? '')
  );
}
