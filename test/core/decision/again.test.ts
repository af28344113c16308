import { describe, expect, it, test } from 'vitest';
import type { ClusterSnapshot } from '../../../src/core/decision/cluster-snapshot.ts';
import { explain } from '../../../src/core/decision/explanation.ts';
import { warningsOf } from '../../../src/core/decision/reasons.ts';
import { altered, cutTo, pass } from './sample-pass.ts';
import { samplePlan } from './sample-plan.ts';
import {
  type ContainerObject,
  codesOf,
  container,
  exec,
  type PodObject,
  planIn,
  pod,
  podOf,
  preStop,
  server,
  sleep,
} from './sample-pod.ts';
import { clusterPolicy, EMPTY_SNAPSHOT, snapshotOf } from './sample-snapshot.ts';

const fixed45 = snapshotOf([clusterPolicy({ wait: { from: 'Fixed', fixed: '45s' } })]);
const extend = snapshotOf([clusterPolicy({ existingHook: 'Extend' })]);

describe('a second pass over its own output yields no operation', () => {
  test.each<[string, PodObject, ClusterSnapshot]>([
    ['one container', pod(), EMPTY_SNAPSHOT],
    ['three containers', podOf(server('a'), container('b'), container('c')), EMPTY_SNAPSHOT],
    [
      'one with a hook of its own',
      podOf(server('a', preStop(exec('/drain'))), container('b')),
      EMPTY_SNAPSHOT,
    ],
    [
      'one with a sleep of just the wait',
      podOf(server('a', preStop(sleep(30))), container('b')),
      EMPTY_SNAPSHOT,
    ],
    ['a lengthened hook', podOf(server('a', preStop(exec('sh', '-c', 'sleep 5'))), container('b')), extend],
    ['a shrunk wait', pod(), snapshotOf([clusterPolicy({ grace: { max: '40s' } })])],
    ['Exec', pod(), snapshotOf([clusterPolicy({ hook: 'Exec' })])],
    ['no grace, no annotations', { ...pod(), metadata: { name: 'web' } }, EMPTY_SNAPSHOT],
    ['a negative grace', pod({ terminationGracePeriodSeconds: -1 }), EMPTY_SNAPSHOT],
  ])('%s', (_, object, snapshot) => {
    const first = pass(object, snapshot);
    expect(first.operations.length).toBeGreaterThan(0);
    const second = pass(first.result, snapshot);
    expect(second.decision).toMatchObject({ outcome: 'skip', reason: 'AlreadyInjected' });
    expect(second.operations).toEqual([]);
  });

  it('and its explanation has the wait that stands', () => {
    const { decision } = pass(pass(pod()).result);
    const workload = {
      kind: 'Pod',
      name: 'web',
      namespace: 'shop',
      ownerKind: undefined,
      pointer: '',
      pod: {},
    };
    expect(explain({ workload, namespace: 'shop', decision })).toMatchObject({
      outcome: 'skip',
      reason: 'AlreadyInjected',
      waitSeconds: 30,
      graceSeconds: 60,
      containers: ['app'],
    });
  });

  it('whatever has been learned or changed meanwhile', () => {
    expect(pass(pass(pod()).result, fixed45).operations).toEqual([]);
  });

  it('also where another webhook has raised the grace', () => {
    expect(pass(altered(pod(), cutTo(90))).operations).toEqual([]);
  });

  it('and a pod that is opted out meanwhile is left as it is', () => {
    const object = altered(pod(), ({ metadata }) =>
      Object.assign(metadata, { labels: { 'linger.dev/inject': 'false' } }),
    );
    expect(pass(object)).toMatchObject({ decision: { reason: 'OptedOut' }, operations: [] });
  });
});

