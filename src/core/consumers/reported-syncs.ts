import type { ReportResult } from '../catalog/report-results.ts';
import { firstIndexAfter, instantOf, PendingInstants } from './instants.ts';
import { ReportingInstance } from './reporting-instance.ts';

/** As many are kept of each consumer. */
export const MOST_INSTANCES = 1_000;
/** How long one that is not live is remembered. Milliseconds. */
const REMEMBERED = 3_600_000;
/** So many cursors in a row that were not its own are no accident. */
const CONTRADICTIONS = 3;
/** How long that is told of an instance that says no more. Milliseconds. */
const TOLD_FOR = 600_000;

export interface InstanceReport {
  readonly instance: string;
  /** The number of the cursor that is sent back; undefined: one is asked for. */
  readonly cursor: number | 'Past' | 'Foreign' | undefined;
  /** How long the sync took, in milliseconds, where the instance says so. */
  readonly took: number | undefined;
}

export type SyncResult = Extract<
  ReportResult,
  'Asked' | 'Synced' | 'PastCursor' | 'UsedCursor' | 'ForeignCursor' | 'TooManyInstances'
>;

/** How the instances of a consumer stand. */
export interface InstancesState {
  readonly live: number;
  /** Live ones of which it is not known how long their syncs take. */
  readonly untimed: number;
  /** Names of those that have fallen silent and are still remembered. */
  readonly silent: readonly string[];
  /** Names of those that send cursors that are not theirs, again and again. */
  readonly contradicting: readonly string[];
  /** Seconds between two syncs: the median over live instances, and the longest of all. undefined: not known yet. */
  readonly interval: { readonly typical: number; readonly longest: number } | undefined;
}

/**
 * What the instances of one consumer report of their syncs, and the lag that follows from it.
 *
 * The lag is taken at one instant in each second: had an endpoint been removed just then, how long would it have been
 * until the last instance that was live had completed a sync that began later? So how instances are staggered counts
 * as it is, no removal need really happen, and each second has the same weight. Where an instance falls silent
 * before it has answered for an instant, nobody knows when it stopped sending: the instant is given up, and counted.
 *
 * It has no clock: `now` is the caller's, in milliseconds that never go back.
 */
export class ReportedSyncs {
  readonly #onLag: (seconds: number) => void;
  readonly #instances = new Map<string, ReportingInstance>();
  readonly #pending = new PendingInstants();
  #nextIndex: number;
  #nextNumber = 1;
  #live = 0;
  /** No live instance falls silent before. */
  #nextSilence = Number.POSITIVE_INFINITY;
  #lost = 0;

  /** @param onLag called with each lag in seconds */
  constructor(now: number, onLag: (seconds: number) => void) {
    this.#onLag = onLag;
    this.#nextIndex = firstIndexAfter(now);
  }

  /** Instants that were given up because an instance fell silent. */
  get lost(): number {
    return this.#lost;
  }

  /** Takes a report. @returns what became of it, and the number of the cursor to answer with, if any */
  report(
    report: InstanceReport,
    now: number,
  ): { readonly result: SyncResult; readonly cursor: number | undefined } {
    this.advance(now);
    const instance = this.#instances.get(report.instance) ?? this.#admit(report.instance, now);
    if (instance === undefined) return { result: 'TooManyInstances', cursor: undefined };
    instance.heardAt = now;
    const result = this.#take(instance, report, now);
    if (result === 'Synced') instance.contradictions = 0;
    // After a change of leader the cursor is another leader's once.
    else if (result !== 'Asked') instance.contradictions += 1;
    const cursor = this.#nextNumber++;
    instance.cursor = { number: cursor, at: now, asked: result === 'Asked' };
    return { result, cursor };
  }

  /** Lets time pass. */
  advance(now: number): void {
    while (this.#nextSilence <= now) {
      this.#openUntil(this.#nextSilence);
      this.#silence(this.#nextSilence);
    }
    this.#openUntil(now);
  }

