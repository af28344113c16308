import fc, { type Arbitrary } from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import type { ClusterSnapshot } from '../../../src/core/decision/cluster-snapshot.ts';
import { longestWait } from '../../../src/core/decision/plan.ts';
import { SKIP_REASONS, type SkipReason } from '../../../src/core/decision/reasons.ts';
import { runs } from '../../property/runs.ts';
import { arbitraryPod } from './arbitrary-pod.ts';
import { arbitraryHeldSnapshot, arbitrarySnapshot } from './arbitrary-policy.ts';
import { holdToken } from './sample-hold.ts';
import { altered, pass } from './sample-pass.ts';
import {
  annotationsOf,
  type ContainerObject,
  container,
  exec,
  type JsonObject,
  ownedBy,
  type PodObject,
  planIn,
  pod,
  podOf,
  preStop,
  server,
  sleep,
} from './sample-pod.ts';
import { clusterPolicy, OLD_FLEET, service, snapshotOf } from './sample-snapshot.ts';

const PLAN = 'linger.dev/plan';
type Change = (object: PodObject) => void;

const hookOf = ({ lifecycle }: ContainerObject) =>
  (lifecycle as { preStop?: JsonObject } | undefined)?.preStop;
const at = ({ spec: { containers } }: PodObject, index: number): ContainerObject =>
  containers[index % containers.length] as ContainerObject;
const changed = (object: PodObject, changes: readonly Change[]): PodObject => {
  const copy = structuredClone(object);
  for (const change of changes) change(copy);
  return copy;
};

const INDEX = fc.nat(5);
const HANDLERS = fc.constantFrom(
  ...[sleep(3), sleep(20), sleep(200), exec('sleep', '7'), exec('sh', '-c', 'sleep 9'), exec('/drain')],
);

/** Changes of other webhooks that leave what Linger wrote alone, and the grace. */
const BESIDE_OURS: Arbitrary<Change> = fc.oneof(
  fc
    .record({
      index: INDEX,
      name: fc.constantFrom('added', 'late'),
      hook: fc.option(HANDLERS, { nil: undefined }),
      serves: fc.boolean(),
    })
    .map(
      ({ index, name, hook, serves }): Change =>
        ({ spec: { containers } }) => {
          if (containers.some((each) => each.name === name)) return;
          const added = (serves ? server : container)(name, hook && preStop(structuredClone(hook)));
          containers.splice(index % (containers.length + 1), 0, added);
        },
    ),
  fc.constant<Change>(({ spec: { containers } }) => containers.reverse()),
  fc.constant<Change>(({ spec }) => {
    const others = (spec.initContainers ?? []) as JsonObject[];
    spec.initContainers = [...others, container(`sidecar-${others.length}`, { restartPolicy: 'Always' })];
  }),
  fc.constant<Change>(({ metadata }) => {
    metadata.annotations = { ...(metadata.annotations as object), 'example.dev/seen': 'yes' };
    metadata.labels = { ...(metadata.labels as object), 'example.dev/seen': 'yes' };
  }),
  INDEX.map(
    (index): Change =>
      (object) => {
        const target = at(object, index);
        target.volumeMounts = [
          ...((target.volumeMounts ?? []) as JsonObject[]),
          { name: 'x', mountPath: '/x' },
        ];
        object.spec.volumes = [{ name: 'x', emptyDir: {} }, ...((object.spec.volumes ?? []) as JsonObject[])];
      },
  ),
);

const TO_OURS: Arbitrary<Change> = fc.oneof(
  fc.integer({ min: 0, max: 700 }).map(
    (grace): Change =>
      ({ spec }) => {
        spec.terminationGracePeriodSeconds = grace;
      },
  ),
  INDEX.map(
    (index): Change =>
      (object) => {
        delete at(object, index).lifecycle;
      },
  ),
  fc.tuple(INDEX, HANDLERS).map(
    ([index, handler]): Change =>
      (object) => {
        Object.assign(at(object, index), preStop(structuredClone(handler)));
      },
  ),
  INDEX.map(
    (index): Change =>
      (object) => {
        Object.assign(hookOf(at(object, index)) ?? {}, { httpGet: { path: '/drain', port: 80 } });
      },
  ),
  INDEX.map(
    (index): Change =>
      ({ spec: { containers } }) => {
        if (containers.length > 1) containers.splice(index % containers.length, 1);
      },
  ),
  INDEX.map(
    (index): Change =>
      (object) => {
        const name = `renamed-${index}`;
        if (object.spec.containers.every((each) => each.name !== name)) at(object, index).name = name;
      },
  ),
);

