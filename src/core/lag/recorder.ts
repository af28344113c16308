import { type Explained, Shares } from '../api/index.ts';
import { type EndpointChange, type EndpointGroup, EndpointIndex } from './endpoint-index.ts';
import { EndpointsUpkeep } from './endpoints-upkeep.ts';
import {
  type Acknowledged,
  type ClusterEvent,
  ENDPOINT_SOURCES,
  type HeartbeatStream,
  type PodKey,
  type RemovalSample,
  type ServiceState,
  STREAMS,
  type StageSample,
  type Stream,
  type StreamEvent,
  type TerminatingPod,
} from './events.ts';
import { WatchDelay } from './watch-delay.ts';

/** Why a removal produced no sample. Each withdrawal is counted under at most one reason. */
export const DISCARDS = {
  Reconnect: {
    means:
      'The watch of the pods, of the object or of the Services was interrupted while the removal was under way.',
    more: 'A pause of the process (over 1 s: a suspended node, no CPU) interrupts all of them.',
  },
  Late: {
    means:
      'A watch was behind when it brought the termination or the withdrawal: the lag would have been wrong by more than 250 ms and 2 %.',
    more: 'The leader’s heartbeats show it.',
  },
  Inversion: {
    means: 'The withdrawal showed more than 250 ms before the termination did.',
  },
  NeverWithdrawn: {
    means: 'The Service has publishNotReadyAddresses: it lists a terminating pod until it is gone.',
  },
  OverCapacity: {
    means:
      'The Endpoints object is truncated at 1,000 addresses, or its namespace has more endpoints than are kept, so a missing pod says nothing.',
  },
  NoService: {
    means:
      'The Service is unknown, or was deleted meanwhile, so whether it withdraws pods is unknown as well.',
  },
  NoSelector: {
    means:
      'The Service has no selector, its selector does not match the pod, or it changed meanwhile: something other than the termination may have withdrawn the pod, or kept it listed.',
  },
  Unmaintained: {
    means: 'No controller maintains Endpoints, so the object goes on listing the pod.',
    more: '[The slices decide](operations.md#without-endpoints).',
  },
  Expired: {
    means: 'Two hours passed without a withdrawal.',
  },
  TooMany: {
    means: 'More removals were under way at once than are followed, or than the share of their namespace.',
  },
  Relisted: {
    means: 'A terminating pod was listed as ready again: the sample taken of it was too short.',
  },
} as const satisfies Readonly<Record<string, Explained>>;

export type DiscardReason = keyof typeof DISCARDS;
export type DiscardCounts = Readonly<Record<DiscardReason, number>>;

/** These reasons exclude one group from the pod's lag; any other makes the pod's lag unknown. */
const EXCLUSIONS: ReadonlySet<DiscardReason> = new Set([
  'NeverWithdrawn',
  'OverCapacity',
  'NoService',
  'NoSelector',
  'Unmaintained',
]);

/**
 * How far the instants of a stream's events can be trusted.
 *
 * - `current`: an event arrives as it happens.
 * - `rotating`: the server closed the watch at its timeout (after 4 to 5 minutes) and it is being resumed: nothing is lost,
 *   and events in the gap arrive late. A removal that began before the gap and ends after it has true instants, so it is
 *   kept; a lag of minutes could otherwise never be measured.
 * - `broken`: anything else, including before the first list; a removal that spans such a time gives no sample.
 */
type StreamState = 'current' | 'rotating' | 'broken';

/**
 * The longest lag that has a bucket of its own. Waiting longer gains nothing, and removals that never end must not pile up.
 */
export const EXPIRY_MS = 7_200_000;

/**
 * How many removals of terminating pods are followed at once: twice what a node failure or a rollout of everything takes;
 * some 40 MB in all. A removal takes its place until its pod is gone, and no namespace gets more than its fair share.
 */
export const MOST_REMOVALS = 50_000;