describe('a plan is judged container by container', () => {
  const both = podOf(server('app'), container('helper'));
  const helperOf = ({ spec }: PodObject) => spec.containers[1] ?? container('helper');
  const drop = (result: PodObject) => {
    delete helperOf(result).lifecycle;
  };
  const replace = (result: PodObject) => Object.assign(helperOf(result), preStop(exec('/drain')));

  test.each([
    [
      'replaced',
      replace,
      [server('app', preStop(sleep(2))), container('helper', preStop(exec('/drain')))],
      ['app'],
    ],
    [
      'dropped',
      drop,
      [server('app', preStop(sleep(2))), container('helper', preStop(sleep(2)))],
      ['app', 'helper'],
    ],
  ] as const)(
    'the grace clamped to 20 and one hook %s: no sleep is longer than the grace',
    (_, change, containers, names) => {
      const { decision, result } = pass(
        altered(both, (changed) => {
          cutTo(20)(changed);
          change(changed);
        }),
      );
      expect(decision).toMatchObject({
        outcome: 'inject',
        plan: { wait: 2, grace: 20, baseGrace: 30, containers: names },
      });
      expect(codesOf(decision)).toContain('StalePlan');
      expect(result.spec.containers).toEqual(containers);
      expect(pass(result)).toMatchObject({ decision: { reason: 'AlreadyInjected' }, operations: [] });
    },
  );

  it('a hook that was dropped is put back, and the grace is not raised again', () => {
    const { operations } = pass(altered(both, drop));
    expect(operations).toEqual([
      { op: 'add', path: '/spec/containers/1/lifecycle', value: { preStop: sleep(30) } },
    ]);
  });

  it('nor is it where every hook was dropped', () => {
    const { result } = pass(
      altered(pod(), ({ spec }) => {
        delete spec.containers[0]?.lifecycle;
      }),
    );
    expect(result).toEqual(pass(pod()).result);
  });

  it('every hook dropped and the grace clamped to 50: the clamp stands, the wait shrinks', () => {
    const { decision } = pass(
      altered(pod(), (result) => {
        cutTo(50)(result);
        delete result.spec.containers[0]?.lifecycle;
      }),
    );
    expect(decision).toMatchObject({ outcome: 'inject', plan: { wait: 20, grace: 50, baseGrace: 30 } });
    expect(warningsOf(decision.notes)).toEqual([expect.stringContaining('cut from 60 to 50')]);
  });

  it('the spec put back to what its author wrote: decided as the first time', () => {
    const { result } = pass(
      altered(pod(), (changed) => {
        changed.spec = structuredClone(pod().spec);
      }),
    );
    expect(result).toEqual(pass(pod()).result);
  });

  it('a hook that was replaced is no claim any more', () => {
    const { decision, operations } = pass(altered(both, replace));
    expect(decision).toMatchObject({ plan: { wait: 30, grace: 60, baseGrace: 30, containers: ['app'] } });
    expect(operations).toEqual([
      { op: 'replace', path: '/metadata/annotations/linger.dev~1plan', value: samplePlan({ least: 0 }) },
    ]);
  });

  describe('a hook into which another webhook has merged a handler of its own', () => {
    const merge =
      (...names: readonly string[]) =>
      (result: PodObject) => {
        for (const each of result.spec.containers)
          if (names.includes(each.name)) Object.assign(handlerOf(each), exec('/drain'));
      };
    const handlerOf = (each: ContainerObject | undefined) =>
      (each?.lifecycle as { preStop?: object } | undefined)?.preStop ?? {};
    const hooksOf = ({ spec }: PodObject) => spec.containers.map(handlerOf);

    it('loses Linger’s, or the API server would reject it; the plan says so', () => {
      const { decision, result } = pass(altered(pod(), merge('app')));
      expect(decision).toMatchObject({ outcome: 'skip', reason: 'ExistingHook' });
      expect(hooksOf(result)).toEqual([exec('/drain')]);
      expect(planIn(result)).toMatchObject({ wait: 0, containers: [] });
      expect(pass(result).operations).toEqual([]);
    });

    it('is no claim any more; the other containers keep theirs', () => {
      const { decision, result } = pass(altered(both, merge('helper')));
      expect(decision.outcome).toBe('inject');
      expect(hooksOf(result)).toEqual([sleep(30), exec('/drain')]);
      expect(planIn(result)).toMatchObject({ wait: 30, containers: ['app'] });
      expect(pass(result).operations).toEqual([]);
    });

    it('stays where it is not as the plan says: that is its author’s', () => {
      const changed = altered(pod(), (result) => {
        merge('app')(result);
        Object.assign(handlerOf(result.spec.containers[0]), sleep(7));
      });
      expect(pass(changed).decision).toMatchObject({ outcome: 'skip', reason: 'InvalidPod' });
      expect(pass(changed).operations).toEqual([]);
    });
  });

  it('a container that was renamed keeps its hook, and the hook shrinks with the grace', () => {
    const { result } = pass(
      altered(both, (changed) => {
        cutTo(50)(changed);
        helperOf(changed).name = 'renamed';
      }),
    );
    expect(result.spec.containers[1]).toEqual({
      ...container('helper', preStop(sleep(20))),
      name: 'renamed',
    });
    expect(pass(result).operations).toEqual([]);
  });

  it('a container that is gone is no claim any more', () => {
    const { operations } = pass(altered(both, ({ spec }) => spec.containers.pop()));
    expect(operations.map(({ path }) => path)).toEqual(['/metadata/annotations/linger.dev~1plan']);
  });
});

