import { canonicalAddress, NO_LABELS } from '../core/api/index.ts';
import { type ClusterSnapshot, trafficOf } from '../core/decision/index.ts';
import {
  type Consumer,
  type EndpointGroup,
  findsByItself,
  knownLags,
  type PlannedLag,
} from '../core/lag/index.ts';
import type { ConsumerInstances, Deregistrations, Measurement } from '../measurement/index.ts';
import { onLoop } from '../telemetry/index.ts';
import { ConnectionMonitor, type HelperLine, type QuietVerdict } from './connection-monitor.ts';
import { type HeldPod, type HeldPods, isStranger, type Withdrawal } from './held-pods.ts';
import {
  HOOK_STARTS_MS,
  type HoldFacts,
  type Holding,
  type HoldTerms,
  type LettingGo,
  type ListingFacts,
  type ReleaseReason,
  type Sender,
  type StopCause,
  usersOf,
  verdictOf,
  type WaitingFor,
} from './release-rules.ts';

/** The connection of a helper that waits for the release. */
export interface Waiter {
  /** The address from which it comes. */
  readonly source: string;
  /** When its helper started. */
  readonly startedAt: number;
  /** Ends the wait; called at most once. */
  answer(word: 'release' | 'unsure'): void;
}

/** What the API server says about a pod for which the watch shows no deletion. */
export type PodState =
  | { readonly found: Exclude<StopCause, 'NodeShutdown'> }
  | { readonly found: 'NodeShutdown'; readonly budget: number }
  /** `timestamp` is empty for a pod that is gone. */
  | { readonly found: 'Deleted'; readonly timestamp: string; readonly graceSeconds: number };

/** The release of a pod's hooks. */
export interface Release {
  readonly pod: HeldPod;
  readonly reason: ReleaseReason;
  /** Milliseconds since the deletion or, if there is none, since the first hook called. */
  readonly heldMs: number;
  /** What the hold waited for last; with reason `Max`: what still used the pod. */
  readonly waitingFor: readonly WaitingFor[];
  /** Instances that were not waited for, because three held pods in a row ended without their acknowledgement. */
  readonly skipped: readonly WaitingFor[];
  /** Open connections on the pod's listening ports; undefined: not known. */
  readonly open: number | undefined;
  /** Connections that came after every known consumer had stopped using the pod. */
  readonly undeclared: ReturnType<typeof undeclaredIn>;
  /** All addresses that were seen to connect to the pod; undefined: its helper was not heard. */
  readonly remotes: readonly string[] | undefined;
  /** Seconds from the withdrawal to the last connection; undefined: not seen, or the pod was never withdrawn. */
  readonly lag: number | undefined;
  /**
   * The consumers that apply, and when each was found to have stopped using the pod; undefined: it has not, or that is not
   * known.
   */
  readonly consumers: readonly (Pick<LettingGo, 'by'> & {
    readonly name: string;
    readonly at: number | undefined;
  })[];
  /** When the last connection came that probes do not explain (undefined: none came); undefined as a whole: not known. */
  readonly counted: { readonly lastAt: number | undefined } | undefined;
}

/** The sources of facts about the cluster and about consumers. */
export interface HoldSources {
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  /** Whether this replica's Lease is still valid: it may have expired unnoticed while the process was paused. */
  readonly leads: () => boolean;
  readonly snapshot: () => ClusterSnapshot;
  readonly measurement: Pick<Measurement, 'hasUnread' | 'listing' | 'withdraws'>;
  readonly pods: Pick<HeldPods, 'followedSince' | 'sawDeletion'>;
  /** Whether all watches on which listings depend have been read and are current. */
  readonly current: () => boolean;
  /** What the instances of consumers acknowledge about held pods. */
  readonly instances: ConsumerInstances;
  /** Removes pods from registries in which they register themselves. */
  readonly deregistrations: Pick<Deregistrations, 'outAt'>;
  /** Asks the API server directly; undefined: it cannot be asked. Never rejects. */
  readonly lookUp: (pod: HeldPod) => Promise<PodState | undefined>;
  /** Whether an address belongs to a replica of Linger, whose requests are not traffic. */
  readonly isReplica: (address: string) => boolean;
  readonly onRelease: (release: Release) => void;
  /** Called when counters arrive with a pod's token but not from its address. */
  readonly onStranger: (pod: HeldPod, stranger: Waiter) => void;
}