/**
 * Healthy streams differ by milliseconds. A withdrawal that arrives this much before its termination still counts as a lag
 * of 0.
 */
export const INVERSION_MS = 250;

/** How late a stream may be, which is also how much streams that keep up differ. */
const LATE_MS = INVERSION_MS;
const LATE_SHARE = 0.02;

/** The leader writes heartbeats once a removal has been open for this long. */
const HEARTBEATS_AFTER_MS = 1_000;

/**
 * Within this time even a replica that alone has open removals has written two heartbeats; a sample without heartbeats is
 * then accepted as it is.
 */
const HEARTBEATS_WITHIN_MS = 10_000;

/** How long a sample waits for heartbeats that have been written but not delivered; after that it is discarded. */
const LATE_HEARTBEATS_WITHIN_MS = 120_000;

/**
 * In a storm, thousands of samples wait while thousands of events arrive each second, so samples are not checked at every
 * event.
 */
const VERIFY_EVERY_MS = 1_000;

/**
 * How long an early withdrawal is remembered: longer than {@link INVERSION_MS}, so that those beyond it are counted as
 * discarded.
 */
const REMEMBERED_MS = 10_000;

/**
 * How many early withdrawals are remembered: 3,200 a second for all of that time, at most half of them from one namespace.
 */
const MOST_REMEMBERED = 32_768;

/** The termination of a pod, from its first sign until no object lists the pod any more. */
interface Termination {
  readonly pod: Pick<TerminatingPod, 'uid' | 'namespace' | 'name'>;
  readonly since: number;
  gone: boolean;
  /** The groups that listed it as ready and have not withdrawn it yet. */
  open: Removal[];
  /** All withdrawals so far, including verified ones, which {@link LagRecorder.#unverified} no longer contains. */
  withdrawals: EndedRemoval[];
  unverified: number;
  /** How many of its removals are followed, and how many were left out for lack of room. */
  places: number;
  leftOut: number;
  /** How late the pods' stream was, in milliseconds; undefined: no heartbeat has shown that yet. */
  lateness: number | undefined;
  /** Nothing more is reported: its lag has been, or is unknown. */
  closed: boolean;
}

/** A group that still lists a terminating pod as ready. */
interface Removal {
  readonly termination: Termination;
  readonly group: EndpointGroup;
  /** It has been counted as discarded and gives no sample, but has not ended. */
  spoiled: boolean;
}

/** A removal that has ended. Heartbeats will show whether its streams were punctual. */
interface EndedRemoval {
  readonly termination: Termination;
  readonly group: EndpointGroup;
  readonly sample: StageSample;
}

/** A withdrawal that may have arrived before its termination, since the streams are independent. */
interface EarlyEnd {
  readonly group: EndpointGroup;
  readonly at: number;
  readonly version: string | undefined;
}

/** A removal that has begun and whose end has not been seen. */
export interface UnresolvedRemoval extends Pick<StageSample, 'stage' | 'namespace' | 'name' | 'uid'> {
  readonly pod: string;
  /** When the termination began: milliseconds of the monotonic clock. */
  readonly since: number;
}

interface Recorded {
  readonly stages: readonly StageSample[];
  readonly removals: readonly RemovalSample[];
  readonly changes: readonly EndpointChange[];
}

interface RecorderOptions {
  /** Whether to keep addresses for {@link Recorded.changes}; see {@link EndpointIndex}. */
  readonly addresses?: boolean;
  /** Whether a leader writes heartbeats, so that samples wait to be verified. */
  readonly heartbeats?: boolean;
  /** The only namespace whose slices may prove that no controller maintains Endpoints; undefined: any. */
  readonly trusted?: string | undefined;
}

const NO_CHANGES: readonly EndpointChange[] = [];
const NO_GROUPS: ReadonlySet<EndpointGroup> = new Set();

