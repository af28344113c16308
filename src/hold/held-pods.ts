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

/** When something that listed a pod as ready stopped doing so. */
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
  /** Its plan as it was last parsed: most events of a pod do not change it. */
  plan: string | undefined;
  /** undefined: its plan cannot be read. */
  terms: HoldTerms | undefined;
  /** In milliseconds of the monotonic clock. */
  deletion: { readonly at: number; readonly graceSeconds: number } | undefined;
  /** At most one for each group, and only of groups that do not list the pod now. */
  withdrawals: readonly Withdrawal[];
  /** Its addresses, from the slices that list it; in the spelling of {@link canonicalAddress}. */
  addresses: readonly string[];
  /** The earliest start of a hook that called this replica while it held. */
  calledAt: number | undefined;
  /** The seconds that its node leaves it, if the node is shutting down. */
  nodeBudget: number | undefined;
  /** When its hooks were first released for this deletion: SIGTERM follows. */
  releasedAt: number | undefined;
}

interface HeldPodsOptions {
  /** Milliseconds of the clock of the events' instants. */
  readonly clock: () => number;
  /** Milliseconds since the epoch: compared with the API server's timestamps, and not trusted alone. */
  readonly wall: () => number;
  /** Something about the pod has changed. */
  readonly onChange: (pod: HeldPod) => void;
}

/** Addresses of one pod: one of each family, and a few more with additional networks. */
const MOST_ADDRESSES = 8;
/** Mirrored slices copy foreign targetRefs. The label proves nothing: any writer of slices can set it. */
const SLICE_CONTROLLER = 'endpointslice-controller.k8s.io';

/**
 * The pods with hook Hold, by their tokens: from the metadata watch alone, so that any replica can take over from its own
 * watch. Pods with other hooks cost nothing.
 */
export class HeldPods {
  readonly #options: HeldPodsOptions;
  readonly #byUid = new Map<string, HeldPod>();
  /** Pods with the same token, the oldest first: the others are copies. */
  readonly #byToken = new Map<string, readonly HeldPod[]>();
  /** How many pods have this address. */
  readonly #perAddress = new Map<string, number>();
  /** When each stream was first read in full. */
  readonly #read = new Map<Stream, number>();
  /**
   * The slices that came while the pods' stream was not current, and may list pods that it has yet to bring: the streams have
   * no order. By namespace and name, so that they take no more room than the watch leaves to all slices.
   */
  readonly #early = new Map<string, SliceState>();
  #podsAreCurrent = false;

  constructor(options: HeldPodsOptions) {
    this.#options = options;
  }

  /**
   * The owner of a token: the oldest of the pods that carry it. Creation is known to the second only, so among pods of
   * one second the address of the caller decides; where it does not, none is the owner.
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

  /** How many of them call an address where the Hold Service is not: they wait for their static time. */
  unreached(hold: ClusterSnapshot['hold']): number {
    let count = 0;
    for (const { terms, deletion } of this.#byUid.values())
      if (deletion === undefined && terms && holdUnreached({ hold: terms }, hold) !== undefined) count += 1;
    return count;
  }

  /** From this instant on withdrawals are seen; before, endpoints and pods were still being read. */
  get followedSince(): number {
    // Endpoints need not be followed (--endpoints=Ignore); where they are, nothing is released before they have been read.
    const followed = HEARTBEAT_STREAMS.filter((each) => each !== 'Endpoints' || this.#read.has(each));
    return Math.max(...followed.map((stream) => this.#read.get(stream) ?? Number.POSITIVE_INFINITY));
  }

  /** An event of the watches: slices carry the addresses of pods. */
  observe(event: ClusterEvent): void {
    if (event.type === 'ListEnds' && !this.#read.has(event.stream)) this.#read.set(event.stream, event.at);
    if ('stream' in event && event.stream === 'pods') this.#podsStream(event.type === 'StreamCurrent');
    else if (event.type === 'SliceDeleted') this.#early.delete(objectKey(event));
    else if (event.type === 'Slice') {
      // A slice may have changed its writer.
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
      // A uid is not secret, so slices of other namespaces must not affect this pod.
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

  /** An event of the pods' watch. */
  apply(event: ResourceEvent<PodMetadata>): void {
    if (event.type !== 'deleted') this.#put(event.object, event.at);
    else this.#delete(event.identity.uid, event.relist ? undefined : event.object, event.at);
  }

  /** A change of an endpoint, of whatever pod. */
  changed({ uid, group, before, after }: EndpointChange, at: number, version: string | undefined): void {
    const pod = this.#byUid.get(uid);
    if (pod?.namespace !== group.namespace || (before === 'ready') === (after === 'ready')) return;
    const others = pod.withdrawals.filter((each) => each.group !== group);
    pod.withdrawals = after === 'ready' ? others : [...others, { group, at, version }];
    this.#options.onChange(pod);
  }

  /** A request has shown a deletion that the watch has not delivered yet. @param timestamp empty: not known */
  sawDeletion(pod: HeldPod, timestamp: string, graceSeconds: number): void {
    this.#noteDeletion(pod, timestamp, graceSeconds, this.#options.clock());
    this.#options.onChange(pod);
  }

  #put(object: PodMetadata, at: number): void {
    const { uid, namespace, name, labels, hold, plan } = object;
    // The annotation can be changed later; the pod's hooks, with the token, cannot.
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
        // If they are unknown, so is the plan, and the pod waits for its static time.
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
      // Where the plan no longer parses, the last good one counts.
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
    // Deleted without grace, or while the watch was interrupted.
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
   * The deletion came `graceSeconds` before its timestamp, which has whole seconds, and not after it was seen. A later
   * one with a shorter grace moves the timestamp by as much (apiserver BeforeDelete), so it leaves the instant alone. With
   * a clock that is ahead the instant is too early: {@link verdictOf} bounds it by the start of the hook.
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
 * Whether a connection from this address is not the pod's own: pods call from their own addresses, since nothing translates
 * them inside a cluster. Where the pod has no known address of that family, or uses its node's, the answer is no.
 */
export function isStranger({ addresses, terms }: HeldPod, source: string): boolean {
  if (terms?.hostNetwork) return false;
  // The family is that of the address: one of IPv4 may come mapped into IPv6.
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