/** After losing a connection, helpers call again within this time. Milliseconds. */
export const RECONNECTED_MS = 4_000;

/** All in milliseconds, except `idleShare`. */
const LIMITS = {
  /** Between two checks for due holds: a release comes at most this much after its condition is met. */
  tick: 25,
  /**
   * After a check that took t, the next comes 4 t later at the earliest, so that checks use at most a fifth of the
   * processor. If a check takes longer than its budget, it was itself waiting for the processor, so only the budget counts.
   */
  idleShare: 4,
  /**
   * Each hold is checked at least this often, because not every change comes with an event (an instance that falls silent,
   * for one).
   */
  look: 1_000,
  /**
   * Usually the watch shows a deletion some milliseconds after the hook starts. If it has not by then, the API server is
   * asked.
   */
  askAfter: 300,
  askAgain: 1_000,
  /** An interrupted watch is usually resumed within this time, and then delivers what it has missed. */
  blindAfter: 3_000,
  /** How long one check of due holds may take; holds that are left come first in the next. */
  budget: 25,
  /** A helper of this age has called before, perhaps an earlier leader. Its first line should arrive within `recount`. */
  older: 1_000,
  recount: 5_000,
  /** After this much silence, the instant of the last connection no longer changes. */
  lastAfter: 5_000,
  /**
   * A helper that has been silent for this long is replaced by another one of the pod: lines come at least every 2 s, and
   * are valid for 10 s.
   */
  silentAfter: 5_000,
  /** How long a hold without connections is remembered, because its hooks may be reconnecting. */
  forgetAfter: 60_000,
};
const MOST_REMOTES = 64;
/**
 * The tolerance in time: a helper line covers the half second before it, and a release by percentile is only as exact as a
 * bucket of the histogram.
 */
const SETTLING_MS = 600;
/** The hook starts, and its first line arrives, some tenths of a second after the deletion. */
const UNCOUNTED_MS = 1_000;
/** A helper whose last line is older than this has not seen the end. */
const WITNESSED_LATELY_MS = 3_000;
/** A withdrawal may appear before its deletion: the timestamp has whole seconds, and the watches are independent. */
const STREAMS_APART_MS = 1_000;

/** A held pod with a plan that could be parsed. */
export type HeldPodWithTerms = HeldPod & { readonly terms: HoldTerms };

interface Hold {
  readonly pod: HeldPodWithTerms;
  calledAt: number;
  readonly waiters: Set<Waiter>;
  lookAt: number;
  verdict: Holding;
  cause: StopCause | undefined;
  askAt: number;
  /** When its last connection closed. */
  leftAt: number | undefined;
  /** The only helper whose lines count, because all containers of a pod share one network. */
  helper: { readonly waiter: Waiter; readonly monitor: ConnectionMonitor } | undefined;
  readonly remotes: Set<string>;
  /** When every known consumer was found to have stopped, and the connections opened since. */
  letGo: { readonly at: number; opened: number; readonly before: ReadonlySet<string> } | undefined;
  /** The consumers that have stopped, and when that was found. */
  readonly stopped: Map<string, number>;
  /** When the last connection came that probes do not explain. */
  lastAt: number | undefined;
  /** A hook has called from one of the pod's own addresses, or these cannot be distinguished from others. */
  own: boolean;
  /** When counting had to start anew; until the next line, nothing is known of connections. */
  recountAt: number;
  senders: Senders | undefined;
}

