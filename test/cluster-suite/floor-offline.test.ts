import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { ANNOTATION, FLOOR, taken } from '../../src/core/api/index.ts';
import type { ClusterSnapshot } from '../../src/core/decision/cluster-snapshot.ts';
import { floorData, floorOf, floorWaits } from '../../src/core/decision/floor.ts';
import type { SkipReason } from '../../src/core/decision/index.ts';
import type { Pod } from '../../src/core/decision/pod.ts';
import { generatedPods } from '../core/decision/arbitrary-pod.ts';
import { arbitrarySnapshot } from '../core/decision/arbitrary-policy.ts';
import { pass } from '../core/decision/sample-pass.ts';
import {
  annotated,
  annotationsOf,
  container,
  exec,
  type JsonObject,
  NAMESPACE,
  ownedBy,
  type PodObject,
  pod,
  podOf,
  preStop,
  server,
  sleep,
} from '../core/decision/sample-pod.ts';
import { namespace, snapshotOf } from '../core/decision/sample-snapshot.ts';
import { entryIn } from '../floor/entry.ts';
import { evaluated, type FloorCase, type FloorResult } from '../floor/evaluate.ts';
import { ensureFloors } from '../testbed/binaries.ts';
import { clusterSettings } from '../testbed/settings.ts';

/*
 * The policy in the API server beside the decision, with the API server's own packages and without a cluster: here, since
 * these tests need Go.
 */

const SEED = 20_261_128;
const PODS = 5_000;
const NOW = 1_790_000_000;
const HOUR = 3_600;

const timeOf = (epochSeconds: number) => new Date(epochSeconds * 1_000).toISOString().replace('.000Z', 'Z');

/** What the API server makes of `object` when it is created at `NOW`. */
function created(object: PodObject, snapshot: ClusterSnapshot, validFor = HOUR): FloorCase {
  const { labels = {}, annotations = {} } = snapshot.namespaces.get(NAMESPACE) ?? {};
  const managedFields = [{ manager: 'test', operation: 'Update', apiVersion: 'v1', time: timeOf(NOW) }];
  const stored = { ...object, metadata: { ...(object.metadata as object), managedFields } };
  return {
    pod: stored as PodObject,
    namespace: { metadata: { name: NAMESPACE, labels, annotations } },
    params: { data: floorData(taken(floorOf(snapshot)), NOW + validFor).data },
  };
}

/** What the policy writes on a pod. Whole seconds. */
interface Stamp {
  readonly wait: number;
  readonly grace: number;
  readonly baseGrace: number;
  readonly containers: readonly string[];
}

const planTextIn = ({ pod: result }: FloorResult) => result && annotationsOf(result)[ANNOTATION.plan];

function stampIn(result: FloorResult): Stamp | undefined {
  expect(result.error).toBeUndefined();
  const text = planTextIn(result);
  return text?.startsWith(FLOOR.stamp) ? (JSON.parse(text) as Stamp) : undefined;
}

const sleepsIn = ({ spec }: PodObject) =>
  spec.containers.flatMap(({ lifecycle }) => {
    const seconds = (lifecycle as { preStop?: { sleep?: { seconds: number } } } | undefined)?.preStop?.sleep;
    return seconds === undefined ? [] : [seconds.seconds];
  });

/** What the floor may touch and the decision leaves alone: it does not know Services, and reads no hook of a pod's own. */
const COARSE: ReadonlySet<SkipReason> = new Set(['NotServing', 'NoContainer', 'NoHook', 'NoWait']);

const isDeclaring = ({ ports, readinessProbe }: Readonly<Record<string, unknown>>) =>
  (Array.isArray(ports) && ports.length > 0) || Boolean(readinessProbe);

