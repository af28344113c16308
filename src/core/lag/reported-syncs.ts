import type { ReportResult } from '../api/index.ts';
import { compareVersions, ENDPOINT_SOURCES, type EndpointSource } from './events.ts';

/**
 * resourceVersions by kind of object: the newest that Linger has seen, or those that an instance has applied, without kinds
 * that it does not read. Empty: not known.
 */
export type StageVersions = Readonly<Partial<Record<EndpointSource, string>>>;

/** Whether one resourceVersion is at least as new as another; versions that cannot be compared count as older. */
function isAtLeast(version: string, other: string): boolean {
  return (compareVersions(version, other) ?? -1) >= 0;
}

function newestOf(a: StageVersions, b: StageVersions): StageVersions {
  return { ...a, ...pick(b, (stage, version) => !a[stage] || isAtLeast(version, a[stage])) };
}

function pick(
  versions: StageVersions,
  wanted: (stage: EndpointSource, version: string) => boolean,
): StageVersions {
  const chosen: Partial<Record<EndpointSource, string>> = {};
  for (const stage of ENDPOINT_SOURCES) {
    const version = versions[stage];
    if (version !== undefined && wanted(stage, version)) chosen[stage] = version;
  }
  return chosen;
}

/** Whether everything up to `wanted` has been applied, of the kinds that `applied` names. */
function covers(applied: StageVersions, wanted: StageVersions): boolean {
  return ENDPOINT_SOURCES.every((stage) => {
    const [has, needs] = [applied[stage], wanted[stage]];
    return has === undefined || needs === undefined || isAtLeast(has, needs);
  });
}

/** The number of intervals that count, so that a single long pause is forgotten. */
const LATEST_INTERVALS = 8;
/** An instance that is silent for this many of its longest intervals has done more than jitter or miss a sync or two. */
const INTERVALS_OF_SILENCE = 3;
/** Milliseconds. An instance that syncs every second may also restart, or wait for a slow discovery service. */
const LEAST_PATIENCE = 30_000;
/** Milliseconds. The longest that one silent instance can delay the others. */
const MOST_PATIENCE = 900_000;
/** Milliseconds. Instances that report once after each sync are up to two intervals late. */
const LONGEST_LAG = 2 * MOST_PATIENCE;

/**
 * How long after its last sync an instance counts as gone.
 * @param longest its own longest recent interval; before its second sync, that of the others
 */
function patienceFor(longest: number | undefined): number {
  if (longest === undefined) return MOST_PATIENCE;
  return Math.min(MOST_PATIENCE, Math.max(LEAST_PATIENCE, INTERVALS_OF_SILENCE * longest));
}

/** Milliseconds. */
const APART = 1_000;

/** A pseudo-random number in [0, 1), always the same for an index: the finalizer of MurmurHash3. */
function fractionOf(index: number): number {
  let mixed = Math.imul(index ^ (index >>> 16), 0x85eb_ca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2_ae35);
  return ((mixed ^ (mixed >>> 16)) >>> 0) / 2 ** 32;
}

/**
 * One instant in each second (in milliseconds), at a varying fraction of the second: a regular sequence could run in step
 * with a consumer's interval, and hit only some of its phases.
 */
export function instantOf(index: number): number {
  return (index + fractionOf(index)) * APART;
}

export function firstIndexAfter(at: number): number {
  const index = Math.floor(at / APART);
  return instantOf(index) > at ? index : index + 1;
}

/** A sampled instant: live instances have yet to apply the removals before it. */
interface Pending {
  readonly at: number;
  /** The newer versions that caused the sample; undefined: the clock caused it. */
  readonly versions: StageVersions | undefined;
  /** An instance fell silent before it had applied this instant, so the lag is unknown. */
  lost: boolean;
}

/**
 * An instance's claim about a completed sync: that it began after a cursor was given (`versions`: what Linger had seen by
 * then), or that it has applied everything up to these versions of the API.
 */
export type SyncClaim =
  | {
      readonly by: 'cursor';
      readonly versions: StageVersions;
      /** Milliseconds of this leader's clock; undefined: an earlier leader gave the cursor. */
      readonly givenAt: number | undefined;
    }
  | { readonly by: 'versions'; readonly versions: StageVersions };

