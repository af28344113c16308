import { DISCARDS, type DiscardCounts, type DiscardReason } from './discards.ts';
import { EarlyEnds, INVERSION_MS } from './early-ends.ts';
import type { ClusterEvent, EndpointsState, SliceState, Stream, TerminatingPod } from './events.ts';
import { type ListingChange, type ListingOutcome, Listings, readyGroups } from './listings.ts';
import {
  endpointsKey,
  groupKeysOf,
  isMirrored,
  newEndpointsGroup,
  newSliceGroup,
  podsOfEndpoints,
  podsOfSlice,
  sliceGroupKey,
  sliceKey,
} from './projection.ts';
import { OpenRemovals } from './removals.ts';
import type { LagStage, RemovalSample } from './sample.ts';
import { Streams } from './streams.ts';
import { type ListedPod, type ListingGroup, newFate } from './traces.ts';
import { Withdrawal } from './withdrawal.ts';

/** A removal that has begun and whose end has not shown. */
export interface UnresolvedRemoval {
  readonly stage: LagStage;
  readonly namespace: string;
  /** The Service. */
  readonly name: string;
  readonly pod: string;
  /** Of the pod. */
  readonly uid: string;
  /** Milliseconds of the monotonic clock: its age is the caller's now less this. */
  readonly since: number;
}

const NO_SAMPLES: readonly RemovalSample[] = [];

/**
 * Makes samples of what the watches say: from the event that first shows a pod's deletionTimestamp (or a bare
 * DELETED) until the slices of a Service and address family, or its Endpoints, no longer list the pod as ready, for
 * each of them that listed it as ready at that instant. What it must not sample it counts; see {@link DISCARDS}.
 * Memory follows what is listed and terminating now; an event costs time in proportion to the object it is about.
 */
export class LagRecorder {
  readonly #streams = new Streams();
  readonly #services = new Withdrawal();
  readonly #listings = new Listings();
  readonly #discarded: Record<DiscardReason, number>;
  readonly #open = new OpenRemovals((reason) => this.#discard(reason));
  readonly #early = new EarlyEnds((pod) => this.#listings.release(pod));

  constructor() {
    const none = Object.keys(DISCARDS).map((reason) => [reason, 0] as const);
    this.#discarded = Object.fromEntries(none) as Record<DiscardReason, number>;
  }

  /** Takes in what was learned next. @returns the removals that it ended */
  apply(event: ClusterEvent): readonly RemovalSample[] {
    this.#open.expire(event.at);
    this.#early.expire(event.at);
    switch (event.type) {
      case 'PodTerminating':
      case 'PodDeleted':
        return this.#podEnds(event.pod, event.type === 'PodDeleted', event.at);
      case 'Slice':
        return this.#slice(event.slice, event.at);
      case 'Endpoints':
        return this.#endpoints(event.endpoints, event.at);
      case 'SliceDeleted':
        return this.#objectGone(sliceKey(event.namespace, event.name), event.at);
      case 'EndpointsDeleted':
        return this.#objectGone(endpointsKey(event.namespace, event.name), event.at);
      case 'Service': {
        const { namespace, name, publishNotReadyAddresses } = event.service;
        this.#services.put(event.service, this.#streams.list('services'));
        if (publishNotReadyAddresses) this.#giveUpService(namespace, name, 'NeverWithdrawn');
        return NO_SAMPLES;
      }
      case 'ServiceDeleted':
        this.#serviceGone(event.namespace, event.name);
        return NO_SAMPLES;
      default:
        this.#stream(event.type, event.stream, event.at);
        return NO_SAMPLES;
    }
  }

