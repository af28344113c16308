import { ANNOTATION } from '../catalog/vocabulary.ts';
import { labelOf } from '../cluster/selector.ts';
import { HOOKS, sleepForm } from '../plan/hook.ts';
import { type Decision, type Plan, renderPlan } from '../plan/plan.ts';
import { annotationsOf, type Container, type Pod } from '../plan/pod.ts';
import { type Operation, pointer } from './operation.ts';

/**
 * The few operations that turn the pod into what the decision says: a comparison, so a pod that is already so
 * yields none. Paths are those of a Pod (or of a pod template). Members are added one by one and no array is ever
 * rewritten: other webhooks' and the author's entries stay where they are.
 */
export function patchFor(pod: Pod, decision: Decision): readonly Operation[] {
  if (decision.outcome === 'inject') return planOperations(pod, decision.plan);
  return decision.withdraw === undefined ? [] : withdrawOperations(pod, decision.withdraw);
}

function planOperations(pod: Pod, plan: Plan): readonly Operation[] {
  const operations: Operation[] = [];
  const carriers = new Set(plan.containers);
  pod.spec.containers.forEach((container, index) => {
    if (!carriers.has(container.name)) return;
    const operation = hookOperation(container, pointer('/spec/containers', index), plan);
    if (operation !== undefined) operations.push(operation);
  });
  if (pod.spec.terminationGracePeriodSeconds !== plan.grace) {
    operations.push({ op: 'add', path: '/spec/terminationGracePeriodSeconds', value: plan.grace });
  }
  const annotation = annotationOperation(pod, renderPlan(plan));
  if (annotation !== undefined) operations.push(annotation);
  return operations;
}

function hookOperation({ lifecycle }: Container, path: string, plan: Plan): Operation | undefined {
  const handler = lifecycle?.preStop;
  if (handler) {
    const form = sleepForm(handler);
    if (form === undefined || form.seconds === plan.wait) return undefined;
    return { op: 'replace', path: `${path}/lifecycle/preStop${form.pointer}`, value: form.render(plan.wait) };
  }
  const preStop = HOOKS[plan.hook].render(plan.wait);
  return lifecycle
    ? { op: 'add', path: `${path}/lifecycle/preStop`, value: preStop }
    : { op: 'add', path: `${path}/lifecycle`, value: { preStop } };
}

function annotationOperation(pod: Pod, text: string): Operation | undefined {
  if (!pod.metadata)
    return { op: 'add', path: '/metadata', value: { annotations: { [ANNOTATION.plan]: text } } };
  if (!pod.metadata.annotations) {
    return { op: 'add', path: '/metadata/annotations', value: { [ANNOTATION.plan]: text } };
  }
  if (labelOf(annotationsOf(pod), ANNOTATION.plan) === text) return undefined;
  return { op: 'add', path: pointer('/metadata/annotations', ANNOTATION.plan), value: text };
}

/** Takes our hooks and annotation off again. An empty lifecycle that remains is valid. */
function withdrawOperations(pod: Pod, names: readonly string[]): readonly Operation[] {
  const operations: Operation[] = [];
  pod.spec.containers.forEach(({ name, lifecycle }, index) => {
    if (!names.includes(name) || !lifecycle?.preStop) return;
    operations.push({ op: 'remove', path: pointer('/spec/containers', index, 'lifecycle', 'preStop') });
  });
  operations.push({ op: 'remove', path: pointer('/metadata/annotations', ANNOTATION.plan) });
  return operations;
}
