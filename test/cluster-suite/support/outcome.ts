import type { Cluster, NewObject } from '../../testbed/cluster.ts';
import type { DecisionLine, Linger } from './linger.ts';
import type { ContainerObject, PodObject } from './manifests.ts';

/** The outcome of a pod's creation: the stored pod, and Linger's decisions about it. */
export interface Outcome {
  readonly pod: PodObject;
  /** In order; empty if the API server did not ask. */
  readonly decisions: readonly DecisionLine[];
}

/** Creates a pod and collects what was decided in its namespace meanwhile; nothing else may be created there. */
export async function createPod(
  { cluster, linger }: { cluster: Cluster; linger: Linger },
  object: NewObject,
  options: { readonly dryRun?: boolean } = {},
): Promise<Outcome> {
  const namespace = object.metadata.namespace ?? '';
  const before = await linger.decisions(namespace);
  const pod = await cluster.create<PodObject>(object, options);
  const decisions = (await linger.decisions(namespace)).slice(before.length);
  return { pod, decisions };
}

/**
 * The outcome as a line of a specification: `Injected: app sleep 5; grace 35`, `OptedOut: app -; grace 30`,
 * `not asked: app -; grace 30`. A dash is a container without a preStop hook.
 */
export function summaryOf({ pod, decisions }: Outcome): string {
  const said = decisions.map(({ outcome, reason }) => TITLES[outcome] ?? reason).join(', then ');
  const hooks = pod.spec.containers.map((each) => `${each.name} ${hookOf(each)}`).join(', ');
  return `${said || 'not asked'}: ${hooks}; grace ${pod.spec.terminationGracePeriodSeconds}`;
}

const TITLES: Readonly<Record<string, string>> = { inject: 'Injected', audit: 'Audit' };

/** `sleep 5` for the native hook, the command for an exec hook, `-` for none. */
export function hookOf({ lifecycle }: ContainerObject): string {
  const handler = lifecycle?.preStop as { sleep?: { seconds?: number }; exec?: { command: string[] } };
  if (handler === undefined) return '-';
  // seconds: 0 is left out by the API server, which knows it as the zero value.
  if (handler.sleep !== undefined) return `sleep ${handler.sleep.seconds ?? 0}`;
  return handler.exec === undefined ? JSON.stringify(handler) : JSON.stringify(handler.exec.command);
}

export interface PlanAnnotation {
  readonly wait: number;
  readonly grace: number;
  readonly baseGrace: number;
  readonly hook: string;
  readonly containers: readonly string[];
}

/** The linger.dev/plan annotation, or undefined where there is none. */
export function planOf({ metadata }: PodObject): PlanAnnotation | undefined {
  const text = metadata.annotations?.['linger.dev/plan'];
  return text === undefined ? undefined : (JSON.parse(text) as PlanAnnotation);
}
