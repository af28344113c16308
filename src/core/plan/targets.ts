import { type Note, note } from '../catalog/notes.ts';
import type { EffectivePolicy } from '../policy/values.ts';
import { sleepForm } from './hook.ts';
import { type Container, type Pod, probeGraceOf } from './pod.ts';

/** What can be done with one container's preStop. */
type State =
  | { readonly kind: 'free' }
  /** Its author's plain sleep, which the policy lets us lengthen to this many seconds or more. */
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

/** The containers that a wait this long changes something for. */
export function changedBy(targets: readonly Target[], wait: number): readonly Container[] {
  return targets
    .filter(({ state }) => state.kind === 'free' || (state.kind === 'extendable' && state.seconds < wait))
    .map(({ container }) => container);
}

/** What to say about the containers, the chosen and the ones left alone. */
export function targetNotes(
  pod: Pod,
  policy: EffectivePolicy,
  targets: readonly Target[],
  wait: number,
): readonly Note[] {
  const notes: Note[] = [];
  for (const name of policy.containers.value) {
    if (pod.spec.containers.some((container) => container.name === name)) continue;
    notes.push(
      note(
        'UnknownContainer',
        `${policy.containers.origin} names container "${name}", which the pod does not have`,
      ),
    );
  }
  for (const { container, state } of targets) {
    if (state.kind === 'kept') {
      notes.push(
        note(
          'ExistingHookKept',
          `container "${container.name}" keeps its own preStop hook and does not wait`,
        ),
      );
    } else if (state.kind === 'extendable' && state.seconds < wait) {
      notes.push(
        note(
          'HookExtended',
          `container "${container.name}": its sleep of ${state.seconds}s is lengthened to ${wait}s`,
        ),
      );
    }
    const probeGrace = probeGraceOf(container);
    if (state.kind !== 'kept' && probeGrace !== undefined && probeGrace < wait) {
      const text = `container "${container.name}": a failing probe gives it ${probeGrace}s, less than the wait of ${wait}s`;
      notes.push(note('ProbeGraceShort', text));
    }
  }
  return notes;
}
