import type { ResourceEvent } from '../cluster/index.ts';
import { canonicalAddress, type Labels, NO_LABELS, objectKey } from '../core/api/index.ts';
import { type ClusterSnapshot, holdUnreached, parsePlan } from '../core/decision/index.ts';
import type { PodMetadata } from '../core/lag/index.ts';
import {
  type ClusterEvent,
  type EndpointChange,
  type EndpointGroup,
  HEARTBEAT_STREAMS,
  type SliceState,
  type Stream,
} from '../core/lag/index.ts';
import type { HoldTerms } from './release-rules.ts';

/** When an object that listed a pod as ready stopped doing so. */
export interface Withdrawal {
  readonly group: EndpointGroup;
  readonly at: number;
  /** The resourceVersion of that change; undefined: the object vanished unseen. */
  readonly version: string | undefined;
}

/** A pod that was admitted with hook Hold. */
export interface HeldPod {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  /** SHA-256 of its token, in hex. */
  readonly token: string;
  /** RFC 3339. */
  readonly created: string;
  labels: Labels;
  /** The text of its plan when it was last parsed, because most events of a pod do not change it. */
  plan: string | undefined;
  /** undefined: no plan of it could be read. */
  terms: HoldTerms | undefined;
  /** `at` in milliseconds of the monotonic clock. */
  deletion: { readonly at: number; readonly graceSeconds: number } | undefined;
  /** At most one for each group, and only for groups that do not list the pod now. */
  withdrawals: readonly Withdrawal[];
  /** Its addresses in the slices that list it, in the spelling of {@link canonicalAddress}. */
  addresses: readonly string[];
  /** When its first hook started, among those that called this replica while it leads. */
  calledAt: number | undefined;
  /** How many seconds its node leaves it, if the node is shutting down. */
  nodeBudget: number | undefined;
  /** When its hooks were first released for this deletion; SIGTERM follows. */
  releasedAt: number | undefined;
}

interface HeldPodsOptions {
  /** The clock of the events' instants, in milliseconds. */
  readonly clock: () => number;
  /** Milliseconds since the epoch. Compared with timestamps of the API server, and never trusted by itself. */
  readonly wall: () => number;
  /** Called when something about the pod has changed. */
  readonly onChange: (pod: HeldPod) => void;
}

/** Addresses that are kept per pod: one of each family, and a few more for additional networks. */
const MOST_ADDRESSES = 8;
/**
 * The writer whose slices count. Mirrored slices copy targetRefs that anyone may have written. The label is no proof,
 * because any writer of slices can set it.
 */
const SLICE_CONTROLLER = 'endpointslice-controller.k8s.io';

/**
 * The pods with hook Hold, by their tokens. Built from the metadata watch alone, so that any replica can take over with what
 * its own watch delivers. Pods with other hooks cost nothing.
 */
export class HeldPods {
  readonly #options: HeldPodsOptions;
  readonly #byUid = new Map<string, HeldPod>();
  /** The pods with a token, the oldest first; all others are copies of it. */
  readonly #byToken = new Map<string, readonly HeldPod[]>();
  /** How many pods have this address. */
  readonly #perAddress = new Map<string, number>();
  /** When the first list of each stream was complete. */
  readonly #read = new Map<Stream, number>();
  /**
   * Slices that arrived while the pods' stream was not current. They may list pods that it has not delivered yet, because
   * streams have no common order. Keyed by namespace and name, so that they are bounded like all slices of the watch.
   */
  readonly #early = new Map<string, SliceState>();
  #podsAreCurrent = false;

  constructor(options: HeldPodsOptions) {
    this.#options = options;
  }

  /**
   * The owner of a token: the oldest of the pods that carry it. Creation times have whole seconds, so among pods of the same
   * second the caller's address decides; if that is ambiguous, there is no owner.
   */
  withToken(hash: string, source: string): HeldPod | undefined {
    const pods = this.#byToken.get(hash) ?? [];
    const oldest = pods.filter(({ created }) => created === pods[0]?.created);
    if (oldest.length <= 1) return oldest[0];
    const [owner, ...others] = oldest.filter(({ addresses }) => addresses.includes(source));
    return others.length === 0 ? owner : undefined;
  }

