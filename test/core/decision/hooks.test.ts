import { describe, expect, it, test } from 'vitest';
import { decide } from '../../../src/core/decision/decide.ts';
import { patchFor } from '../../../src/core/decision/patch.ts';
import type { Pod } from '../../../src/core/decision/pod.ts';
import { pass } from './sample-pass.ts';
import {
  codesOf,
  container,
  creationOf,
  exec,
  type JsonObject,
  type PodObject,
  patched,
  pod,
  podOf,
  preStop,
  server,
  sleep,
} from './sample-pod.ts';
import { clusterPolicy, snapshotOf } from './sample-snapshot.ts';

const extend = clusterPolicy({ existingHook: 'Extend' });

/** The containers as they come out: the built-in wait of 30 s. */
function containersOf(object: PodObject, documents: readonly JsonObject[] = []) {
  const decision = decide(creationOf(object), snapshotOf(documents));
  const { spec } = patched(object, patchFor(object as unknown as Pod, decision));
  return { decision, containers: spec.containers, spec };
}

describe('containers', () => {
  it('every ordinary one gets the hook; grace rises by the wait once', () => {
    const { decision, spec } = containersOf(podOf(server('a'), container('b'), container('c')));
    expect(decision).toMatchObject({ plan: { containers: ['a', 'b', 'c'], wait: 30, grace: 60 } });
    expect(spec.containers.map(({ lifecycle }) => lifecycle)).toEqual(Array(3).fill({ preStop: sleep(30) }));
  });

  it('native sidecars and init containers get none', () => {
    const initContainers = [container('proxy', { restartPolicy: 'Always' }), container('migrate')];
    const { decision, spec } = containersOf(pod({ initContainers }));
    expect(decision).toMatchObject({ plan: { containers: ['app'] } });
    expect(spec.initContainers).toEqual(initContainers);
  });

  it('only those that the policy names', () => {
    const documents = [clusterPolicy({ containers: ['c', 'a'] })];
    const { decision, containers } = containersOf(
      podOf(server('a'), container('b'), container('c')),
      documents,
    );
    expect(decision).toMatchObject({ plan: { containers: ['a', 'c'] } });
    expect(containers[1]).toEqual(container('b'));
  });

  it('a name that the pod does not have is noted', () => {
    const { decision } = containersOf(podOf(server('a')), [clusterPolicy({ containers: ['a', 'z'] })]);
    expect(decision.outcome).toBe('inject');
    expect(decision.notes).toMatchObject([
      { code: 'UnknownContainer', text: expect.stringContaining('"z"') },
    ]);
  });
});

describe('Keep never touches a container’s own hook', () => {
  test.each([
    ['sleep', sleep(5), 'waits 5s'],
    ['sleep: 0, an opt-out', sleep(0), 'waits 0s'],
    ['exec sleep', exec('sleep', '5'), 'waits 5s'],
    ['exec', exec('/drain'), 'waits for an unknown time'],
    ['httpGet', { httpGet: { path: '/drain', port: 80 } }, 'waits for an unknown time'],
    ['tcpSocket, which the kubelet does not run', { tcpSocket: { port: 80 } }, 'waits 0s'],
  ])('%s', (_, handler, waits) => {
    const own = server('own', preStop(handler));
    const { decision, containers } = containersOf(podOf(own, container('free')));
    expect(decision).toMatchObject({ plan: { containers: ['free'] } });
    expect(decision.notes).toMatchObject([
      {
        code: 'ExistingHookKept',
        text: expect.stringContaining(`"own" keeps its own preStop hook, which ${waits}`),
      },
      ...(waits.includes('unknown') ? [] : [{ code: 'PartialWait', text: expect.stringContaining('"own"') }]),
    ]);
    expect(containers).toEqual([own, container('free', preStop(sleep(30)))]);
  });
});

