import { describe, expect, it, test } from 'vitest';
import { altered, pass } from './sample-pass.ts';
import { samplePlan } from './sample-plan.ts';
import {
  codesOf,
  container,
  exec,
  type JsonObject,
  type PodObject,
  pod,
  podOf,
  preStop,
  server,
  sleep,
} from './sample-pod.ts';
import { clusterPolicy, snapshotOf } from './sample-snapshot.ts';

const MANY = ['app', ...Array.from({ length: 1000 }, (_, index) => `c${index}`)];

describe('a plan annotation counts only when the hooks it claims are really there', () => {
  const withHook = (handler: JsonObject, plan: string, grace = 60) =>
    pod(
      { containers: [server('app', preStop(handler))], terminationGracePeriodSeconds: grace },
      { annotations: { 'linger.dev/plan': plan } },
    );

  test.each<[string, string]>([
    ['copied from another pod', samplePlan()],
    ['of another container', samplePlan({ containers: ['other'] })],
    ['no JSON', '{"v":1'],
    ['empty', ''],
    ['null', 'null'],
    ['a list', '[]'],
    ['with a __proto__', '{"__proto__":{"v":1}}'],
  ])('%s, on a pod without hooks: ignored, noted and replaced', (_, text) => {
    const object = pod({}, { annotations: { 'linger.dev/plan': text } });
    const { decision, result } = pass(object);
    expect(codesOf(decision)).toContain('StalePlan');
    expect(result).toEqual({
      ...pass(pod()).result,
      metadata: { ...object.metadata, annotations: { 'linger.dev/plan': samplePlan() } },
    });
    expect(pass(result).operations).toEqual([]);
  });

  test.each<[string, PodObject]>([
    ['another number in the hook', withHook(sleep(20), samplePlan())],
    ['another kind of hook', withHook(exec('/drain'), samplePlan())],
    ['sleep and more', withHook(exec('sh', '-c', 'sleep 30; drain'), samplePlan())],
    ['no container', withHook(sleep(30), samplePlan({ containers: [] }))],
    ['another version', withHook(sleep(30), samplePlan({ v: 2 }))],
    ['a wait longer than the grace', withHook(sleep(30), samplePlan({ grace: 29 }))],
    ['a fraction', withHook(sleep(30), samplePlan({ grace: 60.5 }))],
    ['a negative base', withHook(sleep(30), samplePlan({ baseGrace: -1 }))],
    ['an unknown hook', withHook(sleep(30), samplePlan({ hook: 'Hold' }))],
    ['a container that is no name', withHook(sleep(30), samplePlan({ containers: ['app', 7] }))],
    ['more containers than a pod that is read', withHook(sleep(30), samplePlan({ containers: MANY }))],
    ['an unknown why', withHook(sleep(30), samplePlan({ why: 'because' }))],
  ])('%s: ignored, and the hook is its author’s', (_, object) => {
    const { decision, operations } = pass(object);
    expect(decision).toMatchObject({ outcome: 'skip', reason: 'ExistingHook' });
    expect(codesOf(decision)).toContain('StalePlan');
    expect(operations).toEqual([]);
  });

  test.each([30, 60, 3600])(
    'one that claims to be withdrawn, on a pod whose grace of %d has room, is ignored',
    (grace) => {
      const text = samplePlan({ wait: 0, grace: 3600, containers: [] });
      const object = pod(
        { terminationGracePeriodSeconds: grace },
        { annotations: { 'linger.dev/plan': text } },
      );
      const { decision } = pass(object);
      expect(decision).toMatchObject({ outcome: 'inject', plan: { wait: 30 } });
      expect(codesOf(decision)).toContain('StalePlan');
    },
  );

  it('one that claims to have lengthened a longer sleep orders no longer one', () => {
    const { result } = pass(withHook(sleep(30), samplePlan({ extended: { app: 500 } }), 50));
    expect(result.spec.containers[0]).not.toMatchObject(preStop(sleep(500)));
  });

  it('a hook that it claims and that is there is Linger’s, whatever else it claims', () => {
    const object = withHook(sleep(30), samplePlan({ containers: ['app', 'b'] }));
    const { decision, result } = pass(object);
    expect(codesOf(decision)).toContain('StalePlan');
    expect(result.metadata.annotations).toEqual({ 'linger.dev/plan': samplePlan() });
    expect(result.spec).toEqual(object.spec);
  });

  it('a wait above the ceiling of the policy in force is lowered to it, and the grace stays', () => {
    const snapshot = snapshotOf([clusterPolicy({ ceiling: { wait: '20s' } })]);
    const { decision, result } = pass(pass(pod()).result, snapshot);
    expect(decision).toMatchObject({ outcome: 'inject', plan: { wait: 20, grace: 60, baseGrace: 30 } });
    expect(codesOf(decision)).toEqual(['WaitShrunk']);
    expect(result.spec.containers).toEqual([server('app', preStop(sleep(20)))]);
    result.spec.containers.push(container('added'));
    const again = pass(result, snapshot).result.spec;
    expect(again.terminationGracePeriodSeconds).toBe(60);
    expect(again.containers[1]).toEqual(container('added', preStop(sleep(20))));
  });

  it('a ceiling of 0 takes the hook back', () => {
    const snapshot = snapshotOf([clusterPolicy({ ceiling: { wait: '0s' } })]);
    const { decision, result } = pass(pass(pod()).result, snapshot);
    expect(decision).toMatchObject({ outcome: 'skip', reason: 'NoWait' });
    expect(result.spec.containers).toEqual([server('app')]);
    expect(pass(result, snapshot).operations).toEqual([]);
  });

  it('hooks whose containers have swapped names are still Linger’s, and shrink with the grace', () => {
    const snapshot = snapshotOf([clusterPolicy({ existingHook: 'Extend' })]);
    const first = pass(podOf(server('a'), container('b', preStop(exec('sleep', '5')))), snapshot).result;
    const [a, b] = first.spec.containers;
    if (a === undefined || b === undefined) throw new Error('expected two containers');
    [a.name, b.name] = [b.name, a.name];
    first.spec.terminationGracePeriodSeconds = 10;
    const { result } = pass(first, snapshot);
    expect(result.spec.containers).toEqual([
      { ...server('a', preStop(sleep(1))), name: 'b' },
      { ...container('b', preStop(exec('sleep', '5'))), name: 'a' },
    ]);
  });

  it('one of two hooks gone: it is put back, and the note says so', () => {
    const object = altered(podOf(server('a'), container('b')), ({ spec }) => {
      delete spec.containers[1]?.lifecycle;
    });
    const { decision, result } = pass(object);
    expect(codesOf(decision)).toContain('StalePlan');
    expect(result.spec.containers[1]).toEqual(container('b', preStop(sleep(30))));
    expect(pass(result).operations).toEqual([]);
  });
});