  /** Whether a pod with hook Hold has this address. */
  hasAddress(address: string): boolean {
    return this.#perAddress.has(address);
  }

  withUid(uid: string): HeldPod | undefined {
    return this.#byUid.get(uid);
  }

  /**
   * How many of them call an address at which the Hold Service can no longer be reached, so that they wait for their static
   * time.
   */
  unreached(hold: ClusterSnapshot['hold']): number {
    let count = 0;
    for (const { terms, deletion } of this.#byUid.values())
      if (deletion === undefined && terms && holdUnreached({ hold: terms }, hold) !== undefined) count += 1;
    return count;
  }

  /** The instant from which withdrawals are seen. Before it, endpoints and pods were still being listed. */
  get followedSince(): number {
    // With --endpoints=Ignore, Endpoints are never listed. Otherwise nothing is released before they have been.
    const followed = HEARTBEAT_STREAMS.filter((each) => each !== 'Endpoints' || this.#read.has(each));
    return Math.max(...followed.map((stream) => this.#read.get(stream) ?? Number.POSITIVE_INFINITY));
  }

  /** Takes an event of the watches; slices contain the addresses of pods. */
  observe(event: ClusterEvent): void {
    if (event.type === 'ListEnds' && !this.#read.has(event.stream)) this.#read.set(event.stream, event.at);
    if ('stream' in event && event.stream === 'pods') this.#podsStream(event.type === 'StreamCurrent');
    else if (event.type === 'SliceDeleted') this.#early.delete(objectKey(event));
    else if (event.type === 'Slice') {
      // The writer of the slice may have changed.
      this.#early.delete(objectKey(event.slice));
      if (event.slice.managedBy !== SLICE_CONTROLLER) return;
      if (!this.#podsAreCurrent) this.#early.set(objectKey(event.slice), event.slice);
      this.#takeAddresses(event.slice);
    }
  }

  #podsStream(isCurrent: boolean): void {
    for (const slice of this.#early.values()) this.#takeAddresses(slice);
    this.#podsAreCurrent = isCurrent;
    if (isCurrent) this.#early.clear();
  }

  #takeAddresses({ namespace, endpoints }: SliceState): void {
    for (const { targetUid, addresses = [] } of endpoints) {
      const pod = targetUid === undefined ? undefined : this.#byUid.get(targetUid);
      // Uids are not secret, so a slice of another namespace must not affect this pod.
      if (pod?.namespace !== namespace) continue;
      const known = addresses.map(canonicalAddress).filter((each) => each !== undefined);
      const added = known.filter((each) => !pod.addresses.includes(each));
      if (added.length === 0) continue;
      for (const address of pod.addresses) this.#countAddress(address, -1);
      pod.addresses = [...pod.addresses, ...added].slice(0, MOST_ADDRESSES);
      for (const address of pod.addresses) this.#countAddress(address, 1);
    }
  }

  #countAddress(address: string, by: 1 | -1): void {
    const count = (this.#perAddress.get(address) ?? 0) + by;
    if (count > 0) this.#perAddress.set(address, count);
    else this.#perAddress.delete(address);
  }

  /** Takes an event of the watch of pods. */
  apply(event: ResourceEvent<PodMetadata>): void {
    if (event.type !== 'deleted') this.#put(event.object, event.at);
    else this.#delete(event.identity.uid, event.relist ? undefined : event.object, event.at);
  }

  /** Takes a change of an endpoint of any pod. */
  changed({ uid, group, before, after }: EndpointChange, at: number, version: string | undefined): void {
    const pod = this.#byUid.get(uid);
    if (pod?.namespace !== group.namespace || (before === 'ready') === (after === 'ready')) return;
    const others = pod.withdrawals.filter((each) => each.group !== group);
    pod.withdrawals = after === 'ready' ? others : [...others, { group, at, version }];
    this.#options.onChange(pod);
  }

  /** Takes a deletion that a request has shown before the watch did. @param timestamp empty: not known */
  sawDeletion(pod: HeldPod, timestamp: string, graceSeconds: number): void {
    this.#noteDeletion(pod, timestamp, graceSeconds, this.#options.clock());
    this.#options.onChange(pod);
  }

  #put(object: PodMetadata, at: number): void {
    const { uid, namespace, name, labels, hold, plan } = object;
    // The annotation can be changed later, but the token in the pod's hooks cannot.
    if (this.#byUid.get(uid)?.token !== hold?.token) this.#forget(uid);
    if (hold === undefined) return;
    let pod = this.#byUid.get(uid);
    if (pod === undefined) {
      const { token, created } = hold;
      pod = {
        uid,
        namespace,
        name,
        token,
        created,
        plan,
        terms: termsOf(plan),
        deletion: undefined,
        // If the labels are unknown, so is the plan, and the pod waits for its static time.
        labels: labels ?? NO_LABELS,
        withdrawals: [],
        addresses: [],
        calledAt: undefined,
        releasedAt: undefined,
        nodeBudget: undefined,
      };
      this.#byUid.set(uid, pod);
      const same = [...(this.#byToken.get(token) ?? []), pod];
      this.#byToken.set(
        token,
        same.toSorted((a, b) => Date.parse(a.created) - Date.parse(b.created)),
      );
    } else {
      pod.labels = labels ?? pod.labels;
      // If the plan no longer parses, the last good one still counts.
      if (plan !== pod.plan) pod.terms = termsOf(plan) ?? pod.terms;
      pod.plan = plan;
    }
    const { deletionTimestamp, deletionGracePeriodSeconds = 0 } = object;
    if (deletionTimestamp !== undefined)
      this.#noteDeletion(pod, deletionTimestamp, deletionGracePeriodSeconds, at);
    this.#options.onChange(pod);
  }

  #delete(uid: string, object: PodMetadata | undefined, at: number): void {
    const pod = this.#byUid.get(uid);
    if (pod === undefined) return;
    this.#forget(uid);
    // It was deleted without grace, or while the watch was interrupted.
    if (pod.deletion === undefined) this.#noteDeletion(pod, '', object?.deletionGracePeriodSeconds ?? 0, at);
    this.#options.onChange(pod);
  }

  #forget(uid: string): void {
    const pod = this.#byUid.get(uid);
    if (pod === undefined) return;
    this.#byUid.delete(uid);
    for (const address of pod.addresses) this.#countAddress(address, -1);
    const others = this.#byToken.get(pod.token)?.filter((each) => each !== pod) ?? [];
    if (others.length > 0) this.#byToken.set(pod.token, others);
    else this.#byToken.delete(pod.token);
  }

  /**
   * Notes when the deletion began: `graceSeconds` before its timestamp, which has whole seconds, and not after it was seen.
   * A later deletion with a shorter grace moves the timestamp by as much (apiserver BeforeDelete), so the instant stays the
   * same. If the API server's clock is wrong, the instant may be too early; {@link verdictOf} bounds it by the start of the
   * hook.
   */
  #noteDeletion(pod: HeldPod, timestamp: string, graceSeconds: number, seenAt: number): void {
    if (pod.deletion !== undefined) {
      pod.deletion = { at: pod.deletion.at, graceSeconds };
      return;
    }
    const { clock, wall } = this.#options;
    const latest = Date.parse(timestamp) - graceSeconds * 1000 + 999;
    const at = clock() - (wall() - latest);
    pod.deletion = { at: Number.isNaN(at) ? seenAt : Math.min(seenAt, at), graceSeconds };
  }
}

/**
 * Whether a connection certainly comes from elsewhere than the pod: pods call from their own addresses, because nothing
 * translates addresses inside a cluster. False if the pod has no known address of that family, or uses its node's.
 */
export function isStranger({ addresses, terms }: HeldPod, source: string): boolean {
  if (terms?.hostNetwork) return false;
  // The family matters: an IPv4 address may arrive in the form that is mapped into IPv6.
  const address = canonicalAddress(source) ?? source;
  const sameFamily = addresses.filter((each) => each.includes(':') === address.includes(':'));
  return sameFamily.length > 0 && !sameFamily.includes(address);
}

/** The terms of the hold in a plan annotation. @returns undefined where it has none, or does not parse */
function termsOf(text: string | undefined): HoldTerms | undefined {
  const plan = parsePlan(text ?? '');
  if (plan?.hold === undefined) return undefined;
  const { wait, grace, baseGrace, containers, hold } = plan;
  return { wait, grace, baseGrace, containers: containers.length, ...hold };
}
