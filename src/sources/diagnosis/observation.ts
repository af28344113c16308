import type { Look } from '../../core/diagnose/facts.ts';

export interface Observed<T> {
  /** Undefined: there was nothing to be seen; the looks say why. */
  readonly facts: T | undefined;
  readonly looks: readonly Look[];
}

/** Something that has been looked at once, and is looked at again after a while. */
export interface Observation<T> {
  /** Whether it is worth waiting for: a file does not change. */
  readonly live: boolean;
  /**
   * @param again whether to look a second time
   * @throws the signal's reason once that has aborted
   */
  end(again: boolean): Promise<Observed<T>>;
}

/** An observation that was over before it began. */
export function settled<T>(observed: Observed<T>): Observation<T> {
  return { live: false, end: () => Promise.resolve(observed) };
}

/** Nothing was there to be observed. */
export function unseen(looks: readonly Look[] = []): Observation<never> {
  return settled<never>({ facts: undefined, looks });
}

export interface Clocks {
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  readonly epochSeconds: () => number;
}
