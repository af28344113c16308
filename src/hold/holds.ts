import { NO_LABELS } from '../api/index.ts';
import { trafficOf, type World } from '../decision/index.ts';
import {
  type Consumer,
  compareVersions,
  type EndpointGroup,
  findsByItself,
  type LagStage,
  type PlannedLag,
  type StageVersions,
} from '../lag/index.ts';
import type { ConsumerReports, Inspecting } from '../measurement/index.ts';
import { type HeldPod, isStranger, type Withdrawal } from './held-pods.ts';
import { type QuietVerdict, Witness, type WitnessLine } from './quiet.ts';
import {
  type ConsumerFacts,
  type HoldFacts,
  type HoldTerms,
  type HoldVerdict,
  haveAllLetGo,
  type LettingGo,
  type ListingFacts,
  type ReleaseReason,
  verdictOf,
  type WaitingFor,
} from './release-rules.ts';

/** A connection of a helper's that waits. */
export interface Waiter {
  /** Where it comes from. */
  readonly source: string;
  /** Called once; nothing comes after it. */
  answer(word: 'release' | 'unsure'): void;
}

/** What the API server says of a pod whose watch shows no deletion. */
export type Inquiry =
  | { readonly found: 'Restart' | 'NodeShutdown' | 'Gone' }
  | { readonly found: 'Deleted'; readonly timestamp: string; readonly graceSeconds: number };

/** A pod's hooks have been let go. */
export interface Release {
  readonly pod: HeldPod;
  readonly reason: ReleaseReason;
  /** Since the deletion, or since the first hook called where there is none. Milliseconds. */
  readonly heldMs: number;
  /** What was waited for last; at `Max`, still. */
  readonly waitingFor: readonly WaitingFor[];
  /** Connections that are open on the pod's listening ports; undefined: not known. */
  readonly open: number | undefined;
  /** Who still connected after every known consumer had let go. */
  readonly undeclared: Undeclared | undefined;
  /**
   * From the withdrawal until the last connection that the pod saw; undefined: it has not seen, or nothing was withdrawn.
   * Seconds.
   */
  readonly lag: number | undefined;
}

export interface Undeclared {
  readonly connections: number;
  /** Since every known consumer had let go. Seconds. */
  readonly seconds: number;
  /** Addresses that are new since then; where there are none, all that the pod has seen. */
  readonly remotes: readonly string[];
}

/** What is known of the cluster, and of consumers. */
export interface HoldSources {
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  readonly world: () => World;
  /** What lists the pod as ready now, as far as it withdraws pods that terminate. */
  readonly listing: (uid: string) => readonly EndpointGroup[];
  readonly withdraws: (group: EndpointGroup) => boolean;
  /** Whether all that listings follow from has been read, and arrives when it happens. */
  readonly current: () => boolean;
  /** Before this instant endpoints may have withdrawn a pod unseen: they were still being read. */
  readonly followedSince: () => number;
  /** What consumers' instances report; undefined: nobody takes reports here. */
  readonly reports: () => { readonly taken: ConsumerReports; readonly since: number } | undefined;
  /** Who asks the instances of inspected consumers about a pod that is held. */
  readonly inspecting: Pick<Inspecting, 'usersOf' | 'want' | 'done'>;
  /** Asks the API server itself. Rejects where it cannot be asked. */
  readonly inquire: (pod: HeldPod) => Promise<Inquiry>;
  readonly onRelease: (release: Release) => void;
  /** Whoever has the pod's token and is not the pod wants to testify. */
  readonly onStranger: (pod: HeldPod, stranger: Waiter) => void;
  /** What an inquiry has found before the watch. */
  readonly sawDeletion: (pod: HeldPod, timestamp: string | undefined, graceSeconds: number) => void;
}