/** Why a pod that the decision gives a wait may get none, or a shorter one, of the floor. */
function exceptionOf(
  object: PodObject,
  snapshot: ClusterSnapshot,
  maxGrace: number,
  entry: string,
): string | undefined {
  const { metadata = {}, spec } = object as {
    metadata?: Record<string, object | null>;
    spec: PodObject['spec'];
  };
  const words = { ...metadata.annotations, ...metadata.labels };
  if (Object.keys(words).some((key) => key.startsWith('linger.dev/')))
    return 'its own annotations and labels';
  // It opts out where overrides.namespaces lets it say nothing.
  const { annotations = {} } = snapshot.namespaces.get(NAMESPACE) ?? {};
  if ([ANNOTATION.inject, ANNOTATION.mode].some((key) => key in annotations))
    return 'its namespace’s annotations';
  const starting = (spec.initContainers ?? []) as readonly Record<string, unknown>[];
  const serving = [...spec.containers, ...starting.filter(({ restartPolicy }) => restartPolicy === 'Always')];
  if (!serving.some(isDeclaring)) return 'it declares no traffic';
  const { cluster, byNamespace } = snapshot.policies;
  const isForSome = [...cluster, ...(byNamespace.get(NAMESPACE) ?? [])].some(
    ({ podSelector }) => JSON.stringify(podSelector) !== '{}',
  );
  const [, , largestGrace, , kinds = '', names] = entry.split(' ');
  const [owner] = (metadata.ownerReferences ?? []) as readonly { kind: string }[];
  const isLeftAlone = entry === 'none' || kinds.split(',').includes(owner?.kind ?? '') || names === '?';
  // A grace beyond grace.max is shortened, to nine tenths of that.
  if (isForSome && maxGrace < Number(largestGrace)) return 'a smaller grace.max for some pods';
  return isForSome && isLeftAlone ? 'a policy for some pods says otherwise' : undefined;
}