/** The parts of the snapshot on which a pod's traffic depends. */
const TRAFFIC_PARTS = ['services', 'namespaces', 'consumers', 'policies', 'lags'] as const;

/** The consumers of a pod; recomputed only when its labels or one of these parts change. */
interface Senders extends Pick<ReturnType<typeof trafficOf>, 'consumers' | 'lag'> {
  readonly snapshot: ClusterSnapshot;
  readonly labels: HeldPod['labels'];
}

/** A held pod, for display. */
export type HeldView = ReturnType<Holds['list']>[number];

/** The pods that this replica holds while it leads. */
export class Holds {
  readonly #sources: HoldSources;
  /** By the uid of the pod. */
  readonly #holds = new Map<string, Hold>();
  /**
   * Pods whose hook ran without a known cause. Their next hook may run for another stop, days later, so the first start no
   * longer counts.
   */
  readonly #unclear = new WeakSet<HeldPod>();
  #timer: NodeJS.Timeout | undefined;
  #firstCallAt: number | undefined;
  #staleSince: number | undefined;
  /** The instant from which the watches have not been current; at first, from the start until all of them have been read. */
  #blindSince: number | undefined;

  constructor(sources: HoldSources) {
    this.#sources = sources;
    this.#blindSince = sources.clock();
  }

  /** How many pods are held now: as many as {@link list} shows. */
  get size(): number {
    return this.#heldNow().length;
  }

