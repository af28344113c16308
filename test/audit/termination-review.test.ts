import { Registry } from '@prometheus-io/client';
import { expect, onTestFinished, test } from 'vitest';
import { TerminationReview } from '../../src/audit/termination-review.ts';
import { TerminationLog, type TerminationReason, terminationsIn } from '../../src/audit/terminations.ts';
import type { ObjectEvent } from '../../src/cluster/index.ts';
import { fleetOf } from '../../src/core/decision/index.ts';
import type { PodMetadata } from '../../src/core/lag/index.ts';
import { NONE_YET, plannedLags, type RemovalSample } from '../../src/core/lag/index.ts';
import { terminationSummary } from '../../src/core/timeline/index.ts';
import type { HeldPod, Release } from '../../src/hold/index.ts';
import { createLogger } from '../../src/telemetry/index.ts';

import { samplePlan } from '../core/decision/sample-plan.ts';
import { namespace, sampleNode, service, snapshotOf } from '../core/decision/sample-snapshot.ts';
import { measuredTable } from '../core/lag/sample-table.ts';
import { holdOf } from '../hold/arena.ts';
import { ModelApi } from '../leader/model-api.ts';

const SLEEP = samplePlan();
/** Held for 60 s at most, and for 1 s without the Hold Service. */
const HOLD = holdOf('AAAAAAAAAAAAAAAAAAAAAA').plan;

/** What is reported of pods whose ends are simulated; instants are seconds. */
async function watching(
  ledSince: number | 'never' = -100,
  lags = NONE_YET,
  listed = false,
  drains: Readonly<Record<string, number>> = {},
) {
  const snapshot = {
    ...snapshotOf([namespace({}, {}, 'shop'), service({ selector: { app: 'web' } }, 'web', 'shop')], {
      lags,
      servicesComplete: true,
    }),
    fleet: fleetOf('v1.36.0', [sampleNode({ name: 'worker-3', addresses: ['192.0.2.7', 'FD00:0202:3::1'] })]),
  };
  const api = await ModelApi.start();
  onTestFinished(() => api.close());
  const ending = new AbortController();
  onTestFinished(() => ending.abort());
  const events: ObjectEvent[] = [];
  const registry = new Registry();
  const held = new Map<string, Partial<HeldPod>>();
  const log = new TerminationLog();
  const review = new TerminationReview({
    log,
    connection: { server: api.url, credentials: async () => ({}) },
    registry,
    logger: createLogger('silent', process.stdout),
    signal: ending.signal,
    events: { tell: (event: ObjectEvent) => events.push(event) } as never,
    leadsSince: () => (ledSince === 'never' ? undefined : ledSince * 1000),
    snapshot: () => snapshot,
    listed: () => listed,
    drainOf: ({ owner }) => drains[owner],
    held: (uid) => held.get(uid) as HeldPod | undefined,
    clock: () => 1_000_000,
    epochSeconds: () => 1_700_001_000,
  });
  const object = (plan: string | undefined, grace: number): PodMetadata => ({
    uid: 'u1',
    namespace: 'shop',
    name: 'web-1',
    labels: { app: 'web' },
    heartbeat: undefined,
    deletionTimestamp: '2026-11-22T10:00:00Z',
    deletionGracePeriodSeconds: grace,
    plan,
    controller: 'ReplicaSet/web-5',
    owner: 'Deployment/web',
  });
  const identity = { namespace: 'shop', name: 'web-1', uid: 'u1' };
  return {
    api,
    log,
    review,
    events,
    held,
    registry,
    /** A pod that is deleted at 0 and is gone at `goneAt`, in seconds. */
    ends: (plan: string | undefined, goneAt: number, grace = 90) => {
      const pod = object(plan, grace);
      review.pod({ type: 'modified', listed: false, at: 0, identity, object: pod });
      // What the kubelet's own deletion makes of a pod that has stopped.
      const stopped = { ...pod, deletionGracePeriodSeconds: 0 };
      review.pod({ type: 'modified', listed: false, at: goneAt * 1000, identity, object: stopped });
      const gone = { type: 'deleted', relist: false, at: goneAt * 1000, identity, object: pod } as const;
      review.pod(gone);
    },
    begins: (plan: string | undefined, grace = 90) => {
      const pod = object(plan, grace);
      review.pod({ type: 'modified', listed: false, at: 0, identity, object: pod });
    },
    told: () => log.since(0).map(({ reason, seconds }) => [reason, seconds]),
  };
}

