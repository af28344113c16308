import { type Labels, NO_LABELS } from '../api/index.ts';
import type { PodMetadata, ResourceEvent } from '../cluster/index.ts';
import { parsePlan } from '../decision/index.ts';
import {
  type ClusterEvent,
  type EndpointChange,
  type EndpointGroup,
  STAMPED_STREAMS,
  type Stream,
} from '../lag/index.ts';
import { canonicalAddress } from '../measurement/index.ts';
import type { HoldTerms } from './release-rules.ts';

/** When something that listed a pod as ready stopped doing so. */
export interface Withdrawal {
  readonly group: EndpointGroup;
  readonly at: number;
  /** The resourceVersion by which it did; undefined: it vanished unseen. */
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
  /** undefined: its plan cannot be read. */
  terms: HoldTerms | undefined;
  /** In milliseconds of the monotonic clock. */
  deletion: { readonly at: number; readonly graceSeconds: number } | undefined;
  /** One at most for each group, of those that do not list it now. */
  withdrawals: readonly Withdrawal[];
  /** Where it is reached, as far as slices that list it have said so; in the spelling of {@link canonicalAddress}. */
  addresses: readonly string[];
  /** When a hook of it called this replica first, as the one who holds. */
  calledAt: number | undefined;
  /** When its hooks were let go, the first time for this deletion: then comes SIGTERM. */
  releasedAt: number | undefined;
}

export interface HeldPodsOptions {
  /** Milliseconds of the clock of the events' instants. */
  readonly clock: () => number;
  /** Milliseconds since the epoch, by the machine's clock as it is now: what the API server's stamps are compared with. */
  readonly wall: () => number;
  /** Something about the pod has changed. */
  readonly onChange: (pod: HeldPod) => void;
}

const NONE: readonly Withdrawal[] = [];
const NO_ADDRESSES: readonly string[] = [];
const UNTOUCHED = { calledAt: undefined, releasedAt: undefined };
/** Of one pod: it has one of each family, and a few where networks are added. */
const MOST_ADDRESSES = 8;
/** The slices of others may say of a pod what they like. */
const SLICE_CONTROLLER = 'endpointslice-controller.k8s.io';

/**
 * The pods with hook Hold, by their tokens: from the metadata watch alone, so that every replica can go on from its own.
 * A pod of another hook costs nothing.
 */
export class HeldPods {
  readonly #options: HeldPodsOptions;
  readonly #byUid = new Map<string, HeldPod>();
  readonly #byToken = new Map<string, HeldPod>();
  /** Pods whose token an older one has. */
  readonly #copies = new Set<HeldPod>();
  /** When each stream had been read in full for the first time. */
  readonly #read = new Map<Stream, number>();

  constructor(options: HeldPodsOptions) {
    this.#options = options;
  }

  get size(): number {
    return this.#byUid.size;
  }

  withToken(hash: string): HeldPod | undefined {
    return this.#byToken.get(hash);
  }

  withUid(uid: string): HeldPod | undefined {
    return this.#byUid.get(uid);
  }

