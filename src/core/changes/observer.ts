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
}

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
    const end = this.#held.findIndex(({ change, mayGetLag }) => mayGetLag && now - change.at <= INVERSION_MS);
    const taken = end < 0 ? this.#held : this.#held.slice(0, end);
    this.#held = end < 0 ? [] : this.#held.slice(end);
    return taken.map(({ change }) => change);
  }

  /** The rest, whether or not it may still get a lag: nothing comes any more. */
  takeAll(): readonly ObservedChange[] {
    return this.take(Number.POSITIVE_INFINITY);
  }

  /** Oldest first. */
  unresolved(): Iterable<UnresolvedRemoval> {
    return this.#recorder.unresolved();
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