type Told = readonly (readonly [TerminationReason, number])[];
test.each<[string, string | undefined, Partial<HeldPod> | undefined, number, Told]>([
  ['a sleep, and an end in time', SLEEP, undefined, 50, []],
  ['a sleep, and an end long after', SLEEP, undefined, 75, [['SlowStop', 45]]],
  ['no plan', undefined, undefined, 75, []],
  ['held, and an end in time', HOLD, { calledAt: 100, releasedAt: 10_000 }, 12, []],
  ['held, and an end long after', HOLD, { calledAt: 100, releasedAt: 10_000 }, 60, [['SlowStop', 50]]],
  ['held, and gone before it was let go', HOLD, { calledAt: 100 }, 80, []],
  ['never called', HOLD, {}, 31, [['HoldUnreachable', 31]]],
  ['a pod that the Hold Service does not know', HOLD, undefined, 31, []],
])('the end of a pod: %s', async (_, plan, heldPod, goneAt, expected) => {
  const { held, ends, told, events, registry } = await watching(-100, NONE_YET, true);
  if (heldPod !== undefined) held.set('u1', heldPod);
  ends(plan, goneAt, plan === SLEEP ? 60 : 90);
  expect(told()).toEqual(expected);
  expect(events.map(({ reason, object }) => [reason, object.kind, object.name])).toEqual(
    expected.map(([reason]) => [reason, 'Deployment', 'web']),
  );
  const metric = await registry.metrics();
  for (const [reason] of expected)
    expect(metric).toContain(`linger_termination_findings_total{reason="${reason}",planned="true"} 1`);
});

const REMOVAL: RemovalSample = {
  namespace: 'shop',
  pod: 'web-1',
  uid: 'u1',
  lag: 1,
  at: 1_000,
  withdrawals: [],
};

test.each([
  ['gone after its wait', 40, 30],
  ['deleted by force during its wait', 12, 12],
])('a pod with a wait of 30 s, %s: when SIGTERM came', async (_, goneAt, after) => {
  const { log, review, begins, ends } = await watching();
  begins(SLEEP, 60);
  await review.removed(REMOVAL);
  ends(SLEEP, goneAt, 60);
  expect(terminationsIn(JSON.parse(log.text))?.terminations).toMatchObject([
    { gone: goneAt, sigterm: { after, by: 'computed' } },
  ]);
});

test.each<[string, Parameters<typeof samplePlan>[0], number, string, number | null]>([
  ['in all containers', {}, 12, 'InTime', 30],
  ['of which one may stop after 5 s, before', { least: 5 }, 12, 'Unknown', null],
  ['of which one may stop after 5 s, and all followed sooner', { least: 5 }, 2, 'InTime', null],
  ['which all have stopped too early for', { least: 5 }, 40, 'TooEarly', null],
])('a pod with a wait of 30 s %s', async (_, members, lag, outcome, after) => {
  const lags = plannedLags(measuredTable(0.1, { 'cluster-ip': 0.01, 'cluster-dns': 0.01 }));
  const { log, review, begins, ends, registry } = await watching(-100, lags);
  begins(samplePlan(members), 60);
  await review.removed({ ...REMOVAL, lag });
  expect(await registry.metrics()).toContain(`linger_terminations_total{outcome="${outcome}"} 1`);
  ends(samplePlan(members), 50, 60);
  const [ended] = terminationsIn(JSON.parse(log.text))?.terminations ?? [];
  expect(ended?.sigterm?.after ?? null).toBe(after);
});

test.each([
  ['a drain of its own as long as the lag', { 'Deployment/web': 15 }, 'InTime', []],
  ['a drain that is shorter', { 'Deployment/web': 2 }, 'TooEarly', [['StoppedTooEarly', 3.2]]],
  ['no drain that is known', {}, 'TooEarly', [['StoppedTooEarly', 5.2]]],
] as const)('a pod without a wait, with %s', async (_, drains, outcome, found) => {
  const lags = plannedLags(measuredTable(0.1, { 'cluster-ip': 0.2, 'cluster-dns': 0.2 }));
  const { api, review, begins, registry, told } = await watching(-100, lags, true, drains);
  const template = { spec: { containers: [{ name: 'app' }] } };
  api.put('/apis/apps/v1/namespaces/shop/replicasets/web-5', { metadata: {}, spec: { template } });
  begins(undefined);
  await review.removed({ ...REMOVAL, lag: 5 });
  expect(await registry.metrics()).toContain(`linger_terminations_total{outcome="${outcome}"} 1`);
  expect(told().map(([reason, seconds]) => [reason, Number(Number(seconds).toFixed(1))])).toEqual(found);
});

