import {
  ANNOTATION,
  HOOKS,
  type HoldCall,
  isRecord,
  isString,
  type LifecycleHandler,
  listOf,
  memberAt,
  plainSleep,
  runsHelper,
  textOf,
} from '../api/index.ts';
import { type Carriers, listed, NO_CARRIERS } from './containers.ts';
import { type Plan, riseOf } from './plan.ts';
import { isMarker, parsePlan } from './plan-codec.ts';
import type { Container, Pod } from './pod.ts';
import { type Note, note } from './reasons.ts';

/** An incoming pod, and the same pod with Linger's own changes undone. */
export interface AuthorsPod {
  readonly incoming: Pod;
  /**
   * The pod as its author and other webhooks want it: recorded hooks that are really there are removed, and lengthened
   * sleeps have their authors' length again. It shares every object that Linger has not changed. The grace stays as it came
   * in, because another webhook may have set it; so do the helper's volume and mounts, which are recognised by their
   * content.
   */
  readonly pod: Pod;
  /** The plan that the annotation records. Absent: there is none, or it does not count. */
  readonly plan?: Plan;
  /** The containers whose hooks are exactly those of the plan. Empty: none of the hooks that the plan claims is there. */
  readonly carriers: Carriers;
  /** With hook Hold: the call that the first of these hooks makes. */
  readonly call?: HoldCall;
  /**
   * Another webhook has merged a handler of its own into one of Linger's hooks. The API server would reject a hook with two
   * handlers.
   */
  readonly merged: boolean;
  /** The floor's stamp has been removed: its hooks, grace and annotation. */
  readonly stamped: boolean;
  readonly notes: readonly Note[];
}

/**
 * Undoes Linger's changes. A hook is removed only if the plan annotation claims it *and* it has the content that the plan
 * says; otherwise a forged annotation could claim an author's hook. Hooks that run the helper are always removed, since only
 * Linger writes them.
 * @param object unchecked: a malformed object is returned as it came
 */
export function authorsPod(object: unknown): AuthorsPod {
  const incoming = object as Pod;
  const text = memberAt(object, ['metadata', 'annotations', ANNOTATION.plan]);
  const plan = isString(text) ? parsePlan(text) : undefined;
  const claims = plan && claimsOf(plan);
  const containers = listOf(memberAt(object, ['spec', 'containers']));
  const hooks = containers.flatMap((container, index) => hookIn(container, index, claims) ?? []);
  if (plan === undefined && hooks.length === 0) return untouched(incoming, text);
  const hookOf = new Map<number, LifecycleHandler | undefined>();
  for (const { index, rest, isHelper } of hooks) if (isHelper) hookOf.set(index, rest);
  const carriers = new Map<string, number | undefined>();
  let call: HoldCall | undefined;
  let merged = false;
  for (const hook of claims === undefined ? [] : claimedBy(claims, hooks)) {
    const { index, name, rest, handler, kind } = hook;
    hookOf.set(index, kind === 0 ? rest : withSeconds(handler, kind));
    // A hook into which another webhook has merged its own handler: what remains of it belongs to that webhook.
    if (rest !== undefined) {
      merged = true;
      continue;
    }
    carriers.set(name, kind === 0 ? undefined : kind);
    call ??= hook.call;
  }
  const pod =
    hookOf.size === 0
      ? incoming
      : withContainers(incoming, (each, index) =>
          hookOf.has(index) ? withPreStop(each, hookOf.get(index)) : each,
        );
  if (plan?.by === 'floor') {
    const restored = withoutRecord(pod, plan, plan.baseGrace);
    const isChanged = graceIn(restored) !== plan.baseGrace;
    const stamp = { incoming, pod: restored, carriers: NO_CARRIERS, merged, stamped: true, notes: [] };
    // Another webhook has changed the grace since: keep the plan, so that the grace is not raised again.
    return isChanged ? { ...stamp, plan } : stamp;
  }
  return {
    incoming,
    pod,
    carriers,
    merged,
    stamped: false,
    notes: staleNotes(text, plan, carriers),
    ...(plan && { plan }),
    ...(call && { call }),
  };
}

