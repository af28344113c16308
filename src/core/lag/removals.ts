import type { DiscardReason } from './discards.ts';
import type { LagStage } from './sample.ts';
import type { Fate, ListingGroup, Removal } from './traces.ts';

/** Beyond the longest lag of the grid nothing is learned by waiting on, and what nobody withdraws must not pile up. */
export const EXPIRY_MS = 7_200_000;

/** More than a node failure or a rollout of everything opens at once; some 10 MB when full. */
export const MOST_OPEN = 50_000;

/** The removals under way, oldest first. */
export class OpenRemovals {
  readonly #open = new Set<Removal>();
  readonly #discard: (reason: DiscardReason) => void;

  constructor(discard: (reason: DiscardReason) => void) {
    this.#discard = discard;
  }

  get size(): number {
    return this.#open.size;
  }

  [Symbol.iterator](): Iterator<Removal> {
    return this.#open.values();
  }

  begin(removal: Removal, fate: Fate): void {
    if (this.#open.size >= MOST_OPEN) {
      this.#discard('TooMany');
      return;
    }
    this.#open.add(removal);
    fate.removals.push(removal);
    removal.group.open ??= new Set();
    removal.group.open.add(removal);
    if (removal.spoiled) this.#discard('Reconnect');
  }

  /** It does not wait any more, for whatever reason. */
  end(removal: Removal): void {
    this.#open.delete(removal);
    removal.group.open?.delete(removal);
    if (removal.group.open?.size === 0) removal.group.open = undefined;
    const { fate } = removal.pod;
    if (fate !== undefined) fate.removals = fate.removals.filter((each) => each !== removal);
  }

  /** Ends all that the group still waits for, without a sample. */
  giveUp(group: ListingGroup, reason: DiscardReason): void {
    for (const removal of [...(group.open ?? [])]) this.#drop(removal, reason);
  }

  /** Those of a stage (undefined: all) give no sample any more, but still wait. */
  spoil(stage: LagStage | undefined): void {
    for (const removal of this.#open) {
      if (removal.spoiled || (stage !== undefined && removal.group.stage !== stage)) continue;
      removal.spoiled = true;
      this.#discard('Reconnect');
    }
  }

  expire(now: number): void {
    for (const removal of this.#open) {
      if (now - removal.since < EXPIRY_MS) return;
      this.#drop(removal, 'Expired');
    }
  }

  #drop(removal: Removal, reason: DiscardReason): void {
    this.end(removal);
    if (!removal.spoiled) this.#discard(reason);
  }
}