/** Milliseconds. */
const LIMITS = {
  /** Between two looks at what is due: a release is later than its condition by at most this. */
  tick: 25,
  /** A look takes a fifth of the time at most. */
  idleShare: 4,
  /** What no event tells of (an instance that falls silent, a wait that time ends) shows by then. */
  look: 1_000,
  /** The watch shows a deletion before the hook has begun, but for some milliseconds: asked is whoever it has not shown. */
  askAfter: 300,
  askAgain: 1_000,
  /** A watch that is being resumed is soon current again, and brings what it has missed. */
  blindAfter: 3_000,
  /** When the last connection came is worked out once so much silence has followed, while the lines of it are there. */
  lastAfter: 5_000,
  /** How long a hold whose hooks have gone is remembered: they may only be reconnecting. */
  forgetAfter: 60_000,
};
const MOST_REMOTES = 64;
/** A line tells of the half second before it, and consumers that let go by a percentile are as exact as a step of the grid. */
const SETTLING_MS = 600;
/** A hook begins, and its first line comes, some tenths of a second after the deletion. */
const UNCOUNTED_MS = 1_000;
/** A witness whose last line is older has not seen the end. */
const WITNESSED_LATELY_MS = 3_000;
/** A withdrawal may show before the deletion that it follows: the stamp has whole seconds, and the watches are independent. */
const STREAMS_APART_MS = 1_000;

/** One whose plan can be read. */
export type TermedPod = HeldPod & { readonly terms: HoldTerms };

interface Hold {
  readonly pod: TermedPod;
  calledAt: number;
  readonly waiters: Set<Waiter>;
  lookAt: number;
  verdict: Extract<HoldVerdict, { holding: true }>;
  inquiry: 'Restart' | 'NodeShutdown' | undefined;
  askAt: number;
  /** When the last of its hooks went away. */
  leftAt: number | undefined;
  /** Whose word counts: all containers of a pod see the same. */
  witness: { readonly waiter: Waiter; readonly said: Witness } | undefined;
  readonly remotes: Set<string>;
  /** When everything known had let go, and how many connections have come since. */
  letGo: { readonly at: number; opened: number; readonly before: ReadonlySet<string> } | undefined;
  /** The last connections that no probe explains: the line until which they came and, once that is worked out, when the last did. */
  last: { readonly until: number; at?: number } | undefined;
  /** A hook has called from an address of the pod's own, or nothing tells its address from others. */
  own: boolean;
  senders: Senders | undefined;
}

/** Who sends traffic to a pod: the same for as long as these parts of the World are. */
interface Senders {
  readonly world: Pick<World, 'services' | 'namespaces' | 'consumers' | 'policies' | 'lags'>;
  readonly labels: HeldPod['labels'];
  readonly consumers: readonly Consumer[];
  readonly lag: PlannedLag;
}

const NOT_LOOKED: Hold['verdict'] = { holding: true, waitingFor: [], nextLookAt: 0 };

/** A held pod, for people. */
export interface HeldView {
  readonly namespace: string;
  readonly pod: string;
  readonly uid: string;
  /** Milliseconds since its deletion (or since its hook called). */
  readonly heldMs: number;
  readonly deleted: boolean;
  readonly hooks: number;
  readonly maxSeconds: number;
  readonly waitingFor: readonly WaitingFor[];
}

/** All pods that are held by this replica, while it leads. */
export class Holds {
  readonly #sources: HoldSources;
  /** By the uid of the pod. */
  readonly #holds = new Map<string, Hold>();
  #timer: NodeJS.Timeout | undefined;
  #staleSince: number | undefined;
  /** Since when there is no use in waiting a little: before all has been read once, nothing is being resumed. */
  #blindSince: number | undefined;

  constructor(sources: HoldSources) {
    this.#sources = sources;
    this.#blindSince = sources.clock();
  }

  get size(): number {
    return this.#holds.size;
  }