/** The usual case: Linger has not changed the pod. */
function untouched(pod: Pod, text: unknown): AuthorsPod {
  const notes = staleNotes(text, undefined, NO_CARRIERS);
  return { incoming: pod, pod, carriers: NO_CARRIERS, merged: false, stamped: false, notes };
}

function staleNotes(text: unknown, plan: Plan | undefined, carriers: Carriers): readonly Note[] {
  if (!isString(text)) return [];
  if (plan === undefined) {
    const stale = 'the pod’s linger.dev/plan is not one that Linger has written; it is ignored';
    return isMarker(text) ? [] : [note('StalePlan', stale)];
  }
  const missing = plan.containers.filter((name) => !carriers.has(name));
  const stale = `the pod’s linger.dev/plan claims a hook of ${plan.wait}s that is not there: ${listed(missing)}`;
  return missing.length === 0 ? [] : [note('StalePlan', stale)];
}

/**
 * What a plan claims about the pod's hooks. Computed once per pod instead of once per hook, because a forged plan may name a
 * thousand.
 */
interface Claims {
  readonly plan: Plan;
  /** How many seconds the plan adds to authors' sleeps. */
  readonly rise: number;
  /** By container: the seconds of its author's own sleep, or 0 for one of Linger's own hooks. */
  readonly kinds: ReadonlyMap<string, number>;
  readonly hasOwnHooks: boolean;
}

function claimsOf(plan: Plan): Claims {
  const { extended = {}, containers } = plan;
  const kindOf = (name: string) => (Object.hasOwn(extended, name) ? (extended[name] ?? 0) : 0);
  const kinds = new Map(containers.map((name) => [name, kindOf(name)]));
  return { plan, rise: riseOf(plan), kinds, hasOwnHooks: containers.some((name) => kinds.get(name) === 0) };
}

/** A hook that may be Linger's. */
interface Hook {
  /** The container's index. */
  readonly index: number;
  readonly name: string;
  readonly handler: LifecycleHandler;
  /** The kind of claim that it matches, as in {@link Claims.kinds}; undefined: none. */
  readonly kind: number | undefined;
  readonly call: HoldCall | undefined;
  /** The handlers that other webhooks have merged into one of Linger's own hooks. */
  readonly rest: LifecycleHandler | undefined;
  readonly isHelper: boolean;
}

function hookIn(container: unknown, index: number, claims: Claims | undefined): Hook | undefined {
  const handler = memberAt(container, ['lifecycle', 'preStop']);
  if (!isRecord(handler)) return undefined;
  const isHelper = runsHelper(handler);
  const hook = claims?.plan.hook ?? 'Hold';
  if (claims === undefined && !isHelper) return undefined;
  const others = besides(handler, HOOKS[hook].handler);
  const contents = HOOKS[hook].recognise(
    others === undefined ? handler : { [HOOKS[hook].handler]: handler[HOOKS[hook].handler] },
  );
  const isOwn =
    contents?.wait === claims?.plan.wait &&
    contents?.call?.max === claims?.plan.hold?.max &&
    claims?.hasOwnHooks === true;
  const lengthened = claims === undefined ? 0 : (plainSleep(handler)?.seconds ?? 0) - claims.rise;
  return {
    index,
    handler,
    isHelper,
    name: textOf(memberAt(container, ['name'])),
    kind: isOwn ? 0 : lengthened > 0 ? lengthened : undefined,
    call: contents?.call,
    rest: isHelper || isOwn ? others : undefined,
  };
}

/**
 * The handlers that share a hook with Linger's own.
 * @param own the kind of handler that may be Linger's
 * @returns undefined where there is no other
 */