  /** The holds with a connected hook, or with one that may still call again. */
  #heldNow(): readonly Hold[] {
    const now = this.#sources.clock();
    return [...this.#holds.values()].filter(
      ({ leftAt }) => leftAt === undefined || now - leftAt < RECONNECTED_MS,
    );
  }

  /** Ends all holds, because this replica no longer leads. */
  end(): void {
    for (const hold of this.#holds.values()) this.#forget(hold);
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#firstCallAt = undefined;
  }

  /** The instant from which the watches have not been current; undefined until that takes longer than resuming one. */
  get blindSince(): number | undefined {
    const now = this.#sources.clock();
    if (this.#sources.current()) {
      this.#staleSince = undefined;
      this.#blindSince = undefined;
      return undefined;
    }
    this.#staleSince ??= now;
    if (now - this.#staleSince > LIMITS.blindAfter) this.#blindSince ??= this.#staleSince;
    return this.#blindSince;
  }

  /** Begins to hold a hook of the pod. */
  call(pod: HeldPodWithTerms, waiter: Waiter): void {
    const now = this.#sources.clock();
    this.#firstCallAt ??= now;
    let hold = this.#holds.get(pod.uid);
    if (hold === undefined) {
      hold = {
        pod,
        calledAt: now,
        waiters: new Set(),
        lookAt: now,
        cause: undefined,
        helper: undefined,
        verdict: { waitingFor: [], nextLookAt: now, until: now + pod.terms.max * 1000 },
        askAt: now + LIMITS.askAfter,
        leftAt: undefined,
        remotes: new Set(),
        letGo: undefined,
        stopped: new Map(),
        lastAt: undefined,
        senders: undefined,
        own: false,
        recountAt: Number.NEGATIVE_INFINITY,
      };
      this.#holds.set(pod.uid, hold);
      this.#sources.instances.want(pod);
    }
    // A caller with a stolen token may wait as well, but only the pod's own call determines when its hooks started.
    if (!hold.own && !isStranger(pod, waiter.source)) {
      hold.own = true;
      if (this.#unclear.delete(pod)) pod.calledAt = undefined;
      // After a restart, the kubelet may run the hook again for the same deletion: the first start counts.
      pod.calledAt ??= waiter.startedAt;
      hold.calledAt = pod.calledAt;
    }
    if (now - waiter.startedAt > LIMITS.older && !isStranger(pod, waiter.source)) hold.recountAt = now;
    hold.waiters.add(waiter);
    hold.leftAt = undefined;
    hold.lookAt = Math.min(hold.lookAt, now);
    this.#timer ??= setTimeout(() => onLoop('hold', () => this.#tick()), 0).unref();
  }

  /** Records that a hook of the pod has disconnected. */
  leave(pod: HeldPod, waiter: Waiter): void {
    const hold = this.#holds.get(pod.uid);
    if (hold?.waiters.delete(waiter) !== true) return;
    const now = this.#sources.clock();
    if (hold.helper?.waiter === waiter) Object.assign(hold, { helper: undefined, recountAt: now });
    if (hold.waiters.size === 0) hold.leftAt = now;
  }

  /** Takes a helper line, which describes the pod's network namespace. */
  saw(pod: HeldPod, waiter: Waiter, line: HelperLine): void {
    const hold = this.#holds.get(pod.uid);
    if (hold === undefined || hold.pod.terms.hostNetwork) return;
    if (isStranger(pod, waiter.source)) {
      if (hold.helper?.waiter === waiter) hold.helper = undefined;
      this.#sources.onStranger(pod, waiter);
      return;
    }
    // The current helper may have called again, and its old connection may be dead: a lost node closes none.
    const { heardAt = line.at } = hold.helper?.monitor ?? {};
    if (hold.helper?.waiter !== waiter && line.at - heardAt > LIMITS.silentAfter) hold.helper = undefined;
    hold.helper ??= { waiter, monitor: new ConnectionMonitor() };
    if (hold.helper.waiter !== waiter) return;
    const opened = hold.helper.monitor.hear(line);
    for (const remote of line.remotes) {
      const address = canonicalAddress(remote) ?? remote;
      if (hold.remotes.size < MOST_REMOTES && !this.#sources.isReplica(address)) hold.remotes.add(address);
    }
    if (hold.letGo !== undefined) hold.letGo.opened += opened ?? 0;
  }

  /** Records that this replica itself has connected to a pod, which is not traffic. */
  connected(address: string): void {
    const to = canonicalAddress(address) ?? address;
    const now = this.#sources.clock();
    for (const { pod, helper } of this.#holds.values())
      if (pod.addresses.includes(to)) helper?.monitor.connected(now);
  }

  /** Has the pod checked soon, because something about it has changed. */
  touch(uid: string): void {
    const hold = this.#holds.get(uid);
    if (hold !== undefined) hold.lookAt = Math.min(hold.lookAt, this.#sources.clock());
  }

  /** Has held pods checked soon, because instances of the consumer have reported. */
  heard(consumer: string): void {
    for (const { pod, verdict } of this.#holds.values())
      if (verdict.waitingFor.some((each) => each.consumer === consumer)) this.touch(pod.uid);
  }

  list() {
    const now = this.#sources.clock();
    return this.#heldNow().map((hold) => {
      const { pod, cause, waiters, verdict, helper, remotes } = hold;
      const { namespace, name, uid, deletion, nodeBudget, terms } = pod;
      return {
        namespace,
        pod: name,
        uid,
        /** Why the pod is being stopped; undefined: not known yet. */
        cause: (nodeBudget !== undefined ? 'NodeShutdown' : deletion === undefined ? cause : 'Deleted') as
          | StopCause
          | 'Deleted'
          | undefined,
        /** Milliseconds since its termination began. */
        heldMs: now - beganAt(hold),
        deleted: deletion !== undefined,
        hooks: waiters.size,
        maxSeconds: terms.max,
        /** Milliseconds until it is released at the latest. */
        leftMs: Math.max(0, verdict.until - now),
        waitingFor: verdict.waitingFor,
        /** Connections that are open; undefined: not known. */
        open: helper?.monitor.open,
        /** Addresses that have connected while it is held. */
        from: [...remotes],
      };
    });
  }

  #tick(): void {
    const begun = this.#sources.clock();
    const blindSince = this.blindSince;
    // If another replica may already lead, leave releases and their reports to it.
    const due = this.#sources.leads()
      ? [...this.#holds.values()].filter(({ lookAt }) => lookAt <= begun)
      : [];
    let took = 0;
    // Most overdue first, so that no pod can starve the others.
    for (const hold of due.sort((a, b) => a.lookAt - b.lookAt)) {
      this.#look(hold, begun, blindSince);
      took = this.#sources.clock() - begun;
      if (took > LIMITS.budget) break;
    }
    this.#timer = undefined;
    if (this.#holds.size === 0) return;
    this.#timer = setTimeout(
      () => onLoop('hold', () => this.#tick()),
      Math.max(LIMITS.tick, LIMITS.idleShare * Math.min(took, LIMITS.budget)),
    ).unref();
  }

  #look(hold: Hold, now: number, blindSince: number | undefined): void {
    const { pod, leftAt } = hold;
    if (leftAt !== undefined && now - leftAt > LIMITS.forgetAfter) {
      this.#forget(hold);
      return;
    }
    const { terms } = pod;
    const seen = hold.helper?.monitor.observe({ now, probes: terms.probes, min: terms.min });
    const { lastAt = seen?.lastAt } = hold;
    // Until then, later probes may show that one of the last connections was a probe.
    const isFinal = lastAt !== undefined && now - lastAt >= LIMITS.lastAfter;
    if (seen?.lastAt !== undefined) hold.lastAt = isFinal ? Math.max(lastAt, seen.lastAt) : seen.lastAt;
    const facts = this.#factsOf(hold, now, blindSince, seen?.verdict ?? unseen(hold, now));
    const users = usersOf(facts);
    if (users?.waitingFor.length !== 0) hold.letGo = undefined;
    else hold.letGo ??= { at: now, opened: 0, before: new Set(hold.remotes) };
    for (const { name } of facts.consumers) {
      const uses =
        users === undefined || users.listed || users.waitingFor.some((each) => each.consumer === name);
      if (uses) hold.stopped.delete(name);
      else if (!hold.stopped.has(name)) hold.stopped.set(name, now);
    }
    const verdict = verdictOf(facts);
    if ('release' in verdict) {
      this.#let(hold, verdict.release, now, facts.consumers);
      return;
    }
    hold.verdict = verdict;
    hold.lookAt = Math.min(verdict.nextLookAt, now + LIMITS.look);
    // Quiet is judged from helper lines, which come twice a second, so look again soon.
    if (facts.quiet === 'Sending') hold.lookAt = Math.min(hold.lookAt, now + LIMITS.tick * 4);
    if (pod.deletion === undefined && hold.cause === undefined) {
      if (now >= hold.askAt) void this.#ask(hold);
      else hold.lookAt = Math.min(hold.lookAt, hold.askAt);
    }
  }

  #forget({ pod, cause }: Hold): void {
    const isEnding = pod.deletion !== undefined || pod.nodeBudget !== undefined || cause === 'Evicted';
    if (cause === 'Restart' && !isEnding) pod.calledAt = undefined;
    else if (!isEnding) this.#unclear.add(pod);
    this.#holds.delete(pod.uid);
    this.#sources.instances.done(pod.uid);
  }

  #let(hold: Hold, reason: ReleaseReason, now: number, senders: readonly Sender[]): void {
    const { pod, waiters, verdict, helper, stopped, lastAt, leftAt = now } = hold;
    const skipped = this.#skippedFor(hold);
    this.#forget(hold);
    for (const waiter of waiters) waiter.answer(reason === 'Unsure' ? 'unsure' : 'release');
    // The helper counts to `max` by itself, and may finish first: such a release is reported as well.
    const isMax = reason === 'Max' && now - leftAt < HOOK_STARTS_MS;
    // After a restart, the kubelet may run the hooks again for the same deletion; that is not another release.
    if (pod.releasedAt !== undefined || (waiters.size === 0 && !isMax)) return;
    if (pod.deletion !== undefined) pod.releasedAt = now;
    this.#sources.onRelease({
      pod,
      reason,
      heldMs: now - beganAt(hold),
      waitingFor: verdict.waitingFor,
      skipped,
      open: helper?.monitor.open,
      undeclared: undeclaredIn(hold, now),
      remotes: helper === undefined ? undefined : [...hold.remotes],
      lag: this.#lagSeenIn(hold, now),
      consumers: senders.map(({ name, lettingGo: { by } }) => ({ name, by, at: stopped.get(name) })),
      counted: hasCounted(hold, now) ? { lastAt } : undefined,
    });
  }

  #skippedFor({ senders }: Hold): readonly WaitingFor[] {
    return (senders?.consumers ?? []).flatMap((consumer) => {
      const instances = this.#sources.instances.skipped(consumer);
      return instances.length === 0 ? [] : [{ consumer: consumer.name, instances }];
    });
  }

  /** How many seconds after its withdrawal the pod still got connections. */
  #lagSeenIn(hold: Hold, now: number): number | undefined {
    const { pod, helper } = hold;
    const { deletion, withdrawals } = pod;
    const { heardAt, countsSince = now } = helper?.monitor ?? {};
    if (deletion === undefined || heardAt === undefined || now - heardAt > WITNESSED_LATELY_MS)
      return undefined;
    const { measurement } = this.#sources;
    const of = withdrawals.filter(
      ({ group, at }) => at >= deletion.at - STREAMS_APART_MS && measurement.withdraws(group),
    );
    if (of.length === 0 || measurement.listing(pod).length > 0) return undefined;
    const withdrawnAt = Math.max(...of.map(({ at }) => at));
    const { lastAt } = hold;
    const last = Math.max(withdrawnAt, lastAt ?? withdrawnAt);
    // Connections before the helper began to count are unknown, and a short time without any proves nothing.
    const isSeen = lastAt !== undefined || heardAt - countsSince >= UNCOUNTED_MS;
    return isSeen && countsSince - last <= UNCOUNTED_MS ? (last - withdrawnAt) / 1000 : undefined;
  }

  async #ask(hold: Hold): Promise<void> {
    const { pod } = hold;
    const { clock, lookUp, pods } = this.#sources;
    hold.askAt = Number.POSITIVE_INFINITY;
    const answer = await lookUp(pod);
    if (this.#holds.get(pod.uid) !== hold) return;
    this.touch(pod.uid);
    if (answer === undefined) hold.askAt = clock() + LIMITS.askAgain;
    else if (answer.found === 'Deleted') pods.sawDeletion(pod, answer.timestamp, answer.graceSeconds);
    else {
      hold.cause = answer.found;
      if (answer.found === 'NodeShutdown') pod.nodeBudget = answer.budget;
    }
  }

  #factsOf(hold: Hold, now: number, blindSince: number | undefined, quiet: QuietVerdict): HoldFacts {
    const { pod, calledAt } = hold;
    const { deletion, terms, nodeBudget } = pod;
    const cause = nodeBudget === undefined ? hold.cause : 'NodeShutdown';
    const { measurement, pods } = this.#sources;
    const senders = this.#sendersOf(hold);
    const withdrawn = pod.withdrawals.filter(({ group }) => measurement.withdraws(group));
    const listings: ListingFacts[] = [
      ...measurement.listing(pod).map((group) => listingFacts(group, undefined)),
      ...withdrawn.map(({ group, at }) => listingFacts(group, at)),
      // Withdrawals from before the watches began are invisible, and consumers may not have followed them yet.
      { name: 'endpoints that have not been seen', withdrawnAt: pods.followedSince },
    ];
    if (measurement.hasUnread(pod.namespace))
      listings.push({ name: 'endpoints without room', withdrawnAt: beganAt(hold), truncated: true });
    // A consumer that finds pods without Services learns of the deletion itself, or from Linger.
    const isFound = (each: Consumer) => each.deregister !== undefined || findsByItself(each, pod.labels);
    if (deletion !== undefined && senders.consumers.some(isFound))
      listings.push({ name: 'discovery of its own', withdrawnAt: beganAt(hold) });
    const consumers = senders.consumers.map(
      (consumer): Sender => ({
        name: consumer.name,
        lettingGo: this.#lettingGo(consumer, pod, senders.lag, withdrawn),
        registry: consumer.deregister &&
          deletion && {
            outAt: this.#sources.deregistrations.outAt(consumer.name, pod, deletion.graceSeconds),
          },
      }),
    );
    return { now, terms, calledAt, deletion, cause, nodeBudget, blindSince, listings, consumers, quiet };
  }

  #lettingGo(
    consumer: Consumer,
    { uid, terms }: HeldPodWithTerms,
    lag: PlannedLag,
    withdrawn: readonly Withdrawal[],
  ): LettingGo {
    const word = this.#sources.instances.wordOf(consumer, { uid, withdrawn, initial: terms.initial });
    if (word !== undefined) {
      const since = this.#firstCallAt;
      return word === 'unknown' ? { by: 'unknown', since } : { by: 'word', since, ...word };
    }
    const part = lag.parts.find((each) => each.name === consumer.name);
    const lags = part && knownLags(part);
    if (part === undefined || lags === undefined) return { by: 'unknown' };
    // Values of buckets are up to 1 % off, so add 1 % to make none too short.
    const percentile = part.source === 'declared' ? 100 : terms.percentile;
    return { by: 'time', ms: 1_010 * lags.quantile(percentile) };
  }

  #sendersOf(hold: Hold): Senders {
    const snapshot = this.#sources.snapshot();
    const { labels, namespace } = hold.pod;
    const known = hold.senders;
    if (known?.labels === labels && TRAFFIC_PARTS.every((part) => known.snapshot[part] === snapshot[part]))
      return known;
    const { consumers, lag } = trafficOf({ namespace, labels, annotations: NO_LABELS }, snapshot);
    hold.senders = { snapshot, labels, consumers, lag };
    return hold.senders;
  }
}

