import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ClusterSnapshot } from '../../../src/core/decision/cluster-snapshot.ts';
import { decide } from '../../../src/core/decision/decide.ts';
import { estimateInWords } from '../../../src/core/decision/wait.ts';
import { NONE_YET, plannedLags } from '../../../src/core/lag/index.ts';
import { historyOf, measuredTable, START, tableOf } from '../lag/sample-table.ts';
import { creationOf, type JsonObject, pod } from './sample-pod.ts';
import { clusterPolicy, consumer, namespace, service, snapshotOf } from './sample-snapshot.ts';

/**
 * Measured lags of the control plane, and of consumers by name; kube-proxy and cluster DNS are quick where not given.
 * null: not measured.
 */
const measured = (cluster: number, consumers: Readonly<Record<string, number | null>> = {}) => {
  const all = Object.entries({ 'cluster-ip': 0.001, 'cluster-dns': 0.001, ...consumers });
  const known = all.filter((each): each is [string, number] => each[1] !== null);
  return plannedLags(measuredTable(cluster, Object.fromEntries(known)));
};

const declaring = (lag: string) => consumer({}, 'gateway', { declared: { lag } });
const polled = (syncInterval: string) => consumer({}, 'gateway', { declared: { syncInterval } });
const reporting = (appliesTo: JsonObject = {}) => consumer(appliesTo, 'edge', { reports: {} });

function planIn(snapshot: ClusterSnapshot) {
  const decision = decide(creationOf(pod()), snapshot);
  if (decision.outcome === 'skip') throw new Error(`skipped: ${decision.reason}`);
  const { plan, notes, estimate } = decision;
  return {
    wait: plan.wait,
    why: plan.why,
    coverage: plan.coverage ?? null,
    notes: notes.map(({ code }) => code),
    text: estimate && estimateInWords(estimate, plan.wait),
  };
}

describe('the wait covers the consumers that send traffic to the pod', () => {
  test.each<[string, JsonObject[], ClusterSnapshot['lags'], number, string, string[]]>([
    ['nothing known, nothing declared', [], NONE_YET, 30, 'initial', []],
    ['nothing measured, a short lag declared', [declaring('10s')], NONE_YET, 30, 'initial', []],
    ['nothing measured, a poll of 10 s declared', [polled('10s')], NONE_YET, 30, 'initial', []],
    ['nothing measured, a long lag declared: 1.5 × 30 s', [declaring('30s')], NONE_YET, 45, 'declared', []],
    ['nothing measured, one beyond max declared', [declaring('90s')], NONE_YET, 60, 'declared', []],
    [
      'the control plane measured, a consumer not yet',
      [reporting()],
      measured(1),
      30,
      'initial',
      ['ConsumerNotMeasured'],
    ],
    [
      'the same, and another declared',
      [reporting(), declaring('30s')],
      measured(1),
      50,
      'measured',
      ['ConsumerNotMeasured'],
    ],
    ['a poll of 10 s after 1 s: 1.5 × 10.9 s', [polled('10s')], measured(1), 20, 'measured', []],
    ['a declared 20 s after 1 s', [declaring('20s')], measured(1), 35, 'measured', []],
    ['a measured 12 s after 1 s', [reporting()], measured(1, { edge: 12 }), 20, 'measured', []],
    ['the slower of two', [reporting(), declaring('20s')], measured(1, { edge: 12 }), 35, 'measured', []],
    [
      'measured, but of pods that others serve',
      [namespace(), reporting({ namespaceSelector: { matchLabels: { a: 'b' } } })],
      measured(1, { edge: 12 }),
      5,
      'measured',
      [],
    ],
    ['kube-proxy, once the canary has seen enough', [], measured(1, { 'cluster-ip': 9 }), 15, 'measured', []],
    ['beyond max: a storm', [reporting()], measured(1, { edge: 100 }), 60, 'storm', ['StormNotCovered']],
  ])('%s', (_, documents, lags, wait, why, codes) => {
    const { notes, ...plan } = planIn(snapshotOf([clusterPolicy({}), ...documents], { lags }));
    expect(plan).toMatchObject({ wait, why });
    expect(notes.filter((code) => code !== 'ServicesUnknown')).toEqual(codes);
  });

  test.each<[string, JsonObject, number]>([
    ['a headless Service: cluster DNS counts, kube-proxy does not', { clusterIP: 'None' }, 50],
    ['a Service with a ClusterIP: kube-proxy counts, cluster DNS does not', {}, 15],
  ])('%s', (_, spec, wait) => {
    const lags = measured(1, { 'cluster-ip': 9, 'cluster-dns': 31 });
    const selecting = service({ selector: { app: 'web' }, ...spec });
    const snapshot = snapshotOf([clusterPolicy({}), selecting], { lags, servicesComplete: true });
    expect(planIn(snapshot).wait).toBe(wait);
  });
});