export interface InstanceName {
  /** Unique: the uid of a pod. */
  readonly key: string;
  /** For display: the name of the pod. */
  readonly name: string;
}

/**
 * One instance of a consumer that reports. It is *live* from the end of its first reported sync (the content of its table
 * before that is unknown) until it falls silent.
 */
class ReportingInstance {
  readonly name: string;
  heardAt: number;
  /** Its table contains no endpoint that was removed before this instant. */
  appliedUntil = Number.NEGATIVE_INFINITY;
  acknowledged: StageVersions = {};
  /** Whether it reports resourceVersions of the API instead of cursors. */
  readsVersions = false;
  /** When it counts as gone, unless it reports a sync before then. */
  silentAt = Number.POSITIVE_INFINITY;
  syncedAt: number | undefined;
  /** When the newest cursor that it has returned was given. */
  cursorAt = Number.NEGATIVE_INFINITY;
  #intervals: readonly number[] = [];

  constructor(name: string, now: number) {
    this.name = name;
    this.heardAt = now;
  }

  /** The longest of its latest intervals between syncs; undefined before its second sync. */
  get longest(): number | undefined {
    return this.#intervals.length === 0 ? undefined : Math.max(...this.#intervals);
  }

  /** The median interval, on which jitter and missed syncs have little effect; undefined before its second sync. */
  get typical(): number | undefined {
    return this.#intervals.toSorted((a, b) => a - b)[this.#intervals.length >> 1];
  }

  /** @param othersLongest the longest interval of the others, used for an instance that has none of its own */
  synced(now: number, othersLongest: () => number | undefined): void {
    if (this.syncedAt !== undefined)
      this.#intervals = [...this.#intervals, now - this.syncedAt].slice(-LATEST_INTERVALS);
    this.syncedAt = now;
    this.silentAt = now + patienceFor(this.longest ?? othersLongest());
  }
}

/** The most instances of one consumer that are followed. */
export const MOST_INSTANCES = 1_000;
/** Milliseconds. How long an instance is remembered after it falls silent. */
const SILENT_INSTANCE_KEPT_MS = 3_600_000;

export type SyncResult = Extract<ReportResult, 'Asked' | 'Synced' | 'UsedCursor' | 'TooManyInstances'>;

export interface InstancesState {
  readonly live: number;
  /** The names of silent instances that are still remembered. */
  readonly silent: readonly string[];
  /** Seconds between two syncs: the median over live instances, and the longest of all. undefined: not known yet. */
  readonly interval: { readonly typical: number; readonly longest: number } | undefined;
}

/**
 * The reported syncs of one consumer's instances, and the lag that follows from them.
 *
 * The lag is sampled at one instant in each second: had an endpoint been removed then, how long would it have taken until
 * the last live instance had completed a sync that began later? So the measurement does not depend on real removals, and
 * each second has the same weight. An instance that reports resourceVersions has nothing to report while nothing changes;
 * while such an instance is live, the lag is sampled only when newer versions are seen.
 *
 * A report proves only that its sync began after the cursor was given and is over by now; a slow report makes the lag
 * longer, never shorter. Where an instance falls silent before it has applied an instant, that instant is abandoned and
 * counted as lost. `now` is the caller's monotonic clock in milliseconds.
 */
export class ReportedSyncs {
  readonly #onLag: (seconds: number) => void;
  readonly #instances = new Map<string, ReportingInstance>();
  readonly #live = new Set<ReportingInstance>();
  /** Ascending. */
  #pending: Pending[] = [];
  #nextIndex: number;
  #seen: { readonly at: number; readonly versions: StageVersions };
  /** The earliest instant at which a live instance may fall silent. */
  #nextSilence = Number.POSITIVE_INFINITY;
  #lost = 0;

  /** @param onLag called with each lag in seconds */
  constructor(now: number, versions: StageVersions, onLag: (seconds: number) => void) {
    this.#onLag = onLag;
    this.#nextIndex = firstIndexAfter(now);
    this.#seen = { at: now, versions };
  }

