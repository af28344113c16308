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
 * swapped their names: then claims go to whichever hooks they fit, those of their name first. A hook fits claims of one
 * kind only: beside a hook of Linger's own, all sleeps of authors rise by the whole wait, and so beyond it.
 */
function carriersOf(plan: Plan, pod: Pod): Carriers {
  const kindOf = (claim: string) => authorsSeconds(plan, claim) ?? 0;
  const open = Map.groupBy(plan.containers, kindOf);
  const known = new Set(plan.containers);
  // Once, and not for each hook and claim: a forged plan may have a thousand of both.
  const rise = riseOf(plan);
  const candidates = pod.spec.containers.flatMap((container) => {
    const { name } = container;
    const own = open.has(0) && carriesOwn(container, plan);
    const lengthened = sleepIn(container) - rise;
    const kind = own ? 0 : lengthened > 0 ? lengthened : undefined;
    if (kind === undefined || !open.has(kind)) return [];
    return [{ name, kind, isOwn: known.has(name) && kindOf(name) === kind }];
  });
  const carriers = new Map<string, number | undefined>();
  for (const { name, kind } of candidates.toSorted((a, b) => Number(b.isOwn) - Number(a.isOwn)))
    if (open.get(kind)?.pop() !== undefined) carriers.set(name, kind === 0 ? undefined : kind);
  return carriers;
}

/** The seconds of the author's own sleep before Linger lengthened it; undefined for a hook of Linger's own. */
function authorsSeconds({ extended = {} }: Plan, name: string): number | undefined {
  return Object.hasOwn(extended, name) ? extended[name] : undefined;
}

/** The seconds of a sleep that may be lengthened; 0: its hook is another. */
function sleepIn(container: Container): number {
  const handler = preStopOf(container);
  return (handler && plainSleep(handler)?.seconds) ?? 0;
}

/** Whether its hook is as the plan says that one of Linger's own is. */
function carriesOwn(container: Container, { hook, wait, hold }: Plan): boolean {
  const handler = preStopOf(container);
  const own = handler && HOOKS[hook].recognise(handler);
  return wait > 0 && own?.wait === wait && own.call?.max === hold?.max;
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
    if (own !== undefined && isClaimed && carriesOwn(alone, plan))
      rests.set(index, { ...container, lifecycle: { ...container.lifecycle, preStop } });
  }
  if (rests.size === 0) return undefined;
  const pod = object as Pod;
  const containers = pod.spec.containers.map((each, index) => rests.get(index) ?? each);
  const paths = [...rests.keys()].map((index) => `/spec/containers/${index}/lifecycle/preStop/${kind}`);
  return { pod: { ...pod, spec: { ...pod.spec, containers } }, paths, plan };
}
