import { describe, expect, it, test } from 'vitest';
import { pointer } from '../../../src/core/api/index.ts';
import { decide } from '../../../src/core/decision/decide.ts';
import { type Operation, patchFor } from '../../../src/core/decision/patch.ts';
import type { Pod } from '../../../src/core/decision/pod.ts';
import { empiricalDistribution } from './empirical-distribution.ts';
import { samplePlan } from './sample-plan.ts';
import {
  container,
  creationOf,
  exec,
  type JsonObject,
  pod,
  podOf,
  preStop,
  server,
  sleep,
} from './sample-pod.ts';
import { clusterPolicy, snapshotOf } from './sample-snapshot.ts';

function operationsFor(object: JsonObject, spec: JsonObject = {}): readonly Operation[] {
  const decision = decide(creationOf(object), snapshotOf([clusterPolicy(spec)]));
  return patchFor(object as unknown as Pod, decision);
}

const lifecycle = { op: 'add', path: '/spec/containers/0/lifecycle', value: preStop(sleep(30)).lifecycle };
const grace = { op: 'add', path: '/spec/terminationGracePeriodSeconds', value: 60 };
const newAnnotations = {
  op: 'add',
  path: '/metadata/annotations',
  value: { 'linger.dev/plan': samplePlan() },
};
const oneAnnotation = { op: 'add', path: '/metadata/annotations/linger.dev~1plan', value: samplePlan() };

describe('the operations, where annotations are', () => {
  test.each<[string, JsonObject, JsonObject]>([
    ['absent', pod(), newAnnotations],
    ['null', pod({}, { annotations: null }), { ...newAnnotations, op: 'replace' }],
    ['empty', pod({}, { annotations: {} }), oneAnnotation],
    ['present', pod({}, { annotations: { a: 'b' } }), oneAnnotation],
    [
      'absent with all metadata',
      { spec: pod().spec },
      { op: 'add', path: '/metadata', value: { annotations: { 'linger.dev/plan': samplePlan() } } },
    ],
    [
      'null with all metadata',
      { metadata: null, spec: pod().spec },
      { op: 'replace', path: '/metadata', value: { annotations: { 'linger.dev/plan': samplePlan() } } },
    ],
  ])('%s', (_, object, annotation) => {
    expect(operationsFor(object)).toEqual([lifecycle, grace, annotation]);
  });
});

describe('the operation, where the lifecycle is', () => {
  const member = { op: 'add', path: '/spec/containers/0/lifecycle/preStop', value: sleep(30) };
  test.each<[string, JsonObject, JsonObject]>([
    ['absent', {}, lifecycle],
    ['null', { lifecycle: null }, { ...lifecycle, op: 'replace' }],
    ['empty', { lifecycle: {} }, member],
    ['with a null preStop', { lifecycle: { preStop: null } }, { ...member, op: 'replace' }],
    ['with a postStart', { lifecycle: { postStart: exec('/warm-up') } }, member],
    ['with a stopSignal', { lifecycle: { stopSignal: 'SIGQUIT' } }, member],
  ])('%s', (_, members, operation) => {
    expect(operationsFor(podOf(server('app', members)))[0]).toEqual(operation);
  });
});

describe('the operation, where Extend lengthens', () => {
  const at = (rest: string) => `/spec/containers/0/lifecycle/preStop${rest}`;
  test.each<[string, JsonObject, JsonObject]>([
    ['native sleep', sleep(5), { op: 'replace', path: at('/sleep/seconds'), value: 30 }],
    ['sleep N', exec('sleep', '5'), { op: 'replace', path: at('/exec/command/1'), value: '30' }],
    ['/bin/sleep N', exec('/bin/sleep', '5'), { op: 'replace', path: at('/exec/command/1'), value: '30' }],
    ['sh', exec('sh', '-c', 'sleep 5'), { op: 'replace', path: at('/exec/command/2'), value: 'sleep 30' }],
  ])('%s', (_, handler, operation) => {
    const operations = operationsFor(podOf(server('app', preStop(handler))), { existingHook: 'Extend' });
    const value = { 'linger.dev/plan': samplePlan({ extended: { app: 5 }, digest: 'aa4a7361' }) };
    expect(operations).toEqual([operation, grace, { ...newAnnotations, value }]);
  });
});

