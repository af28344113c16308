import type { JsonObject } from './sample-pod.ts';

/** The plan annotation that the built-in policy gives to a pod with one container `app`, with other members. */
export function samplePlan(members: JsonObject = {}): string {
  return JSON.stringify({
    v: 1,
    wait: 30,
    grace: 60,
    baseGrace: 30,
    hook: 'Sleep',
    containers: ['app'],
    policy: 'built-in',
    why: 'initial',
    ...members,
  });
}
