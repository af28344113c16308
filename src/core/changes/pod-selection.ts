import { type Labels, NO_LABELS, selects } from '../cluster/selector.ts';
import type { LabelSelector } from '../schema/selector.ts';

/** As many as removals can be under way: of pods that are gone and that endpoints may list still. */
const MOST_GONE = 50_000;

/**
 * The pods that a label selector selects, for endpoints, which say whose they are and not which labels those have. A pod
 * whose labels have matched stays selected when they change: taking a label off is a way to withdraw it, and that is
 * what one wants to see.
 */
export class PodSelection {
  readonly #selector: LabelSelector;
  /** Every pod that is known, by uid. */
  readonly #pods = new Map<string, boolean>();
  /** Those of them that are gone, the longest first. */
  readonly #gone = new Set<string>();
  #any = false;

  constructor(selector: LabelSelector) {
    this.#selector = selector;
  }

  put(uid: string, labels: Labels = NO_LABELS): void {
    const selected = this.#pods.get(uid) === true || selects(this.#selector, labels);
    this.#pods.set(uid, selected);
    this.#any ||= selected;
  }

  /** It does not exist any more; what still lists it is to be told all the same. */
  delete(uid: string): void {
    if (!this.#pods.has(uid)) return;
    this.#gone.add(uid);
    if (this.#gone.size <= MOST_GONE) return;
    const [longest = ''] = this.#gone;
    this.#gone.delete(longest);
    this.#pods.delete(longest);
  }

  /** @returns undefined: nothing is known of this pod */
  has(uid: string): boolean | undefined {
    return this.#pods.get(uid);
  }

  /** Whether a pod was ever selected. */
  get any(): boolean {
    return this.#any;
  }

  /** How much is held. */
  get size(): number {
    return this.#pods.size;
  }
}
