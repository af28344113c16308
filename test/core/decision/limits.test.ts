import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decide, screen } from '../../../src/core/decision/decide.ts';
import { patchFor } from '../../../src/core/decision/patch.ts';
import type { Pod } from '../../../src/core/decision/pod.ts';
import { essentialsOf } from '../../../src/core/decision/pod-members.ts';
import { randomOf } from '../../property/random.ts';
import { runs } from '../../property/runs.ts';
import { arbitraryOddPod } from './arbitrary-pod.ts';
import { arbitraryHeldSnapshot, arbitrarySnapshot } from './arbitrary-policy.ts';
import { withMembers } from './kubernetes-members.ts';
import { holdToken } from './sample-hold.ts';
import { lives, reviewOf } from './sample-pass.ts';
import { annotated, creationOf, type PodObject, pod, server } from './sample-pod.ts';
import { clusterPolicy, snapshotOf } from './sample-snapshot.ts';

describe('the largest pod that is read', () => {
  const containers = Array.from({ length: 1000 }, (_, index) => server(`app-${index}`));
  const labels = Object.fromEntries(Array.from({ length: 1000 }, (_, index) => [`label-${index}`, 'x']));
  const annotations = { note: 'x'.repeat(256 * 1024 - 'note'.length) };

  it('gets its wait', () => {
    const largest = pod({ containers }, { labels, annotations });
    expect(decide(creationOf(largest), snapshotOf([]))).toMatchObject({ outcome: 'inject' });
  });
});

const SNAPSHOTS = fc.oneof(arbitrarySnapshot, arbitraryHeldSnapshot);

describe('what a decision reads of a pod', () => {
  it('makes the same decision and the same patch as the whole pod', () => {
    fc.assert(
      fc.property(arbitraryOddPod, SNAPSHOTS, fc.nat(), (object, snapshot, seed) => {
        const check = (each: PodObject) => {
          const token = holdToken();
          if (screen(reviewOf(each, snapshot, token)) !== undefined) return;
          const whole = each as unknown as Pod;
          const essentials = essentialsOf(whole);
          const decision = decide(reviewOf(essentials, snapshot, token), snapshot);
          expect(decision).toEqual(decide(reviewOf(each, snapshot, token), snapshot));
          expect(patchFor(essentials, decision)).toEqual(patchFor(whole, decision));
        };
        const random = randomOf(seed);
        for (const each of lives(object, snapshot)) check(withMembers(each, 'V1Pod', random));
      }),
      runs(250),
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
    decide(creationOf(annotated(annotations)), snapshotOf([clusterPolicy({})])).notes.map(({ code }) => code);

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