test('a workload that drains by itself is not stopped too early by its SIGTERM', async () => {
  const { api, review, begins, registry, told } = await watching(-100, NONE_YET, true);
  const labels = { 'serving.knative.dev/revision': 'web-1' };
  const template = { metadata: { labels }, spec: { containers: [{ name: 'app' }] } };
  api.put('/apis/apps/v1/namespaces/shop/replicasets/web-5', { metadata: {}, spec: { template } });
  begins(undefined);
  await review.removed({ ...REMOVAL, lag: 5 });
  expect(await registry.metrics()).toContain('linger_terminations_total{outcome="Unknown"} 1');
  expect(told()).toEqual([]);
});

test.each(['Sleep', 'Hold'] as const)(
  'a consumer with too few samples is not known, with hook %s as with the other',
  async (hook) => {
    // A built-in consumer needs 100 samples.
    const few = measuredTable(0.1, { 'cluster-ip': 0.5, 'cluster-dns': 0.5 }, 40);
    const { log, review, begins, ends } = await watching(-100, plannedLags(few), true);
    const plan = hook === 'Sleep' ? SLEEP : HOLD;
    begins(plan);
    await review.removed({ ...REMOVAL, lag: 1 });
    ends(plan, 50);
    const [ended] = terminationsIn(JSON.parse(log.text))?.terminations ?? [];
    expect(ended?.consumers).toEqual([{ name: 'cluster-ip', after: null, by: 'unknown' }]);
    expect(ended && terminationSummary(ended)).toMatch(/^Not known .*when cluster-ip dropped it/);
  },
);

test('what ends long after its removal is still reported of its workload', async () => {
  const { review, begins, ends, events } = await watching();
  begins(SLEEP);
  await review.removed(REMOVAL);
  ends(SLEEP, 75, 60);
  expect(events.map(({ reason, object }) => [reason, object.kind, object.name])).toEqual([
    ['SlowStop', 'Deployment', 'web'],
  ]);
});

test.each([
  ['by a replica that does not lead', 'never', true],
  ['by one that began to lead meanwhile: the one before knows who called', 5, true],
  ['where nothing listed the pod, which may never have run', -100, false],
] as const)('nothing is said of a call that has not come %s', async (_, ledSince, listed) => {
  const { held, ends, told } = await watching(ledSince, NONE_YET, listed);
  held.set('u1', {});
  ends(HOLD, 31);
  expect(told()).toEqual([]);
});