  /** Oldest first. Without those of a stage whose stream is broken: whether they still wait is not known. */
  *unresolved(): Generator<UnresolvedRemoval> {
    for (const { group, since, pod, podName } of this.#open) {
      if (this.#streams.state(group.stage) === 'broken') continue;
      const { stage, namespace, service } = group;
      yield { stage, namespace, name: service, pod: podName, uid: pod.uid, since };
    }
  }

  /** How many removals gave no sample, by reason, since the beginning. */
  get discarded(): DiscardCounts {
    return this.#discarded;
  }

  /** How much is held, for gauges. */
  get size(): { readonly pods: number; readonly objects: number; readonly open: number } {
    return {
      pods: this.#listings.pods.size,
      objects: this.#listings.objects.size,
      open: this.#open.size,
    };
  }

  #podEnds(pod: TerminatingPod, gone: boolean, at: number): readonly RemovalSample[] {
    // A pod that nothing lists still has to be known while it terminates: a slice that lags behind may list it yet.
    const listed = gone ? this.#listings.pods.get(pod.uid) : this.#listings.pod(pod.uid);
    if (listed === undefined) return NO_SAMPLES;
    listed.fate ??= newFate();
    const { fate } = listed;
    fate.seen = this.#streams.list('pods');
    const samples = fate.started ? NO_SAMPLES : this.#begin(listed, pod, at);
    fate.started = true;
    fate.gone ||= gone;
    this.#settle(listed);
    return samples;
  }

  /** The termination shows: opens a removal for whoever lists the pod as ready at this instant. */
  #begin(listed: ListedPod, pod: TerminatingPod, at: number): readonly RemovalSample[] {
    const early = this.#early.take(listed);
    const groups = readyGroups(listed);
    if (this.#streams.state('pods') !== 'current') {
      for (const _ of groups) this.#discard('Reconnect');
      return NO_SAMPLES;
    }
    const fate = listed.fate ?? newFate();
    listed.fate = fate;
    for (const group of groups) {
      const exclusion = this.#services.exclusionOf(group);
      const spoiled = this.#streams.state(group.stage) === 'broken';
      if (exclusion !== undefined) this.#discard(exclusion);
      else this.#open.begin({ pod: listed, group, since: at, podName: pod.name, spoiled }, fate);
    }
    const samples: RemovalSample[] = [];
    for (const end of early) {
      if (this.#services.deselects(end.group, pod.labels)) continue;
      const exclusion = this.#services.exclusionOf(end.group);
      if (exclusion !== undefined) this.#discard(exclusion);
      else if (at - end.at > INVERSION_MS) this.#discard('Inversion');
      else samples.push(this.#sample(listed, end.group, 0, at));
    }
    return samples;
  }

  #slice(slice: SliceState, at: number): readonly RemovalSample[] {
    const key = sliceKey(slice.namespace, slice.name);
    if (isMirrored(slice)) return this.#objectGone(key, at);
    const groupKey = sliceGroupKey(slice);
    const present = this.#listings.objects.get(key);
    const moved = present !== undefined && present.groupKey !== groupKey;
    const samples = moved ? this.#objectGone(key, at) : NO_SAMPLES;
    const object = this.#listings.object(key, groupKey, () => newSliceGroup(slice));
    object.seen = this.#streams.list('EndpointSlice');
    const more = this.#changed(this.#listings.put(object, podsOfSlice(slice)), at);
    return moved ? [...samples, ...more] : more;
  }