describe('in mode Audit', () => {
  const snapshot = snapshotOf([clusterPolicy({ mode: 'Audit' })]);

  it('no warning says that a hook is taken back, since none is', () => {
    const { notes } = pass(altered(pod(), cutTo(5)), snapshot).decision;
    expect(notes.map(({ code }) => code)).toEqual(['HookWithdrawn']);
    expect(notes[0]?.text).toContain('Enforce would remove the hook');
    expect(notes[0]?.text).not.toContain('the hook is removed');
  });
});

describe('a container that another webhook added is completed', () => {
  const add =
    (...containers: PodObject['spec']['containers']) =>
    ({ spec }: PodObject) => {
      spec.containers.push(...containers);
    };

  it('with the recorded wait, whatever the policy says by now; the grace stays', () => {
    const { decision, operations } = pass(altered(pod(), add(container('proxy'))), fixed45);
    expect(decision).toMatchObject({
      plan: { wait: 30, grace: 60, baseGrace: 30, containers: ['app', 'proxy'] },
    });
    expect(operations).toEqual([
      { op: 'add', path: '/spec/containers/1/lifecycle', value: { preStop: sleep(30) } },
      {
        op: 'replace',
        path: '/metadata/annotations/linger.dev~1plan',
        value: samplePlan({ containers: ['app', 'proxy'] }),
      },
    ]);
  });

  it('with the recorded hook', () => {
    const exec30 = snapshotOf([clusterPolicy({ hook: 'Exec' })]);
    const { result } = pass(altered(pod(), add(container('proxy')), exec30));
    expect(result.spec.containers[1]).toEqual(container('proxy', preStop(exec('sleep', '30'))));
  });

  it('put in front, it does not disturb the others', () => {
    const { result } = pass(altered(pod(), ({ spec }) => spec.containers.unshift(container('proxy'))));
    expect(result.spec.containers).toEqual([
      container('proxy', preStop(sleep(30))),
      server('app', preStop(sleep(30))),
    ]);
    expect(pass(result).operations).toEqual([]);
  });

  it('unless it has a hook of its own: the plan says what it certainly waits', () => {
    const { operations, result } = pass(altered(pod(), add(container('proxy', preStop(exec('/drain'))))));
    expect(operations).toEqual([
      { op: 'replace', path: '/metadata/annotations/linger.dev~1plan', value: samplePlan({ least: 0 }) },
    ]);
    expect(pass(result).operations).toEqual([]);
  });

  it('unless the policy names others', () => {
    const named = snapshotOf([clusterPolicy({ containers: ['app'] })]);
    expect(pass(altered(pod(), add(container('proxy')), named), named).operations).toEqual([]);
  });
});