  /** This replica leads no more. */
  end(): void {
    for (const { pod } of [...this.#holds.values()]) this.#forget(pod);
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  /** Since when the watches have not been current, for longer than it takes to resume one. */
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

  /** A hook of the pod waits from now on. */
  call(pod: TermedPod, waiter: Waiter): void {
    const now = this.#sources.clock();
    let hold = this.#holds.get(pod.uid);
    if (hold === undefined) {
      hold = {
        ...{ pod, calledAt: now, waiters: new Set(), lookAt: now, verdict: NOT_LOOKED, inquiry: undefined },
        ...{ askAt: now + LIMITS.askAfter, leftAt: undefined, witness: undefined },
        ...{ remotes: new Set(), letGo: undefined, last: undefined, senders: undefined, own: false },
      };
      this.#holds.set(pod.uid, hold);
      this.#sources.inspecting.want(pod.uid);
    }
    // Whoever has stolen a token may wait with the pod, but its times count from the pod's own call.
    if (!hold.own && !isStranger(pod, waiter.source)) {
      hold.own = true;
      hold.calledAt = now;
    }
    pod.calledAt ??= now;
    hold.waiters.add(waiter);
    hold.leftAt = undefined;
    hold.lookAt = now;
    this.#timer ??= setTimeout(() => this.#tick(), 0).unref();
  }

  /** It does not wait any more. */
  leave(pod: HeldPod, waiter: Waiter): void {
    const hold = this.#holds.get(pod.uid);
    if (hold?.waiters.delete(waiter) !== true) return;
    if (hold.witness?.waiter === waiter) hold.witness = undefined;
    if (hold.waiters.size === 0) hold.leftAt = this.#sources.clock();
  }

  /** What the helper says of the pod's network namespace. */
  saw(pod: HeldPod, waiter: Waiter, line: WitnessLine): void {
    const hold = this.#holds.get(pod.uid);
    if (hold === undefined) return;
    if (hold.pod.terms.hostNetwork) return;
    if (isStranger(pod, waiter.source)) {
      if (hold.witness?.waiter === waiter) hold.witness = undefined;
      this.#sources.onStranger(pod, waiter);
      return;
    }
    hold.witness ??= { waiter, said: new Witness() };
    if (hold.witness.waiter !== waiter) return;
    const opened = hold.witness.said.hear(line);
    for (const remote of line.remotes) if (hold.remotes.size < MOST_REMOTES) hold.remotes.add(remote);
    if (hold.letGo !== undefined) hold.letGo.opened += opened ?? 0;
  }

  /** Something about the pod has changed. */
  touch({ uid }: Pick<HeldPod, 'uid'>): void {
    const hold = this.#holds.get(uid);
    if (hold !== undefined) hold.lookAt = 0;
  }

  /** Instances of a consumer have said what they have applied. */
  heard(consumer: string): void {
    for (const hold of this.#holds.values())
      if (hold.verdict.waitingFor.some((each) => each.consumer === consumer)) hold.lookAt = 0;
  }

  list(): readonly HeldView[] {
    const now = this.#sources.clock();
    return [...this.#holds.values()].map(({ pod, calledAt, waiters, verdict }) => ({
      namespace: pod.namespace,
      pod: pod.name,
      uid: pod.uid,
      heldMs: now - (pod.deletion?.at ?? calledAt),
      deleted: pod.deletion !== undefined,
      hooks: waiters.size,
      maxSeconds: pod.terms.max,
      waitingFor: verdict.waitingFor,
    }));
  }

  #tick(): void {
    const begun = this.#sources.clock();
    const blindSince = this.blindSince;
    for (const hold of this.#holds.values()) if (hold.lookAt <= begun) this.#look(hold, begun, blindSince);
    this.#timer = undefined;
    if (this.#holds.size === 0) return;
    const took = this.#sources.clock() - begun;
    this.#timer = setTimeout(() => this.#tick(), Math.max(LIMITS.tick, LIMITS.idleShare * took)).unref();
  }

  #look(hold: Hold, now: number, blindSince: number | undefined): void {
    const { pod, leftAt } = hold;
    if (leftAt !== undefined && now - leftAt > LIMITS.forgetAfter) {
      this.#forget(pod);
      return;
    }
    const { terms } = pod;
    const testimony = hold.witness?.said.testimony({ now, probes: terms.probes, min: terms.min });
    const until = testimony?.busyUntil;
    if (until !== undefined && until !== hold.last?.until) hold.last = { until };
    // The lines of that time are forgotten after a while.
    else if (now - (hold.last?.until ?? now) >= LIMITS.lastAfter) lastConnectionOf(hold);
    const facts = this.#factsOf(hold, now, blindSince, testimony?.verdict ?? 'Unknown');
    if (!haveAllLetGo(facts)) hold.letGo = undefined;
    else hold.letGo ??= { at: now, opened: 0, before: new Set(hold.remotes) };
    const verdict = verdictOf(facts);
    if ('release' in verdict) {
      this.#let(hold, verdict.release, now);
      return;
    }
    hold.verdict = verdict;
    hold.lookAt = Math.min(verdict.nextLookAt, now + LIMITS.look);
    // Silence is told by lines, which come twice a second.
    if (facts.quiet === 'Sending') hold.lookAt = Math.min(hold.lookAt, now + LIMITS.tick * 4);
    if (pod.deletion === undefined && hold.inquiry === undefined) {
      if (now >= hold.askAt) void this.#ask(hold);
      else hold.lookAt = Math.min(hold.lookAt, hold.askAt);
    }
  }

  #forget(pod: HeldPod): void {
    this.#holds.delete(pod.uid);
    this.#sources.inspecting.done(pod.uid);
  }

  #let(hold: Hold, reason: ReleaseReason, now: number): void {
    const { pod, waiters, calledAt, verdict, witness } = hold;
    this.#forget(pod);
    for (const waiter of waiters) waiter.answer(reason === 'Unsure' ? 'unsure' : 'release');
    // The kubelet may run the hooks of one deletion again.
    if (pod.releasedAt !== undefined || waiters.size === 0) return;
    if (pod.deletion !== undefined) pod.releasedAt = now;
    this.#sources.onRelease({
      ...{ pod, reason, heldMs: now - (pod.deletion?.at ?? calledAt) },
      waitingFor: verdict.waitingFor,
      open: witness?.said.open,
      undeclared: undeclaredIn(hold, now),
      lag: this.#lagSeenIn(hold, now),
    });
  }

  /** How long after its withdrawal the pod was still connected to. */
  #lagSeenIn(hold: Hold, now: number): number | undefined {
    const { pod, witness } = hold;
    const { deletion, withdrawals, uid } = pod;
    const { heardAt, countsSince = now } = witness?.said ?? {};
    if (deletion === undefined || heardAt === undefined || now - heardAt > WITNESSED_LATELY_MS)
      return undefined;
    const { listing, withdraws } = this.#sources;
    const of = withdrawals.filter(
      ({ group, at }) => at >= deletion.at - STREAMS_APART_MS && withdraws(group),
    );
    if (of.length === 0 || listing(uid).length > 0) return undefined;
    const withdrawnAt = Math.max(...of.map(({ at }) => at));
    const lastAt = lastConnectionOf(hold);
    const last = Math.max(withdrawnAt, lastAt ?? withdrawnAt);
    // Whether one came while the helper did not count is not known, and a moment without any says nothing.
    const isSeen = lastAt !== undefined || heardAt - countsSince >= UNCOUNTED_MS;
    return isSeen && countsSince - last <= UNCOUNTED_MS ? (last - withdrawnAt) / 1000 : undefined;
  }

  async #ask(hold: Hold): Promise<void> {
    const { pod } = hold;
    hold.askAt = Number.POSITIVE_INFINITY;
    let found: Inquiry | undefined;
    try {
      found = await this.#sources.inquire(pod);
    } catch {
      // Who asks says why.
    }
    if (this.#holds.get(pod.uid) !== hold) return;
    hold.lookAt = 0;
    if (found === undefined) hold.askAt = this.#sources.clock() + LIMITS.askAgain;
    else if (found.found === 'Deleted') this.#sources.sawDeletion(pod, found.timestamp, found.graceSeconds);
    else if (found.found === 'Gone') this.#sources.sawDeletion(pod, undefined, 0);
    else hold.inquiry = found.found;
  }

  #factsOf(hold: Hold, now: number, blindSince: number | undefined, quiet: QuietVerdict): HoldFacts {
    const { pod, calledAt, inquiry } = hold;
    const { deletion, terms } = pod;
    const { listing, withdraws } = this.#sources;
    const senders = this.#sendersOf(hold);
    const withdrawn = pod.withdrawals.filter(({ group }) => withdraws(group));
    const listings: ListingFacts[] = [
      ...listing(pod.uid).map((group) => listingFacts(group, undefined)),
      ...withdrawn.map(({ group, at }) => listingFacts(group, at)),
      // What had withdrawn it before that shows as nothing at all, and whoever sends to it may not have followed yet.
      { name: 'endpoints that have not been seen', withdrawnAt: this.#sources.followedSince() },
    ];
    // Who finds pods without any Service learns of the deletion itself.
    if (deletion !== undefined && senders.consumers.some((each) => findsByItself(each, pod.labels)))
      listings.push({ name: 'discovery of its own', withdrawnAt: deletion.at });
    const consumers = senders.consumers.map(
      (consumer): ConsumerFacts => ({
        name: consumer.name,
        lettingGo: this.#lettingGo(consumer, pod, terms, senders.lag, withdrawn),
      }),
    );
    return { now, terms, calledAt, deletion, inquiry, blindSince, listings, consumers, quiet };
  }

  #lettingGo(
    consumer: Consumer,
    pod: HeldPod,
    terms: HoldTerms,
    lag: PlannedLag,
    withdrawn: readonly Withdrawal[],
  ): LettingGo {
    const { name, measure } = consumer;
    if (measure.kind === 'reports') {
      const versions = versionsOf(withdrawn);
      const reports = this.#sources.reports();
      const still = versions && reports?.taken.waitingFor(name, versions);
      if (versions === undefined || reports === undefined || still === undefined) return { by: 'unknown' };
      // What instances have told an earlier leader is not known here: one that has yet to report may still send.
      const all = reports.since + terms.initial * 1000;
      const completeAt = reports.taken.hasSilent(name, versions) ? Number.POSITIVE_INFINITY : all;
      return { by: 'word', still, completeAt };
    }
    if (measure.kind === 'inspect') {
      const since = Math.max(...withdrawn.map(({ at }) => at));
      const users = this.#sources.inspecting.usersOf(name, pod.uid, since) ?? 'unknown';
      return users === 'unknown' ? { by: 'unknown' } : { by: 'word', still: users, completeAt: 0 };
    }
    const part = lag.parts.find((each) => each.name === name);
    if (part?.lags === undefined || !part.enough) return { by: 'unknown' };
    // The grid's values are up to 1 % off: none is to be too short.
    const percentile = part.source === 'declared' ? 100 : terms.percentile;
    return { by: 'time', ms: 1_010 * part.lags.quantile(percentile) };
  }

  #sendersOf(hold: Hold): Senders {
    const { services, namespaces, consumers, policies, lags, ...rest } = this.#sources.world();
    const { labels, namespace } = hold.pod;
    const known = hold.senders;
    if (
      known !== undefined &&
      known.labels === labels &&
      known.world.services === services &&
      known.world.namespaces === namespaces &&
      known.world.consumers === consumers &&
      known.world.policies === policies &&
      known.world.lags === lags
    )
      return known;
    const world = { services, namespaces, consumers, policies, lags };
    const pod = { namespace, labels, annotations: NO_LABELS };
    const { consumers: sending, lag } = trafficOf(pod, { ...world, ...rest });
    hold.senders = { world, labels, consumers: sending, lag };
    return hold.senders;
  }
}

