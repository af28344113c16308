import type { LagStage } from './sample.ts';
import { type EarlyEnd, type ListedPod, type ListingGroup, newFate } from './traces.ts';

/** Streams that are healthy differ by milliseconds; what comes this much too early still counts as a lag of 0. */
export const INVERSION_MS = 250;

/** How long one is remembered, so that what is beyond {@link INVERSION_MS} can be counted. */
const REMEMBERED_MS = 10_000;

/** 1,600 withdrawals a second for all of that time; some 2 MB when full. Beyond, the oldest is forgotten. */
const MOST_REMEMBERED = 16_384;

/** The withdrawals of the last seconds that may turn out to have been terminations. */
export class EarlyEnds {
  readonly #remembered = new Set<EarlyEnd>();
  readonly #release: (pod: ListedPod) => void;

  /** @param release called for a pod whose only remaining trace was forgotten */
  constructor(release: (pod: ListedPod) => void) {
    this.#release = release;
  }

  remember(pod: ListedPod, group: ListingGroup, at: number): void {
    const early = { pod, group, at };
    pod.fate ??= newFate();
    pod.fate.early.push(early);
    this.#remembered.add(early);
    if (this.#remembered.size > MOST_REMEMBERED) this.#forgetOldest();
  }

  /** The pod's, which are forgotten by that. */
  take(pod: ListedPod): readonly EarlyEnd[] {
    const taken = pod.fate?.early ?? [];
    for (const early of taken) this.#remembered.delete(early);
    if (pod.fate !== undefined) pod.fate.early = [];
    return taken;
  }

  /** It was withdrawn from this group no longer. */
  undo(pod: ListedPod, group: ListingGroup): void {
    for (const early of pod.fate?.early ?? []) if (early.group === group) this.#forget(early);
  }

  /** Forgets those of a stage; undefined: all. */
  clear(stage: LagStage | undefined): void {
    for (const early of this.#remembered) {
      if (stage === undefined || early.group.stage === stage) this.#forget(early);
    }
  }

  expire(now: number): void {
    for (const early of this.#remembered) {
      if (now - early.at < REMEMBERED_MS) return;
      this.#forget(early);
    }
  }

  #forgetOldest(): void {
    for (const early of this.#remembered) {
      this.#forget(early);
      return;
    }
  }

  #forget(early: EarlyEnd): void {
    this.#remembered.delete(early);
    const { fate } = early.pod;
    if (fate === undefined) return;
    fate.early = fate.early.filter((each) => each !== early);
    if (fate.early.length > 0 || fate.started) return;
    early.pod.fate = undefined;
    this.#release(early.pod);
  }
}
