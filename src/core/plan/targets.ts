import { type Note, note } from '../catalog/notes.ts';
import type { EffectivePolicy } from '../policy/values.ts';
import { sleepForm } from './hook.ts';
import { type Container, type Pod, probeGraceOf } from './pod.ts';

/** What can be done with one container's preStop. */
type State =
  | { readonly kind: 'free' }
  /** Its author's plain sleep of this many seconds, which the policy lets us lengthen. */
  | { readonly kind: 'extendable'; readonly seconds: number }
  | { readonly kind: 'kept' };

export interface Target {
  readonly container: Container;
  readonly state: State;
}

/**
 * The ordinary containers that the policy names (all, where it names none), with what can be done to each. Native
 * sidecars are init containers and so never among them: the kubelet sends their SIGTERM only when the ordinary
 * ones have ended. Source: KEP-753.
 */
export function targetsOf(pod: Pod, policy: EffectivePolicy): readonly Target[] {
  const named = policy.containers.value;
  const chosen = pod.spec.containers.filter(({ name }) => named.length === 0 || named.includes(name));
  return chosen.map((container) => ({ container, state: stateOf(container, policy) }));
}

function stateOf(container: Container, policy: EffectivePolicy): State {
  const handler = container.lifecycle?.preStop ?? undefined;
  if (handler === undefined) return { kind: 'free' };
  const form = policy.existingHook.value === 'Extend' ? sleepForm(handler) : undefined;
  return form === undefined ? { kind: 'kept' } : { kind: 'extendable', seconds: form.seconds };
}

/** The targets that a wait this long changes something for. */
export function changedBy(targets: readonly Target[], wait: number): readonly Target[] {
  return targets.filter(
    ({ state }) => state.kind === 'free' || (state.kind === 'extendable' && state.seconds < wait),
  );
}

/** The author's own seconds of the targets that are lengthened, by container; undefined where there are none. */
export function extendedSeconds(changed: readonly Target[]): Readonly<Record<string, number>> | undefined {
  const entries = changed.flatMap(({ container, state }) =>
    state.kind === 'extendable' ? [[container.name, state.seconds] as const] : [],
  );
  return entries.length === 0 ? undefined : Object.fromEntries(entries);
}

/** What to say about the containers whatever is decided: names that are none, hooks that stay. */
export function targetNotes(pod: Pod, policy: EffectivePolicy, targets: readonly Target[]): readonly Note[] {
  const { value: named, origin } = policy.containers;
  const unknown = named.filter((name) => !pod.spec.containers.some((container) => container.name === name));
  const kept = targets.filter(({ state }) => state.kind === 'kept');
  return [
    ...unknown.map((name) =>
      note('UnknownContainer', `${origin} names container "${name}", which the pod does not have`),
    ),
    ...kept.map(({ container: { name } }) =>
      note('ExistingHookKept', `container "${name}" keeps its own preStop hook and does not wait`),
    ),
  ];
}

/** What to say about the containers that get the wait. */
export function changeNotes(changed: readonly Target[], wait: number): readonly Note[] {
  return changed.flatMap(({ container, state }) => {
    const notes: Note[] = [];
    if (state.kind === 'extendable') {
      notes.push(
        note(
          'HookExtended',
          `container "${container.name}": its sleep of ${state.seconds}s is lengthened to ${wait}s`,
        ),
      );
    }
    const probeGrace = probeGraceOf(container);
    if (probeGrace !== undefined && probeGrace < wait) {
      const text = `container "${container.name}": a failing probe gives it ${probeGrace}s, less than the wait of ${wait}s`;
      notes.push(note('ProbeGraceShort', text));
    }
    return notes;
  });
}