/** When the last connection came that no probe explains. */
function lastConnectionOf({ last, witness, pod }: Hold): number | undefined {
  if (last !== undefined) last.at ??= witness?.said.lastConnection(pod.terms.probes) ?? last.until;
  return last?.at;
}

/** @returns undefined where nobody connected but probes, or there was no time for it */
function undeclaredIn(hold: Hold, now: number): Undeclared | undefined {
  const { pod, letGo, remotes } = hold;
  const lastAt = lastConnectionOf(hold);
  if (letGo === undefined || lastAt === undefined || lastAt <= letGo.at + SETTLING_MS) return undefined;
  const { probes } = pod.terms;
  const byProbes = probes === 0 ? 0 : Math.ceil((probes * (now - letGo.at)) / 1000);
  const connections = letGo.opened - byProbes;
  if (connections <= 0) return undefined;
  const later = [...remotes].filter((each) => !letGo.before.has(each));
  const seconds = (lastAt - letGo.at) / 1000;
  return { connections, seconds, remotes: later.length === 0 ? [...remotes] : later };
}

function listingFacts(
  { stage, namespace, service, overCapacity }: EndpointGroup,
  withdrawnAt: number | undefined,
): ListingFacts {
  return { name: `${stage} ${namespace}/${service}`, withdrawnAt, truncated: overCapacity };
}

/** The newest by which something has withdrawn the pod. @returns undefined where one is not known */
function versionsOf(withdrawals: readonly Withdrawal[]): StageVersions | undefined {
  const newest: Partial<Record<LagStage, string>> = {};
  for (const { group, version } of withdrawals) {
    if (version === undefined) return undefined;
    const other = newest[group.stage];
    if (other === undefined) newest[group.stage] = version;
    else {
      const order = compareVersions(version, other);
      if (order === undefined) return undefined;
      if (order > 0) newest[group.stage] = version;
    }
  }
  return withdrawals.length === 0 ? undefined : newest;
}
