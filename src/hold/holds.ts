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

/** A helper's connection, which waits for the release. */
export interface Waiter {
  /** The address it comes from. */
  readonly source: string;
  /** When its helper started. */
  readonly startedAt: number;
  /** Ends the wait; called at most once. */
  answer(word: 'release' | 'unsure'): void;
}

/** What the API server says of a pod whose watch shows no deletion. */
export type PodState =
  | { readonly found: Exclude<StopCause, 'NodeShutdown'> }
  | { readonly found: 'NodeShutdown'; readonly budget: number }
  /** `timestamp`: empty for a pod that is gone. */
  | { readonly found: 'Deleted'; readonly timestamp: string; readonly graceSeconds: number };

/** A pod's hooks have been released. */
export interface Release {
  readonly pod: HeldPod;
  readonly reason: ReleaseReason;
  /** Milliseconds since the deletion, or, without one, since the first hook called. */
  readonly heldMs: number;
  /** What was awaited last; with reason `Max`: what still used the pod. */
  readonly waitingFor: readonly WaitingFor[];
  /** Instances that were not waited for, because they had not dropped three held pods in a row. */
  readonly skipped: readonly WaitingFor[];
  /** Connections that are open on the pod's listening ports; undefined: not known. */
  readonly open: number | undefined;
  /** Connections that still came after every known consumer had dropped the pod. */
  readonly undeclared: ReturnType<typeof undeclaredIn>;
  /** All addresses that were seen to have connections with the pod; undefined: its helper was not heard. */
  readonly remotes: readonly string[] | undefined;
  /** Seconds from the withdrawal to the last connection; undefined: not seen, or never withdrawn. */
  readonly lag: number | undefined;
  /** The consumers that apply, and when each had stopped using the pod; undefined: it had not, or that is not known. */
  readonly consumers: readonly (Pick<LettingGo, 'by'> & {
    readonly name: string;
    readonly at: number | undefined;
  })[];
  /** When the last connection came that no probe explains; `undefined` in it: none has come. undefined: not known. */
  readonly counted: { readonly lastAt: number | undefined } | undefined;
}

/** What is known of the cluster, and of consumers. */
export interface HoldSources {
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  /** Whether this replica's Lease is still valid: during a process pause it may have expired unnoticed. */
  readonly leads: () => boolean;
  readonly snapshot: () => ClusterSnapshot;
  readonly measurement: Pick<Measurement, 'hasUnread' | 'listing' | 'withdraws'>;
  readonly pods: Pick<HeldPods, 'followedSince' | 'sawDeletion'>;
  /** Whether all watches that listings depend on have been read and are current. */
  readonly current: () => boolean;
  /** What the instances of consumers say of held pods. */
  readonly instances: ConsumerInstances;
  /** Takes pods out of registries that they enter themselves. */
  readonly deregistrations: Pick<Deregistrations, 'outAt'>;
  /** Asks the API server itself; undefined: it cannot be asked. Never rejects. */
  readonly lookUp: (pod: HeldPod) => Promise<PodState | undefined>;
  /** This replica's own addresses, and those of the others: their requests are not traffic. */
  readonly isReplica: (address: string) => boolean;
  readonly onRelease: (release: Release) => void;
  /** Counters arrive with the pod's token but not from the pod's address. */
  readonly onStranger: (pod: HeldPod, stranger: Waiter) => void;
}

/** Helpers call again at most this long after a connection ended. Milliseconds. */
export const RECONNECTED_MS = 4_000;

/** Milliseconds. */
const LIMITS = {
  /** Between two checks for due holds: a release is at most this much later than its condition. */
  tick: 25,
  /**
   * After a check that took t, the next comes no sooner than 4 t later: checks use at most a fifth of the processor. What
   * takes longer than the budget has waited for the processor itself.
   */
  idleShare: 4,
  /** Every hold is checked at least this often: not every change comes with an event, such as an instance's silence. */
  look: 1_000,
  /** The watch shows a deletion at most some milliseconds after the hook starts; if it has not by then, the API is asked. */
  askAfter: 300,
  askAgain: 1_000,
  /** A watch that is being resumed is soon current again, and delivers what it has missed. */
  blindAfter: 3_000,
  /** How long one check of due holds may take; the remaining ones come first in the next. */
  budget: 25,
  /** A helper of this age has called before, perhaps an earlier leader; its first line comes within `recount`. */
  older: 1_000,
  recount: 5_000,
  /** After so much silence the instant of the last connection is final. */
  lastAfter: 5_000,
  /** A helper that has been silent for this long is replaced by another: lines come at least every 2 s, and count for 10 s. */
  silentAfter: 5_000,
  /** How long a hold without connections is remembered: its hooks may be reconnecting. */
  forgetAfter: 60_000,
};
const MOST_REMOTES = 64;
/** A helper line covers the half second before it, and releases by percentile are as exact as a bucket of the histogram. */
const SETTLING_MS = 600;
/** The hook starts, and its first line arrives, some tenths of a second after the deletion. */
const UNCOUNTED_MS = 1_000;
/** A helper whose last line is older than this has missed the end. */
const WITNESSED_LATELY_MS = 3_000;
/**
 * A withdrawal may show before the deletion that it follows: the timestamp has whole seconds, and the watches are
 * independent.
 */
