import { describe, expect, it, test } from 'vitest';
import { decide } from '../../src/decision/decide.ts';
import { warningsOf } from '../../src/decision/reasons.ts';
import {
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
