import { describe, expect, it, test } from 'vitest';
import { decide } from '../../../src/core/decision/decide.ts';
import { patchFor } from '../../../src/core/decision/patch.ts';
import type { Pod } from '../../../src/core/decision/pod.ts';
import { warningsOf } from '../../../src/core/decision/reasons.ts';
import {
  codesOf,
  container,
  creationOf,
  exec,
  type JsonObject,
  patched,
  pod,
  podOf,
  preStop,
  server,
  sleep,
} from './sample-pod.ts';
import { clusterPolicy, snapshotOf } from './sample-snapshot.ts';

function decideWith(wait: string, grace: unknown, max: string) {
  const object = pod(grace === undefined ? {} : { terminationGracePeriodSeconds: grace });
  const spec = { wait: { from: 'Fixed', fixed: wait }, grace: { max } };
  return { object, decision: decide(creationOf(object), snapshotOf([clusterPolicy(spec)])) };
}

const NO_ROOM = 'NoRoom';

/** wait, the author's grace, grace.max; wait' and grace', by the design's three formulas. */
const TABLE: readonly [string, unknown, string, number | typeof NO_ROOM, number?][] = [
  ['30s', undefined, '600s', 30, 60],
  ['30s', null, '600s', 30, 60],
  ['30s', 30, '600s', 30, 60],
  ['1s', 1, '600s', 1, 2],
  ['300s', 30, '600s', 300, 330],
  // A negative grace becomes 1 in the API server.
  ['30s', -5, '600s', 30, 31],
  // No room above, but the author's grace is large: at most a tenth of grace.max is taken.
  ['30s', 600, '600s', 30, 600],
  ['60s', 590, '600s', 60, 600],
  ['100s', 560, '600s', 60, 600],
  ['100s', 500, '600s', 100, 600],
  ['200s', 450, '600s', 150, 600],
  // A grace above grace.max is never lowered.
  ['30s', 3600, '600s', 30, 3600],
  ['300s', 700, '600s', 160, 700],
  ['30s', 30, '60s', 30, 60],
  ['30s', 30, '50s', 20, 50],
  ['30s', 30, '50.9s', 20, 50],
  ['30s', 30, '31s', 3, 31],
  ['30s', 30, '30s', 3, 30],
  ['30s', 30, '20s', 12, 30],
  ['30s', 30, '5s', 25, 30],
  ['30s', 10, '10s', 1, 10],
  ['30s', 9, '9s', NO_ROOM],
  ['30s', 5, '5s', NO_ROOM],
  ['30s', 1, '1s', NO_ROOM],
];

describe('grace is raised by the wait, and the wait shrinks where there is no room', () => {
  test.each(TABLE)(
    'wait %s, grace %s, grace.max %s: wait %s, grace %s',
    (wait, grace, max, waits, raised) => {
      const { object, decision } = decideWith(wait, grace, max);
      if (waits === NO_ROOM) {
        expect(decision).toMatchObject({ outcome: 'skip', reason: NO_ROOM });
        return;
      }
      expect(decision).toMatchObject({ plan: { wait: waits, grace: raised } });
      const { spec } = patched(object, patchFor(object as unknown as Pod, decision));
      expect(spec.terminationGracePeriodSeconds).toBe(raised);
      expect(spec.containers[0]).toMatchObject(preStop(sleep(waits)));
    },
  );

  test.each(TABLE)(
    'wait %s, grace %s, grace.max %s: a warning only where it is shrunk',
    (wait, grace, max, waits) => {
      const { decision } = decideWith(wait, grace, max);
      const asked = Number.parseInt(wait, 10);
      const warnings = warningsOf(decision.notes);
      if (waits === NO_ROOM || waits === asked) {
        expect(warnings).toEqual([]);
      } else {
        expect(warnings).toHaveLength(1);
        expect(warnings[0]).toContain(`${waits}s instead of ${asked}s`);
        expect(warnings[0]).toContain('grace.max');
      }
    },
  );
});

describe('a probe’s own grace is its author’s: left alone, and noted when the wait exceeds it', () => {
  const probe = (seconds: number) => ({ tcpSocket: { port: 80 }, terminationGracePeriodSeconds: seconds });

  test.each<[string, JsonObject, boolean]>([
    ['liveness, shorter', { livenessProbe: probe(29) }, true],
    ['startup, shorter', { startupProbe: probe(5) }, true],
    ['liveness, equal', { livenessProbe: probe(30) }, false],
    ['liveness, longer', { livenessProbe: probe(31) }, false],
    ['one of two', { livenessProbe: probe(60), startupProbe: probe(10) }, true],
    ['none', { livenessProbe: { tcpSocket: { port: 80 } } }, false],
    [
      'of a container that keeps its own hook',
      { livenessProbe: probe(5), ...preStop(exec('/drain')) },
      false,
    ],
  ])('%s', (_, members, noted) => {
    const object = podOf(server('app', members), container('b'));
    const decision = decide(creationOf(object), snapshotOf([]));
    const notes = decision.notes.filter(({ code }) => code === 'ProbeGraceShort');
    expect(notes).toHaveLength(noted ? 1 : 0);
    expect(warningsOf(decision.notes)).toEqual([]);
    const { spec } = patched(object, patchFor(object as unknown as Pod, decision));
    expect(spec.containers[0]).toMatchObject(members);
  });

  it('an author’s sleep that is long enough does not wait for us', () => {
    const object = podOf(server('app', { livenessProbe: probe(5), ...preStop(sleep(50)) }), container('b'));
    const decision = decide(creationOf(object), snapshotOf([clusterPolicy({ existingHook: 'Extend' })]));
    expect(codesOf(decision)).not.toContain('ProbeGraceShort');
  });
});
