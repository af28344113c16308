import type { LagStage } from './sample.ts';

// What the recorder remembers of one pod, one object and one removal. They refer to each other, so they stand together.

/** A pod that an object lists or that is terminating; identified by uid, since names and addresses are reused. */
export interface ListedPod {
  readonly uid: string;
  /** The objects that list it, in whatever state. Replaced, never grown; see {@link Listings}. */
  objects: readonly ListingObject[];
  /** Only for those whose termination has shown, or whose withdrawal has. */
  fate: Fate | undefined;
  /** Scratch of {@link Listings.put}: places in the old and the new list, from 1; 0 in between. */
  oldPlace: number;
  newPlace: number;
}

/**
 * What is withdrawn from as one: an Endpoints object, or all slices of a Service and address family. The controller
 * may move an endpoint from slice to slice, and consumers read their union.
 */
export interface ListingGroup {
  readonly stage: LagStage;
  readonly namespace: string;
  readonly service: string;
  objects: readonly ListingObject[];
  overCapacity: boolean;
  open: Set<Removal> | undefined;
}

export interface ListingObject {
  readonly key: string;
  readonly groupKey: string;
  readonly group: ListingGroup;
  pods: ListedPod[];
  states: number[];
  /** The list in which it was named last. */
  seen: number;
}

/** A termination that has begun and a group that still lists the pod as ready. */
export interface Removal {
  readonly pod: ListedPod;
  readonly group: ListingGroup;
  /** When the termination showed, in milliseconds of the monotonic clock. */
  readonly since: number;
  readonly podName: string;
  /** It gives no sample any more and has been counted as discarded; that it still waits is true all the same. */
  spoiled: boolean;
}

/** What is known of a pod's end. */
export interface Fate {
  /** Its termination has shown; whatever is listed afterwards is not "usable at that instant". */
  started: boolean;
  /** It does not exist any more. */
  gone: boolean;
  /** Where a sample has been taken of it. */
  sampled: ListingGroup[];
  /** The list of pods in which it was named last. */
  seen: number;
  removals: Removal[];
  /** Withdrawals that showed before the termination did. */
  early: EarlyEnd[];
}

export function newFate(): Fate {
  return { started: false, gone: false, sampled: [], seen: 0, removals: [], early: [] };
}

/** A withdrawal that showed while the pod did not seem to terminate: the streams are independent. */
export interface EarlyEnd {
  readonly pod: ListedPod;
  readonly group: ListingGroup;
  readonly at: number;
}
