import { ANNOTATION, HOOKS, type LifecycleHandler, labelOf, plainSleep } from '../api/index.ts';
import type { Carriers } from './containers.ts';
import { type Decision, type Plan, renderPlan } from './plan.ts';
import { annotationsOf, type Container, type Pod } from './pod.ts';

/** The operations of RFC 6902 that Linger uses. */
export type Operation =
  | { readonly op: 'add' | 'replace'; readonly path: string; readonly value: unknown }
  | { readonly op: 'remove'; readonly path: string };

/** A JSON pointer (RFC 6901) to a member of what `parent` points to. */
export function pointer(parent: string, ...members: readonly (string | number)[]): string {
  let path = parent;
  for (const member of members) path += `/${escapeMember(String(member))}`;
  return path;
}

/** `~` first, or the `~1` of a slash would be escaped again. */
function escapeMember(member: string): string {
  return member.includes('~') || member.includes('/')
    ? member.replaceAll('~', '~0').replaceAll('/', '~1')
    : member;
}

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
    const path = pointer('/spec/containers', index);
    if (decision.released?.has(container.name)) return releaseOperations(container, path, decision.released);
    return waiting.has(container.name) ? hookOperations(container, path, plan) : [];
  });
  if (pod.spec.terminationGracePeriodSeconds !== plan.grace) {
    operations.push({ op: 'add', path: '/spec/terminationGracePeriodSeconds', value: plan.grace });
  }
  return [...operations, ...annotationOperations(pod, renderPlan(plan))];
}

function hookOperations({ lifecycle }: Container, path: string, plan: Plan): Operation[] {
  const handler = lifecycle?.preStop;
  if (handler) return secondsOperations(handler, path, plan.wait);
  const preStop = HOOKS[plan.hook].render(plan.wait);
  return lifecycle
    ? [{ op: 'add', path: `${path}/lifecycle/preStop`, value: preStop }]
    : [{ op: 'add', path: `${path}/lifecycle`, value: { preStop } }];
}

/** An empty lifecycle that remains is valid. */
function releaseOperations({ name, lifecycle }: Container, path: string, released: Carriers): Operation[] {
  const handler = lifecycle?.preStop;
  if (!handler) return [];
  const authorsSeconds = released.get(name);
  if (authorsSeconds !== undefined) return secondsOperations(handler, path, authorsSeconds);
  return [{ op: 'remove', path: `${path}/lifecycle/preStop` }];
}

function secondsOperations(handler: LifecycleHandler, path: string, seconds: number): Operation[] {
  const sleep = plainSleep(handler);
  if (sleep === undefined || sleep.seconds === seconds) return [];
  return [{ op: 'replace', path: `${path}/lifecycle/preStop${sleep.pointer}`, value: sleep.render(seconds) }];
}

function annotationOperations(pod: Pod, text: string): Operation[] {
  if (!pod.metadata)
    return [{ op: 'add', path: '/metadata', value: { annotations: { [ANNOTATION.plan]: text } } }];
  if (!pod.metadata.annotations) {
    return [{ op: 'add', path: '/metadata/annotations', value: { [ANNOTATION.plan]: text } }];
  }
  if (labelOf(annotationsOf(pod), ANNOTATION.plan) === text) return [];
  return [{ op: 'add', path: pointer('/metadata/annotations', ANNOTATION.plan), value: text }];
}
