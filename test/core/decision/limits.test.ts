import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decide, screen } from '../../../src/core/decision/decide.ts';
import { patchFor } from '../../../src/core/decision/patch.ts';
import { essentialsOf, type Pod } from '../../../src/core/decision/pod.ts';
import { members, oftenAbsent } from './arbitrary-json.ts';
import { arbitraryPod } from './arbitrary-pod.ts';
import { arbitraryHeldSnapshot, arbitrarySnapshot } from './arbitrary-policy.ts';
import { HOLD_MOUNTS, HOLD_VOLUMES, holdToken, NOW } from './sample-hold.ts';
import { pass, reviewOf } from './sample-pass.ts';
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

const LOCALHOST = { seccompProfile: { type: 'Localhost', localhostProfile: 'a.json' } };

/** What only Hold looks at, in forms that an API server would take and that it would not. */
const ODDITIES = fc
  .record({
    nodeName: oftenAbsent(fc.constantFrom('node-0', 'elsewhere')),
    runtimeClassName: oftenAbsent(fc.constantFrom('', 'kata', 5)),
    hostNetwork: oftenAbsent(fc.constantFrom(true, 'yes')),
    securityContext: oftenAbsent(fc.constantFrom(LOCALHOST, { seccompProfile: 5 }, 'none')),
    affinity: oftenAbsent(
      fc.constantFrom(1, 300).map((count) => ({
        nodeAffinity: {
          requiredDuringSchedulingIgnoredDuringExecution: {
            nodeSelectorTerms: Array(count).fill({
              matchFields: [{ key: 'metadata.name', operator: 'In', values: ['node-0'] }],
            }),
          },
        },
      })),
    ),
    volumes: oftenAbsent(
      fc.constantFrom<unknown>(
        'many',
        Array(1001).fill({ name: 'a' }),
        [{ name: 'linger-hold', emptyDir: {} }],
        [{ name: 'a' }, { name: 'linger-hold', image: { reference: 'r/x:1' } }],
        [null, ...HOLD_VOLUMES],
      ),
    ),
    ofContainer: fc
      .record({
        volumeMounts: oftenAbsent(
          fc.constantFrom<unknown>(
            5,
            Array(1001).fill({}),
            HOLD_MOUNTS,
            [{ ...HOLD_MOUNTS[0], subPath: 'x' }],
            [
              { name: 'a', mountPath: '/linger.dev/' },
              { name: 'b', mountPath: '/b' },
            ],
          ),
        ),
        volumeDevices: oftenAbsent(fc.constantFrom<unknown>('x', [{ name: 'a', devicePath: '/linger.dev' }])),
        securityContext: oftenAbsent(fc.constantFrom(LOCALHOST, 'none')),
        livenessProbe: oftenAbsent(
          fc.constantFrom({ grpc: {}, periodSeconds: '5' }, { httpGet: {}, periodSeconds: 3 }),
        ),
      })
      .map(members),
  })
  .map((all) => members(all) as typeof all);

describe('what a decision reads of a pod', () => {
  it('makes the same decision and the same patch as the whole pod', () => {
    fc.assert(
      fc.property(
        arbitraryPod,
        fc.oneof(arbitrarySnapshot, arbitraryHeldSnapshot),
        ODDITIES,
        (object, snapshot, { ofContainer, ...ofPod }) => {
          Object.assign(object.spec, ofPod);
          Object.assign(object.spec.containers[0] ?? {}, ofContainer);
          const check = (each: PodObject) => {
            const token = holdToken();
            if (screen(reviewOf(each, snapshot, token)) !== undefined) return;
            const whole = each as unknown as Pod;
            const essentials = essentialsOf(whole);
            const decision = decide(reviewOf(essentials, snapshot, token), snapshot);
            expect(decision).toEqual(decide(reviewOf(each, snapshot, token), snapshot));
            expect(patchFor(essentials, decision)).toEqual(patchFor(whole, decision));
          };
          check(object);
          // With its hooks, and with those of another pod.
          check(pass(object, snapshot).result);
          check(pass(object, snapshot, holdToken(NOW - 3600)).result);
          const { result } = pass(object, snapshot);
          for (const { lifecycle } of result.spec.containers) {
            const handler = (lifecycle as { readonly preStop?: object } | undefined)?.preStop;
            if (handler) Object.assign(handler, { httpGet: { path: '/drain', port: 80 } });
          }
          check(result);
        },
      ),
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