/**
 * Turns the events of the watches into samples. A sample begins with the event that first shows a pod's deletionTimestamp
 * (or a bare DELETED), and ends when the slices of a Service and address family, or its Endpoints, no longer list the pod
 * as ready: one for each group that listed it as ready at that instant, and one for the pod when the last of them has
 * withdrawn it. Removals without a sample are counted; see {@link DISCARDS}. Memory is proportional to what is listed and
 * terminating now; an event costs time in proportion to its object.
 */
export class LagRecorder {
  readonly #index: EndpointIndex;
  readonly #streams = new Map<Stream, StreamState>(STREAMS.map((stream) => [stream, 'broken']));
  readonly #services = new Map<string, ServiceState>();
  readonly #terminations = new Map<string, Termination>();
  /** Oldest first. */
  readonly #open = new Set<Removal>();
  /** How many removals each namespace has that are followed, and that were left out for lack of room. */
  readonly #places = new Shares();
  readonly #leftOut = new Shares();
  readonly #openOf = new Map<EndpointGroup, Set<Removal>>();
  /** By pod uid, in order of the latest withdrawal. */
  readonly #early = new Map<string, readonly EarlyEnd[]>();
  readonly #earlyShares = new Shares();
  readonly #watchDelay: WatchDelay | undefined;
  readonly #upkeep: EndpointsUpkeep;
  /** Terminations whose beginning no heartbeat has verified yet, oldest first. */
  readonly #unverifiedBeginnings = new Set<Termination>();
  /** Oldest first. */
  readonly #unverified = new Set<EndedRemoval>();
  /** When to check again the samples on which only the passing of time can decide. */
  #verifyAt = Number.NEGATIVE_INFINITY;
  readonly #discarded: Record<DiscardReason, number>;
  #recorded = { stages: [] as StageSample[], removals: [] as RemovalSample[], changes: NO_CHANGES };

  constructor({ addresses = false, heartbeats = false, trusted }: RecorderOptions = {}) {
    this.#index = new EndpointIndex({ addresses });
    this.#upkeep = new EndpointsUpkeep(trusted);
    this.#watchDelay = heartbeats ? new WatchDelay() : undefined;
    const none = Object.keys(DISCARDS).map((reason) => [reason, 0]);
    this.#discarded = Object.fromEntries(none) as Record<DiscardReason, number>;
  }

