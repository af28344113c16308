import { describe, expect, test } from 'vitest';
import { exactly } from '../../src/core/lag/combine.ts';
import { NOTHING_PLANNED, nextPlanned } from '../../src/core/lag/planned.ts';
import { NONE_YET, plannedLags } from '../../src/core/lag/planned-lags.ts';
import { decide, plannedLagOf } from '../../src/core/plan/decide.ts';
import type { Pod } from '../../src/core/plan/pod.ts';
import { estimateInWords, estimateOfWait } from '../../src/core/plan/wait-estimate.ts';
import type { World } from '../../src/core/plan/world.ts';
import { creationOf, type JsonObject, NAMESPACE, pod } from './sample-pod.ts';
import { clusterPolicy, consumer, service, worldOf } from './sample-world.ts';

const DAY = 86_400;

const known = (seconds: number, samples = 5_000) => ({
  lag: { scope: 'cluster' as const, samples, historySeconds: 2 * DAY, density: exactly(seconds), stages: [] },
  latest: 100,
});

/** Measured lags of the control plane, and of consumers by name. */
const measured = (cluster: number, consumers: Readonly<Record<string, number>> = {}) =>
  plannedLags(
    nextPlanned(
      NOTHING_PLANNED,
      {
        cluster: known(cluster),
        namespaces: new Map(),
        consumers: new Map(Object.entries(consumers).map(([name, seconds]) => [name, known(seconds)])),
      },
      100,
    ),
  );

const declaring = (lag: string) => consumer({}, 'gateway', { declared: { lag } });
const polled = (syncInterval: string) => consumer({}, 'gateway', { declared: { syncInterval } });
const reporting = (appliesTo: JsonObject = {}) => consumer(appliesTo, 'edge', { reports: {} });

function planIn(world: World) {
  const decision = decide(creationOf(pod()), world);
  if (decision.outcome === 'skip') throw new Error(`skipped: ${decision.reason}`);
  const { plan, notes, policy } = decision;
  const lag = plannedLagOf(pod() as Pod, NAMESPACE, world);
  const estimate = estimateOfWait(policy, lag, plan.wait);
  return {
    wait: plan.wait,
    why: plan.why,
    notes: notes.map(({ code }) => code),
    text: estimate && estimateInWords(estimate, plan.wait),
  };
}

describe('the wait covers the consumers that send traffic to the pod', () => {
  test.each<[string, JsonObject[], World['lags'], number, string, string[]]>([
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
      45,
      'declared',
      ['ConsumerNotMeasured'],
    ],
    ['a poll of 10 s after 1 s: 1.5 × 10.9 s', [polled('10s')], measured(1), 20, 'measured', []],
    ['a declared 20 s after 1 s', [declaring('20s')], measured(1), 35, 'measured', []],
    ['a measured 12 s after 1 s', [reporting()], measured(1, { edge: 12 }), 20, 'measured', []],
    ['the slower of two', [reporting(), declaring('20s')], measured(1, { edge: 12 }), 35, 'measured', []],
    [
      'measured, but of pods that others serve',
      [reporting({ namespaceSelector: { matchLabels: { a: 'b' } } })],
      measured(1, { edge: 12 }),
      5,
      'measured',
      [],
    ],
    ['kube-proxy, once the canary has seen enough', [], measured(1, { 'cluster-ip': 9 }), 15, 'measured', []],
    ['beyond max: a storm', [reporting()], measured(1, { edge: 100 }), 60, 'storm', ['StormNotCovered']],
  ])('%s', (_, documents, lags, wait, why, codes) => {
    const { notes, ...plan } = planIn(worldOf([clusterPolicy({}), ...documents], { lags }));
    expect(plan).toMatchObject({ wait, why });
    expect(notes.filter((code) => code !== 'ServicesUnknown')).toEqual(codes);
  });

  test('kube-proxy does not count for a pod of a headless Service', () => {
    const headless = service({ selector: { app: 'web' }, clusterIP: 'None' });
    const lags = measured(1, { 'cluster-ip': 9 });
    const world = worldOf([clusterPolicy({}), headless], { lags, servicesComplete: true });
    expect(planIn(world).wait).toBe(5);
  });
});

describe('explain shows each part', () => {
  test.each<[string, JsonObject[], World['lags'], string]>([
    [
      'declared',
      [declaring('20s')],
      measured(1),
      '(control plane 993ms, gateway 20.2s declared) of 5000 samples over 2 d, ×1.5 → 35s, covers 100.0 %',
    ],
    [
      'measured',
      [reporting()],
      measured(1, { edge: 12 }),
      '(control plane 993ms, edge 12.0s) of 5000 samples',
    ],
    [
      'not known',
      [reporting()],
      measured(1),
      'p99 993ms (control plane 993ms, edge unknown) of 5000 samples over 2 d, not all of them known → 30s',
    ],
    [
      'nothing but declared',
      [declaring('30s')],
      NONE_YET,
      'p99 29.9s (control plane unknown, gateway 29.9s declared) of 0 samples over 0 s, not all of them known → 45s',
    ],
  ])('%s', (_, documents, lags, text) => {
    expect(planIn(worldOf([clusterPolicy({}), ...documents], { lags })).text).toContain(text);
  });
});
