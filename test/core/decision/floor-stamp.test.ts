import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { patchInForce, undoFor } from '../../../src/core/decision/patch.ts';
import { isAudit } from '../../../src/core/decision/plan.ts';
import { runs } from '../../property/runs.ts';
import { arbitraryPod } from './arbitrary-pod.ts';
import { arbitraryHeldSnapshot, arbitrarySnapshot } from './arbitrary-policy.ts';
import { holdToken } from './sample-hold.ts';
import { pass } from './sample-pass.ts';
import {
  annotationsOf,
  codesOf,
  container,
  exec,
  type JsonObject,
  type PodObject,
  patched,
  planIn,
  pod,
  podOf,
  preStop,
  server,
  sleep,
} from './sample-pod.ts';
import { clusterPolicy, service, snapshotOf } from './sample-snapshot.ts';

const PLAN = 'linger.dev/plan';

/** What the floor makes of a pod: coarse, and by its contract (docs/decisions/0046-stamp-of-the-floor.md). */
function stamped(object: PodObject, wait = 20, hook: 'Sleep' | 'Exec' = 'Sleep'): PodObject {
  const copy = structuredClone(object);
  const baseGrace = Math.max(1, Number(copy.spec.terminationGracePeriodSeconds ?? 30));
  const bare = copy.spec.containers.filter(
    ({ lifecycle }) => !(lifecycle as { preStop?: JsonObject } | undefined)?.preStop,
  );
  if (bare.length === 0) return copy;
  const handler = () => (hook === 'Sleep' ? sleep(wait) : exec('sleep', String(wait)));
  for (const each of bare) each.lifecycle = { ...(each.lifecycle as object), preStop: handler() };
  const grace = baseGrace + wait;
  copy.spec.terminationGracePeriodSeconds = grace;
  const containers = bare.map(({ name }) => name);
  const stamp = { v: 1, by: 'floor', wait, grace, baseGrace, hook, containers };
  copy.metadata.annotations = { ...annotationsOf(copy), [PLAN]: JSON.stringify(stamp) };
  return copy;
}

const marker = (skip: string) => `{"v":1,"by":"webhook","skip":"${skip}"}`;

/** A grace of 30 s that is absent or null is said by the API server before the floor is asked; so is a negative one. */
const PODS = arbitraryPod.map((object) => {
  delete annotationsOf(object)[PLAN];
  object.spec.terminationGracePeriodSeconds = Math.max(
    1,
    Number(object.spec.terminationGracePeriodSeconds ?? 30),
  );
  // An empty lifecycle means what an absent one means.
  for (const each of object.spec.containers) if (!each.lifecycle) delete each.lifecycle;
  return object;
});

it('floor, then webhook, is webhook alone, but for the marker of a skip', () => {
  fc.assert(
    fc.property(
      PODS,
      fc.oneof(arbitrarySnapshot, arbitraryHeldSnapshot),
      fc.integer({ min: 1, max: 300 }),
      fc.constantFrom('Sleep' as const, 'Exec' as const),
      (object, snapshot, wait, hook) => {
        const token = holdToken();
        const after = stamped(object, wait, hook);
        fc.pre(annotationsOf(after)[PLAN] !== undefined);
        const alone = pass(object, snapshot, token);
        const both = pass(after, snapshot, token);
        expect(both.decision).toEqual(alone.decision);
        const { decision } = alone;
        const expected = structuredClone(alone.result);
        if (decision.outcome === 'skip')
          expected.metadata.annotations = { ...annotationsOf(expected), [PLAN]: marker(decision.reason) };
        // A preStop of null means what an absent one means.
        const plain = (each: PodObject) => JSON.parse(JSON.stringify(each).replaceAll(',"preStop":null', ''));
        expect(plain(both.result)).toEqual(plain(expected));
        expect(pass(both.result, snapshot).operations).toEqual([]);
        if (isAudit(decision)) {
          const audited = patched(after, patchInForce(after, decision));
          const skip = decision.outcome === 'skip' ? decision.reason : 'Audit';
          const left = { ...annotationsOf(object), [PLAN]: marker(skip) };
          expect(plain(audited)).toEqual(
            plain({ ...object, metadata: { ...object.metadata, annotations: left } }),
          );
        }
      },
    ),
    runs(200),
  );
});

/** A round of the floor, which leaves every pod alone that has any plan but its stamp. */
function floorRound(object: PodObject, wait: number, hook: 'Sleep' | 'Exec'): PodObject {
  const plan = annotationsOf(object)[PLAN] ?? '';
  return plan === '' ? stamped(object, wait, hook) : object;
}