const some = (changes: Arbitrary<Change>) => fc.array(changes, { minLength: 1, maxLength: 3 });
const SNAPSHOTS = fc.oneof(arbitrarySnapshot, arbitraryHeldSnapshot);
const PODS = arbitraryPod.map((object) => {
  delete annotationsOf(object)[PLAN];
  return object;
});

/**
 * Volumes and mounts are a set to the kubelet, and others may add theirs before ours or after. A coverage is told only of the
 * very wait that was measured.
 */
function comparable(object: PodObject): unknown {
  const copy = structuredClone(object);
  const inOrder = (list: unknown) =>
    ((list ?? []) as unknown[]).map((each) => JSON.stringify(each)).toSorted();
  const { coverage: _c, samples: _s, ...plan } = planIn(copy) ?? {};
  if (annotationsOf(copy)[PLAN] !== undefined) Object.assign(annotationsOf(copy), { [PLAN]: plan });
  copy.spec.volumes = inOrder(copy.spec.volumes);
  for (const each of copy.spec.containers) each.volumeMounts = inOrder(each.volumeMounts);
  return copy;
}

/** Another webhook's change after Linger's pass and before the next one. */
function twoPasses(object: PodObject, snapshot: ClusterSnapshot, changes: readonly Change[]) {
  const token = holdToken();
  const first = pass(object, snapshot, token);
  const between = changed(first.result, changes);
  // Each pass makes a token; the first one's stands only where it is in the pod.
  const isHeld = planIn(first.result)?.hook === 'Hold';
  return { token, first, between, second: pass(between, snapshot, isHeld ? holdToken() : token) };
}

describe('whatever another webhook does between two passes', () => {
  it('beside what Linger wrote: the outcome is that of one pass over the changed pod', () => {
    fc.assert(
      fc.property(PODS, SNAPSHOTS, some(BESIDE_OURS), (object, snapshot, changes) => {
        const { token, first, second } = twoPasses(object, snapshot, changes);
        const once = pass(changed(object, changes), snapshot, token);
        // A kind of hook stands although a container that was added would make room for Hold.
        const hooks = [first, once].map(({ result }) => planIn(result)?.hook);
        fc.pre(hooks[0] === undefined || hooks[0] === hooks[1]);
        expect(comparable(second.result)).toEqual(comparable(once.result));
      }),
      runs(250),
    );
  });

  it('the wait is at most the recorded one, as long as one of its hooks is there', () => {
    fc.assert(
      fc.property(PODS, SNAPSHOTS, some(fc.oneof(BESIDE_OURS, TO_OURS)), (object, snapshot, changes) => {
        const { first, between, second } = twoPasses(object, snapshot, changes);
        if (first.decision.outcome === 'skip' || second.decision.outcome === 'skip') return;
        const was = first.decision.plan;
        const is = second.decision.plan;
        // A token is only in Linger's own hooks; an author's sleep that is as long as the wait by itself is no sign of one.
        const { extended = {} } = was;
        const most = was.hook === 'Hold' ? 0 : was.wait;
        const written = first.result.spec.containers.filter(
          ({ name }) => was.containers.includes(name) && (extended[name] ?? 0) < Math.max(1, most),
        );
        const texts = new Set(written.map((each) => JSON.stringify(hookOf(each))));
        const isThere = between.spec.containers.some((each) => texts.has(JSON.stringify(hookOf(each))));
        // A pod that can no longer be held is decided afresh.
        if (!isThere || (was.hook === 'Hold' && is.hook !== 'Hold')) return;
        expect(is.wait).toBeLessThanOrEqual(was.wait);
        expect(longestWait(is)).toBeLessThanOrEqual(longestWait(was));
      }),
      runs(250),
    );
  });
});

describe('a hook that another webhook takes out again and again', () => {
  const snapshot = snapshotOf([
    clusterPolicy({ existingHook: 'Extend', wait: { from: 'Fixed', fixed: '60s' } }),
  ]);

  test.each([
    [1000, [60, 68], 1000],
    [60, [60, 68], 120],
  ])('from a grace of %ds, is put back with the same seconds', (grace, seconds, raised) => {
    let object = podOf(server('app'), container('proxy', preStop(sleep(8))));
    object.spec.terminationGracePeriodSeconds = grace;
    for (let passes = 0; passes < 5; passes += 1) {
      const { decision, result } = pass(object, snapshot);
      expect(decision.notes.map(({ code }) => code)).not.toContain('WaitShrunk');
      expect(result.spec.containers.map(hookOf)).toEqual(seconds.map(sleep));
      expect(result.spec.terminationGracePeriodSeconds).toBe(raised);
      object = changed(result, [
        ({ spec }) => {
          delete spec.containers[0]?.lifecycle;
        },
      ]);
    }
  });
});

