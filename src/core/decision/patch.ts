import {
  ANNOTATION,
  HOLD_VOLUME,
  HOOKS,
  isRecord,
  type LifecycleHandler,
  labelOf,
  plainSleep,
  pointer,
  runsHelper,
} from '../api/index.ts';
import { type Carriers, preStopOf } from './containers.ts';
import { earlierPass, separated } from './earlier-pass.ts';
import { type HoldSetup, OWN_MOUNT, ownMount, ownVolume } from './hold-delivery.ts';
import { type Decision, type Plan, secondsByContainer } from './plan.ts';
import { renderPlan } from './plan-codec.ts';
import {
  annotationsOf,
  type Container,
  DEFAULT_GRACE_SECONDS,
  entriesOf,
  type Pod,
  podProblemOf,
} from './pod.ts';

export type Operation =
  | { readonly op: 'add' | 'replace'; readonly path: string; readonly value: unknown }
  | { readonly op: 'remove'; readonly path: string };

const GRACE = '/spec/terminationGracePeriodSeconds';
const ANNOTATIONS = '/metadata/annotations';
const VOLUMES = '/spec/volumes';

/**
 * The operations that bring the pod to what the decision says. They come from a comparison, so a pod that is already
 * there gets none. Paths are those of a Pod (or of a pod template). Members are added one by one and no array is ever
 * rewritten: other webhooks' and the author's entries stay where they are.
 */
export function patchFor(pod: Pod, decision: Decision): readonly Operation[] {
  const plan = decision.outcome === 'inject' ? decision.plan : decision.withdrawn;
  if (plan === undefined) return [];
  const apart = separated(pod);
  if (apart !== undefined)
    return [
      ...apart.paths.map((path) => ({ op: 'remove', path }) as const),
      ...patchFor(apart.pod, decision),
    ];
  const waiting = secondsByContainer(plan);
  const setup = decision.outcome === 'inject' ? decision.setup : undefined;
  const operations = pod.spec.containers.flatMap((container, index) => {
    const path = `/spec/containers/${index}/lifecycle`;
    // A lifecycle that is left empty is valid.
    if (decision.released?.has(container.name)) return releaseOperations(container, path, decision.released);
    const seconds = waiting.get(container.name);
    return seconds === undefined ? [] : hookOperations(container, path, plan, seconds, setup);
  });
  const isHeld = ({ name, lifecycle }: Container) =>
    setup !== undefined && waiting.has(name) && (!lifecycle?.preStop || runsHelper(lifecycle.preStop));
  operations.push(...helperOperations(pod, isHeld, setup));
  if (pod.spec.terminationGracePeriodSeconds !== plan.grace)
    operations.push({ op: 'add', path: GRACE, value: plan.grace });
  return [...operations, ...annotationOperations(pod, renderPlan(plan), setup?.tokenHash)];
}

/**
 * The operations that take a plan out of a pod again: its hooks where they still are as the plan says, the grace where
 * it has not been changed since, and the annotation. What an author wrote stays, but for an explicit grace of 30 s,
 * which is what an absent one means. None for a pod without a plan.
 */
export function undoFor(pod: unknown): readonly Operation[] {
  if (podProblemOf(pod) !== undefined) return [];
  const { plan, carriers } = earlierPass(pod as Pod);
  if (plan === undefined) return [];
  const { spec, metadata } = pod as Pod;
  const operations = spec.containers.flatMap((container, index) => {
    const path = `/spec/containers/${index}/lifecycle`;
    const isAlone = Object.keys(container.lifecycle ?? {}).length === 1;
    const released = releaseOperations(container, path, carriers);
    return released.map((each) => (each.op === 'remove' && isAlone ? { ...each, path } : each));
  });
  if (spec.terminationGracePeriodSeconds === plan.grace) {
    if (plan.baseGrace === DEFAULT_GRACE_SECONDS) operations.push({ op: 'remove', path: GRACE });
    else operations.push({ op: 'replace', path: GRACE, value: plan.baseGrace });
  }
  operations.push(...helperOperations(pod as Pod, () => false));
  const written = [ANNOTATION.plan, ANNOTATION.holdToken].filter(
    (key) => key in (metadata?.annotations ?? {}),
  );
  const areAlone = Object.keys(metadata?.annotations ?? {}).length === written.length;
  const paths = areAlone ? [ANNOTATIONS] : written.map((key) => pointer(ANNOTATIONS, key));
  return [...operations, ...paths.map((path) => ({ op: 'remove' as const, path }))];
}