it('floor, webhook, floor, webhook: the second round stamps no pod that the webhook has decided on', () => {
  let skips = 0;
  fc.assert(
    fc.property(
      PODS,
      fc.oneof(arbitrarySnapshot, arbitraryHeldSnapshot),
      fc.integer({ min: 1, max: 300 }),
      fc.constantFrom('Sleep' as const, 'Exec' as const),
      fc.boolean(),
      (object, snapshot, wait, hook, isSidecarAdded) => {
        const first = floorRound(object, wait, hook);
        fc.pre(annotationsOf(first)[PLAN] !== undefined);
        const { decision, result } = pass(first, snapshot);
        const decided = [result];
        if (isAudit(decision)) decided.push(patched(first, patchInForce(first, decision)));
        for (const each of decided) {
          const changed = structuredClone(each);
          if (isSidecarAdded) changed.spec.containers.push(container('sidecar'));
          const second = floorRound(changed, wait, hook);
          expect(second).toEqual(changed);
          const last = pass(second, snapshot);
          expect(annotationsOf(last.result)[PLAN]).not.toMatch(/^\{"v":1,"by":"floor",/);
          if (!isSidecarAdded && each === result) expect(last.operations).toEqual([]);
          expect(floorRound(last.result, wait, hook)).toEqual(last.result);
        }
        if (decision.outcome !== 'skip') return;
        skips += 1;
        // Without the marker it would be stamped again.
        const unmarked = structuredClone(result);
        delete annotationsOf(unmarked)[PLAN];
        expect(annotationsOf(floorRound(unmarked, wait, hook))[PLAN]).toMatch(/^\{"v":1,"by":"floor",/);
      },
    ),
    runs(200),
  );
  expect(skips).toBeGreaterThan(0);
});

describe('a stamp', () => {
  test('is taken out for a skip, and no second one is recognised in the marker', () => {
    const snapshot = snapshotOf([service({ selector: { app: 'other' } })]);
    const { decision, result } = pass(stamped(podOf(container('app'))), snapshot);
    expect(decision).toMatchObject({ outcome: 'skip', reason: 'NotServing' });
    expect(result.spec).toEqual({ containers: [container('app')], terminationGracePeriodSeconds: 30 });
    expect(annotationsOf(result)).toEqual({ [PLAN]: marker('NotServing') });
    const again = pass(result, snapshot);
    expect(codesOf(again.decision)).toEqual([]);
    expect(again.operations).toEqual([]);
  });

  test.each([
    ['OptedOut', { labels: { 'linger.dev/inject': 'false' } }, {}],
    ['ModeOff', {}, { mode: 'Off' }],
  ])('is taken out where %s', (reason, metadata, spec) => {
    const { decision, result } = pass(stamped(pod({}, metadata)), snapshotOf([clusterPolicy(spec)]));
    expect(decision).toMatchObject({ outcome: 'skip', reason });
    expect(result.spec.containers).toEqual([server()]);
    expect(annotationsOf(result)[PLAN]).toBe(marker(reason));
  });

  test('does not stand: the wait is the policy’s', () => {
    const { result } = pass(stamped(pod(), 55));
    expect(result.spec.containers).toEqual([server('app', preStop(sleep(30)))]);
    expect(planIn(result)).toMatchObject({ wait: 30, grace: 60, baseGrace: 30 });
    expect(planIn(result)).not.toHaveProperty('by');
  });

  test('whose grace another webhook has cut: the cut grace stays', () => {
    const object = stamped(pod());
    object.spec.terminationGracePeriodSeconds = 20;
    const { result } = pass(object);
    expect(result.spec.terminationGracePeriodSeconds).toBe(20);
    expect(planIn(result)).toMatchObject({ wait: 2, grace: 20 });
  });

  test('leaves the hooks that others have put in its place', () => {
    const object = stamped(podOf(server('app'), container('b')));
    Object.assign(object.spec.containers[1] as JsonObject, preStop(exec('/drain')));
    const { result } = pass(object);
    expect(result.spec.containers).toEqual([
      server('app', preStop(sleep(30))),
      container('b', preStop(exec('/drain'))),
    ]);
  });

  test.each([
    ['lengthened sleeps', { extended: { app: 5 } }],
    ['a hold', { v: 2, hook: 'Hold', hold: { min: 5, max: 20, percentile: 99, initial: 30, probes: 0 } }],
    ['a wait of 0', { wait: 0, containers: [] }],
  ])('with %s is none that the floor writes', (_, members) => {
    const object = stamped(pod());
    const stamp = JSON.parse(annotationsOf(object)[PLAN] ?? '') as JsonObject;
    object.metadata.annotations = { [PLAN]: JSON.stringify({ ...stamp, ...members }) };
    expect(codesOf(pass(object).decision)).toContain('StalePlan');
  });

  test('and a marker are taken out by uninject', () => {
    const object = stamped(pod());
    expect(patched(object, undoFor(object))).toEqual(pod({ terminationGracePeriodSeconds: 30 }));
    const marked = pod({}, { annotations: { [PLAN]: marker('NotServing') } });
    expect(patched(marked, undoFor(marked))).toEqual(pod());
  });
});

test('a marker is replaced by a plan where the pod gets a wait after all', () => {
  const { decision, result } = pass(pod({}, { annotations: { [PLAN]: marker('NotServing') } }));
  expect(codesOf(decision)).toEqual([]);
  expect(planIn(result)).toMatchObject({ wait: 30 });
});

/** Its hook is there, so that only what the plan says decides. */
function claiming(more: JsonObject): PodObject {
  const object = stamped(pod(), 20);
  const stamp = { ...(JSON.parse(annotationsOf(object)[PLAN] ?? '') as JsonObject), ...more };
  object.metadata.annotations = { [PLAN]: JSON.stringify(stamp) };
  return object;
}

it.each<[string, JsonObject, boolean]>([
  ['what the floor writes', {}, true],
  ['no wait', { wait: 0, containers: [] }, false],
  ['lengthened sleeps', { extended: { app: 5 } }, false],
  ['another author', { by: 'tenant' }, false],
])('a plan of the floor with %s counts: %j, %s', (_, more, counts) => {
  const { decision, result } = pass(claiming(more));
  expect(codesOf(decision).includes('StalePlan')).toBe(!counts);
  // Only a hook that a credible stamp claims is taken out; any other is its author's.
  const [app] = result.spec.containers;
  expect(app?.lifecycle).toEqual(
    counts ? pass(pod()).result.spec.containers[0]?.lifecycle : preStop(sleep(20)).lifecycle,
  );
});
