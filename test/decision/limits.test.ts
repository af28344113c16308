import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decide } from '../../src/decision/decide.ts';
import { patchFor } from '../../src/decision/patch.ts';
import { essentialsOf, isTooLarge, type Pod, problemOf } from '../../src/decision/pod.ts';
import { arbitraryPod } from './arbitrary-pod.ts';
import { arbitraryWorld } from './arbitrary-policy.ts';
import { annotated, creationOf, pod, server } from './sample-pod.ts';
import { clusterPolicy, worldOf } from './sample-world.ts';

describe('the largest pod that is read', () => {
  const containers = Array.from({ length: 1000 }, (_, index) => server(`app-${index}`));
  const labels = Object.fromEntries(Array.from({ length: 1000 }, (_, index) => [`label-${index}`, 'x']));
  const annotations = { note: 'x'.repeat(256 * 1024 - 'note'.length) };

  it('gets its wait', () => {
    const largest = pod({ containers }, { labels, annotations });
    expect(decide(creationOf(largest), worldOf([]))).toMatchObject({ outcome: 'inject' });
  });
});

describe('what a decision reads of a pod', () => {
  it('makes the same decision and the same patch as the whole pod', () => {
    fc.assert(
      fc.property(arbitraryPod, arbitraryWorld, (object, world) => {
        const whole = problemOf(object) === undefined ? (object as unknown as Pod) : undefined;
        if (whole === undefined || isTooLarge(whole)) return;
        const essentials = essentialsOf(whole);
        const decision = decide(creationOf(essentials), world);
        expect(decision).toEqual(decide(creationOf(object), world));
        expect(patchFor(essentials, decision)).toEqual(patchFor(whole, decision));
      }),
      { numRuns: 500 },
    );
  });

  it('is little, however much is in the pod', () => {
    const env = Array.from({ length: 10_000 }, (_, index) => ({ name: `N${index}`, value: 'x' }));
    const preStop = { exec: { command: env.map(({ name }) => name) } };
    const large = pod({ containers: [server('app', { env, lifecycle: { preStop } })], volumes: env });
    expect(JSON.stringify(essentialsOf(large as never)).length).toBeLessThan(300);
  });
});

describe('values of annotations that take long to read', () => {
  const many = (count: number) => Array.from({ length: count }, (_, index) => index).join();
  const own = (annotations: Record<string, string>) =>
    decide(creationOf(annotated(annotations)), worldOf([clusterPolicy({})])).notes.map(({ code }) => code);

  it.each([
    ['more names than containers can be', many(1001)],
    ['a text longer than as many names', ' '.repeat(64_001)],
  ])('linger.dev/containers: %s does not parse', (_, text) => {
    expect(own({ 'linger.dev/containers': text })).toEqual(['InvalidAnnotation']);
  });

  it('linger.dev/plan: a text longer than any plan is stale', () => {
    expect(own({ 'linger.dev/plan': `{"v":1,"containers":[${many(20_000)}]}` })).toEqual(['StalePlan']);
  });
});