describe('the operation, where the grace is', () => {
  test.each<[string, JsonObject, string, number]>([
    ['absent', {}, 'add', 60],
    ['null', { terminationGracePeriodSeconds: null }, 'replace', 60],
    ['a number', { terminationGracePeriodSeconds: 45 }, 'replace', 75],
    ['negative', { terminationGracePeriodSeconds: -1 }, 'replace', 31],
  ])('%s', (_, spec, op, value) => {
    expect(operationsFor(pod(spec))).toContainEqual({ ...grace, op, value });
  });

  it('what it shall be already: none', () => {
    const operations = operationsFor(pod({ terminationGracePeriodSeconds: 600 }));
    expect(operations.map(({ path }) => path)).toEqual([
      '/spec/containers/0/lifecycle',
      '/metadata/annotations',
    ]);
  });
});

it('Exec is written as a command without a shell', () => {
  expect(operationsFor(pod(), { hook: 'Exec' })[0]).toMatchObject({
    value: { preStop: exec('sleep', '30') },
  });
});

it('each container has an operation of its own, at its own index', () => {
  const object = podOf(server('a'), container('b', preStop(exec('/drain'))), container('c'));
  expect(operationsFor(object).map(({ op, path }) => `${op} ${path}`)).toEqual([
    'add /spec/containers/0/lifecycle',
    'add /spec/containers/2/lifecycle',
    'add /spec/terminationGracePeriodSeconds',
    'add /metadata/annotations',
  ]);
});

describe('a JSON pointer', () => {
  test.each<[(string | number)[], string]>([
    [['a', 0, 'b'], '/a/0/b'],
    [['linger.dev/plan'], '/linger.dev~1plan'],
    [['a~b'], '/a~0b'],
    [['~1'], '/~01'],
    [['~/~'], '/~0~1~0'],
    [[''], '/'],
  ])('%j is %s', (members, expected) => {
    expect(pointer('', ...members)).toBe(expected);
    expect(pointer('/metadata', ...members)).toBe(`/metadata${expected}`);
  });
});

describe('the plan annotation', () => {
  const annotationOf = (operations: readonly Operation[]) => {
    const last = operations.at(-1);
    const value = last?.op === 'add' ? last.value : undefined;
    return (value as Record<string, string>)['linger.dev/plan'];
  };

  it('is compact JSON in one order, whole seconds, without a time stamp', () => {
    expect(annotationOf(operationsFor(pod()))).toBe(
      '{"v":1,"wait":30,"grace":60,"baseGrace":30,"hook":"Sleep","containers":["app"],"policy":"built-in","why":"initial","digest":"00000000"}',
    );
  });

  it('tells coverage and samples of a measured wait, in four digits', () => {
    const lag = empiricalDistribution([...Array<number>(2997).fill(2), 20, 20, 20], 200_000);
    const decision = decide(creationOf(pod()), snapshotOf([], { lag }));
    expect(annotationOf(patchFor(pod() as unknown as Pod, decision))).toBe(
      '{"v":1,"wait":5,"grace":35,"baseGrace":30,"hook":"Sleep","containers":["app"],"policy":"built-in","why":"measured","coverage":0.999,"samples":3000,"digest":"00000000"}',
    );
  });

  it('a coverage is 1 only where every removal is covered', () => {
    const texts = [0, 1].map((uncovered) => {
      const lag = empiricalDistribution([...Array<number>(29_999).fill(2), uncovered * 20], 200_000);
      const decision = decide(creationOf(pod()), snapshotOf([], { lag }));
      return annotationOf(patchFor(pod() as unknown as Pod, decision));
    });
    expect(texts[0]).toContain('"coverage":1,');
    expect(texts[1]).toContain('"coverage":0.9999,');
  });

  it('names who decided the wait', () => {
    const spec = { wait: { from: 'Fixed', fixed: '10s' } };
    expect(annotationOf(operationsFor(pod(), spec))).toContain('"policy":"ClusterTerminationPolicy/base"');
  });
});