function besides(handler: LifecycleHandler, own: string): LifecycleHandler | undefined {
  if (Object.keys(handler).length < 2) return undefined;
  const { [own]: mine, ...others } = handler;
  return isRecord(mine) && Object.values(others).some(isRecord) ? others : undefined;
}

/**
 * The hooks that match the plan's claims. Usually each claim matches the container of its name. Where one does not, another
 * webhook may have renamed containers or swapped their names; claims then match any hook of the same content, those under
 * the claimed name first. A hook can match only one kind of claim: where Linger also has a hook of its own, authors' sleeps
 * rise by the whole wait and so are always longer than it.
 */
function claimedBy(
  { plan, kinds }: Claims,
  hooks: readonly Hook[],
): readonly (Hook & { readonly kind: number })[] {
  const open = new Map<number, number>();
  for (const name of plan.containers) {
    const kind = kinds.get(name) ?? 0;
    open.set(kind, (open.get(kind) ?? 0) + 1);
  }
  const isNamed = ({ name, kind }: Hook) => kinds.get(name) === kind;
  return hooks
    .filter((hook): hook is Hook & { readonly kind: number } => hook.kind !== undefined)
    .toSorted((a, b) => Number(isNamed(b)) - Number(isNamed(a)))
    .filter(({ kind }) => {
      const left = open.get(kind) ?? 0;
      open.set(kind, left - 1);
      return left > 0;
    })
    .toSorted((a, b) => a.index - b.index);
}

function withContainers(pod: Pod, change: (container: Container, index: number) => Container): Pod {
  return { ...pod, spec: { ...pod.spec, containers: pod.spec.containers.map(change) } };
}

/** @param preStop undefined: removes the hook, and the lifecycle too if nothing else is in it */
export function withPreStop(container: Container, preStop: LifecycleHandler | undefined): Container {
  if (preStop !== undefined) return { ...container, lifecycle: { ...container.lifecycle, preStop } };
  const { lifecycle, ...rest } = container;
  const { preStop: _, ...others } = lifecycle ?? {};
  return Object.keys(others).length === 0 ? rest : { ...container, lifecycle: others };
}

/** @param handler only a plain sleep is changed */
export function withSeconds(handler: LifecycleHandler, seconds: number): LifecycleHandler {
  const sleep = plainSleep(handler);
  if (sleep === undefined) return handler;
  return replacedAt(handler, sleep.pointer.split('/').slice(1), sleep.render(seconds)) as LifecycleHandler;
}

function graceIn(pod: unknown): unknown {
  return memberAt(pod, ['spec', 'terminationGracePeriodSeconds']);
}

function replacedAt(value: unknown, [key, ...rest]: readonly string[], leaf: unknown): unknown {
  if (key === undefined) return leaf;
  if (Array.isArray(value)) return value.with(Number(key), replacedAt(value[Number(key)], rest, leaf));
  return { ...(value as object), [key]: replacedAt(memberAt(value, [key]), rest, leaf) };
}

/**
 * Removes Linger's annotations too, and restores the author's grace unless it has been changed since.
 * @param baseGrace undefined: the author wrote none
 */
export function withoutRecord(pod: Pod, plan: Plan | undefined, baseGrace: number | undefined): Pod {
  const {
    [ANNOTATION.plan]: _p,
    [ANNOTATION.holdToken]: _t,
    ...annotations
  } = pod.metadata?.annotations ?? {};
  const { annotations: _a, ...metadata } = pod.metadata ?? {};
  const isAlone = Object.keys(annotations).length === 0;
  const bare = { ...pod, metadata: isAlone ? metadata : { ...metadata, annotations } };
  if (plan === undefined || graceIn(pod) !== plan.grace) return bare;
  const { terminationGracePeriodSeconds: _g, ...spec } = pod.spec;
  return {
    ...bare,
    spec: { ...spec, ...(baseGrace !== undefined && { terminationGracePeriodSeconds: baseGrace }) },
  };
}