describe('Extend lengthens exactly these forms', () => {
  test.each<[string, JsonObject, JsonObject]>([
    ['native sleep', sleep(1), sleep(30)],
    ['native sleep, a second short', sleep(29), sleep(30)],
    ['sleep N', exec('sleep', '5'), exec('sleep', '30')],
    ['/bin/sleep N', exec('/bin/sleep', '5'), exec('/bin/sleep', '30')],
    ['sleep Ns', exec('sleep', '5s'), exec('sleep', '30s')],
    ['sh -c "sleep N"', exec('sh', '-c', 'sleep 5'), exec('sh', '-c', 'sleep 30')],
    ['/bin/sh -c "sleep Ns"', exec('/bin/sh', '-c', 'sleep 5s'), exec('/bin/sh', '-c', 'sleep 30s')],
  ])('%s', (_, own, lengthened) => {
    const object = podOf(server('app', preStop(own)));
    const { decision, containers } = containersOf(object, [extend]);
    expect(decision).toMatchObject({ outcome: 'inject', plan: { wait: 30, containers: ['app'] } });
    expect(codesOf(decision)).toEqual(['HookExtended']);
    expect(containers[0]).toEqual(server('app', preStop(lengthened)));
  });

  test.each<[string, JsonObject]>([
    ['longer than the wait', sleep(31)],
    ['sh longer than the wait', exec('sh', '-c', 'sleep 300')],
    ['sleep: 0', sleep(0)],
    ['no seconds', { sleep: {} }],
    ['sleep 0', exec('sleep', '0')],
    ['sleep with a longer unit', exec('sleep', '5m')],
    ['sleep with a fraction', exec('sleep', '1.5')],
    ['sleep with a sign', exec('sleep', '+5')],
    ['sleep with a leading zero', exec('sleep', '05')],
    ['sleep with a space', exec('sleep', '5 ')],
    ['sleep with a newline', exec('sleep', '5\n')],
    ['sleep in hexadecimal', exec('sleep', '0x5')],
    ['sleep with two arguments', exec('sleep', '5', '5')],
    ['sleep alone', exec('sleep')],
    ['sleep in one word', exec('sleep 5')],
    ['another path', exec('/usr/bin/sleep', '5')],
    ['another program', exec('usleep', '5')],
    ['another shell', exec('/bin/ash', '-c', 'sleep 5')],
    ['bash', exec('bash', '-c', 'sleep 5')],
    ['sh with other flags', exec('sh', '-ec', 'sleep 5')],
    ['sh and more', exec('sh', '-c', 'sleep 5; nginx -s quit')],
    ['sh, and then', exec('sh', '-c', 'sleep 5 && true')],
    ['sh, two spaces', exec('sh', '-c', 'sleep  5')],
    ['sh, a space before', exec('sh', '-c', ' sleep 5')],
    ['sh, a newline after', exec('sh', '-c', 'sleep 5\n')],
    ['sh, a path', exec('sh', '-c', '/bin/sleep 5')],
    ['sh, zero', exec('sh', '-c', 'sleep 0')],
    ['sh, a variable', exec('sh', '-c', 'sleep $N')],
    ['sh with an argument', exec('sh', '-c', 'sleep 5', 'x')],
    ['httpGet', { httpGet: { path: '/', port: 80 } }],
  ])('and keeps anything else: %s', (_, own) => {
    const object = podOf(server('app', preStop(own)), container('free'));
    const { decision, containers } = containersOf(object, [extend]);
    expect(decision).toMatchObject({ plan: { containers: ['free'] } });
    expect(containers[0]).toEqual(object.spec.containers[0]);
  });

  describe('and all of them by the same, so that their order stays', () => {
    const fixed45 = clusterPolicy({ existingHook: 'Extend', wait: { from: 'Fixed', fixed: '45s' } });
    const sleeping = (...seconds: number[]) =>
      podOf(
        ...seconds.map((each, index) => server(`c${index}`, each ? preStop(exec('sleep', `${each}`)) : {})),
      );
    const sleepsOf = (object: PodObject) =>
      containersOf(object, [fixed45])
        .containers.map(
          ({ lifecycle }) =>
            (lifecycle as { preStop: { exec?: { command: string[] }; sleep?: { seconds: number } } }).preStop,
        )
        .map((handler) => Number(handler.exec?.command[1] ?? handler.sleep?.seconds));

    test.each<[number, number[], number[]]>([
      [160, [20, 40], [45, 65]],
      [160, [40, 20], [65, 45]],
      [160, [10, 20, 30], [45, 55, 65]],
      [160, [20, 40, 46], [45, 65, 71]],
      [160, [20, 20], [45, 45]],
      [160, [45, 60], [45, 60]],
      [160, [0, 20, 40], [45, 65, 85]],
      [160, [0, 45], [45, 90]],
      [160, [0, 46], [45, 46]],
      [30, [20, 29], [45, 54]],
      // The sleep of 590 s has no room in a grace of at most 600 s.
      [600, [20, 590], [20, 590]],
      [600, [0, 20, 590], [45, 20, 590]],
      [600, [5], [45]],
    ])('in a grace of %d: %j become %j', (grace, own, expected) => {
      const object = sleeping(...own);
      object.spec.terminationGracePeriodSeconds = grace;
      expect(sleepsOf(object)).toEqual(expected);
    });

    it('also when the grace is cut, and they go back together', () => {
      const object = sleeping(20, 40);
      object.spec.terminationGracePeriodSeconds = 60;
      const snapshot = snapshotOf([fixed45]);
      const { result } = pass(object, snapshot);
      expect(result.spec.terminationGracePeriodSeconds).toBe(105);
      result.spec.terminationGracePeriodSeconds = 100;
      const cut = pass(result, snapshot);
      expect(cut.result.spec.containers).toMatchObject(sleeping(40, 60).spec.containers);
      expect(pass(cut.result, snapshot).operations).toEqual([]);
      result.spec.terminationGracePeriodSeconds = 50;
      expect(pass(result, snapshot).result.spec.containers).toMatchObject(object.spec.containers);
    });
  });

  it('a hook that is not lengthened after all is not said to be', () => {
    const object = podOf(server('app', preStop(exec('sleep', '5'))));
    const documents = [clusterPolicy({ existingHook: 'Extend', hook: 'Exec' })];
    const windows = { ...object, spec: { ...object.spec, os: { name: 'windows' } } };
    const decision = decide(creationOf(windows), snapshotOf(documents));
    expect(decision).toMatchObject({ outcome: 'skip', reason: 'NoHook' });
    expect(codesOf(decision)).not.toContain('HookExtended');
  });
});
