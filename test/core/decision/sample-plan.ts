import type { JsonObject } from './sample-pod.ts';

/** What the built-in policy records on a pod with one container `app`. */
export const PLAN = {
  v: 1,
  wait: 30,
  grace: 60,
  baseGrace: 30,
  hook: 'Sleep',
  containers: ['app'],
  policy: 'built-in',
  why: 'initial',
  digest: '00000000',
};

/** The annotation with it, with other members. */
export function samplePlan(members: JsonObject = {}): string {
  const { digest, ...others } = { ...PLAN, ...members };
  return JSON.stringify({ ...others, digest });
}