  /** Until then endpoints were being read, and the pods that they name were not all known. */
  get followedSince(): number {
    const read = STAMPED_STREAMS.map((stream) => this.#read.get(stream));
    return Math.max(...read.map((at = Number.POSITIVE_INFINITY) => at));
  }

  /** An event of the watches: slices say where pods are reached. */
  observe(event: ClusterEvent): void {
    if (event.type === 'ListEnds' && !this.#read.has(event.stream)) this.#read.set(event.stream, event.at);
    if (event.type !== 'Slice' || event.slice.managedBy !== SLICE_CONTROLLER) return;
    for (const { targetUid, addresses = [] } of event.slice.endpoints) {
      const pod = targetUid === undefined ? undefined : this.#byUid.get(targetUid);
      if (pod === undefined) continue;
      const known = addresses.map(canonicalAddress).filter((each) => each !== undefined);
      const added = known.filter((each) => !pod.addresses.includes(each));
      if (added.length > 0) pod.addresses = [...pod.addresses, ...added].slice(0, MOST_ADDRESSES);
    }
  }

  /** An event of the pods' watch. */
  apply(event: ResourceEvent<PodMetadata>): void {
    if (event.type !== 'deleted') this.#put(event.object, event.at);
    else this.#delete(event.identity.uid, event.relist ? undefined : event.object, event.at);
  }

  /** A change of an endpoint, of whatever pod. */
  changed({ uid, group, before, after }: EndpointChange, at: number, version: string | undefined): void {
    const pod = this.#byUid.get(uid);
    if (pod === undefined || (before === 'ready') === (after === 'ready')) return;
    const others = pod.withdrawals.filter((each) => each.group !== group);
    pod.withdrawals = after === 'ready' ? others : [...others, { group, at, version }];
    this.#options.onChange(pod);
  }

  /** The API server has said what the watch has not brought yet. */
  sawDeletion(pod: HeldPod, deletionTimestamp: string | undefined, graceSeconds: number): void {
    const now = this.#options.clock();
    this.#noteDeletion(pod, deletionTimestamp, graceSeconds, now);
    this.#options.onChange(pod);
  }

  #put(object: PodMetadata, at: number): void {
    const { uid, namespace, name, labels = NO_LABELS, hold } = object;
    if (hold === undefined) {
      this.#forget(uid);
      return;
    }
    let pod = this.#byUid.get(uid);
    // The annotation is somebody's to change; the hooks of the pod are not.
    if (pod !== undefined && pod.token !== hold.token) {
      this.#forget(uid);
      pod = undefined;
    }
    if (pod === undefined) {
      const { token, created } = hold;
      pod = {
        ...{ uid, namespace, name, token, created, labels },
        ...{
          terms: termsOf(hold.plan),
          deletion: undefined,
          withdrawals: NONE,
          addresses: NO_ADDRESSES,
          ...UNTOUCHED,
        },
      };
      this.#byUid.set(uid, pod);
      this.#claim(pod);
    } else {
      pod.labels = labels;
      // A plan that somebody has spoilt is no reason to know less.
      pod.terms = termsOf(hold.plan) ?? pod.terms;
    }
    const { deletionTimestamp, deletionGracePeriodSeconds = 0 } = object;
    if (deletionTimestamp !== undefined)
      this.#noteDeletion(pod, deletionTimestamp, deletionGracePeriodSeconds, at);
    this.#options.onChange(pod);
  }

  /** Of two pods with one token the older has it: the other copied what it could read. */
  #claim(pod: HeldPod): void {
    const holder = this.#byToken.get(pod.token);
    const isCopy = holder !== undefined && holder.created <= pod.created;
    if (isCopy) this.#copies.add(pod);
    else this.#byToken.set(pod.token, pod);
    if (holder !== undefined && !isCopy) this.#copies.add(holder);
  }

  #delete(uid: string, object: PodMetadata | undefined, at: number): void {
    const pod = this.#byUid.get(uid);
    if (pod === undefined) return;
    this.#forget(uid);
    // Deleted at once, or unseen.
    if (pod.deletion === undefined)
      this.#noteDeletion(pod, undefined, object?.deletionGracePeriodSeconds ?? 0, at);
    this.#options.onChange(pod);
  }

  #forget(uid: string): void {
    const pod = this.#byUid.get(uid);
    if (pod === undefined) return;
    this.#byUid.delete(uid);
    if (this.#copies.delete(pod)) return;
    this.#byToken.delete(pod.token);
    for (const copy of this.#copies) {
      if (copy.token !== pod.token) continue;
      this.#copies.delete(copy);
      this.#claim(copy);
    }
  }

  /**
   * The deletion came `graceSeconds` before its timestamp, which has whole seconds, and not after it was seen. A later
   * one with a shorter grace moves the timestamp by as much (apiserver BeforeDelete), so it leaves the instant alone.
   */
  #noteDeletion(pod: HeldPod, timestamp: string | undefined, graceSeconds: number, seenAt: number): void {
    if (pod.deletion !== undefined) {
      pod.deletion = { at: pod.deletion.at, graceSeconds };
      return;
    }
    const { clock, wall } = this.#options;
    const deadline = Date.parse(timestamp ?? '');
    const latest = deadline - graceSeconds * 1000 + 999;
    const at = clock() - (wall() - latest);
    pod.deletion = { at: Number.isNaN(at) ? seenAt : Math.min(seenAt, at), graceSeconds };
  }
}

/**
 * Whether a connection from this address is another's: pods call from their own addresses, since nothing translates them
 * inside a cluster. Where none of its family is known of the pod, or it has its node's, that cannot be told.
 */
export function isStranger({ addresses, terms }: HeldPod, source: string): boolean {
  if (terms?.hostNetwork) return false;
  const address = canonicalAddress(source);
  const sameFamily = addresses.filter((each) => each.includes(':') === source.includes(':'));
  return sameFamily.length > 0 && !sameFamily.some((each) => each === address);
}

/** What a plan annotation says of the hold. @returns undefined for one that says nothing, or no sense */
function termsOf(text: string | undefined): HoldTerms | undefined {
  const plan = parsePlan(text ?? '');
  if (plan?.hold === undefined) return undefined;
  const { wait, grace, baseGrace, hold } = plan;
  return { wait, grace, baseGrace, ...hold };
}
