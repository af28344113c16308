import fastJsonPatch from 'fast-json-patch';
import {
  ANNOTATION,
  HOLD_VOLUME,
  HOOKS,
  isRecord,
  isString,
  labelOf,
  memberAt,
  runsHelper,
} from '../api/index.ts';
import { type AuthorsPod, authorsPod, withoutRecord, withPreStop, withSeconds } from './authors-pod.ts';
import { preStopOf } from './containers.ts';
import { type HoldSetup, OWN_MOUNT, ownMount, ownVolume } from './hold-delivery.ts';
import { type Decision, isAudit, type Plan, secondsByContainer } from './plan.ts';
import { renderMarker, renderPlan } from './plan-codec.ts';
import { annotationsOf, type Container, DEFAULT_GRACE_SECONDS, entriesOf, graceOf, type Pod } from './pod.ts';
import { podProblemOf } from './pod-members.ts';
import { SKIP_REASONS, type SkipReason } from './reasons.ts';

export type Operation =
  | { readonly op: 'add' | 'replace'; readonly path: string; readonly value: unknown }
  | { readonly op: 'remove'; readonly path: string };

const VOLUMES = '/spec/volumes';

/**
 * The operations that bring the pod to what the decision says in mode Enforce: the difference between the pod that came in
 * and the one that was planned, so none for a pod that is there already. Paths are those of a Pod (or of a pod template).
 * Members are added one by one and no array is ever rewritten: other webhooks' and the author's entries stay where they are.
 */
export function patchFor(object: unknown, decision: Decision): readonly Operation[] {
  return changesNothing(decision) ? [] : operationsFor(authorsPod(object), decision);
}

/** The same in the mode in force. Audit changes nothing of its own: only a stamp of the floor goes. */
export function patchInForce(object: unknown, decision: Decision): readonly Operation[] {
  if (!isAudit(decision)) return patchFor(object, decision);
  if (changesNothing(decision)) return [];
  const found = authorsPod(object);
  return found.stamped ? unstamped(found, decision.outcome === 'skip' ? decision.reason : 'Audit') : [];
}

/** Whether the decision says so by itself: the pod is not looked at, or it has been found to be as its plan says. */
function changesNothing(decision: Decision): boolean {
  if (decision.outcome !== 'skip') return false;
  return decision.standing !== undefined || SKIP_REASONS[decision.reason].standing === 'unread';
}

export function operationsFor(found: AuthorsPod, decision: Decision): readonly Operation[] {
  if (decision.outcome === 'inject')
    return difference(found.incoming, planned(found, decision.plan, decision.setup), decision.setup);
  if (found.stamped) return unstamped(found, decision.reason);
  const { withdrawn } = decision;
  return withdrawn ? difference(found.incoming, annotated(found.pod, renderPlan(withdrawn))) : [];
}

/** The floor leaves a pod with such a marker alone, or it would stamp it again. */
function unstamped({ incoming, pod }: AuthorsPod, reason: SkipReason | 'Audit'): readonly Operation[] {
  return difference(incoming, annotated(pod, renderMarker(reason)));
}

/**
 * The operations that take a plan out of a pod again: its hooks where they still are as the plan says, the grace where
 * it has not been changed since, and the annotation. What an author wrote stays, but for an explicit grace of 30 s,
 * which is what an absent one means. None for a pod without a plan.
 */
export function undoFor(object: unknown): readonly Operation[] {
  const { incoming, pod, plan } = authorsPod(object);
  const isRecorded = isString(memberAt(object, ['metadata', 'annotations', ANNOTATION.plan]));
  if (!isRecorded || podProblemOf(pod) !== undefined) return [];
  const { baseGrace } = plan ?? {};
  return difference(
    incoming,
    withoutRecord(pod, plan, baseGrace === DEFAULT_GRACE_SECONDS ? undefined : baseGrace),
  );
}

/** The pod with the plan: it shares with the pod that came in whatever is not changed, which comparing relies on. */
function planned({ incoming, pod, plan: recorded }: AuthorsPod, plan: Plan, setup?: HoldSetup): Pod {
  const { hook, wait, hold } = plan;
  const call = setup && hold && { address: setup.address, token: setup.token, wait, max: hold.max };
  // A handler of its own for each container: applying the patch may change one of them in place.
  const own = () => HOOKS[hook].render({ wait, ...(call && { call }) });
  const waiting = secondsByContainer(plan);
  const containers = pod.spec.containers.map((container) => {
    const seconds = waiting.get(container.name);
    if (seconds === undefined) return container;
    const handler = preStopOf(container);
    return withPreStop(container, handler === undefined ? own() : withSeconds(handler, seconds));
  });
  const grace = Math.max(graceOf(pod), plan.grace);
  const text = renderPlan(plan);
  const there = labelOf(annotationsOf(incoming), ANNOTATION.plan);
  // A record that says the same in other words stays.
  const isSame = there !== text && recorded !== undefined && renderPlan(recorded) === text;
  const told = isSame && there !== undefined ? there : text;
  const spec = { ...pod.spec, containers, terminationGracePeriodSeconds: grace };
  return annotated({ ...pod, spec }, told, setup?.tokenHash);
}

