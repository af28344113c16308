import { type LifecycleHandler, plainSleep, runsHelper } from '../api/index.ts';
import { type Container, type Pod, probeGraceOf } from './pod.ts';
import type { EffectivePolicy } from './policy.ts';
import { type Note, note } from './reasons.ts';

/** A container that should wait. */
export interface Target {
  readonly container: Container;
  /** Seconds that its preStop sleeps already: 0 without a hook, infinitely many where the hook is not ours to change. */
  readonly sleeps: number;
}

/** By container that already carries Linger's hook: the seconds of its author's own sleep, where that was lengthened. */
export type Carriers = ReadonlyMap<string, number | undefined>;
export const NO_CARRIERS: Carriers = new Map();

/**
 * The ordinary containers that the policy names (all, where it names none) and that do not carry Linger's hook yet,
 * with what can be done to each. Native sidecars are init containers and so never among them: the kubelet sends
 * their SIGTERM only when the ordinary ones have ended. Source: KEP-753.
 * @param lengthened those whose own sleeps count with the seconds of their authors
 */
export function targetsOf(
  pod: Pod,
  policy: EffectivePolicy,
  carriers: Carriers,
  lengthened = NO_CARRIERS,
): readonly Target[] {
  const names = policy.containers.value;
  const named = names.length === 0 ? undefined : new Set(names);
  const targets: Target[] = [];
  for (const container of pod.spec.containers) {
    const { name } = container;
    if (carriers.has(name) || named?.has(name) === false) continue;
    targets.push({ container, sleeps: lengthened.get(name) ?? sleepOf(container, policy) });
  }
  return targets;
}

export function preStopOf({ lifecycle }: Container): LifecycleHandler | undefined {
  return lifecycle?.preStop ?? undefined;
}

function sleepOf(container: Container, policy: EffectivePolicy): number {
  const handler = preStopOf(container);
  // A Hold hook that was copied from another pod's manifest would call for that pod, so it is replaced.
  if (handler === undefined || runsHelper(handler)) return 0;
  const sleep = policy.existingHook.value === 'Extend' ? plainSleep(handler) : undefined;
  return sleep?.seconds ?? Number.POSITIVE_INFINITY;
}

/** The targets whose own sleep is shorter than the wait. */
export function changedBy(targets: readonly Target[], wait: number): readonly Target[] {
  return targets.filter(({ sleeps }) => sleeps < wait);
}

/** Whether every target keeps its author's hook: because it must not be changed, or is as long as the wait already. */
export function isAllKept(targets: readonly Target[], wait: number): boolean {
  return targets.every(({ sleeps }) => sleeps > 0 && sleeps >= wait);
}

/** Notes that apply to any outcome: container names that do not exist, hooks that stay. */
export function targetNotes(pod: Pod, policy: EffectivePolicy, targets: readonly Target[]): readonly Note[] {
  const { value: named, origin } = policy.containers;
  const notes: Note[] = [];
  if (named.length > 0) {
    const present = new Set(pod.spec.containers.map(({ name }) => name));
    const unknown = named.filter((name) => !present.has(name));
    const text = `${origin} names ${listed(unknown)}, which the pod does not have`;
    if (unknown.length > 0) notes.push(note('UnknownContainer', text));
  }
  for (const { container, sleeps } of targets) {
    if (sleeps !== Number.POSITIVE_INFINITY) continue;
    notes.push(note('ExistingHookKept', `container ${quoted(container.name)} keeps its own preStop hook`));
  }
  return notes;
}

/** Notes on the containers that get the wait, which is `longest` at most. */
export function changeNotes(changed: readonly Target[], wait: number, longest: number): readonly Note[] {
  const notes: Note[] = [];
  for (const { container, sleeps } of changed) {
    const subject = () => `container ${quoted(container.name)}`;
    if (sleeps > 0)
      notes.push(note('HookExtended', `${subject()}: its sleep of ${sleeps}s becomes ${wait}s`));
    const probeGrace = probeGraceOf(container);
    if (probeGrace < longest) {
      const text = `${subject()}: a failing probe gives it ${probeGrace}s, less than the wait of ${longest}s`;
      notes.push(note('ProbeGraceShort', text));
    }
  }
  return notes;
}

/** Notes on ordinary containers that get SIGTERM before the wait is over, as far as their hooks show. */
export function partialWaitNotes(
  { spec: { containers } }: Pod,
  waiting: readonly string[],
  wait: number,
): readonly Note[] {
  if (waiting.length === containers.length) return [];
  const names = new Set(waiting);
  const sooner = containers.filter((container) => {
    const handler = preStopOf(container);
    const own = (handler && plainSleep(handler)?.seconds) ?? 0;
    return !names.has(container.name) && own < wait;
  });
  if (sooner.length === 0) return [];
  const subject = listed(sooner.map(({ name }) => name));
  return [note('PartialWait', `${subject}: no wait of ${wait}s; SIGTERM may come sooner than in the others`)];
}

const MOST_LISTED = 3;
const LONGEST_NAME = 63;

/** `container "a"`, `containers "a", "b" and 5 more`: an annotation may name thousands. */
export function listed(names: readonly string[]): string {
  const shown = names.slice(0, MOST_LISTED).map(quoted).join(', ');
  const more = names.length > MOST_LISTED ? ` and ${names.length - MOST_LISTED} more` : '';
  return `${names.length === 1 ? 'container' : 'containers'} ${shown}${more}`;
}

export function quoted(name: string): string {
  return `"${name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME)}...` : name}"`;
}
