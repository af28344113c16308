import { patienceFor, SyncIntervals } from './sync-intervals.ts';

/** What an instance says of a sync, at the instant at which it has said so. All instants are ours, in milliseconds. */
export interface SyncReport {
  /** When the cursor was given that it sends back: its sync began no earlier. */
  readonly since: number;
  /** That cursor was asked for, and not the answer to an earlier sync. */
  readonly asked: boolean;
  /** How long the sync took, where the instance says so. Milliseconds. */
  readonly took: number | undefined;
  /** When the report came: the sync was over by then. */
  readonly now: number;
}

/** A sync, as an estimate takes it. */
interface Sync {
  readonly begin: number;
  /** It cannot have begun earlier, whatever is thought likely. */
  readonly proven: number;
  /** How long it took, where that is known. */
  readonly took: number | undefined;
}

/**
 * One instance of a consumer that reports. It is *live* from the end of the first sync that it reports (what is in its
 * table before is not known) until it falls silent.
 */
export class ReportingInstance {
  readonly intervals = new SyncIntervals();
  live = false;
  /** When it was heard last, whatever it said. */
  heardAt: number;
  /** The cursor that it may send back, and when and why it was given. */
  cursor: { readonly number: number; readonly at: number; readonly asked: boolean } | undefined;
  /** Everything that was removed until then is out of its table. */
  appliedUntil = Number.NEGATIVE_INFINITY;
  /** The same, without anything that is only likely. */
  provenUntil = Number.NEGATIVE_INFINITY;
  /** When it is taken to be gone, if no sync is reported until then. */
  silentAt = Number.POSITIVE_INFINITY;
  /** Cursors that were not its own, one after the other. */
  contradictions = 0;
  #syncedAt: number | undefined;
  #lastAsked: boolean | undefined;
  #took: number | undefined;

  constructor(now: number) {
    this.heardAt = now;
  }

  /** Whether it is known how long its syncs take. */
  get timed(): boolean {
    return this.#took !== undefined;
  }

  get syncedAt(): number | undefined {
    return this.#syncedAt;
  }

  /**
   * A sync is over.
   * @param othersLongest the longest interval of other instances: what is expected of one that has none yet
   * @returns until when it had applied everything before, where it was live: what was removed later it has applied now
   */
  synced(report: SyncReport, othersLongest: () => number | undefined): number | undefined {
    const { now } = report;
    const { begin, proven, took } = this.#syncOf(report);
    this.#took = took;
    this.#lastAsked = report.asked;
    if (this.#syncedAt !== undefined) this.intervals.record(now - this.#syncedAt);
    this.#syncedAt = now;
    this.silentAt = now + patienceFor(this.intervals.longest ?? othersLongest());
    this.provenUntil = proven;
    if (!this.live) {
      this.live = true;
      this.appliedUntil = now;
      return undefined;
    }
    const before = this.appliedUntil;
    this.appliedUntil = Math.max(before, begin);
    return before;
  }

  /**
   * When it began. Whoever asks for a cursor before each sync says so exactly. Whoever reports once after each sends back
   * the cursor of the sync before, which says only that it began later than that one ended: then it is as long as the
   * instance says, or as the last one of which that is known, or not worth mentioning. One cursor that was asked for says
   * nothing: such instances ask when they start, and after an error.
   */
  #syncOf({ since, asked, took, now }: SyncReport): Sync {
    if (took !== undefined) {
      const begin = Math.max(since, now - took);
      return { begin, proven: begin, took };
    }
    if (asked && this.#lastAsked === true) return { begin: since, proven: since, took: now - since };
    return { begin: Math.max(since, now - (this.#took ?? 0)), proven: since, took: this.#took };
  }
}