function hookOperations(
  { lifecycle }: Container,
  path: string,
  { hook, wait, hold }: Plan,
  seconds: number,
  setup: HoldSetup | undefined,
): Operation[] {
  const handler = lifecycle?.preStop;
  if (handler && !runsHelper(handler)) return secondsOperations(handler, path, seconds);
  const call = setup && hold && { address: setup.address, token: setup.token, wait, max: hold.max };
  const preStop = HOOKS[hook].render({ wait, ...(call && { call }) });
  if (handler && JSON.stringify(handler) === JSON.stringify(preStop)) return [];
  if (handler) return [{ op: 'replace', path: `${path}/preStop`, value: preStop }];
  return lifecycle
    ? [{ op: 'add', path: `${path}/preStop`, value: preStop }]
    : [{ op: 'add', path, value: { preStop } }];
}

/** Restores the author's own seconds; without any, removes the hook. */
function releaseOperations(container: Container, path: string, released: Carriers): Operation[] {
  const handler = preStopOf(container);
  if (handler === undefined || !released.has(container.name)) return [];
  const seconds = released.get(container.name);
  if (seconds !== undefined) return secondsOperations(handler, path, seconds);
  return [{ op: 'remove', path: `${path}/preStop` }];
}

function secondsOperations(handler: LifecycleHandler, path: string, seconds: number): Operation[] {
  const sleep = plainSleep(handler);
  if (sleep === undefined || sleep.seconds === seconds) return [];
  return [{ op: 'replace', path: `${path}/preStop${sleep.pointer}`, value: sleep.render(seconds) }];
}

/** Adds the helper's volume and its mounts where they are needed, and removes those that no container needs any more. */
function helperOperations(
  pod: Pod,
  isHeld: (container: Container) => boolean,
  setup?: HoldSetup,
): Operation[] {
  const { containers, initContainers, volumes } = pod.spec;
  // Nearly every pod ends here.
  if (
    setup === undefined &&
    !namesVolume(volumes) &&
    !containers.some((each) => namesVolume(each.volumeMounts))
  )
    return [];
  const own = ownVolume(pod);
  const isForeign = own === undefined && namesVolume(volumes);
  const operations = containers.flatMap((container, index): Operation[] => {
    const at = ownMount(container);
    const path = `/spec/containers/${index}/volumeMounts`;
    if (isHeld(container)) return at === undefined ? [appended(container.volumeMounts, path, OWN_MOUNT)] : [];
    return at === undefined || isForeign ? [] : [removed(container.volumeMounts, path, at)];
  });
  if (setup !== undefined && containers.some(isHeld))
    return own === undefined ? [...operations, appended(volumes, VOLUMES, setup.volume)] : operations;
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

function annotationOperations(pod: Pod, plan: string, tokenHash: string | undefined): Operation[] {
  const annotations = {
    [ANNOTATION.plan]: plan,
    ...(tokenHash !== undefined && { [ANNOTATION.holdToken]: tokenHash }),
  };
  if (!pod.metadata) return [{ op: 'add', path: '/metadata', value: { annotations } }];
  if (!pod.metadata.annotations) return [{ op: 'add', path: ANNOTATIONS, value: annotations }];
  const present = annotationsOf(pod);
  const operations: Operation[] = Object.entries(annotations)
    .filter(([key, text]) => labelOf(present, key) !== text)
    .map(([key, value]) => ({ op: 'add', path: pointer(ANNOTATIONS, key), value }));
  const isStale = tokenHash === undefined && Object.hasOwn(present, ANNOTATION.holdToken);
  return isStale
    ? [...operations, { op: 'remove', path: pointer(ANNOTATIONS, ANNOTATION.holdToken) }]
    : operations;
}