describe('what is unknown never shortens a wait', () => {
  const edge = reporting();

  test.each<[string, JsonObject[], ClusterSnapshot['lags'], number, string, string[]]>([
    ['the control plane alone at 38 s', [], measured(38), 60, 'measured', []],
    [
      'and a consumer of which nothing is known',
      [edge],
      measured(38),
      60,
      'measured',
      ['ConsumerNotMeasured'],
    ],
    ['a calm control plane, kube-proxy at 20 s', [], measured(0.2, { 'cluster-ip': 20 }), 35, 'measured', []],
    [
      'a calm control plane, kube-proxy not measured',
      [],
      measured(0.2, { 'cluster-ip': null }),
      30,
      'initial',
      ['ConsumerNotMeasured'],
    ],
    [
      'a calm control plane, a consumer declared at 5 s, another not known',
      [edge, declaring('5s')],
      measured(0.2),
      30,
      'initial',
      ['ConsumerNotMeasured'],
    ],
    [
      'nothing of the control plane, a consumer measured at 25 s',
      [edge],
      plannedLags(measuredTable(undefined, { 'cluster-ip': 0.001, edge: 25 })),
      40,
      'measured',
      [],
    ],
  ])('%s', (_, documents, lags, wait, why, codes) => {
    const behind = service({ selector: { app: 'web' } });
    const snapshot = snapshotOf([clusterPolicy({}), behind, ...documents], { lags, servicesComplete: true });
    const { notes, ...plan } = planIn(snapshot);
    expect(plan).toMatchObject({ wait, why });
    expect(notes).toEqual(codes);
    // Coverage is stated only where every part is known.
    expect(plan.coverage === null).toBe(codes.length > 0 || plan.text?.includes('unknown') === true);
  });

  test.each([
    [99, 30],
    [100, 15],
  ])('kube-proxy with %d samples of 9 s: %d s', (samples, wait) => {
    const consumers = new Map([['cluster-ip', historyOf([9], samples)]]);
    const lags = plannedLags(tableOf({ cluster: historyOf([0.2]), consumers }));
    const behind = service({ selector: { app: 'web' } });
    expect(planIn(snapshotOf([clusterPolicy({}), behind], { lags, servicesComplete: true })).wait).toBe(wait);
  });

  test.each([
    ['too few samples', 199, 2 * 86_400, 'initial'],
    ['too short a history', 5_000, 3_600, 'initial'],
    ['enough of both', 200, 2 * 86_400, 'measured'],
  ])('a DiscoveryConsumer counts once it has what the policy asks for: %s', (_, samples, span, why) => {
    const consumers = new Map([
      ['cluster-ip', historyOf([0.001])],
      ['edge', historyOf([9], samples, START, span)],
    ]);
    const lags = plannedLags(tableOf({ cluster: historyOf([0.2]), consumers }));
    const behind = service({ selector: { app: 'web' } });
    expect(planIn(snapshotOf([clusterPolicy({}), behind, edge], { lags, servicesComplete: true })).why).toBe(
      why,
    );
  });
});

describe('a pod that is created before its Service', () => {
  const edge = consumer({ serviceSelector: { matchLabels: { edge: 'yes' } } }, 'edge', {
    declared: { lag: '35s' },
  });

  test('gets the declared consumer that goes by certain Services, with a note', () => {
    const snapshot = snapshotOf([clusterPolicy({}), edge], { lags: measured(0.2), servicesComplete: true });
    const { wait, notes } = planIn(snapshot);
    expect(wait).toBe(55);
    expect(notes).toContain('ConsumerAssumed');
  });

  test('no longer does once a Service without that label selects it', () => {
    const behind = service({ selector: { app: 'web' } });
    const snapshot = snapshotOf([clusterPolicy({}), behind, edge], {
      lags: measured(0.2),
      servicesComplete: true,
    });
    expect(planIn(snapshot)).toMatchObject({ wait: 5, notes: [] });
  });
});