  /** Processes the next event. @returns the ended removals that are verified, and the changes of endpoints */
  apply(event: ClusterEvent): Recorded {
    this.#recorded = { stages: [], removals: [], changes: NO_CHANGES };
    const { at } = event;
    this.#expire(at);
    switch (event.type) {
      case 'PodTerminating':
      case 'PodDeleted':
        this.#podEnds(event.pod, event.type === 'PodDeleted', at);
        break;
      case 'Slice': {
        const { namespace, serviceName = '', version } = event.slice;
        this.#lists(namespace, serviceName, () => this.#index.slice(event.slice), at, version);
        break;
      }
      case 'Endpoints': {
        const { namespace, name, version } = event.endpoints;
        this.#lists(namespace, name, () => this.#index.endpoints(event.endpoints), at, version);
        break;
      }
      case 'SliceDeleted':
      case 'EndpointsDeleted': {
        const stage = event.type === 'SliceDeleted' ? 'EndpointSlice' : 'Endpoints';
        this.#changed(this.#index.remove(stage, event.namespace, event.name), at, event.version);
        break;
      }
      case 'Service': {
        const { namespace, name, selector, publishNotReadyAddresses } = event.service;
        const known = this.#services.get(`${namespace}/${name}`);
        this.#services.set(`${namespace}/${name}`, event.service);
        // If a Service loses its selector, controllers no longer update its slices, even when pods are deleted.
        const changed = known !== undefined && JSON.stringify(selector) !== JSON.stringify(known.selector);
        if (publishNotReadyAddresses) this.#giveUpService(namespace, name, 'NeverWithdrawn');
        else if (changed) this.#giveUpService(namespace, name, 'NoSelector');
        break;
      }
      case 'ServiceDeleted':
        this.#services.delete(`${event.namespace}/${event.name}`);
        this.#giveUpService(event.namespace, event.name, 'NoService');
        break;
      case 'Heartbeat':
        this.#watchDelay?.heartbeat(
          event.from,
          event.heartbeat,
          at,
          this.#streams.get(event.from) === 'current',
        );
        this.#verifyAll(at);
        break;
      default:
        this.#stream(event);
    }
    return this.#recorded;
  }

  /** The open removals, oldest first, without those of a broken stream: whether they are still open is unknown. */
  *unresolved(): Generator<UnresolvedRemoval> {
    for (const { group, termination } of this.#open) {
      if (this.#streams.get(group.stage) === 'broken') continue;
      const { pod, since } = termination;
      const { stage, namespace, service } = group;
      yield { stage, namespace, name: service, pod: pod.name, uid: pod.uid, since };
    }
  }

  /**
   * Whether this replica should write heartbeats: a removal has been open for more than a second, or a sample awaits
   * verification.
   * @param life identifies its own heartbeats
   * @param silentMs requires that this has been so, without a heartbeat of another replica, for this long
   */
  wantsHeartbeat(now: number, life: string, silentMs = 0): boolean {
    const before = now - silentMs;
    if (this.#watchDelay === undefined || this.#watchDelay.heartbeatAt(life) > before) return false;
    const [oldest] = this.#unverified;
    if (oldest !== undefined && oldest.sample.at <= before) return true;
    for (const { spoiled, termination } of this.#open)
      if (!spoiled) return before - termination.since > HEARTBEATS_AFTER_MS;
    return false;
  }

  heartbeatWritten(life: string, stream: HeartbeatStream, acknowledged: Acknowledged): void {
    this.#watchDelay?.wrote(life, stream, acknowledged);
  }

  isReady(uid: string, of: Pick<EndpointGroup, 'stage' | 'namespace' | 'service'>): boolean {
    const { namespace } = of;
    const isOf = ({ stage, service }: EndpointGroup) => stage === of.stage && service === of.service;
    return this.#index.readyGroups({ namespace, uid }).some(isOf);
  }

  /**
   * The groups that list the pod as ready now: slices of a Service and address family, or Endpoints if they are maintained.
   */
  listing(pod: PodKey): readonly EndpointGroup[] {
    const { maintained } = this.#upkeep;
    return this.#index
      .readyGroups(pod)
      .filter(({ mirrored, stage }) => !mirrored && (maintained || stage !== 'Endpoints'));
  }

  /** Whether a controller seems to maintain Endpoints; if not, they do not count. */
  get maintainsEndpoints(): boolean {
    return this.#upkeep.maintained;
  }

  /** Whether some endpoints of the namespace are unknown because Linger had no room for them. */
  hasUnread(namespace: string): boolean {
    return this.#index.hasUnread(namespace);
  }

  /**
   * Whether a termination withdraws pods from the group; false with publishNotReadyAddresses, which keeps terminating pods
   * listed.
   */
  withdraws({ namespace, service }: EndpointGroup): boolean {
    return this.#services.get(`${namespace}/${service}`)?.publishNotReadyAddresses !== true;
  }

  get discarded(): DiscardCounts {
    return this.#discarded;
  }

  /** How many current removals were left out for lack of room, by namespace. */
  get leftOut(): ReadonlyMap<string, number> {
    return this.#leftOut.byNamespace;
  }

  /** For gauges. */
  get size(): { readonly pods: number; readonly objects: number; readonly open: number } {
    const terminations = [...this.#terminations.values()];
    const unlisted = terminations.filter(({ pod }) => !this.#index.isListed(pod)).length;
    return { pods: this.#index.pods + unlisted, objects: this.#index.objects, open: this.#open.size };
  }

  #podEnds(pod: TerminatingPod, gone: boolean, at: number): void {
    const { uid } = pod;
    let termination = this.#terminations.get(uid);
    if (termination === undefined) {
      // A terminating pod that no object lists must be remembered, because a late slice may still list it.
      if (gone && !this.#isListed(pod) && !this.#early.has(uid)) return;
      termination = this.#begin(pod, at);
    }
    termination.gone ||= gone;
    this.#settle(uid);
  }

  /** Begins a termination: opens a removal for each group that lists the pod as ready now. */
  #begin(pod: TerminatingPod, at: number): Termination {
    const { uid, namespace, name, labels } = pod;
    const early = this.#early.get(uid) ?? [];
    this.#forgetEarly(uid, () => true);
    const groups = this.listing(pod);
    const termination: Termination = {
      pod: { uid, namespace, name },
      since: at,
      gone: false,
      open: [],
      withdrawals: [],
      // Starts at 1, so that nothing is reported before everything below is known.
      unverified: 1,
      places: 0,
      leftOut: 0,
      lateness: this.#watchDelay === undefined ? 0 : undefined,
      closed: false,
    };
    this.#terminations.set(uid, termination);
    const seenInTime = this.#streams.get('pods') === 'current';
    for (const group of groups) this.#openRemoval(termination, { group, labels }, seenInTime);
    if (!seenInTime) return termination;
    for (const { group, at: endedAt, version } of early) {
      if (group.namespace !== namespace || at - endedAt >= REMEMBERED_MS || this.#deselects(group, labels))
        continue;
      const exclusion = this.#exclusionOf(group);
      if (exclusion !== undefined) this.#discard(exclusion, termination);
      else if (at - endedAt > INVERSION_MS) this.#discard('Inversion', termination);
      else if (this.#takesPlace(termination)) this.#sample(termination, group, at, version);
    }
    if (termination.open.length > 0 && this.#watchDelay !== undefined)
      this.#unverifiedBeginnings.add(termination);
    termination.unverified -= 1;
    this.#report(termination);
    return termination;
  }

  /** @param seenInTime false: the termination began at an unknown earlier instant, so the removal gives no sample */
  #openRemoval(
    termination: Termination,
    { group, labels }: { readonly group: EndpointGroup; readonly labels: TerminatingPod['labels'] },
    seenInTime: boolean,
  ): void {
    const exclusion = this.#exclusionOf(group) ?? (this.#deselects(group, labels) ? 'NoSelector' : undefined);
    if (exclusion !== undefined) this.#discard(exclusion, termination);
    else if (this.#takesPlace(termination)) {
      const spoiled = !seenInTime || this.#streams.get(group.stage) === 'broken';
      const removal = { termination, group, spoiled };
      this.#open.add(removal);
      const ofGroup = this.#openOf.get(group) ?? new Set();
      this.#openOf.set(group, ofGroup.add(removal));
      termination.open.push(removal);
      if (spoiled) this.#discard('Reconnect', termination);
    }
  }

  #takesPlace(termination: Termination): boolean {
    const { namespace } = termination.pod;
    const hasRoom = this.#places.hasRoomFor(namespace, 1, MOST_REMOVALS);
    (hasRoom ? this.#places : this.#leftOut).add(namespace, 1);
    termination[hasRoom ? 'places' : 'leftOut'] += 1;
    if (!hasRoom) this.#discard('TooMany', termination);
    return hasRoom;
  }

  #lists(
    namespace: string,
    service: string,
    put: () => readonly EndpointChange[],
    at: number,
    version: string | undefined,
  ): void {
    const truncated = () =>
      this.#index.groupsOf(namespace, service).filter(({ overCapacity }) => overCapacity);
    // If the list was truncated before or is now, a pod that is missing proves nothing.
    const before = truncated();
    const changes = put();
    const unclear = new Set([...before, ...truncated()]);
    for (const group of unclear) this.#giveUp(group, 'OverCapacity');
    this.#changed(changes, at, version, unclear);
  }

  #changed(
    changes: readonly EndpointChange[],
    at: number,
    version: string | undefined,
    unclear: ReadonlySet<EndpointGroup> = NO_GROUPS,
  ): void {
    this.#recorded.changes = changes;
    const { maintained } = this.#upkeep;
    for (const change of changes)
      if (this.#countsForUpkeep(change)) this.#upkeep.changed(change, at, this.#hasSelector(change.group));
    if (maintained && !this.#upkeep.maintained)
      for (const removal of this.#open)
        if (removal.group.stage === 'Endpoints') this.#drop(removal, 'Unmaintained');
    for (const change of changes) {
      if (change.group.mirrored) continue;
      if (change.after === 'ready') this.#listedAsReady(change);
      else if (change.before === 'ready' && !unclear.has(change.group)) this.#withdrawn(change, at, version);
      if (change.after === undefined) this.#settle(change.uid);
    }
    if (maintained && !this.#upkeep.maintained)
      for (const uid of this.#terminations.keys()) this.#settle(uid);
  }

  /**
   * Whether a change is evidence on the upkeep of Endpoints. One of a slice is only if a following change of Endpoints would
   * be seen.
   */
  #countsForUpkeep({ group: { stage } }: EndpointChange): boolean {
    if (this.#streams.get(stage) === 'broken') return false;
    return stage === 'Endpoints' || ENDPOINT_SOURCES.every((each) => this.#streams.get(each) === 'current');
  }

  #listedAsReady({ uid, group }: EndpointChange): void {
    this.#forgetEarly(uid, (early) => early.group === group);
    const termination = this.#terminations.get(uid);
    if (termination?.withdrawals.some((each) => each.group === group) === true)
      this.#discard('Relisted', termination);
  }

  #withdrawn({ uid, group, after }: EndpointChange, at: number, version: string | undefined): void {
    const current = this.#streams.get(group.stage) === 'current';
    const termination = this.#terminations.get(uid);
    const removal = termination?.open.find((each) => each.group === group);
    if (termination === undefined || removal === undefined) {
      // `notReady` is only a change of readiness. Otherwise, the cause may be a termination that the pods' stream has not
      // shown yet.
      const maybeTermination = after !== 'notReady' && termination === undefined;
      if (maybeTermination && current) this.#rememberEarly(uid, { group, at, version });
      return;
    }
    this.#end(removal);
    if (removal.spoiled) return;
    if (current) this.#sample(termination, group, at, version);
    else this.#discard('Reconnect', termination);
    this.#report(termination);
  }

  #sample(termination: Termination, group: EndpointGroup, at: number, version: string | undefined): void {
    const { stage, namespace, service: name } = group;
    const { pod, since } = termination;
    const lag = Math.max(0, at - since) / 1000;
    const sample = { stage, namespace, name, uid: pod.uid, lag, at, version };
    const withdrawal = { termination, group, sample };
    termination.withdrawals.push(withdrawal);
    termination.unverified += 1;
    this.#unverified.add(withdrawal);
    this.#verify(withdrawal, at);
  }

  #rememberEarly(uid: string, early: EarlyEnd): void {
    const { namespace } = early.group;
    if (!this.#earlyShares.hasRoomFor(namespace, 1, MOST_REMEMBERED)) return;
    this.#earlyShares.add(namespace, 1);
    const others = this.#early.get(uid) ?? [];
    this.#early.delete(uid);
    this.#early.set(uid, [...others, early]);
  }

  #forgetEarly(uid: string, isForgotten: (early: EarlyEnd) => boolean): void {
    const left: EarlyEnd[] = [];
    for (const early of this.#early.get(uid) ?? [])
      if (isForgotten(early)) this.#earlyShares.add(early.group.namespace, -1);
      else left.push(early);
    if (left.length > 0) this.#early.set(uid, left);
    else this.#early.delete(uid);
  }

  #verifyAll(now: number): void {
    for (const termination of this.#unverifiedBeginnings) {
      termination.lateness = this.#watchDelay?.lateness('pods', termination.since);
      if (termination.lateness !== undefined) this.#unverifiedBeginnings.delete(termination);
    }
    for (const each of this.#unverified) this.#verify(each, now);
  }

  /** Accepts or discards the sample as soon as it is known whether both of its streams were punctual. */
  #verify(withdrawal: EndedRemoval, now: number): void {
    const { termination, sample } = withdrawal;
    const late = this.#isLate(termination, sample, now);
    if (late === undefined) return;
    this.#unverified.delete(withdrawal);
    termination.unverified -= 1;
    if (late) this.#discard('Late', termination);
    else this.#recorded.stages.push(sample);
    this.#report(termination);
  }

  /** @returns undefined: not known yet */
  #isLate({ lateness: beginning, since }: Termination, { stage, at, lag }: StageSample, now: number) {
    const watchDelay = this.#watchDelay;
    if (watchDelay === undefined) return false;
    const tolerated = Math.max(LATE_MS, LATE_SHARE * 1000 * lag);
    const first = beginning ?? watchDelay.lateness('pods', since);
    const last = watchDelay.lateness(stage, at);
    // A heartbeat from before the event that is still missing shows that the stream delivered the event late, too.
    const owed = Math.max(first ?? watchDelay.behind('pods', now), last ?? watchDelay.behind(stage, now));
    if (owed > tolerated) return true;
    if (first !== undefined && last !== undefined) return false;
    if (lag * 1000 <= HEARTBEATS_AFTER_MS) return false;
    if (now - at < HEARTBEATS_WITHIN_MS) return undefined;
    // If a stream still owes a heartbeat, it may have been late: wait for it.
    if (!watchDelay.awaits('pods') && !watchDelay.awaits(stage)) return false;
    return now - at < LATE_HEARTBEATS_WITHIN_MS ? undefined : true;
  }

  /** Reports the pod's sample once all groups have withdrawn the pod. */
  #report(termination: Termination): void {
    const { closed, open, unverified, withdrawals, pod } = termination;
    if (closed || open.length > 0 || unverified > 0 || withdrawals.length === 0) return;
    termination.closed = true;
    const samples = withdrawals.map(({ sample }) => sample);
    const last = samples.reduce((latest, each) => (each.lag > latest.lag ? each : latest));
    const { namespace, name, uid } = pod;
    this.#recorded.removals.push({
      namespace,
      pod: name,
      uid,
      lag: last.lag,
      at: last.at,
      withdrawals: samples,
    });
  }

  /** Removes an open removal, for whatever reason. */
  #end(removal: Removal): void {
    const { termination, group } = removal;
    this.#open.delete(removal);
    const ofGroup = this.#openOf.get(group);
    ofGroup?.delete(removal);
    if (ofGroup?.size === 0) this.#openOf.delete(group);
    termination.open = termination.open.filter((each) => each !== removal);
    if (termination.open.length === 0 && termination.unverified === 0)
      this.#unverifiedBeginnings.delete(termination);
  }

  #giveUpService(namespace: string, name: string, reason: DiscardReason): void {
    for (const group of this.#index.groupsOf(namespace, name)) this.#giveUp(group, reason);
  }

  #giveUp(group: EndpointGroup, reason: DiscardReason): void {
    for (const removal of this.#openOf.get(group) ?? []) this.#drop(removal, reason);
  }

  #drop(removal: Removal, reason: DiscardReason): void {
    this.#end(removal);
    if (!removal.spoiled) this.#discard(reason, removal.termination);
    this.#report(removal.termination);
  }

  #expire(now: number): void {
    for (const [uid, ends] of this.#early) {
      if (now - (ends.at(-1)?.at ?? 0) < REMEMBERED_MS) break;
      this.#forgetEarly(uid, () => true);
    }
    for (const removal of this.#open) {
      if (now - removal.termination.since < EXPIRY_MS) break;
      this.#drop(removal, 'Expired');
    }
    if (now < this.#verifyAt) return;
    for (const withdrawal of this.#unverified) {
      if (now - withdrawal.sample.at < HEARTBEATS_WITHIN_MS) break;
      this.#verify(withdrawal, now);
      if (this.#unverified.has(withdrawal)) this.#verifyAt = now + VERIFY_EVERY_MS;
    }
  }

  /** Ignores Endpoints that no controller maintains, because they list pods forever. */
  #isListed(pod: PodKey): boolean {
    return this.#index.isListed(pod, this.#upkeep.maintained ? undefined : 'EndpointSlice');
  }

  /** Forgets the pod when nothing more can be learned about it. */
  #settle(uid: string): void {
    const termination = this.#terminations.get(uid);
    if (termination?.gone !== true || this.#isListed(termination.pod)) return;
    const { pod, places, leftOut } = termination;
    this.#terminations.delete(uid);
    this.#places.add(pod.namespace, -places);
    this.#leftOut.add(pod.namespace, -leftOut);
  }

  /** Why the group's removals are not measured; undefined: they are. */
  #exclusionOf({ namespace, service, overCapacity }: EndpointGroup): DiscardReason | undefined {
    const known = this.#services.get(`${namespace}/${service}`);
    if (known === undefined) return 'NoService';
    if (known.publishNotReadyAddresses) return 'NeverWithdrawn';
    if (!this.#hasSelector({ namespace, service })) return 'NoSelector';
    return overCapacity ? 'OverCapacity' : undefined;
  }

  #hasSelector({ namespace, service }: Pick<EndpointGroup, 'namespace' | 'service'>): boolean {
    return Object.keys(this.#services.get(`${namespace}/${service}`)?.selector ?? {}).length > 0;
  }

  /**
   * Whether the pod's labels do not match the Service. If they no longer match, the change of labels withdrew the pod, not
   * its termination. If they never matched, the endpoints were not written by the controller, which will not withdraw the
   * pod.
   */
  #deselects({ namespace, service }: EndpointGroup, labels: TerminatingPod['labels']): boolean {
    const selector = this.#services.get(`${namespace}/${service}`)?.selector;
    if (selector === undefined || labels === undefined) return false;
    return Object.entries(selector).some(([key, value]) => labels[key] !== value);
  }

  #stream({ type, stream }: StreamEvent): void {
    if (type === 'ListEnds') return;
    if (stream !== 'services') this.#watchDelay?.forget(stream);
    if (type === 'StreamCurrent') this.#streams.set(stream, 'current');
    else if (type !== 'StreamRotated') this.#interrupt(stream);
    else if (this.#streams.get(stream) === 'current') this.#streams.set(stream, 'rotating');
  }

  /** Marks open removals as giving no sample, but leaves them open. */
  #interrupt(stream: Stream): void {
    this.#streams.set(stream, 'broken');
    this.#upkeep.interrupted(stream);
    if (stream === 'services') return;
    const stage = stream === 'pods' ? undefined : stream;
    for (const removal of this.#open) {
      if (removal.spoiled || (stage !== undefined && removal.group.stage !== stage)) continue;
      removal.spoiled = true;
      this.#discard('Reconnect', removal.termination);
    }
    const isSpoiled = ({ group }: EarlyEnd) => stage === undefined || group.stage === stage;
    for (const uid of this.#early.keys()) this.#forgetEarly(uid, isSpoiled);
  }

  #discard(reason: DiscardReason, termination: Termination): void {
    this.#discarded[reason] += 1;
    if (!EXCLUSIONS.has(reason)) termination.closed = true;
  }
}