test('an undeclared sender is named by pod and owner, where the API server knows its address', async () => {
  const { log, api, review, begins, events } = await watching();
  const controller = { apiVersion: 'apps/v1', kind: 'StatefulSet', name: 'gateway', controller: true };
  const metadata = { name: 'gateway-0', namespace: 'infra', uid: 'g0', ownerReferences: [controller] };
  api.put('/api/v1/pods', { kind: 'PodMetadataList', items: [{ metadata }], metadata: {} });
  begins(HOLD);
  const pod = { uid: 'u1', namespace: 'shop', name: 'web-1', deletion: { at: 0, graceSeconds: 90 } };
  const undeclared = { connections: 40, seconds: 4, remotes: ['10.0.9.9'] };
  // A pod can name any address: nothing is found until another has seen it, too.
  const first = { pod: { ...pod, uid: 'u0' }, undeclared, consumers: [] } as unknown as Release;
  await review.released(first);
  await review.released(first);
  expect(events).toEqual([]);
  await review.released({ pod, open: 3, undeclared, consumers: [] } as unknown as Release);
  expect(events.map(({ type, reason }) => [type, reason])).toEqual([
    ['Normal', 'OpenAtStop'],
    ['Warning', 'UndeclaredConsumer'],
  ]);
  // In the tenant's namespace the address alone; whose it is stays in Linger's own.
  expect(events[1]?.note).toContain('from 10.0.9.9: declare');
  const from = ['10.0.9.9 (infra/gateway-0 of StatefulSet/gateway)'];
  expect(log.since(0)).toMatchObject([
    { connections: 40, owner: 'Deployment/web', from },
    { connections: 3 },
  ]);

  // One of several pods with this address: those in a node's network.
  api.put('/api/v1/pods', { kind: 'PodMetadataList', items: [{ metadata }, { metadata }], metadata: {} });
  await review.released({ pod: { ...pod, uid: 'u2' }, undeclared, consumers: [] } as unknown as Release);
  expect(log.since(0)).toContainEqual(expect.objectContaining({ uid: 'u2', from: ['10.0.9.9'] }));

  // The kubelet's probes, among others.
  const ofNode = { ...undeclared, remotes: ['10.0.9.9', '192.0.2.7', 'fd00:202:3:0:0:0:0:1'] };
  for (const uid of ['u3', 'u4'])
    await review.released({ pod: { ...pod, uid }, undeclared: ofNode, consumers: [] } as unknown as Release);
  const undeclaredOnes = log.since(0).filter(({ reason }) => reason === 'UndeclaredConsumer');
  const [, ...others] = undeclaredOnes.at(-1)?.from ?? [];
  expect(others).toEqual(['192.0.2.7 (node worker-3)', 'fd00:202:3:0:0:0:0:1 (node worker-3)']);
});

test('a sender without an address is found by two pods of a workload, not by its namesake elsewhere', async () => {
  const { log, review } = await watching();
  const undeclared = { connections: 40, seconds: 4, remotes: [] };
  const release = (uid: string, namespace: string) => {
    const pod = { uid, namespace, name: uid, deletion: { at: 0, graceSeconds: 90 } };
    return review.released({ pod, undeclared, consumers: [] } as unknown as Release);
  };
  await release('u1', 'shop');
  await release('u2', 'bank');
  expect(log.since(0)).toEqual([]);
  await release('u3', 'shop');
  expect(log.since(0)).toMatchObject([{ reason: 'UndeclaredConsumer', uid: 'u3' }]);
});

/** Kube-proxies follow within 4 s at the 99th percentile. */
const FOLLOWED = plannedLags(measuredTable(1, { 'cluster-ip': 4 }));

async function outcomesOf(registry: Registry): Promise<readonly string[]> {
  const text = await registry.getSingleMetricAsString('linger_terminations_total');
  return [...text.matchAll(/outcome="(\w+)"\} 1$/gm)].map(([, outcome = '']) => outcome);
}

test.each<[string, string | undefined, number, string, number]>([
  ['no wait at all', undefined, 90, 'TooEarly', 0],
  ['a wait that covers lists and consumers', SLEEP, 90, 'InTime', 30],
  ['the same wait, cut by the deletion’s grace', SLEEP, 2, 'TooEarly', 2],
])('%s: leader and follower say the same', async (_, plan, grace, outcome, waited) => {
  for (const leads of [-100, 'never'] as const) {
    const { api, log, review, begins, registry } = await watching(leads, FOLLOWED);
    const spec = { template: { spec: { containers: [{ name: 'app' }] } } };
    api.put('/apis/apps/v1/namespaces/shop/replicasets/web-5', { spec, metadata: { name: 'web-5' } });
    begins(plan, grace);
    await review.removed(REMOVAL);
    expect(await outcomesOf(registry)).toEqual([outcome]);
    const rows = [{ owner: 'Deployment/web', ended: 1, waits: [waited, waited], consumer: 'cluster-ip' }];
    expect(log.ended).toMatchObject(leads === 'never' ? [] : rows);
    // What Linger has not planned for counts apart: its alert is about waits that are too short.
    const found = `reason="StoppedTooEarly",planned="${plan !== undefined}"} 1`;
    const isFound = outcome === 'TooEarly' && leads !== 'never';
    expect((await registry.metrics()).includes(found)).toBe(isFound);
  }
});