  get lost(): number {
    return this.#lost;
  }

  /**
   * @param claim undefined: the instance only requests a cursor
   * @param versions the newest that Linger has seen
   */
  report(
    { key, name }: InstanceName,
    claim: SyncClaim | undefined,
    now: number,
    versions: StageVersions,
  ): SyncResult {
    this.advance(now, versions);
    const instance = this.#instances.get(key) ?? this.#admit(key, name, now);
    if (instance === undefined) return 'TooManyInstances';
    instance.heardAt = now;
    if (claim === undefined) return 'Asked';
    if (claim.by === 'cursor' && claim.givenAt !== undefined) {
      if (claim.givenAt <= instance.cursorAt) return 'UsedCursor';
      instance.cursorAt = claim.givenAt;
    }
    this.#synced(instance, claim, now);
    return 'Synced';
  }

  /** Advances the clock. @param versions the newest that Linger has seen */
  advance(now: number, versions: StageVersions): void {
    while (this.#nextSilence <= now) {
      this.#openUntil(this.#nextSilence);
      this.#silence(this.#nextSilence);
    }
    this.#openUntil(now);
    this.#openForChange(versions);
    this.#seen = { at: now, versions };
    // Abandon instants this old: reports still arrive, but none of them will apply these.
    for (const each of this.#pending) if (each.at < now - LONGEST_LAG) each.lost = true;
    this.#close(now, now - LONGEST_LAG);
  }

  /**
   * The names of the instances that have not acknowledged these versions, with which a pod was withdrawn: live ones, and
   * those in their first sync, which have requested their first cursor.
   * @returns undefined where no instance is live
   */
  waitingFor(versions: StageVersions): readonly string[] | undefined {
    if (this.#live.size === 0) return undefined;
    const isBeginning = ({ syncedAt, heardAt }: ReportingInstance) =>
      syncedAt === undefined && this.#seen.at - heardAt <= LEAST_PATIENCE;
    const isLate = (each: ReportingInstance) =>
      this.#live.has(each) ? !covers(each.acknowledged, versions) : isBeginning(each);
    return [...this.#instances.values()].filter(isLate).map(({ name }) => name);
  }

  /** Whether a remembered instance fell silent before it had acknowledged these versions. */
  hasSilent(versions: StageVersions): boolean {
    return this.#silent.some(({ acknowledged }) => !covers(acknowledged, versions));
  }

  get #silent(): readonly ReportingInstance[] {
    const all = [...this.#instances.values()];
    return all.filter((each) => each.syncedAt !== undefined && !this.#live.has(each));
  }

  /** The instance no longer exists, so no reports are expected from it. */
  gone(key: string, now: number): void {
    const instance = this.#instances.get(key);
    if (instance === undefined) return;
    this.#instances.delete(key);
    if (this.#live.delete(instance)) this.#lose(instance, now);
  }

  state(now: number): InstancesState {
    for (const [key, instance] of this.#instances)
      if (!this.#live.has(instance) && instance.heardAt < now - SILENT_INSTANCE_KEPT_MS)
        this.#instances.delete(key);
    const silent = this.#silent.map(({ name }) => name);
    return { live: this.#live.size, silent, interval: intervalOf([...this.#live]) };
  }

  #synced(instance: ReportingInstance, claim: SyncClaim, now: number): void {
    instance.synced(now, () => longestOf([...this.#live]));
    instance.acknowledged = newestOf(instance.acknowledged, claim.versions);
    instance.readsVersions = claim.by === 'versions';
    this.#nextSilence = Math.min(this.#nextSilence, instance.silentAt);
    if (!this.#live.has(instance)) {
      this.#live.add(instance);
      instance.appliedUntil = now;
      return;
    }
    const applied =
      claim.by === 'versions'
        ? this.#appliedBy(instance.acknowledged)
        : (claim.givenAt ?? instance.appliedUntil);
    instance.appliedUntil = Math.max(instance.appliedUntil, applied);
    this.#close(now);
  }

  /** The last instant at which Linger had seen nothing newer than these versions. */
  #appliedBy(applied: StageVersions): number {
    const pending = this.#pending.findLast(({ versions }) => versions && covers(applied, versions));
    return pending?.at ?? Number.NEGATIVE_INFINITY;
  }

  /** Closes the instants that all live instances have applied, and those before `expired`. */
  #close(now: number, expired = Number.NEGATIVE_INFINITY): void {
    const applied = [...this.#live].map(({ appliedUntil }) => appliedUntil);
    const upTo = applied.reduce((least, each) => Math.min(least, each), Number.POSITIVE_INFINITY);
    const first = this.#pending.findIndex(({ at }) => at > upTo && at >= expired);
    for (const { at, lost } of this.#pending.splice(0, first < 0 ? this.#pending.length : first)) {
      if (lost) this.#lost += 1;
      else this.#onLag((now - at) / 1000);
    }
  }

  /** Marks the instants that a silent instance has not applied as lost. */
  #lose({ appliedUntil }: ReportingInstance, now: number): void {
    for (const each of this.#pending) if (each.at > appliedUntil) each.lost = true;
    this.#close(now);
  }

  #openUntil(now: number): void {
    if (this.#live.size === 0 || [...this.#live].some(({ readsVersions }) => readsVersions)) {
      this.#nextIndex = Math.max(this.#nextIndex, firstIndexAfter(now));
    }
    for (let at = instantOf(this.#nextIndex); at <= now; at = instantOf(this.#nextIndex)) {
      this.#pending.push({ at, versions: undefined, lost: false });
      this.#nextIndex += 1;
    }
  }

  /**
   * Opens a sample for newer versions. They appeared at an unknown instant after the older ones were last known to be the
   * newest.
   */
  #openForChange(versions: StageVersions): void {
    const { at, versions: before } = this.#seen;
    const changed = pick(versions, (stage, version) => !isAtLeast(before[stage] ?? '', version));
    const reads = ({ acknowledged, readsVersions }: ReportingInstance) =>
      readsVersions && ENDPOINT_SOURCES.some((stage) => stage in changed && stage in acknowledged);
    const waiting = [...this.#live].filter((each) => each.appliedUntil < at);
    if (at <= (this.#pending.at(-1)?.at ?? Number.NEGATIVE_INFINITY) || !waiting.some(reads)) return;
    for (const each of waiting)
      if (each.readsVersions && covers(each.acknowledged, versions)) each.appliedUntil = at;
    if (waiting.every((each) => each.appliedUntil >= at)) this.#onLag(0);
    else this.#pending.push({ at, versions, lost: false });
  }

  #silence(now: number): void {
    this.#nextSilence = Number.POSITIVE_INFINITY;
    for (const instance of this.#live) {
      const { silentAt } = instance;
      if (silentAt > now) this.#nextSilence = Math.min(this.#nextSilence, silentAt);
      else {
        this.#live.delete(instance);
        this.#lose(instance, now);
      }
    }
  }

  #admit(key: string, name: string, now: number): ReportingInstance | undefined {
    if (this.#instances.size >= MOST_INSTANCES && !this.#forgetLeastHeard()) return undefined;
    const instance = new ReportingInstance(name, now);
    this.#instances.set(key, instance);
    return instance;
  }

  /** @returns false if all remembered instances are live */
  #forgetLeastHeard(): boolean {
    const silent = [...this.#instances].filter(([, instance]) => !this.#live.has(instance));
    const [least] = silent.toSorted(([, a], [, b]) => a.heardAt - b.heardAt);
    return least !== undefined && this.#instances.delete(least[0]);
  }
}

function longestOf(instances: readonly ReportingInstance[]): number | undefined {
  const known = instances.flatMap(({ longest }) => longest ?? []);
  return known.length === 0 ? undefined : Math.max(...known);
}

function intervalOf(instances: readonly ReportingInstance[]): InstancesState['interval'] {
  const longest = longestOf(instances);
  const all = instances.flatMap(({ typical }) => typical ?? []).toSorted((a, b) => a - b);
  const typical = all[all.length >> 1];
  if (longest === undefined || typical === undefined) return undefined;
  return { typical: typical / 1000, longest: longest / 1000 };
}
