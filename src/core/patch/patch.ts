import { ANNOTATION } from '../catalog/vocabulary.ts';
import { labelOf } from '../cluster/selector.ts';
import { HOOKS, sleepForm } from '../plan/hook.ts';
import { type Decision, type Plan, type Released, renderPlan } from '../plan/plan.ts';
import { annotationsOf, type Container, type LifecycleHandler, type Pod } from '../plan/pod.ts';
import { type Operation, pointer } from './operation.ts';

/**
 * The few operations that turn the pod into what the decision says: a comparison, so a pod that is already so
 * yields none. Paths are those of a Pod (or of a pod template). Members are added one by one and no array is ever
 * rewritten: other webhooks' and the author's entries stay where they are.
 */
export function patchFor(pod: Pod, decision: Decision): readonly Operation[] {
  const plan = decision.outcome === 'inject' ? decision.plan : decision.withdrawn;
  if (plan === undefined) return [];
  const operations = pod.spec.containers.flatMap((container, index) =>
    containerOperations(container, pointer('/spec/containers', index), plan, decision.released),
  );
  if (pod.spec.terminationGracePeriodSeconds !== plan.grace) {
    operations.push({ op: 'add', path: '/spec/terminationGracePeriodSeconds', value: plan.grace });
  }
  return [...operations, ...annotationOperations(pod, renderPlan(plan))];
}

function containerOperations(
  container: Container,
  path: string,
  plan: Plan,
  released?: Released,
): Operation[] {
  if (released?.has(container.name)) return releaseOperations(container, path, released.get(container.name));
  return plan.containers.includes(container.name) ? hookOperations(container, path, plan) : [];
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
function releaseOperations(
  { lifecycle }: Container,
  path: string,
  authorsSeconds: number | undefined,
): Operation[] {
  const handler = lifecycle?.preStop;
  if (!handler) return [];
  if (authorsSeconds !== undefined) return secondsOperations(handler, path, authorsSeconds);
  return [{ op: 'remove', path: `${path}/lifecycle/preStop` }];
}

function secondsOperations(handler: LifecycleHandler, path: string, seconds: number): Operation[] {
  const form = sleepForm(handler);
  if (form === undefined || form.seconds === seconds) return [];
  return [{ op: 'replace', path: `${path}/lifecycle/preStop${form.pointer}`, value: form.render(seconds) }];
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