test.each(['Sleep', 'Hold'])('a hook %s that was taken back: the author’s own counts', async (hook) => {
  const { api, log, review, begins, registry } = await watching(-100, FOLLOWED);
  const lifecycle = { preStop: { sleep: { seconds: 10 } } };
  const spec = { template: { spec: { containers: [{ name: 'app', lifecycle }] } } };
  api.put('/apis/apps/v1/namespaces/shop/replicasets/web-5', { spec, metadata: { name: 'web-5' } });
  begins(samplePlan({ v: hook === 'Hold' ? 2 : 1, hook, wait: 0, containers: [] }));
  await review.removed(REMOVAL);
  expect(await outcomesOf(registry)).toEqual(['InTime']);
  expect(log.ended).toMatchObject([{ noWait: 0, waits: [10, 10] }]);
});

const shell = (script: string) => ({ exec: { command: ['sh', '-c', script] } });
test.each<[string, readonly unknown[], object, string]>([
  ['a sleep in a script', [shell('sleep 20 && nginx -s quit')], {}, 'InTime'],
  [
    'a sleep by any path and shell',
    [{ exec: { command: ['/usr/bin/bash', '-ec', 'sleep 0.5m;'] } }],
    {},
    'InTime',
  ],
  ['a sleep that never runs', [{ exec: { command: ['sh', '-c', 'sleep', '15'] } }], {}, 'TooEarly'],
  ['a command of which nothing is known', [{ exec: { command: ['/drain'] } }], {}, 'Unknown'],
  ['no hook beside a command', [undefined, { exec: { command: ['/drain'] } }], {}, 'TooEarly'],
  ['a container that ends by itself', [{ sleep: { seconds: 20 } }], { restartPolicy: 'Never' }, 'InTime'],
])('a pod’s own hooks: %s', async (_, hooks, ending, outcome) => {
  const { api, review, begins, registry } = await watching(-100, FOLLOWED);
  const containers = hooks.map((preStop, index) => ({
    name: `c${index}`,
    ...(preStop !== undefined && { lifecycle: { preStop } }),
  }));
  const all = 'restartPolicy' in ending ? [...containers, { name: 'job', ...ending }] : containers;
  api.put('/apis/apps/v1/namespaces/shop/replicasets/web-5', {
    spec: { template: { spec: { containers: all } } },
    metadata: { name: 'web-5' },
  });
  begins(undefined);
  await review.removed(REMOVAL);
  expect(await outcomesOf(registry)).toEqual([outcome]);
});

test('a wait is not called enough while nothing is known of the consumers', async () => {
  const { log, review, begins, registry } = await watching();
  begins(SLEEP);
  await review.removed(REMOVAL);
  expect(await outcomesOf(registry)).toEqual(['Unknown']);
  expect(log.ended).toMatchObject([{ unknown: 1, unmeasured: ['cluster-ip'] }]);
});

test.each([
  ['Gone', { tooEarly: 0, unknown: 0 }],
  ['Max', { tooEarly: 1, cut: 1, cutBy: 'Max' }],
  ['Unsure', { unknown: 1 }],
] as const)('a held pod that is let go as %s is counted', async (reason, row) => {
  const { log, review, begins } = await watching(-100, FOLLOWED);
  begins(HOLD);
  const pod = { uid: 'u1', namespace: 'shop', name: 'web-1', deletion: { at: 0, graceSeconds: 90 } };
  await review.released({ pod, reason, heldMs: 1_500, consumers: [] } as unknown as Release);
  expect(log.ended).toMatchObject([{ owner: 'Deployment/web', ended: 1, waits: [1.5, 1.5], ...row }]);
});

const WITHDRAWN: RemovalSample = {
  ...REMOVAL,
  withdrawals: [{ ...REMOVAL, stage: 'EndpointSlice', name: 'web', version: '1' }],
};

test('the instants of a termination are kept once it is over, in whatever order its events come', async () => {
  for (const isGoneFirst of [true, false]) {
    const { log, review, begins, ends } = await watching(-100, FOLLOWED, true);
    if (isGoneFirst) ends(SLEEP, 40);
    else begins(SLEEP);
    await review.removed(WITHDRAWN);
    if (!isGoneFirst) ends(SLEEP, 40);
    expect(terminationsIn(JSON.parse(log.text))?.terminations).toEqual([
      {
        namespace: 'shop',
        pod: 'web-1',
        uid: 'u1',
        owner: 'Deployment/web',
        hook: 'Sleep',
        deletedAt: 1_700_000_000,
        omitted: 0,
        witness: null,
        release: '',
        withdrawals: [{ source: 'EndpointSlice', service: 'web', after: 1 }],
        consumers: [{ name: 'cluster-ip', after: expect.closeTo(5, 0), by: 'computed' }],
        sigterm: { after: 30, by: 'computed' },
        gone: 40,
      },
    ]);
  }
});

