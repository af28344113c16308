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

/** A pod as it came in, and the same pod without what Linger has put in. */
export interface AuthorsPod {
  readonly incoming: Pod;
  /**
   * As its author and other webhooks mean it: the recorded hooks that are there are gone, and lengthened sleeps are as long
   * as their authors wrote them. It shares every object that Linger has not changed. The grace is as it came, because another
   * webhook may have set it; so are the helper's volume and mounts, which are recognised by their content.
   */
  readonly pod: Pod;
  /** What is recorded; absent: nothing, or nothing that counts. */
  readonly plan?: Plan;
  /** The containers that had the plan's hooks, and nothing else in them. Empty: the plan claims what is not there. */
  readonly carriers: Carriers;
  /** What the first of these hooks calls, with hook Hold. */
  readonly call?: HoldCall;
  /** Another webhook has merged a handler of its own into one of the hooks: the API server would reject a hook of two. */
  readonly merged: boolean;
  /** A stamp of the floor was taken out: hooks, grace and annotation. */
  readonly stamped: boolean;
  readonly notes: readonly Note[];
}

/**
 * Takes out what Linger has put in: hooks that the plan annotation claims *and* that are there, or a forged annotation could
 * claim an author's hook. Hooks that run the helper go in any case, since only Linger writes them.
 * @param object unchecked: what cannot be read comes out as it came
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
    // What is left of a hook into which another webhook has merged its own is that webhook's.
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
    // A grace that another webhook has changed since is not raised again.
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

/** Nearly every pod: Linger has put nothing in. */
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

/** What a plan claims of the pod's hooks: computed once, and not for each hook, as a forged plan may have a thousand. */
interface Claims {
  readonly plan: Plan;
  /** By how much sleeps are lengthened. */
  readonly rise: number;
  /** By container: the seconds of its author's own sleep; 0: it has a hook of Linger's own. */
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
  /** The kind of claim that it fits. */
  readonly kind: number | undefined;
  readonly call: HoldCall | undefined;
  /** What others have merged into a hook of Linger's own. */
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

/** What a hook of Linger's shares its place with. @param own the handler that may be Linger's; undefined: no other is there */
function besides(handler: LifecycleHandler, own: string): LifecycleHandler | undefined {
  if (Object.keys(handler).length < 2) return undefined;
  const { [own]: mine, ...others } = handler;
  return isRecord(mine) && Object.values(others).some(isRecord) ? others : undefined;
}

/**
 * The hooks that the plan's claims fit. Usually each claim fits the container of its name. Where one does not, another
 * webhook may have renamed containers, or swapped their names: then claims go to whichever hooks they fit, those of their name
 * first. A hook fits claims of one kind only: beside a hook of Linger's own, all sleeps of authors rise by the whole wait,
 * and so beyond it.
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

/** @param preStop undefined: none, and no lifecycle where nothing else is in it */
export function withPreStop(container: Container, preStop: LifecycleHandler | undefined): Container {
  if (preStop !== undefined) return { ...container, lifecycle: { ...container.lifecycle, preStop } };
  const { lifecycle, ...rest } = container;
  const { preStop: _, ...others } = lifecycle ?? {};
  return Object.keys(others).length === 0 ? rest : { ...container, lifecycle: others };
}

/** @param handler a plain sleep; another stays as it is */
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
 * Also without the annotations that Linger writes; the grace is its author's again, unless it has been changed since.
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
