import { describe, expect, it } from 'vitest';
import type { ClusterSnapshot } from '../../../src/core/decision/cluster-snapshot.ts';
import { type Explained, explain, summaryOf } from '../../../src/core/decision/explanation.ts';
import type { Plan } from '../../../src/core/decision/plan.ts';
import { heldSnapshot } from './sample-hold.ts';
import { cutTo, pass } from './sample-pass.ts';
import { annotated, type PodObject, planIn, pod, podOf, server } from './sample-pod.ts';
import { clusterPolicy, EMPTY_SNAPSHOT, snapshotOf } from './sample-snapshot.ts';

const FIXED = { wait: { from: 'Fixed', fixed: '20s' } };

function explained(object: PodObject, snapshot: ClusterSnapshot = EMPTY_SNAPSHOT): Explained {
  const workload = { kind: 'Deployment', name: 'web' } as Explained['workload'];
  return { workload, namespace: 'shop', decision: pass(object, snapshot).decision };
}

describe('in one line', () => {
  it.each<[string, PodObject, ClusterSnapshot]>([
    ['wait 30s, grace 30s → 60s, hook Sleep', pod(), EMPTY_SNAPSHOT],
    [
      'wait 20s, grace 45s → 65s, hook Sleep',
      pod({ terminationGracePeriodSeconds: 45 }),
      snapshotOf([clusterPolicy(FIXED)]),
    ],
    [
      'wait 30s, grace 30s → 60s, hook Sleep (mode Audit: left unchanged)',
      pod(),
      snapshotOf([clusterPolicy({ mode: 'Audit' })]),
    ],
    [
      'wait 30s, grace 30s → 90s, hook Hold for 5s to 60s',
      pod(),
      heldSnapshot([clusterPolicy({ hook: 'Hold' })]),
    ],
    ['skipped, ModeOff: ', pod(), snapshotOf([clusterPolicy({ mode: 'Off' })])],
  ])('%s', (line, object, snapshot) => {
    expect(summaryOf(explained(object, snapshot))).toContain(`Deployment shop/web: ${line}`);
  });
});

describe('as JSON', () => {
  it('says the whole plan, and where each field comes from', () => {
    const found = explain(explained(podOf(server('app'), server('log')), snapshotOf([clusterPolicy(FIXED)])));
    expect(found).toMatchObject({
      kind: 'Deployment',
      namespace: 'shop',
      name: 'web',
      outcome: 'inject',
      mode: 'Enforce',
      reason: null,
      waitSeconds: 20,
      graceSeconds: 50,
      baseGraceSeconds: 30,
      hook: 'Sleep',
      hold: null,
      admitted: null,
      containers: ['app', 'log'],
      why: 'fixed',
      estimate: null,
      observers: [],
    });
    const fields = new Map(found.fields.map(({ field, ...each }) => [field, each]));
    expect(fields.get('wait.fixed')).toEqual({ value: '20s', origin: 'ClusterTerminationPolicy/base' });
    expect(fields.get('wait.max')).toEqual({ value: '1m', origin: 'built-in' });
    expect(fields.get('grace.max')).toEqual({ value: '10m', origin: 'built-in' });
    expect(fields.get('hold.observe')).toEqual({ value: false, origin: 'built-in' });
  });

  it('says which values would have won but were not allowed to', () => {
    const strict = clusterPolicy({ ...FIXED, overrides: { pods: false } });
    const { fields } = explain(explained(annotated({ 'linger.dev/wait': '50s' }), snapshotOf([strict])));
    const ignored = fields.filter((each) => each.ignored !== undefined);
    expect(ignored).toMatchObject([
      { field: 'wait.from', value: 'Fixed', ignored: [{ value: 'Fixed' }] },
      { field: 'wait.fixed', value: '20s', ignored: [{ value: '50s', because: 'overrides.pods' }] },
    ]);
  });

  it.each([true, false])('says the terms of a hold; observe: %s', (observe) => {
    const hold = { min: '7s', max: '80s', observe };
    const found = explain(explained(pod(), heldSnapshot([clusterPolicy({ hook: 'Hold', hold })])));
    expect(found).toMatchObject({ hook: 'Hold', hold: { minSeconds: 7, maxSeconds: 80, observe } });
  });

  it('says why nothing is injected', () => {
    const found = explain(explained(pod(), snapshotOf([clusterPolicy({ mode: 'Off' })])));
    expect(found).toMatchObject({ outcome: 'skip', reason: 'ModeOff', waitSeconds: null, hook: null });
    expect(found).toMatchObject({ containers: [], why: null, graceSeconds: null, baseGraceSeconds: null });
  });
});

describe('a grace that was cut afterwards', () => {
  const WEB = explained(pod(), snapshotOf([clusterPolicy(FIXED)]));
  const cut = (() => {
    const snapshot = snapshotOf([clusterPolicy(FIXED)]);
    const { result } = pass(pod(), snapshot);
    cutTo(35)(result);
    return planIn(pass(result, snapshot).result) as Plan;
  })();

  it('is said, with how much it takes from the wait', () => {
    expect(cut).toMatchObject({ wait: 5, grace: 35, baseGrace: 30 });
    const { notes } = explain(WEB, [cut]);
    expect(notes).toMatchObject([{ code: 'WaitShrunk' }]);
    expect(notes[0]?.text).toContain('running pods wait 5s instead of 20s');
    expect(notes[0]?.text).toContain('from 50s to 35s');
  });

  it.each<[string, Partial<Plan>]>([
    ['the same grace', { grace: 50 }],
    ['another policy', { digest: 'another' }],
    ['another grace of its author', { baseGrace: 31 }],
    ['another reason for the wait', { why: 'initial' }],
  ])('is not said of a pod with %s', (_, change) => {
    expect(explain(WEB, [{ ...cut, ...change }]).notes).toEqual([]);
  });

  it('is not said where nothing is injected', () => {
    const off = explained(pod(), snapshotOf([clusterPolicy({ mode: 'Off' })]));
    expect(explain(off, [cut]).notes).toEqual([]);
  });
});