test('of a held pod, its release and what its helper saw are kept', async () => {
  const { log, review, held, begins, ends } = await watching(-100, FOLLOWED, true);
  held.set('u1', { calledAt: 100, releasedAt: 9_000 });
  begins(HOLD);
  await review.removed(WITHDRAWN);
  const consumers = [{ name: 'edge', by: 'word', at: 8_500 }];
  const pod = { uid: 'u1', namespace: 'shop', name: 'web-1', deletion: { at: 0, graceSeconds: 90 } };
  const release = { pod: { ...pod, releasedAt: 9_000 }, reason: 'Gone', heldMs: 9_000, consumers };
  await review.released({ ...release, open: 2, counted: { lastAt: 7_000 } } as unknown as Release);
  ends(HOLD, 11);
  expect(terminationsIn(JSON.parse(log.text))?.terminations).toMatchObject([
    {
      consumers: [{ name: 'edge', after: 8.5, by: 'seen' }],
      sigterm: { after: 9, by: 'seen' },
      release: 'Gone',
      witness: { last: 7, open: 2 },
      gone: 11,
    },
  ]);
});

test('a follower keeps no instants: the leader’s are the ones that are shared', async () => {
  const { log, review, ends } = await watching('never', FOLLOWED);
  ends(SLEEP, 40);
  await review.removed(WITHDRAWN);
  expect(log.text).toBe('');
});

test('pods that no Service lists are forgotten once they are gone, others once no removal can come', async () => {
  const { review } = await watching();
  const pod = (uid: string, app: string): PodMetadata => ({
    uid,
    namespace: 'shop',
    name: uid,
    labels: { app },
    heartbeat: undefined,
    plan: undefined,
    deletionTimestamp: '2026-11-22T10:00:00Z',
    deletionGracePeriodSeconds: 30,
    controller: 'Job/batch',
    owner: 'Job/batch',
  });
  const ends = (object: PodMetadata, at: number) => {
    const identity = { namespace: 'shop', name: object.name, uid: object.uid };
    review.pod({ type: 'modified', listed: false, at, identity, object });
    review.pod({ type: 'deleted', relist: false, at, identity, object });
  };
  for (let job = 0; job < 50_000; job += 1) ends(pod(`job-${job}`, 'batch'), 0);
  expect(review.size).toBe(0);
  ends(pod('web-2', 'web'), 0);
  expect(review.size).toBe(1);
  ends(pod('job', 'batch'), 300_000);
  expect(review.size).toBe(0);
});

test('a tenant whose pods all terminate with large plans leaves room to others', async () => {
  const { review, begins, ends, told, registry } = await watching();
  const large = (index: number): PodMetadata => ({
    uid: `evil-${index}`,
    namespace: 'evil',
    name: `evil-${index}`,
    labels: {},
    heartbeat: undefined,
    deletionTimestamp: '2026-11-22T10:00:00Z',
    deletionGracePeriodSeconds: 30,
    controller: 'Job/batch',
    owner: 'Job/batch',
    plan: `${index}`.padEnd(8_000, 'x'),
  });
  for (let index = 0; index < 6_000; index += 1) {
    const object = large(index);
    review.pod({ type: 'modified', listed: false, at: 0, identity: object, object });
  }
  begins(SLEEP);
  await review.removed({ ...REMOVAL, lag: 40 });
  expect(told()).toEqual([['StoppedTooEarly', 10]]);
  await review.removed({ ...REMOVAL, namespace: 'evil', uid: 'evil-5999', pod: 'evil-5999' });
  expect(await registry.metrics()).toContain('linger_terminations_total{outcome="Unknown"} 1');
  ends(undefined, 1);
  // What is gone gives its room back.
  for (let index = 0; index < 6_000; index += 1) {
    const object = large(index);
    review.pod({ type: 'deleted', relist: false, at: 1, identity: object, object });
  }
  expect(review.size).toBe(0);
});