/** For each of the versions that have the policy, and those that come later. */
describe.each(['1.37', '1.36'] as const)('the floor, by the packages of Kubernetes %s', (version) => {
  let program = '';
  const run = (cases: readonly FloorCase[]) => evaluated(program, cases);
  const once = (object: PodObject, snapshot = snapshotOf([]), validFor = HOUR) => {
    const [result] = run([created(object, snapshot, validFor)]);
    if (result === undefined) throw new Error('no result');
    return result;
  };
  /** Another round, with the same ConfigMap, after others have changed the pod. */
  const again = (
    { pod: stamped }: FloorResult,
    change: (object: PodObject) => void,
    snapshot = snapshotOf([]),
  ) => {
    const changed = structuredClone(stamped) as PodObject;
    change(changed);
    return once(changed, snapshot);
  };

  beforeAll(async () => {
    program = (await ensureFloors(clusterSettings().cacheDir, () => {}))[version];
  }, 600_000);

  describe(`of ${PODS} pods under as many policies`, () => {
    const pods = generatedPods(SEED, PODS);
    const snapshots = fc.sample(arbitrarySnapshot, { seed: SEED, numRuns: PODS });
    const cases = pods.map((each, index) => created(each, snapshots[index] as ClusterSnapshot));
    let results: readonly FloorResult[] = [];
    const each = (judge: (at: number, stamp: Stamp | undefined) => void) => {
      for (const [at, result] of results.entries()) judge(at, stampIn(result));
    };

    beforeAll(() => {
      results = run(cases);
    }, 120_000);

    it('touches none that the decision leaves alone, but where it does not know Services and wishes of the pod', () => {
      let touched = 0;
      each((at, stamp) => {
        if (stamp === undefined) return;
        touched += 1;
        const { decision } = pass(pods[at] as PodObject, snapshots[at]);
        expect(decision.policy?.mode.value, JSON.stringify(pods[at])).toBe('Enforce');
        if (decision.outcome === 'skip')
          expect([...COARSE], JSON.stringify(pods[at])).toContain(decision.reason);
      });
      expect(touched).toBeGreaterThan(PODS / 20);
    });

    it('gives no shorter wait than the decision would with Sleep, but for the exceptions', () => {
      const exceptions = new Map<string, number>();
      each((at, stamp) => {
        const [object, snapshot] = [pods[at] as PodObject, snapshots[at] as ClusterSnapshot];
        const { decision } = pass(object, snapshot);
        if (decision.outcome === 'skip' || decision.policy.mode.value !== 'Enforce') return;
        const { plan } = decision;
        const bare = plan.containers.filter((name) => !Object.hasOwn(plan.extended ?? {}, name));
        const isLess =
          bare.length > 0 &&
          (stamp === undefined ||
            stamp.wait < plan.wait ||
            bare.some((name) => !stamp.containers.includes(name)));
        if (!isLess) return;
        const data = cases[at]?.params.data ?? {};
        const entry = data[NAMESPACE] ?? data[FLOOR.newNamespaces] ?? '';
        const exception = exceptionOf(object, snapshot, decision.policy['grace.max'].value, entry);
        expect(exception, JSON.stringify({ object, plan, stamp, data })).toBeDefined();
        exceptions.set(String(exception), (exceptions.get(String(exception)) ?? 0) + 1);
      });
      expect(exceptions.size).toBeGreaterThan(1);
    });

    it('makes no pod that the API server refuses for its sleep, and raises no grace beyond that', () => {
      each((at, stamp) => {
        if (stamp === undefined) return;
        const object = results[at]?.pod as PodObject;
        expect(object.spec.terminationGracePeriodSeconds).toBe(stamp.grace);
        expect(stamp.wait).toBeLessThanOrEqual(stamp.grace);
        expect(stamp.grace).toBeLessThanOrEqual(stamp.baseGrace + stamp.wait);
      });
    });

    /** What `explain` says of the pod at this place, by the entry that the leader has written. */
    const waitsAt = (at: number, data = cases[at]?.params.data ?? {}) => {
      const entry = entryIn(data[NAMESPACE] ?? data[FLOOR.newNamespaces] ?? 'none');
      const [owner] = ((pods[at]?.metadata as JsonObject | undefined)?.ownerReferences ?? []) as readonly {
        readonly kind: string;
        readonly controller?: boolean;
      }[];
      return (
        entry && floorWaits(pods[at] as unknown as Pod, owner?.controller ? owner.kind : undefined, entry)
      );
    };

    it('gives exactly what is said of the entry to every pod that it touches', () => {
      let fitted = 0;
      each((at, stamp) => {
        if (stamp === undefined) return;
        const waits = waitsAt(at);
        expect(waits?.atFirst, JSON.stringify(pods[at])).toBe(stamp.wait);
        if (cases[at]?.params.data[NAMESPACE]?.startsWith(`${stamp.wait} `) === false) fitted += 1;
      });
      // Some waits are shortened by what grace.max leaves.
      expect(fitted).toBeGreaterThan(10);
    });

    it('gives what is said for later, once the entry is out of date', () => {
      const measured = (data: Readonly<Record<string, string>>) =>
        Object.fromEntries(
          Object.entries(data).map(([name, line]) => [name, line.replace(/^\d+ (?=\d+ )/, '1 ')]),
        );
      const late = cases.map((each) => ({
        ...each,
        params: { data: { ...measured(each.params.data), [FLOOR.validUntil]: timeOf(NOW - 1) } },
      }));
      let longer = 0;
      for (const [at, result] of run(late).entries()) {
        const stamp = stampIn(result);
        if (stamp === undefined) continue;
        expect(waitsAt(at, late[at]?.params.data)?.later, JSON.stringify(pods[at])).toBe(stamp.wait);
        if (stamp.wait > 1) longer += 1;
      }
      expect(longer).toBeGreaterThan(10);
    }, 120_000);

    it('leaves its own stamps as they are when it is asked again', () => {
      const stamped = results.flatMap((result, at) =>
        stampIn(result) === undefined ? [] : [{ ...(cases[at] as FloorCase), pod: result.pod as PodObject }],
      );
      for (const [at, result] of run(stamped).entries()) expect(result.pod).toEqual(stamped[at]?.pod);
    }, 120_000);

    it('never makes a sleep longer than the grace, nor the grace longer, of a plan that anybody has written', () => {
      const forged = fc.sample(
        fc.record({
          wait: fc.integer({ min: 0, max: 10_000 }),
          grace: fc.integer({ min: 0, max: 10_000 }),
          baseGrace: fc.integer({ min: 0, max: 10_000 }),
        }),
        { seed: SEED, numRuns: PODS },
      );
      const asked = cases.map((each, at) => {
        const plan = { v: 1, by: 'floor', ...forged[at], hook: 'Sleep', containers: ['app'] };
        const metadata = each.pod.metadata as { annotations?: object };
        const annotations = { ...metadata.annotations, [ANNOTATION.plan]: JSON.stringify(plan) };
        return { ...each, pod: { ...each.pod, metadata: { ...metadata, annotations } } };
      });
      const before = run(asked.map((each) => ({ ...each, params: { data: { _: 'none' } } })));
      for (const [at, { pod: object, error }] of run(asked).entries()) {
        expect(error).toBeUndefined();
        const own = before[at]?.pod as PodObject;
        const { terminationGracePeriodSeconds: grace = 30 } = own.spec;
        expect(object?.spec.terminationGracePeriodSeconds ?? 30).toBe(grace);
        const added = sleepsIn(object as PodObject).filter((seconds) => !sleepsIn(own).includes(seconds));
        expect(Math.max(0, ...added)).toBeLessThanOrEqual(Number(grace));
      }
    }, 120_000);
  });

  const touched: readonly (readonly [string, PodObject])[] = [
    ['a pod with a port', podOf(server())],
    ['one with a readiness probe', podOf(container('app', { readinessProbe: { tcpSocket: { port: 80 } } }))],
    ['one that asks for it', annotated({ [ANNOTATION.inject]: ' true ', [ANNOTATION.mode]: 'ENFORCE' })],
    ['one of a ReplicaSet', pod({}, ownedBy('ReplicaSet'))],
  ];
  it.each(touched)('gives %s the wait, the grace and a plan', (_, object) => {
    const result = once(object);
    expect(stampIn(result)).toMatchObject({
      wait: 30,
      grace: 60,
      baseGrace: 30,
      hook: 'Sleep',
    });
    expect(sleepsIn(result.pod as PodObject)).toEqual(object.spec.containers.map(() => 30));
  });

  const untouched: readonly (readonly [string, PodObject])[] = [
    ['that opts out', annotated({ [ANNOTATION.inject]: 'false' })],
    ['that opts out by label', pod({}, { labels: { [ANNOTATION.inject]: 'f' } })],
    ['whose wish cannot be read', annotated({ [ANNOTATION.inject]: 'maybe' })],
    ['in mode Audit', annotated({ [ANNOTATION.mode]: 'audit' })],
    ['whose mode cannot be read', annotated({ [ANNOTATION.mode]: 'Enforced' })],
    ['with a plan of the webhook', annotated({ [ANNOTATION.plan]: '{"v":1,"wait":0}' })],
    ['of a Job', pod({}, ownedBy('Job', 'batch/v1'))],
    ['of a DaemonSet', pod({}, ownedBy('DaemonSet'))],
    ['that ends by itself', pod({ restartPolicy: 'OnFailure' })],
    ['with grace 0', pod({ terminationGracePeriodSeconds: 0 })],
    ['that declares no traffic', podOf(container('app'))],
    ['whose only port is that of a mesh', podOf(container('app'), server('istio-proxy'))],
    ['whose containers all have hooks', podOf(server('app', preStop(sleep(3))))],
    ['of Knative', pod({}, { labels: { 'serving.knative.dev/revision': 'x' } })],
    ['of Agones', pod({}, { labels: { 'agones.dev/gameserver': 'x' } })],
    ['with the mirror annotation', annotated({ 'kubernetes.io/config.mirror': 'x' })],
  ];
  it.each(untouched)('leaves a pod alone %s', (_, object) => {
    const result = once(object);
    expect(result.error).toBeUndefined();
    expect(planTextIn(result)).toBe(annotationsOf(object)[ANNOTATION.plan]);
    expect(sleepsIn(result.pod as PodObject)).toEqual(sleepsIn(object));
  });

  it.each([
    ['opts out', { [ANNOTATION.inject]: 'false' }, {}],
    ['opts out by label', {}, { [ANNOTATION.inject]: 'false' }],
    ['is in mode Off', { [ANNOTATION.mode]: 'Off' }, {}],
  ])(
    'leaves the pods of a namespace alone that %s, before the leader has seen it',
    (_, annotations, labels) => {
      const asked = created(pod(), snapshotOf([]));
      const [result] = run([{ ...asked, namespace: { metadata: { name: 'new', annotations, labels } } }]);
      expect(result && planTextIn(result)).toBeUndefined();
    },
  );

  it('gives the larger of the entry and wait.initial once the entry is out of date, or its age is not known', () => {
    const policy = { wait: { from: 'Measured', initial: '40s', max: '60s' } };
    const snapshot = snapshotOf([
      {
        apiVersion: 'linger.dev/v1alpha1',
        kind: 'ClusterTerminationPolicy',
        metadata: { name: 'a' },
        spec: policy,
      },
    ]);
    const asked = created(pod(), snapshot);
    const shorter = Object.fromEntries(
      Object.entries(asked.params.data).map(([key, text]) => [key, text.replace(/^40 40/, '10 40')]),
    );
    const of = (time: string | undefined, until: number) => {
      const metadata = {
        ...(asked.pod.metadata as object),
        managedFields: time === undefined ? [] : [{ time }],
      };
      const data = { ...shorter, [FLOOR.validUntil]: timeOf(until) };
      return { ...asked, pod: { ...asked.pod, metadata } as PodObject, params: { data } };
    };
    const waits = run([of(timeOf(NOW), NOW), of(timeOf(NOW + 1), NOW), of(undefined, NOW)]).map(
      (each) => stampIn(each)?.wait,
    );
    expect(waits).toEqual([10, 40, 40]);
  });

  it('gives a container that a later webhook has added its hook, and raises the grace no further', () => {
    const result = again(once(podOf(server())), ({ spec }) => spec.containers.push(container('late')));
    expect(stampIn(result)).toMatchObject({
      wait: 30,
      grace: 60,
      baseGrace: 30,
      containers: ['app', 'late'],
    });
    expect(sleepsIn(result.pod as PodObject)).toEqual([30, 30]);
  });

  it('is not evaluated again for a pod that has its hooks, nor for one that it is not to touch', () => {
    const stamped = once(podOf(server()));
    const isEvaluated = (change: (object: PodObject) => void) => again(stamped, change).matched;
    expect(stamped.matched).toBe(true);
    expect(isEvaluated(() => undefined)).toBe(false);
    expect(isEvaluated(({ spec }) => spec.containers.push(container('late')))).toBe(true);
    expect(isEvaluated(({ spec }) => (spec.terminationGracePeriodSeconds = 59))).toBe(true);
    expect(once(annotated({ [ANNOTATION.plan]: '{"v":1,"wait":0}' })).matched).toBe(false);
    const audited = snapshotOf([namespace({ [ANNOTATION.mode]: 'Audit' })]);
    expect(once(podOf(server()), audited).matched).toBe(false);
    const labels = Object.fromEntries(Array.from({ length: 1_001 }, (_, at) => [`of-many-${at}`, 'x']));
    expect(once(pod({}, { labels })).matched).toBe(false);
  });

  it.each([
    [60, 30],
    [59, 29],
    [45, 15],
    [31, 3],
    [30, 3],
    [10, 1],
  ])('shortens its hooks where a later webhook has cut the grace of 60 s to %d s', (grace, wait) => {
    const result = again(once(podOf(server())), ({ spec }) => {
      spec.terminationGracePeriodSeconds = grace;
    });
    expect(stampIn(result)).toMatchObject({ wait, grace });
    expect(sleepsIn(result.pod as PodObject)).toEqual([wait]);
  });

  it.each([9, 1, 0])('takes its hooks back where only %d s of grace are left', (grace) => {
    const result = again(once(podOf(server())), ({ spec }) => {
      spec.terminationGracePeriodSeconds = grace;
    });
    expect(planTextIn(result)).toBeUndefined();
    expect(sleepsIn(result.pod as PodObject)).toEqual([]);
  });

  it('shortens its hooks also where the pod is one by now that it would leave alone', () => {
    const result = again(once(podOf(server())), ({ spec, metadata }) => {
      spec.terminationGracePeriodSeconds = 45;
      Object.assign(metadata as object, { labels: { [ANNOTATION.inject]: 'false' } });
      spec.containers.push(container('late'));
    });
    expect(sleepsIn(result.pod as PodObject)).toEqual([15]);
  });

  it('touches no hook that another webhook has changed', () => {
    const result = again(once(podOf(server())), ({ spec }) => {
      spec.terminationGracePeriodSeconds = 45;
      spec.containers[0] = server('app', preStop(exec('sh', '-c', 'sleep 3')));
    });
    expect(result.pod?.spec.containers[0]).toMatchObject(preStop(exec('sh', '-c', 'sleep 3')));
  });

  it('takes Exec where the policy says so, for pods that are certainly not for Windows', () => {
    const snapshot = snapshotOf([namespace({ [ANNOTATION.hook]: 'Exec' })]);
    expect(once(podOf(server()), snapshot).pod?.spec.containers[0]).toMatchObject(
      preStop(exec('sleep', '30')),
    );
    const windows = [
      { os: { name: 'windows' } },
      { nodeSelector: { 'kubernetes.io/os': 'windows' } },
      { runtimeClassName: 'windows-2022' },
      { securityContext: { windowsOptions: { hostProcess: true } } },
    ];
    for (const spec of windows) expect(planTextIn(once(pod(spec), snapshot))).toBeUndefined();
  });

  it('leaves pods alone, and refuses none, with an entry or a plan that cannot be read', () => {
    const asked = created(pod(), snapshotOf([]));
    const entries = ['', 'x', 'x 30 600 Sleep - ', '30 30 1e9 Sleep - ', '30', 'none'];
    const results = run(
      entries.map((entry) => ({ ...asked, params: { data: { ...asked.params.data, _: entry } } })),
    );
    for (const result of results)
      expect(result.pod === undefined || planTextIn(result) === undefined).toBe(true);
  });

  /** A request has 3 MiB at most; what a pod may have of each is validated after admission. */
  const MANY = 60_000;
  const LONG = 'x'.repeat(2_500_000);
  const numbered = (count: number, of: (at: number) => [string, unknown]) =>
    Object.fromEntries(Array.from({ length: count }, (_, at) => of(at)));
  const times = <T>(count: number, of: (at: number) => T) => Array.from({ length: count }, (_, at) => of(at));
  const stampOf = (members: string) => annotated({ [ANNOTATION.plan]: `${FLOOR.stamp}${members}}` });
  const named = (names: string) => annotated({ [ANNOTATION.containers]: names });
  const hostile: readonly (readonly [string, PodObject])[] = [
    ['a stamp that ends', annotated({ [ANNOTATION.plan]: FLOOR.stamp })],
    ['a stamp without numbers', stampOf('"wait":"x","grace":60,"baseGrace":30')],
    ['a stamp with the largest numbers', stampOf('"wait":99999999999999999999,"grace":1,"baseGrace":1')],
    ['a stamp with members in between', stampOf('"x":"\\"wait\\":9999999999999999999","wait":1')],
    [
      'a stamp of 2.5 MB',
      stampOf(`"wait":1,"grace":60,"baseGrace":30,"hook":"Sleep","containers":["${LONG}"]`),
    ],
    ['an annotation of 2.5 MB', annotated({ [ANNOTATION.inject]: LONG })],
    ['a mode of 2.5 MB', annotated({ [ANNOTATION.mode]: LONG })],
    ['a label of 2.5 MB', pod({}, { labels: { [ANNOTATION.inject]: LONG } })],
    ['white space of 2.5 MB', annotated({ [ANNOTATION.inject]: LONG.replaceAll('x', ' ') })],
    [`${MANY} labels`, pod({}, { labels: numbered(MANY, (at) => [`key-${at}`, 'x']) })],
    [`${MANY} annotations`, annotated(numbered(MANY, (at) => [`key-${at}`, 'x']) as Record<string, string>)],
    ['a million names of containers', named('a,'.repeat(1_000_000))],
    ['a thousand names of containers', named('a,'.repeat(1_000))],
    ['one name of 2.5 MB', podOf(server(LONG))],
    [
      'one name of 2.5 MB, stamped',
      (() => {
        const { metadata } = stampOf(
          '"wait":1,"grace":60,"baseGrace":30,"hook":"Sleep","containers":["app"]',
        );
        return { ...podOf(server(LONG, preStop(sleep(1)))), metadata } as PodObject;
      })(),
    ],
    [
      `${MANY} owners`,
      pod({}, { ownerReferences: times(MANY, () => ({ kind: 'Job', name: 'x', controller: true })) }),
    ],
    ['an owner of a kind of 2.5 MB', pod({}, ownedBy(LONG))],
    [`${MANY} containers`, podOf(...times(MANY, (at) => ({ name: `c-${at}` })), server())],
    ['101 containers', podOf(...times(101, (at) => server(`c-${at}`)))],
    [`${MANY} init containers`, pod({ initContainers: times(MANY, (at) => ({ name: `c-${at}` })) })],
    [
      'a hook that calls 2.5 MB',
      podOf(server('app'), server('b', preStop({ httpGet: { path: LONG, port: 1 } }))),
    ],
    [`${MANY} ports`, podOf(container('app', { ports: times(MANY, (at) => ({ containerPort: at })) }))],
    ['the largest grace', pod({ terminationGracePeriodSeconds: Number.MAX_SAFE_INTEGER })],
    ['a negative grace', pod({ terminationGracePeriodSeconds: -1 })],
    [`${MANY} selectors of nodes`, pod({ nodeSelector: numbered(MANY, (at) => [`key-${at}`, 'x']) })],
    [
      `${MANY} terms of nodes`,
      pod({ affinity: affinityOf(times(MANY, () => ({ matchExpressions: [{ key: 'a' }] }))) }),
    ],
    [
      `${MANY} expressions of nodes`,
      pod({ affinity: affinityOf([{ matchExpressions: times(MANY, () => ({ key: 'a' })) }]) }),
    ],
    [
      'a sleep of its own that is the largest',
      podOf(server('app', preStop(sleep(Number.MAX_SAFE_INTEGER))), server('b')),
    ],
  ];
  it.each(hostile)('is evaluated without an error, with Sleep and with Exec: %s', (_, object) => {
    for (const snapshot of [snapshotOf([]), snapshotOf([namespace({ [ANNOTATION.hook]: 'Exec' })])]) {
      const result = once(object, snapshot);
      expect(result.error).toBeUndefined();
      const { terminationGracePeriodSeconds: before = 30 } = object.spec;
      const { terminationGracePeriodSeconds: grace = 30 } = (result.pod as PodObject).spec;
      expect([Number(before), Number(before) + 30]).toContain(Number(grace));
    }
  });

  it('gives the same whatever else its ConfigMap has, and says how long an evaluation takes at least', () => {
    const asked = created(pod(), snapshotOf([]));
    const least = [1, 200, 2_000].map((lines) => {
      const others = Object.fromEntries(
        times(lines, (at) => [`a-namespace-of-somebody-${at}`, '45 30 600 Sleep Job,DaemonSet ']),
      );
      const params = { data: { ...asked.params.data, ...others } };
      const results = run(times(300, () => ({ ...asked, params })));
      expect(results.map((each) => stampIn(each)?.wait)).toEqual(times(300, () => 30));
      return `${lines} namespaces ${Math.min(...results.map(({ micros }) => micros))} µs`;
    });
    console.log(`${version}: ${least.join(', ')}`);
  });

  it('evaluates 100 containers within the limits of cost', () => {
    const many = podOf(...Array.from({ length: 100 }, (_, at) => server(`app-${at}`)));
    expect(stampIn(once(many))?.containers).toHaveLength(100);
    expect(sleepsIn(again(once(many), cutTo(45)).pod as PodObject)).toEqual(
      many.spec.containers.map(() => 15),
    );
  });
});

const affinityOf = (nodeSelectorTerms: readonly object[]) => ({
  nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms } },
});

const cutTo = (grace: number) => (object: PodObject) => {
  object.spec.terminationGracePeriodSeconds = grace;
};