const STREAMS_APART_MS = 1_000;

/** A held pod whose plan could be parsed. */
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
  /** The one helper whose lines count: all containers of a pod see the same network. */
  helper: { readonly waiter: Waiter; readonly monitor: ConnectionMonitor } | undefined;
  readonly remotes: Set<string>;
  /** When every known consumer had stopped, and the connections since then. */
  letGo: { readonly at: number; opened: number; readonly before: ReadonlySet<string> } | undefined;
  /** The consumers that have stopped, and when that showed. */
  readonly stopped: Map<string, number>;
  /** When the last connection came that probes do not explain. */
  lastAt: number | undefined;
  /** A hook has called from one of the pod's own addresses, or the pod's addresses cannot be distinguished from others. */
  own: boolean;
  /** When counting had to begin again: until the next line nothing is known of connections. */
  recountAt: number;
  senders: Senders | undefined;
}

/** The parts of the snapshot that a pod's traffic follows from. */
const TRAFFIC_PARTS = ['services', 'namespaces', 'consumers', 'policies', 'lags'] as const;

/** The consumers of a pod; recomputed only when its labels or one of these parts change. */
interface Senders extends Pick<ReturnType<typeof trafficOf>, 'consumers' | 'lag'> {
  readonly snapshot: ClusterSnapshot;
  readonly labels: HeldPod['labels'];
}

/** A held pod, for people. */
export type HeldView = ReturnType<Holds['list']>[number];

/** The pods that this replica holds while it leads. */
export class Holds {
  readonly #sources: HoldSources;
  /** By the uid of the pod. */
  readonly #holds = new Map<string, Hold>();
  /** Pods whose hook ran for a stop that never became clear: their next one may run for another, days later. */
  readonly #unclear = new WeakSet<HeldPod>();
  #timer: NodeJS.Timeout | undefined;
  #firstCallAt: number | undefined;
  #staleSince: number | undefined;
  /** Since when the watches have not been current; from the very beginning until they are for the first time. */
  #blindSince: number | undefined;

  constructor(sources: HoldSources) {
    this.#sources = sources;
    this.#blindSince = sources.clock();
  }

  /** How many pods are held now: as many as {@link list} shows. */
  get size(): number {
    return this.#heldNow().length;
  }

