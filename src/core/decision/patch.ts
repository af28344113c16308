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
 * The operations that turn the incoming pod into the one that the decision asks for in mode Enforce; none if it already
 * matches. Paths are those of a Pod (or of a pod template). Members are added one by one and no array is rewritten, so the
 * entries of the author and of other webhooks keep their places.
 */
export function patchFor(object: unknown, decision: Decision): readonly Operation[] {
  return changesNothing(decision) ? [] : operationsFor(authorsPod(object), decision);
}

/** The operations in the pod's actual mode. In mode Audit, none, except that the floor's stamp is removed. */
export function patchInForce(object: unknown, decision: Decision): readonly Operation[] {
  if (!isAudit(decision)) return patchFor(object, decision);
  if (changesNothing(decision)) return [];
  const found = authorsPod(object);
  return found.stamped ? unstamped(found, decision.outcome === 'skip' ? decision.reason : 'Audit') : [];
}

/**
 * Whether the decision alone shows that there is nothing to do: the pod is not looked at, or it already matches its plan.
 */
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

/** Leaves a marker in place of the floor's stamp. Without it, the floor would stamp the pod again in the next pass. */
function unstamped({ incoming, pod }: AuthorsPod, reason: SkipReason | 'Audit'): readonly Operation[] {
  return difference(incoming, annotated(pod, renderMarker(reason)));
}

/**
 * The operations that remove a plan from a pod: its hooks if they are as the plan says, the grace if it has not been changed
 * since, and the annotation. An author's values stay, except that an explicit grace of 30 s is removed, which means the
 * same. None for a pod without a plan.
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

/**
 * The pod with the plan applied. It shares all unchanged objects with the incoming pod, which makes the comparison cheap.
 */
function planned({ incoming, pod, plan: recorded }: AuthorsPod, plan: Plan, setup?: HoldSetup): Pod {
  const { hook, wait, hold } = plan;
  const call = setup && hold && { address: setup.address, token: setup.token, wait, max: hold.max };
  // A new handler for each container: applying the patch may change one of them in place.
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
  // A recorded plan that means the same is not rewritten, even if its JSON text differs.
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
 * The patch between two pods, in this order: hooks, volumes, grace, annotations. Compares only members that Linger may have
 * changed, because comparing whole pods would cost more than everything else in a review.
 */
function difference(before: Pod, after: Pod, setup?: HoldSetup): readonly Operation[] {
  const operations: Operation[] = [];
  after.spec.containers.forEach(({ lifecycle }, index) => {
    const was = before.spec.containers[index]?.lifecycle;
    operations.push(...changes(`/spec/containers/${index}/lifecycle`, was, lifecycle));
  });
  // Not by comparison: where an entry is removed, that would rewrite all entries behind it.
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

/** The operations that change one member into the other. Identical objects are not compared. */
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
