import { ANNOTATION, HOOKS, type LifecycleHandler, labelOf, plainSleep } from '../api/index.ts';
import { type Carriers, preStopOf } from './containers.ts';
import { type Decision, earlierPass, type Plan, renderPlan } from './plan.ts';
import { annotationsOf, type Container, DEFAULT_GRACE_SECONDS, type Pod, problemOf } from './pod.ts';

/** The operations of RFC 6902 that Linger uses. */
export type Operation =
  | { readonly op: 'add' | 'replace'; readonly path: string; readonly value: unknown }
  | { readonly op: 'remove'; readonly path: string };

/** A JSON pointer (RFC 6901) to a member of what `parent` points to. */
export function pointer(parent: string, ...members: readonly (string | number)[]): string {
  // `~` first, or the `~1` of a slash would be escaped again.
  const escaped = members.map((member) => String(member).replaceAll('~', '~0').replaceAll('/', '~1'));
  return [parent, ...escaped].join('/');
}

const GRACE = '/spec/terminationGracePeriodSeconds';
const ANNOTATIONS = '/metadata/annotations';

/**
 * The few operations that turn the pod into what the decision says: a comparison, so a pod that is already so
 * yields none. Paths are those of a Pod (or of a pod template). Members are added one by one and no array is ever
 * rewritten: other webhooks' and the author's entries stay where they are.
 */
export function patchFor(pod: Pod, decision: Decision): readonly Operation[] {
  const plan = decision.outcome === 'inject' ? decision.plan : decision.withdrawn;
  if (plan === undefined) return [];
  const waiting = new Set(plan.containers);
  const operations = pod.spec.containers.flatMap((container, index) => {
    const path = `/spec/containers/${index}/lifecycle`;
    // An empty lifecycle that remains is valid.
    if (decision.released?.has(container.name)) return releaseOperations(container, path, decision.released);
    return waiting.has(container.name) ? hookOperations(container, path, plan) : [];
  });
  if (pod.spec.terminationGracePeriodSeconds !== plan.grace)
    operations.push({ op: 'add', path: GRACE, value: plan.grace });
  return [...operations, ...annotationOperations(pod, renderPlan(plan))];
}

/**
 * The operations that take a plan out of a pod again: its hooks where they still are as the plan says, the grace where
 * it has not been changed since, and the annotation. What an author wrote stays, but for an explicit grace of 30 s,
 * which is what an absent one means. None for a pod without a plan.
 */
export function undoFor(pod: unknown): readonly Operation[] {
  if (problemOf(pod) !== undefined) return [];
  const { plan, carriers } = earlierPass(pod as Pod, Number.POSITIVE_INFINITY);
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
  const isAlone = Object.keys(metadata?.annotations ?? {}).length === 1;
  return [
    ...operations,
    { op: 'remove', path: isAlone ? ANNOTATIONS : pointer(ANNOTATIONS, ANNOTATION.plan) },
  ];
}

function hookOperations({ lifecycle }: Container, path: string, plan: Plan): Operation[] {
  const handler = lifecycle?.preStop;
  if (handler) return secondsOperations(handler, path, plan.wait);
  const preStop = HOOKS[plan.hook].render(plan.wait);
  return lifecycle
    ? [{ op: 'add', path: `${path}/preStop`, value: preStop }]
    : [{ op: 'add', path, value: { preStop } }];
}

/** The author's own seconds are put back; where there are none, the hook goes. */
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

function annotationOperations(pod: Pod, text: string): Operation[] {
  const annotations = { [ANNOTATION.plan]: text };
  if (!pod.metadata) return [{ op: 'add', path: '/metadata', value: { annotations } }];
  if (!pod.metadata.annotations) return [{ op: 'add', path: ANNOTATIONS, value: annotations }];
  if (labelOf(annotationsOf(pod), ANNOTATION.plan) === text) return [];
  return [{ op: 'add', path: pointer(ANNOTATIONS, ANNOTATION.plan), value: text }];
}