function unseen({ pod: { terms }, recountAt }: Hold, now: number): QuietVerdict {
  return terms.min > 0 && !terms.hostNetwork && now - recountAt < LIMITS.recount ? 'Sending' : 'Unknown';
}

/** When the pod's termination began. */
function beganAt({ pod: { deletion }, calledAt }: Hold): number {
  return deletion === undefined ? calledAt : Math.max(deletion.at, calledAt - HOOK_STARTS_MS);
}

/** Whether the helper has counted without a gap, from the last connection or else from the beginning, until now. */
function hasCounted(hold: Hold, now: number): boolean {
  const { heardAt, countsSince } = hold.helper?.monitor ?? {};
  if (heardAt === undefined || countsSince === undefined || now - heardAt > WITNESSED_LATELY_MS) return false;
  return countsSince - (hold.lastAt ?? beganAt(hold) + HOOK_STARTS_MS) <= UNCOUNTED_MS;
}

/** @returns undefined if only probes connected, or if the hold was too short to tell */
function undeclaredIn(hold: Hold, now: number) {
  const { pod, letGo, lastAt, remotes } = hold;
  if (letGo === undefined || lastAt === undefined || lastAt <= letGo.at + SETTLING_MS) return undefined;
  const { probes } = pod.terms;
  const connections = letGo.opened - Math.ceil((probes * (now - letGo.at)) / 1000);
  if (connections <= 0) return undefined;
  const later = [...remotes].filter((each) => !letGo.before.has(each));
  return {
    connections,
    /** From the instant at which every known consumer had stopped to the last connection. */
    seconds: (lastAt - letGo.at) / 1000,
    /** Addresses that were first seen after that; if there are none, all addresses that the pod has seen. */
    remotes: later.length === 0 ? [...remotes] : later,
  };
}

function listingFacts(of: EndpointGroup, withdrawnAt: number | undefined): ListingFacts {
  return { name: `${of.stage} ${of.namespace}/${of.service}`, withdrawnAt, truncated: of.overCapacity };
}