function annotated(pod: Pod, plan: string, tokenHash?: string): Pod {
  const present = annotationsOf(pod);
  const isThere =
    labelOf(present, ANNOTATION.plan) === plan && labelOf(present, ANNOTATION.holdToken) === tokenHash;
  if (isThere) return pod;
  const { [ANNOTATION.holdToken]: _, ...others } = present;
  const token = tokenHash === undefined ? {} : { [ANNOTATION.holdToken]: tokenHash };
  return {
    ...pod,
    metadata: { ...pod.metadata, annotations: { ...others, [ANNOTATION.plan]: plan, ...token } },
  };
}

/**
 * In the order in which a pod is read: hooks, volumes, grace, annotations. Only the members that Linger may have changed are
 * compared: comparing the others would cost more than all else.
 */
function difference(before: Pod, after: Pod, setup?: HoldSetup): readonly Operation[] {
  const operations: Operation[] = [];
  after.spec.containers.forEach(({ lifecycle }, index) => {
    const was = before.spec.containers[index]?.lifecycle;
    operations.push(...changes(`/spec/containers/${index}/lifecycle`, was, lifecycle));
  });
  // By hand: compared, the removal of an entry would rewrite all those behind it.
  operations.push(...helperOperations(before, after, setup));
  const [was, is] = [before.spec, after.spec].map((spec) => spec.terminationGracePeriodSeconds);
  operations.push(...changes('/spec/terminationGracePeriodSeconds', was, is));
  const isWhole = isRecord(before.metadata) && isRecord(after.metadata);
  return isWhole
    ? [
        ...operations,
        ...changes('/metadata/annotations', before.metadata.annotations, after.metadata.annotations),
      ]
    : [...operations, ...changes('/metadata', before.metadata, after.metadata)];
}

/** What changes one member into the other. Objects that both share are not looked into. */
function changes(path: string, before: unknown, after: unknown): readonly Operation[] {
  if (before === after) return [];
  if (before === undefined) return [{ op: 'add', path, value: after }];
  if (after === undefined) return [{ op: 'remove', path }];
  if (!isRecord(before) || !isRecord(after)) return [{ op: 'replace', path, value: after }];
  const members = fastJsonPatch.compare(before, after) as readonly Operation[];
  return members.map((each) => ({ ...each, path: path + each.path }));
}

/** Adds the helper's volume and its mounts where they are needed, and removes those that no container needs any more. */
function helperOperations(pod: Pod, after: Pod, setup: HoldSetup | undefined): readonly Operation[] {
  const { containers, initContainers, volumes } = pod.spec;
  // Nearly every pod ends here.
  if (
    setup === undefined &&
    !namesVolume(volumes) &&
    !containers.some((each) => namesVolume(each.volumeMounts))
  )
    return [];
  const held = after.spec.containers.map((each) => runsHelper(preStopOf(each) ?? {}));
  const own = ownVolume(pod);
  const isForeign = own === undefined && namesVolume(volumes);
  const operations = containers.flatMap((container, index): Operation[] => {
    const at = ownMount(container);
    const path = `/spec/containers/${index}/volumeMounts`;
    if (held[index]) return at === undefined ? [appended(container.volumeMounts, path, OWN_MOUNT)] : [];
    return at === undefined || isForeign ? [] : [removed(container.volumeMounts, path, at)];
  });
  if (setup !== undefined && held.includes(true))
    return own === undefined && setup.volume !== undefined
      ? [...operations, appended(volumes, VOLUMES, setup.volume)]
      : operations;
  const others = containers.flatMap((each) => mountsOf(each).filter((_, index) => index !== ownMount(each)));
  const isUsed = namesVolume([...others, ...(initContainers ?? []).flatMap(mountsOf)]);
  return own === undefined || isUsed ? operations : [...operations, removed(volumes, VOLUMES, own.index)];
}

function mountsOf({ volumeMounts }: Container): readonly unknown[] {
  return entriesOf(volumeMounts);
}

function namesVolume(entries: unknown): boolean {
  return entriesOf(entries).some((each) => isRecord(each) && each.name === HOLD_VOLUME);
}

function appended(list: unknown, path: string, value: unknown): Operation {
  return Array.isArray(list) ? { op: 'add', path: `${path}/-`, value } : { op: 'add', path, value: [value] };
}

/** A list that would become empty is removed as a whole: usually Linger has created it. */
function removed(list: unknown, path: string, index: number): Operation {
  const isAlone = Array.isArray(list) && list.length === 1;
  return { op: 'remove', path: isAlone ? path : `${path}/${index}` };
}