  #endpoints(endpoints: EndpointsState, at: number): readonly RemovalSample[] {
    const key = endpointsKey(endpoints.namespace, endpoints.name);
    const object = this.#listings.object(key, key, () => newEndpointsGroup(endpoints));
    object.seen = this.#streams.list('Endpoints');
    const { group } = object;
    // Truncated before or after: either way the difference says nothing about a pod.
    group.overCapacity ||= endpoints.overCapacity;
    if (group.overCapacity) this.#open.giveUp(group, 'OverCapacity');
    const samples = this.#changed(this.#listings.put(object, podsOfEndpoints(endpoints)), at);
    group.overCapacity = endpoints.overCapacity;
    return samples;
  }

  #objectGone(key: string, at: number): readonly RemovalSample[] {
    const object = this.#listings.objects.get(key);
    return object === undefined ? NO_SAMPLES : this.#changed(this.#listings.remove(object), at);
  }

  #changed({ changes, unlisted }: ListingOutcome, at: number): readonly RemovalSample[] {
    const samples: RemovalSample[] = [];
    for (const change of changes) {
      if (change.now === 'ready') this.#listedAsReady(change);
      else samples.push(...this.#withdrawn(change, at));
    }
    for (const pod of unlisted) this.#settle(pod);
    return samples;
  }

  #listedAsReady({ pod, group }: ListingChange): void {
    this.#early.undo(pod, group);
    if (pod.fate?.sampled.includes(group) === true) this.#discard('Relisted');
  }

  #withdrawn({ pod, group, now }: ListingChange, at: number): readonly RemovalSample[] {
    const current = this.#streams.state(group.stage) === 'current';
    const removal = pod.fate?.removals.find((each) => each.group === group);
    if (removal === undefined) {
      // `notReady` is a readiness flip. The others may be a termination that the pods' stream has yet to show.
      const maybeTermination = now !== 'notReady' && pod.fate?.started !== true;
      if (maybeTermination && current && !group.overCapacity) this.#early.remember(pod, group, at);
      return NO_SAMPLES;
    }
    this.#open.end(removal);
    if (removal.spoiled) return NO_SAMPLES;
    if (current) return [this.#sample(pod, group, Math.max(0, at - removal.since) / 1000, at)];
    this.#discard('Reconnect');
    return NO_SAMPLES;
  }

  #sample(pod: ListedPod, group: ListingGroup, lag: number, at: number): RemovalSample {
    pod.fate?.sampled.push(group);
    const { stage, namespace, service: name } = group;
    return { stage, namespace, name, uid: pod.uid, lag, at };
  }

  /** Forgets the pod when nothing can be said about it any more. */
  #settle(pod: ListedPod): void {
    if (pod.objects.length > 0) return;
    if (pod.fate?.gone === true) pod.fate = undefined;
    this.#listings.release(pod);
  }

  #serviceGone(namespace: string, name: string): void {
    this.#services.delete(namespace, name);
    this.#giveUpService(namespace, name, 'NoService');
  }

  #giveUpService(namespace: string, name: string, reason: DiscardReason): void {
    for (const key of groupKeysOf(namespace, name)) {
      const group = this.#listings.group(key);
      if (group?.open !== undefined) this.#open.giveUp(group, reason);
    }
  }

  #stream(
    type: 'ListBegins' | 'ListEnds' | 'StreamBroken' | 'StreamRotated' | 'StreamCurrent',
    stream: Stream,
    at: number,
  ): void {
    if (type === 'StreamCurrent') this.#streams.resume(stream);
    if (type === 'StreamRotated') this.#streams.rotate(stream);
    if (type === 'StreamBroken') this.#streams.break(stream);
    if (type === 'ListBegins') this.#streams.beginList(stream);
    if (type === 'ListEnds') this.#sweep(stream, at);
    const interrupted = type === 'StreamBroken' || type === 'ListBegins';
    if (!interrupted || stream === 'services') return;
    const stage = stream === 'pods' ? undefined : stream;
    this.#open.spoil(stage);
    this.#early.clear(stage);
  }

  /** What the list did not name is gone. */
  #sweep(stream: Stream, at: number): void {
    const list = this.#streams.list(stream);
    if (stream === 'services') {
      for (const { namespace, name } of this.#services.missing(list)) this.#serviceGone(namespace, name);
    } else if (stream === 'pods') {
      for (const pod of this.#listings.pods.values()) {
        if (pod.fate?.started !== true || pod.fate.seen === list) continue;
        pod.fate.gone = true;
        this.#settle(pod);
      }
    } else {
      for (const object of this.#listings.objects.values()) {
        if (object.group.stage === stream && object.seen !== list) this.#objectGone(object.key, at);
      }
    }
  }

  #discard(reason: DiscardReason): void {
    this.#discarded[reason] += 1;
  }
}