  /** Everything that was removed before this instant has been applied by all live instances. undefined: none is live. */
  acknowledged(): number | undefined {
    if (this.#live === 0) return undefined;
    return Math.min(...this.#liveOnes().map(({ provenUntil }) => provenUntil));
  }

  state(now: number): InstancesState {
    this.advance(now);
    this.#forget(now);
    const live = this.#liveOnes();
    const all = [...this.#instances];
    return {
      live: live.length,
      untimed: live.filter(({ timed }) => !timed).length,
      silent: all.filter(([, each]) => !each.live && each.syncedAt !== undefined).map(([name]) => name),
      contradicting: all
        .filter(([, each]) => each.contradictions >= CONTRADICTIONS && now - each.heardAt < TOLD_FOR)
        .map(([name]) => name),
      interval: intervalOf(live),
    };
  }

  #take(
    instance: ReportingInstance,
    { cursor, took }: InstanceReport,
    now: number,
  ): Exclude<SyncResult, 'TooManyInstances'> {
    if (cursor === undefined) return 'Asked';
    if (cursor === 'Past') return 'PastCursor';
    if (cursor === 'Foreign') return 'ForeignCursor';
    const given = instance.cursor;
    if (given?.number !== cursor) return 'UsedCursor';
    const sync = { since: given.at, asked: given.asked, took, now };
    const before = instance.synced(sync, () => longestOf(this.#liveOnes()));
    if (before === undefined) this.#live += 1;
    else
      this.#pending.apply(before, instance.appliedUntil, (at, lost) =>
        this.#done(at, lost ? undefined : now),
      );
    this.#nextSilence = Math.min(this.#nextSilence, instance.silentAt);
    return 'Synced';
  }

  /** @param at when everybody had applied it; undefined: nobody knows */
  #done(removed: number, at: number | undefined): void {
    if (at === undefined) this.#lost += 1;
    else this.#onLag((at - removed) / 1000);
  }

  #openUntil(now: number): void {
    if (this.#live === 0) this.#nextIndex = Math.max(this.#nextIndex, firstIndexAfter(now));
    for (let at = instantOf(this.#nextIndex); at <= now; at = instantOf(this.#nextIndex)) {
      this.#pending.open(at, this.#live);
      this.#nextIndex += 1;
    }
  }

  #silence(now: number): void {
    this.#nextSilence = Number.POSITIVE_INFINITY;
    for (const instance of this.#liveOnes()) {
      const { silentAt, appliedUntil } = instance;
      if (silentAt > now) this.#nextSilence = Math.min(this.#nextSilence, silentAt);
      else {
        instance.live = false;
        this.#live -= 1;
        this.#pending.lose(appliedUntil, (at) => this.#done(at, undefined));
      }
    }
  }

  #admit(name: string, now: number): ReportingInstance | undefined {
    this.#forget(now);
    if (this.#instances.size >= MOST_INSTANCES && !this.#forgetLeastHeard()) return undefined;
    const instance = new ReportingInstance(now);
    this.#instances.set(name, instance);
    return instance;
  }

  #forget(now: number): void {
    for (const [name, { live, heardAt }] of this.#instances) {
      if (!live && heardAt < now - REMEMBERED) this.#instances.delete(name);
    }
  }

  /** @returns false when all are live */
  #forgetLeastHeard(): boolean {
    let least: { readonly name: string; readonly heardAt: number } | undefined;
    for (const [name, { live, heardAt }] of this.#instances) {
      if (!live && heardAt < (least?.heardAt ?? Number.POSITIVE_INFINITY)) least = { name, heardAt };
    }
    return least !== undefined && this.#instances.delete(least.name);
  }

  #liveOnes(): readonly ReportingInstance[] {
    return [...this.#instances.values()].filter(({ live }) => live);
  }
}

function longestOf(instances: readonly ReportingInstance[]): number | undefined {
  const known = instances.flatMap(({ intervals }) => intervals.longest ?? []);
  return known.length === 0 ? undefined : Math.max(...known);
}

function intervalOf(instances: readonly ReportingInstance[]): InstancesState['interval'] {
  const longest = longestOf(instances);
  const all = instances.flatMap(({ intervals }) => intervals.typical ?? []).toSorted((a, b) => a - b);
  const typical = all[all.length >> 1];
  if (longest === undefined || typical === undefined) return undefined;
  return { typical: typical / 1000, longest: longest / 1000 };
}