describe('a grace', () => {
  test('that another webhook raises a little after each pass is not raised on top', () => {
    let { result } = pass(pod());
    for (const grace of [70, 80, 90]) {
      result.spec.terminationGracePeriodSeconds = grace;
      delete result.spec.containers[0]?.lifecycle;
      ({ result } = pass(result));
      expect(planIn(result)).toMatchObject({ wait: 30, grace, baseGrace: 30 });
    }
  });

  test('that is clamped to the same after each pass gives the same wait', () => {
    let { result } = pass(pod());
    for (let passes = 0; passes < 3; passes += 1) {
      result.spec.terminationGracePeriodSeconds = 50;
      ({ result } = pass(result));
      expect(planIn(result)).toMatchObject({ wait: 20, grace: 50, baseGrace: 30 });
    }
  });
});

describe('a wait that stands needs no operation', () => {
  const silent = (object: PodObject) => {
    for (const each of object.spec.containers) delete each.ports;
  };
  const owned = (object: PodObject) => Object.assign(object.metadata, ownedBy('StatefulSet'));
  test.each<[string, ClusterSnapshot, Change?]>([
    ['the policy has another wait', snapshotOf([clusterPolicy({ wait: { from: 'Fixed', fixed: '45s' } })])],
    ['another hook', snapshotOf([clusterPolicy({ hook: 'Exec' })])],
    [
      'a hook that the nodes do not have',
      snapshotOf([clusterPolicy({ hook: 'Sleep' })], { fleet: OLD_FLEET }),
    ],
    ['other containers', snapshotOf([clusterPolicy({ containers: ['other'] })])],
    ['mode Audit', snapshotOf([clusterPolicy({ mode: 'Audit' })])],
    ['less room', snapshotOf([clusterPolicy({ grace: { max: '20s' } })])],
    ['and serves nobody', snapshotOf([service({ selector: { app: 'other' } })]), silent],
    ['and its kind is excluded', snapshotOf([clusterPolicy({ exclude: ['StatefulSet'] })]), owned],
  ])('where %s', (_, snapshot, change = () => undefined) => {
    const object = altered(pod(), change);
    expect(pass(object, snapshot)).toMatchObject({
      decision: { outcome: 'skip', reason: 'AlreadyInjected', standing: { wait: 30 } },
      operations: [],
    });
  });
});

describe('the table of skip reasons says whether hooks go', () => {
  const EXTEND = { existingHook: 'Extend' };
  /** What brings each reason about for a pod that carries a wait; reasons that cannot apply to one are left out. */
  const CAUSES: Readonly<Partial<Record<SkipReason, [JsonObject, Change]>>> = {
    OptedOut: [{}, ({ metadata }) => Object.assign(metadata, { labels: { 'linger.dev/inject': 'false' } })],
    ModeOff: [{ mode: 'Off' }, () => undefined],
    ZeroGrace: [{}, ({ spec }) => Object.assign(spec, { terminationGracePeriodSeconds: 0 })],
    NoWait: [{ ceiling: { wait: '0s' } }, () => undefined],
    NoRoom: [{}, ({ spec }) => Object.assign(spec, { terminationGracePeriodSeconds: 5 })],
    ExistingHook: [{ ...EXTEND, ceiling: { wait: '10s' } }, () => undefined],
  };

  test.each(Object.entries(CAUSES))('%s', (name, [spec, change]) => {
    const reason = name as SkipReason;

    const snapshot = snapshotOf([clusterPolicy(EXTEND)]);
    const author =
      reason === 'ExistingHook'
        ? podOf(server('app', preStop(sleep(20))))
        : podOf(server('app'), container('b', preStop(sleep(4))));
    const { decision, operations, result } = pass(
      altered(author, change, snapshot),
      snapshotOf([clusterPolicy({ ...EXTEND, ...spec })]),
    );
    expect(decision).toMatchObject({ outcome: 'skip', reason });
    if (SKIP_REASONS[reason].standing === 'goes') {
      expect(result.spec.containers).toEqual(author.spec.containers);
      expect(planIn(result)).toMatchObject({ wait: 0, baseGrace: 30, containers: [] });
    } else expect(operations).toEqual([]);
  });
});
