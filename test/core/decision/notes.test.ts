import { describe, expect, it, test } from 'vitest';
import { decide } from '../../../src/core/decision/decide.ts';
import { explain, parsePlan, workloadOf } from '../../../src/core/decision/index.ts';
import { warningsOf } from '../../../src/core/decision/reasons.ts';
import { altered, cutTo, pass } from './sample-pass.ts';
import {
  annotationsOf,
  container,
  creationOf,
  exec,
  type JsonObject,
  ownedBy,
  type PodObject,
  pod,
  podOf,
  preStop,
  server,
  sleep,
} from './sample-pod.ts';
import { clusterPolicy, service, snapshotOf } from './sample-snapshot.ts';

const decided = (object: PodObject, documents: readonly JsonObject[] = []) =>
  decide(creationOf(object), snapshotOf(documents));
const textsOf = (code: string, object: PodObject, documents: readonly JsonObject[] = []) =>
  decided(object, documents)
    .notes.filter((each) => each.code === code)
    .map(({ text }) => text);

describe('ShutdownShortened: the wait takes time from the application’s own shutdown', () => {
  const graced = (terminationGracePeriodSeconds: number) => pod({ terminationGracePeriodSeconds });

  test.each([
    [600, ['the application has 570s of its 600s left after the wait: the grace is 600s']],
    [590, ['the application has 570s of its 590s left after the wait: the grace is 600s']],
    [570, []],
    [30, []],
  ])('a grace of %d', (grace, expected) => {
    expect(textsOf('ShutdownShortened', graced(grace))).toEqual(expected);
    expect(warningsOf(decided(graced(grace)).notes)).toEqual([]);
  });
});

describe('PartialWait: some containers may get SIGTERM sooner', () => {
  test.each<[string, PodObject, JsonObject[], string[]]>([
    ['every container waits', podOf(server('a'), container('b')), [], []],
    [
      'one keeps a shorter sleep',
      podOf(server('a'), container('b', preStop(sleep(5)))),
      [],
      ['container "b": no wait of 30s; SIGTERM may come sooner than in the others'],
    ],
    ['one keeps a sleep of as long', podOf(server('a'), container('b', preStop(sleep(30)))), [], []],
    [
      'one has a hook that may be as long or not',
      podOf(server('a'), container('b', preStop(exec('/drain')))),
      [],
      [],
    ],
    [
      'one is not named by the policy',
      podOf(server('a'), container('b'), container('c')),
      [clusterPolicy({ containers: ['a'] })],
      ['containers "b", "c": no wait of 30s; SIGTERM may come sooner than in the others'],
    ],
  ])('%s', (_, object, documents, expected) => {
    expect(textsOf('PartialWait', object, documents)).toEqual(expected);
  });
});

describe('DaemonSetServing: an excluded DaemonSet that receives traffic', () => {
  const daemon = pod({}, ownedBy('DaemonSet'));
  const selecting = service({ selector: { app: 'web' } });

  it('is noted where a Service selects its pods', () => {
    const labelled = pod({}, { ...ownedBy('DaemonSet'), labels: { app: 'web' } });
    expect(decided(labelled, [selecting])).toMatchObject({ reason: 'DaemonSet' });
    expect(textsOf('DaemonSetServing', labelled, [selecting])).toEqual([
      expect.stringContaining('linger.dev/inject: "true"'),
    ]);
  });

  it('is not where none does, or none is known', () => {
    expect(textsOf('DaemonSetServing', daemon)).toEqual([]);
    expect(textsOf('DaemonSetServing', daemon, [service({ selector: { app: 'api' } })])).toEqual([]);
  });
});

test('an explanation of running pods says where something has cut their grace', () => {
  const snapshot = snapshotOf([clusterPolicy({ wait: { from: 'Fixed', fixed: '30s' } })]);
  const planIn = (object: PodObject) => parsePlan(annotationsOf(object)['linger.dev/plan'] ?? '')!;
  const whole = pass(pod(), snapshot).result;
  const cut = pass(altered(pod(), cutTo(45), snapshot), snapshot).result;
  const saidOf = (running: PodObject, now = snapshot) => {
    const workload = workloadOf({ apiVersion: 'v1', kind: 'Pod', ...pod() })!;
    const { decision } = pass(pod(), now);
    const { notes } = explain({ workload, namespace: 'shop', decision }, [planIn(running)]);
    return notes.flatMap(({ code, text }) => (code === 'WaitShrunk' ? [text] : []));
  };
  expect(saidOf(whole)).toEqual([]);
  expect(saidOf(cut)).toEqual([
    expect.stringMatching(/^running pods wait 15s instead of 30s.*from 60s to 45s/),
  ]);
  // Under another policy, the shorter wait is that of the former one.
  const other = snapshotOf([clusterPolicy({ wait: { from: 'Fixed', fixed: '40s' } })]);
  expect(saidOf(cut, other)).toEqual([]);
});