describe('a grace that another webhook has cut shrinks the wait by the same rule', () => {
  // wait' = min(30, cut − min(30, 0.9 × cut))
  test.each([
    [59, 29],
    [50, 20],
    [45, 15],
    [40, 10],
    [35, 5],
    [33, 3],
    [30, 3],
    [20, 2],
    [10, 1],
  ])('60 cut to %d: wait %d', (grace, wait) => {
    const { decision, operations, result } = pass(altered(pod(), cutTo(grace)));
    expect(operations).toEqual([
      { op: 'replace', path: '/spec/containers/0/lifecycle/preStop/sleep/seconds', value: wait },
      { op: 'replace', path: '/metadata/annotations/linger.dev~1plan', value: samplePlan({ wait, grace }) },
    ]);
    expect(warningsOf(decision.notes)).toEqual([expect.stringContaining(`${wait}s instead of 30s`)]);
    expect(pass(result).operations).toEqual([]);
  });

  it('in every container and in every form, and completes an added one with what is left', () => {
    const object = podOf(server('a', preStop(exec('sh', '-c', 'sleep 5'))), container('b'));
    const cut = altered(
      object,
      (result) => {
        cutTo(50)(result);
        result.spec.containers.push(container('c'));
      },
      extend,
    );
    const { result } = pass(cut, extend);
    expect(result.spec.containers).toEqual([
      server('a', preStop(exec('sh', '-c', 'sleep 25'))),
      container('b', preStop(sleep(20))),
      container('c', preStop(sleep(20))),
    ]);
    expect(pass(result, extend).operations).toEqual([]);
  });

  test.each([
    [9, 'NoRoom'],
    [5, 'NoRoom'],
    [1, 'NoRoom'],
    [0, 'ZeroGrace'],
  ])('cut to %d, nothing is left: the hook is taken back, and the plan says so (%s)', (grace, reason) => {
    const { decision, operations, result } = pass(altered(pod(), cutTo(grace)));
    expect(decision).toMatchObject({ outcome: 'skip', reason });
    expect(codesOf(decision)).toEqual(['HookWithdrawn']);
    const withdrawn = samplePlan({ wait: 0, grace, containers: [] });
    expect(operations).toEqual([
      { op: 'remove', path: '/spec/containers/0/lifecycle' },
      { op: 'replace', path: '/metadata/annotations/linger.dev~1plan', value: withdrawn },
    ]);
    expect(result.spec.terminationGracePeriodSeconds).toBe(grace);
  });

  test.each([9, 1, 0])('cut to %d and taken back, another pass changes nothing any more', (grace) => {
    const { result } = pass(altered(pod(), cutTo(grace)));
    expect(pass(result).operations).toEqual([]);
  });

  it('taken back, and the grace raised again: decided afresh', () => {
    const { result } = pass(altered(pod(), cutTo(5)));
    cutTo(30)(result);
    expect(pass(result).decision).toMatchObject({ outcome: 'inject', plan: { wait: 30, grace: 60 } });
  });

  it('a hook that its author wrote and we lengthened is not taken away with ours', () => {
    const object = podOf(server('a', preStop(exec('sh', '-c', 'sleep 4'))), container('b'));
    const { result } = pass(altered(object, cutTo(5), extend), extend);
    expect(result.spec.containers).toEqual(object.spec.containers);
  });

  it('nor is it made shorter than its author wrote it', () => {
    const object = podOf(server('a', preStop(sleep(20))));
    const { result } = pass(altered(object, cutTo(40), extend), extend);
    expect(result.spec.containers[0]).toMatchObject(preStop(sleep(20)));
  });
});
