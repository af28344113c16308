import fc from 'fast-check';
import { expect, test } from 'vitest';
import { readHook } from '../../../src/core/api/index.ts';
import { runs } from '../../property/runs.ts';
import { pass } from './sample-pass.ts';
import { exec, type JsonObject, type PodObject, preStop, server, sleep } from './sample-pod.ts';
import { clusterPolicy, snapshotOf } from './sample-snapshot.ts';

/** Seconds that an author lets containers sleep: 0 stands for no hook. */
const SECONDS = fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 60 }));
const hookOf = (seconds: number) =>
  seconds % 2 === 0 ? sleep(seconds) : exec('sh', '-c', `sleep ${seconds}`);

function podOf(sleeps: readonly number[], grace: number): PodObject {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'web', labels: { app: 'web' } },
    spec: {
      containers: sleeps.map((each, index) =>
        server(`c${index}`, each === 0 ? undefined : preStop(hookOf(each))),
      ),
      terminationGracePeriodSeconds: grace,
    },
  };
}

const waitsOf = ({ spec }: PodObject) =>
  spec.containers.map(({ lifecycle }) => {
    const handler = (lifecycle as { preStop?: JsonObject } | undefined)?.preStop;
    const reading = handler === undefined ? undefined : readHook(handler);
    return reading?.kind === 'exact' ? reading.seconds : 0;
  });

test('Extend keeps the order in which an author stops containers, those without a hook first', () => {
  fc.assert(
    fc.property(
      fc.array(SECONDS, { minLength: 2, maxLength: 5 }),
      fc.integer({ min: 1, max: 90 }),
      fc.integer({ min: 60, max: 120 }),
      (sleeps, wait, grace) => {
        const snapshot = snapshotOf([
          clusterPolicy({ existingHook: 'Extend', wait: { from: 'Fixed', fixed: `${wait}s` } }),
        ]);
        const { result } = pass(podOf(sleeps, grace), snapshot);
        const waits = waitsOf(result);
        for (const [a, before] of sleeps.entries())
          for (const [b, after] of sleeps.entries())
            if (before < after)
              expect([sleeps, waits, (waits[a] ?? 0) < (waits[b] ?? 0)]).toEqual([sleeps, waits, true]);
        expect(Math.max(...waits)).toBeLessThanOrEqual(Number(result.spec.terminationGracePeriodSeconds));
        expect(pass(result, snapshot).operations).toEqual([]);
      },
    ),
    runs(200),
  );
});

test.each<[string, readonly number[], readonly number[]]>([
  ['no hook beside a shorter sleep', [0, 20], [30, 50]],
  ['no hook beside one as long', [0, 30], [30, 60]],
  ['no hook beside a longer one', [0, 31], [30, 31]],
  ['two sleeps', [20, 40], [30, 50]],
  ['no hook, and two sleeps', [20, 0, 40], [50, 30, 70]],
])('%s', (_, sleeps, expected) => {
  const snapshot = snapshotOf([
    clusterPolicy({ existingHook: 'Extend', wait: { from: 'Fixed', fixed: '30s' } }),
  ]);
  expect(waitsOf(pass(podOf(sleeps, 60), snapshot).result)).toEqual(expected);
});

test('a container that another webhook adds without a hook stops before a lengthened sleep', () => {
  const snapshot = snapshotOf([
    clusterPolicy({ existingHook: 'Extend', wait: { from: 'Fixed', fixed: '30s' } }),
  ]);
  const { result } = pass(podOf([20], 60), snapshot);
  result.spec.containers.push(server('proxy'));
  const { result: again } = pass(result, snapshot);
  expect([waitsOf(again), again.spec.terminationGracePeriodSeconds]).toEqual([[50, 30], 90]);
  expect(pass(again, snapshot).operations).toEqual([]);
});

test('a sleep that no wait has room for does not shorten the wait of the others', () => {
  const snapshot = snapshotOf([
    clusterPolicy({ existingHook: 'Extend', wait: { from: 'Fixed', fixed: '30s' } }),
  ]);
  expect(waitsOf(pass(podOf([0, 18], 5), snapshot).result)).toEqual([30, 18]);
});