describe('one episode', () => {
  test('that lifts the wait is named, with the wait without it', () => {
    const cluster = historyOf([0.2], 3_000);
    for (let each = 0; each < 500; each += 1) cluster.record(25 + (each % 20) / 2, START - 7_000 + each / 10);
    const consumers = new Map([['cluster-ip', historyOf([0.001])]]);
    const lags = plannedLags(tableOf({ cluster, consumers }));
    const behind = service({ selector: { app: 'web' } });
    const decision = decide(
      creationOf(pod()),
      snapshotOf([clusterPolicy({}), behind], { lags, servicesComplete: true }),
    );
    const text = decision.notes.find(({ code }) => code === 'Episode')?.text;
    expect(text).toBe(
      'one episode (2024-10-03 22:00 to 2024-10-03 22:15 UTC, 14.7 % of the removals) raises the wait to 55s; without it, the wait would be 5s',
    );
  });
});

describe('explain shows each part', () => {
  test.each<[string, JsonObject[], ClusterSnapshot['lags'], string]>([
    [
      'declared',
      [declaring('20s')],
      measured(1),
      '(control plane 993ms, cluster-ip 1ms, cluster-dns 1ms, gateway 20.2s declared) of 5000 samples over 2 d, ×1.5 → 35s, covers 100.0 %',
    ],
    [
      'measured',
      [reporting()],
      measured(1, { edge: 12 }),
      '(control plane 993ms, cluster-ip 1ms, cluster-dns 1ms, edge 12.0s) of 5000 samples',
    ],
    [
      'not known',
      [reporting()],
      measured(1),
      'p99 993ms (control plane 993ms, cluster-ip 1ms, cluster-dns 1ms, edge unknown) of 5000 samples over 2 d, not all of them known → 30s',
    ],
    [
      'nothing but declared',
      [declaring('30s')],
      NONE_YET,
      'p99 29.9s (control plane unknown, cluster-ip unknown, cluster-dns unknown, gateway 29.9s declared) of 0 samples over 0 s, not all of them known → 45s',
    ],
  ])('%s', (_, documents, lags, text) => {
    expect(planIn(snapshotOf([clusterPolicy({}), ...documents], { lags })).text).toContain(text);
  });
});

test('declaring one more consumer that is not measured never shortens a wait, whatever the control plane is like', () => {
  const behind = service({ selector: { app: 'web' } });
  const seconds = fc.array(fc.double({ min: 0.01, max: 200, noNaN: true }), { minLength: 1, maxLength: 4 });
  fc.assert(
    fc.property(seconds, fc.option(fc.integer({ min: 1, max: 90 })), (list, declared) => {
      const consumers = new Map([['cluster-ip', historyOf([0.001])]]);
      const lags = plannedLags(tableOf({ cluster: historyOf(list, 400), consumers }));
      const known = [clusterPolicy({}), behind, ...(declared === null ? [] : [declaring(`${declared}s`)])];
      const waitWith = (documents: JsonObject[]) =>
        planIn(snapshotOf(documents, { lags, servicesComplete: true })).wait;
      expect(waitWith([...known, reporting()])).toBeGreaterThanOrEqual(waitWith(known));
    }),
    { numRuns: 40 },
  );
});

describe('what pods of a Service have seen', () => {
  const web = service({ selector: { app: 'web' } });
  const other = service({ selector: { app: 'web' } }, 'other');
  /** A gateway that polls every 10 s and is not declared. */
  const seen = { 'witness/shop/web': 9.5 };

  test.each<[string, JsonObject[], ClusterSnapshot['lags'], number, string]>([
    ['nothing', [web], measured(1), 5, 'measured'],
    ['somebody until 9.5 s after the withdrawal', [web], measured(1, seen), 20, 'measured'],
    [
      'by the pods of another Service',
      [service({ selector: { app: 'web' } }, 'other')],
      measured(1, seen),
      5,
      'measured',
    ],
    ['by those of one of two Services', [web, other], measured(1, seen), 20, 'measured'],
    ['less than what is declared', [web, declaring('30s')], measured(1, seen), 50, 'measured'],
    ['while a consumer is not known', [web, reporting()], measured(1, seen), 30, 'initial'],
    ['longer than initial', [web, reporting()], measured(1, { 'witness/shop/web': 25 }), 40, 'measured'],
  ])('%s', (_, documents, lags, wait, why) => {
    const plan = planIn(snapshotOf(documents, { lags, servicesComplete: true }));
    expect([plan.wait, plan.why]).toEqual([wait, why]);
  });

  test('is shown as a part of the lag', () => {
    const { text } = planIn(snapshotOf([web], { lags: measured(1, seen), servicesComplete: true }));
    expect(text).toMatch(/witness\/shop\/web 9\.\ds/);
  });

  test('before the control plane is known, never shortens', () => {
    const consumers = new Map([['witness/shop/web', historyOf([2], 60)]]);
    const lags = plannedLags(tableOf({ consumers }));
    expect(planIn(snapshotOf([web], { lags, servicesComplete: true })).wait).toBe(30);
  });
});