  /** Those with a hook that is connected, or may still call again. */
  #heldNow(): readonly Hold[] {
    const now = this.#sources.clock();
    return [...this.#holds.values()].filter(
      ({ leftAt }) => leftAt === undefined || now - leftAt < RECONNECTED_MS,
    );
  }

  /** This replica no longer leads. */
  end(): void {
    for (const hold of this.#holds.values()) this.#forget(hold);
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#firstCallAt = undefined;
  }

  /** Since when the watches have not been current, if for longer than it takes to resume one. */
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

  /** A hook of the pod starts to wait. */
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
    // A caller with a stolen token may wait, too, but times count from the pod's own call.
    if (!hold.own && !isStranger(pod, waiter.source)) {
      hold.own = true;
      if (this.#unclear.delete(pod)) pod.calledAt = undefined;
      // The kubelet may run the hook again for the same deletion, after it was restarted: the first start counts.
      pod.calledAt ??= waiter.startedAt;
      hold.calledAt = pod.calledAt;
    }
    if (now - waiter.startedAt > LIMITS.older && !isStranger(pod, waiter.source)) hold.recountAt = now;
    hold.waiters.add(waiter);
    hold.leftAt = undefined;
    hold.lookAt = Math.min(hold.lookAt, now);
    this.#timer ??= setTimeout(() => onLoop('hold', () => this.#tick()), 0).unref();
  }

  /** A hook of the pod has disconnected. */
  leave(pod: HeldPod, waiter: Waiter): void {
    const hold = this.#holds.get(pod.uid);
    if (hold?.waiters.delete(waiter) !== true) return;
    const now = this.#sources.clock();
    if (hold.helper?.waiter === waiter) Object.assign(hold, { helper: undefined, recountAt: now });
    if (hold.waiters.size === 0) hold.leftAt = now;
  }

  /** Takes a helper line: what the helper sees in the pod's network namespace. */
  saw(pod: HeldPod, waiter: Waiter, line: HelperLine): void {
    const hold = this.#holds.get(pod.uid);
    if (hold === undefined || hold.pod.terms.hostNetwork) return;
    if (isStranger(pod, waiter.source)) {
      if (hold.helper?.waiter === waiter) hold.helper = undefined;
      this.#sources.onStranger(pod, waiter);
      return;
    }
    // It may have called again, and this be what is left of its old connection: a lost node closes none.
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

  /** This replica itself has connected to a pod: that is not traffic. */
  connected(address: string): void {
    const to = canonicalAddress(address) ?? address;
    const now = this.#sources.clock();
    for (const { pod, helper } of this.#holds.values())
      if (pod.addresses.includes(to)) helper?.monitor.connected(now);
  }

  /** Something about the pod has changed. */
  touch(uid: string): void {
    const hold = this.#holds.get(uid);
    if (hold !== undefined) hold.lookAt = Math.min(hold.lookAt, this.#sources.clock());
  }

  /** Instances of the consumer have reported. */
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
        /** Milliseconds until it is released whatever happens. */
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
    // Where another replica may lead, it releases and reports.
    const due = this.#sources.leads()
      ? [...this.#holds.values()].filter(({ lookAt }) => lookAt <= begun)
      : [];
    let took = 0;
    // The longest overdue comes first, so that no pod can starve the others.
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
    // Probes that come meanwhile show which of the last connections was one.
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
    // Quiet is judged by helper lines, which come twice a second.
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
    // A helper counts to `max`, too, and may be the first to be done.
    const isMax = reason === 'Max' && now - leftAt < HOOK_STARTS_MS;
    // The kubelet may run the hooks again for the same deletion, after it was restarted.
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

  /** How long after its withdrawal the pod still received connections. */
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
    // Connections before the helper counted are unknown, and a short time without any proves nothing.
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
      // An earlier withdrawal is invisible, and its consumers may not have followed yet.
      { name: 'endpoints that have not been seen', withdrawnAt: pods.followedSince },
    ];
    if (measurement.hasUnread(pod.namespace))
      listings.push({ name: 'endpoints without room', withdrawnAt: beganAt(hold), truncated: true });
    // A consumer that finds pods without a Service learns of the deletion itself, or from Linger.
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
    // Bucket values are up to 1 % off; round up, so that none is too short.
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

/** Whether its helper has counted since the last connection it saw, or since the beginning, until now. */
function hasCounted(hold: Hold, now: number): boolean {
  const { heardAt, countsSince } = hold.helper?.monitor ?? {};
  if (heardAt === undefined || countsSince === undefined || now - heardAt > WITNESSED_LATELY_MS) return false;
  return countsSince - (hold.lastAt ?? beganAt(hold) + HOOK_STARTS_MS) <= UNCOUNTED_MS;
}

/** @returns undefined where only probes connected, or where the hold was too short to tell */
function undeclaredIn(hold: Hold, now: number) {
  const { pod, letGo, lastAt, remotes } = hold;
  if (letGo === undefined || lastAt === undefined || lastAt <= letGo.at + SETTLING_MS) return undefined;
  const { probes } = pod.terms;
  const connections = letGo.opened - Math.ceil((probes * (now - letGo.at)) / 1000);
  if (connections <= 0) return undefined;
  const later = [...remotes].filter((each) => !letGo.before.has(each));
  return {
    connections,
    /** From when every known consumer had stopped until the last connection. */
    seconds: (lastAt - letGo.at) / 1000,
    /** Addresses first seen after that; if there are none, all that the pod has seen. */
    remotes: later.length === 0 ? [...remotes] : later,
  };
}

function listingFacts(of: EndpointGroup, withdrawnAt: number | undefined): ListingFacts {
  return { name: `${of.stage} ${of.namespace}/${of.service}`, withdrawnAt, truncated: of.overCapacity };
}
