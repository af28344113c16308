import type { ListedPod, ListingGroup, ListingObject } from './traces.ts';

/** How a pod stands in one object: a set of these bits. */
export const READY = 1;
/** It says itself that the pod is terminating, so that is why it is not ready. */
export const TERMINATING = 2;

/** A pod's readiness in the whole group changed. `absent` and `notReady` and `terminating` say how it stands now. */
export interface ListingChange {
  readonly pod: ListedPod;
  readonly group: ListingGroup;
  readonly now: 'ready' | 'notReady' | 'terminating' | 'absent';
}

/** What a new state of an object came to. */
export interface ListingOutcome {
  /** Who became ready in its group, and who no longer is. */
  readonly changes: readonly ListingChange[];
  /** Whom nothing lists any more; to be released once the changes are dealt with. */
  readonly unlisted: readonly ListedPod[];
}

/** The pods of an object: uids, and the state of each at the same index. */
export interface PodStates {
  readonly uids: readonly string[];
  readonly states: readonly number[];
}

/** Who lists whom, by object and by pod. A change costs time in proportion to the object that changed. */
export class Listings {
  readonly #pods = new Map<string, ListedPod>();
  readonly #objects = new Map<string, ListingObject>();
  readonly #groups = new Map<string, ListingGroup>();

  get objects(): ReadonlyMap<string, ListingObject> {
    return this.#objects;
  }

  get pods(): ReadonlyMap<string, ListedPod> {
    return this.#pods;
  }

  group(groupKey: string): ListingGroup | undefined {
    return this.#groups.get(groupKey);
  }

  /** The pod of this uid, known from now on until it is {@link release}d. */
  pod(uid: string): ListedPod {
    let pod = this.#pods.get(uid);
    if (pod === undefined) {
      pod = { uid, objects: NO_OBJECTS, fate: undefined, oldPlace: 0, newPlace: 0 };
      this.#pods.set(uid, pod);
    }
    return pod;
  }

  /** Forgets a pod that nothing lists and that has no fate. */
  release(pod: ListedPod): void {
    if (pod.objects.length === 0 && pod.fate === undefined) this.#pods.delete(pod.uid);
  }

  /** The object that will hold the next state; made, with its group, where it is new. */
  object(key: string, groupKey: string, newGroup: () => ListingGroup): ListingObject {
    const present = this.#objects.get(key);
    if (present !== undefined) return present;
    const group = this.#groups.get(groupKey) ?? newGroup();
    this.#groups.set(groupKey, group);
    const object: ListingObject = { key, groupKey, group, pods: [], states: [], seen: 0 };
    group.objects = group.objects.concat(object);
    this.#objects.set(key, object);
    return object;
  }

  put(object: ListingObject, next: PodStates): ListingOutcome {
    const { pods: oldPods, states: oldStates } = object;
    oldPods.forEach((pod, index) => {
      pod.oldPlace = index + 1;
    });
    const { pods, states } = this.#merged(oldPods, next);
    const changes: ListingChange[] = [];
    const unlisted: ListedPod[] = [];
    pods.forEach((pod, index) => {
      const before = pod.oldPlace === 0 ? 0 : (oldStates[pod.oldPlace - 1] ?? 0);
      const after = states[index] ?? 0;
      if (pod.oldPlace === 0) pod.objects = pod.objects.concat(object);
      noteChange(changes, object, pod, before, after);
    });
    oldPods.forEach((pod, index) => {
      if (pod.newPlace !== 0) return;
      pod.objects = without(pod.objects, object);
      noteChange(changes, object, pod, oldStates[index] ?? 0, undefined);
      if (pod.objects.length === 0) unlisted.push(pod);
    });
    for (const pod of oldPods) pod.oldPlace = 0;
    for (const pod of pods) pod.newPlace = 0;
    object.pods = replaced(oldPods, pods);
    object.states = replaced(oldStates, states);
    return { changes, unlisted };
  }

  remove(object: ListingObject): ListingOutcome {
    const outcome = this.put(object, { uids: [], states: [] });
    const { group } = object;
    this.#objects.delete(object.key);
    group.objects = without(group.objects, object);
    if (group.objects.length === 0) this.#groups.delete(object.groupKey);
    return outcome;
  }

  /** Each pod once, with its place noted in it. */
  #merged(
    old: readonly ListedPod[],
    { uids, states }: PodStates,
  ): { readonly pods: readonly ListedPod[]; readonly states: readonly number[] } {
    const pods: ListedPod[] = [];
    const merged: number[] = [];
    // Lists mostly keep their order, and comparing a uid with the one expected is cheaper than looking it up.
    let expected = 0;
    uids.forEach((uid, index) => {
      if (old[expected]?.uid !== uid && old[expected + 1]?.uid === uid) expected += 1;
      const hint = old[expected];
      const pod = hint?.uid === uid ? hint : this.pod(uid);
      if (pod === hint) expected += 1;
      const state = states[index] ?? 0;
      if (pod.newPlace === 0) {
        pods.push(pod);
        merged.push(state);
        pod.newPlace = pods.length;
        return;
      }
      // Listed twice, in several subsets or with several addresses: usable where one of them is.
      const place = pod.newPlace - 1;
      merged[place] = (merged[place] ?? 0) | state;
    });
    return { pods, states: merged };
  }
}

// Arrays that live are made by concat and slice, as long as they need to be. Those that push, spread syntax or filter
// made keep room for 17 and more: 128 bytes, for each of 150,000 pods.

function without<T>(all: readonly T[], one: T): readonly T[] {
  return all.filter((each) => each !== one).slice();
}

/**
 * The array that is held, with the next elements in it where it has the room: most changes are to the state of a pod,
 * and arrays that live until the next change would be what most of the garbage consists of.
 */
function replaced<T>(held: T[], next: readonly T[]): T[] {
  if (next.length > held.length) return next.slice();
  next.forEach((element, index) => {
    held[index] = element;
  });
  held.length = next.length;
  return held;
}

/** The groups that list the pod as ready, each once. */
export function readyGroups(pod: ListedPod): ListingGroup[] {
  const groups = pod.objects.filter((object) => isReadyInObject(object, pod)).map(({ group }) => group);
  return groups.length < 2 ? groups : [...new Set(groups)];
}

const NO_OBJECTS: readonly ListingObject[] = [];

function isReadyInObject(object: ListingObject, pod: ListedPod): boolean {
  return ((object.states[object.pods.indexOf(pod)] ?? 0) & READY) !== 0;
}

function noteChange(
  changes: ListingChange[],
  object: ListingObject,
  pod: ListedPod,
  before: number,
  after: number | undefined,
): void {
  const wasReady = (before & READY) !== 0;
  const isReady = after !== undefined && (after & READY) !== 0;
  if (wasReady === isReady) return;
  const { group } = object;
  const readyElsewhere =
    group.objects.length > 1 &&
    pod.objects.some((each) => each !== object && each.group === group && isReadyInObject(each, pod));
  if (readyElsewhere) return;
  if (isReady) changes.push({ pod, group, now: 'ready' });
  else if (after === undefined) changes.push({ pod, group, now: 'absent' });
  else changes.push({ pod, group, now: (after & TERMINATING) !== 0 ? 'terminating' : 'notReady' });
}
