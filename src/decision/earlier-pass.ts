import {
  ANNOTATION,
  HOOKS,
  isRecord,
  isString,
  labelOf,
  listOf,
  memberAt,
  plainSleep,
} from '../api/index.ts';
import { type Carriers, listed, NO_CARRIERS, preStopOf } from './containers.ts';
import { type Plan, riseOf } from './plan.ts';
import { parsePlan } from './plan-codec.ts';
import { annotationsOf, type Container, type Pod } from './pod.ts';
import { type Note, note } from './reasons.ts';

export interface EarlierPass {
  /** Absent where there is no annotation, or none that can be read. */
  readonly plan?: Plan;
  /** The containers that still carry the plan's hook. */
  readonly carriers: Carriers;
  readonly notes: readonly Note[];
}

const NO_EARLIER_PASS: EarlierPass = { carriers: NO_CARRIERS, notes: [] };

/**
 * Reads the plan annotation, and judges it container by container: a hook that it claims and that is really there is
 * Linger's; any other hook is its author's. Otherwise a forged annotation could claim an author's hook.
 */
export function earlierPass(pod: Pod): EarlierPass {
  const text = labelOf(annotationsOf(pod), ANNOTATION.plan);
  if (text === undefined) return NO_EARLIER_PASS;
  const plan = parsePlan(text);
  if (plan === undefined) {
    const stale = 'the pod’s linger.dev/plan is not one that Linger has written; it is ignored';
    return { carriers: NO_CARRIERS, notes: [note('StalePlan', stale)] };
  }
  const carriers = carriersOf(plan, pod);
  const missing = plan.containers.filter((name) => !carriers.has(name));
  const stale = `the pod’s linger.dev/plan claims a hook of ${plan.wait}s that is not there: ${listed(missing)}`;
  return { plan, carriers, notes: missing.length === 0 ? [] : [note('StalePlan', stale)] };
}

/**
 * Usually each claim fits the container of its name. Where one does not, another webhook may have renamed containers, or
 * swapped their names: then claims go to whichever hooks they fit: those of their name first, then those that fit the fewest.
 */
function carriersOf(plan: Plan, pod: Pod): Carriers {
  const hooked = pod.spec.containers.filter((each) => preStopOf(each) !== undefined);
  const claims = plan.containers;
  const fits = (container: Container, claim: string) => carries(container, plan, authorsSeconds(plan, claim));
  const byName = new Map(hooked.map((each) => [each.name, each]));
  const isPlain = claims.every((claim) => {
    const container = byName.get(claim);
    return container !== undefined && fits(container, claim);
  });
  if (isPlain) return new Map(claims.map((claim) => [claim, authorsSeconds(plan, claim)]));
  const kindOf = (claim: string) => authorsSeconds(plan, claim) ?? 0;
  const open = Map.groupBy(claims, kindOf);
  const known = new Set(plan.containers);
  const candidates = hooked.map((container) => {
    const kinds = [...open].flatMap(([kind, [claim]]) => (claim && fits(container, claim) ? [kind] : []));
    const named = known.has(container.name) ? kindOf(container.name) : undefined;
    return {
      container,
      isOwn: named !== undefined && kinds.includes(named),
      kinds: kinds.toSorted((a, b) => Number(b === named) - Number(a === named)),
    };
  });
  const ordered = candidates.toSorted(
    (a, b) => Number(b.isOwn) - Number(a.isOwn) || a.kinds.length - b.kinds.length,
  );
  const carriers = new Map<string, number | undefined>();
  for (const { container, kinds } of ordered) {
    const claim = kinds
      .map((kind) => open.get(kind))
      .find((each) => each?.length)
      ?.pop();
    if (claim !== undefined) carriers.set(container.name, authorsSeconds(plan, claim));
  }
  return carriers;
}

/** The seconds of the author's own sleep before Linger lengthened it; undefined for a hook of Linger's own. */
function authorsSeconds({ extended = {} }: Plan, name: string): number | undefined {
  return Object.hasOwn(extended, name) ? extended[name] : undefined;
}

function carries(container: Container, plan: Plan, authors: number | undefined): boolean {
  const { hook, wait, hold } = plan;
  const handler = preStopOf(container);
  if (handler === undefined || wait === 0) return false;
  if (authors !== undefined) return plainSleep(handler)?.seconds === authors + riseOf(plan);
  const own = HOOKS[hook].recognise(handler);
  return own?.wait === wait && own.call?.max === hold?.max;
}

export interface Separated {
  readonly pod: Pod;
  /** Of what was taken out. */
  readonly paths: readonly string[];
  readonly plan: Plan;
}

/**
 * Another webhook may merge a handler of its own into a hook of Linger's, and the API server rejects a hook of two. Linger's
 * goes, since the other may be asked again and would add its own again.
 * @returns undefined where there is none such
 */
export function separated(object: unknown): Separated | undefined {
  const shared = listOf(memberAt(object, ['spec', 'containers'])).flatMap((container, index) => {
    const handler = memberAt(container, ['lifecycle', 'preStop']);
    const isShared = isRecord(handler) && Object.values(handler).filter(isRecord).length > 1;
    return isShared ? [{ container: container as Container, handler, index }] : [];
  });
  if (shared.length === 0) return undefined;
  const text = memberAt(object, ['metadata', 'annotations', ANNOTATION.plan]);
  const plan = isString(text) ? parsePlan(text) : undefined;
  if (plan === undefined) return undefined;
  const { handler: kind } = HOOKS[plan.hook];
  const rests = new Map<number, Container>();
  for (const { container, handler, index } of shared) {
    const { [kind]: own, ...preStop } = handler;
    const alone = { ...container, lifecycle: { preStop: { [kind]: own } } };
    const isClaimed =
      plan.containers.includes(container.name) && !Object.hasOwn(plan.extended ?? {}, container.name);
    if (own !== undefined && isClaimed && carries(alone, plan, undefined))
      rests.set(index, { ...container, lifecycle: { ...container.lifecycle, preStop } });
  }
  if (rests.size === 0) return undefined;
  const pod = object as Pod;
  const containers = pod.spec.containers.map((each, index) => rests.get(index) ?? each);
  const paths = [...rests.keys()].map((index) => `/spec/containers/${index}/lifecycle/preStop/${kind}`);
  return { pod: { ...pod, spec: { ...pod.spec, containers } }, paths, plan };
}
