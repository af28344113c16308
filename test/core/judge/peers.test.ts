import { describe, expect, it } from 'vitest';
import type { Labels, ServiceRecord } from '../../../src/core/api/index.ts';
import type { Workload } from '../../../src/core/decision/index.ts';
import { anyPodOf, KnownPods, type PodsOf } from '../../../src/core/judge/index.ts';
import { budgetsOf, type DisruptionBudget, servingBeside } from '../../../src/core/judge/peers.ts';

const NAMESPACE = 'shop';
const range = (count: number) => Array.from({ length: count }, (_, index) => index);

function workload(name: string, labels: Labels, kind = 'Deployment'): Workload {
  return { kind, name, pod: { metadata: { labels } } } as unknown as Workload;
}

const groupOf = ({ kind, name, pod }: Workload, count = 1): PodsOf => ({
  of: `${kind}/${NAMESPACE}/${name}`,
  by: `${kind} ${name}`,
  labels: (pod as { metadata: { labels: Labels } }).metadata.labels,
  count,
});

const known = (...groups: readonly PodsOf[]) => new KnownPods(new Map([[NAMESPACE, groups]]));
const service = (selector: Labels, more: Partial<ServiceRecord> = {}) =>
  ({ namespace: NAMESPACE, name: 'web', selector, ...more }) as ServiceRecord;
const budget = (matchLabels: Labels, minAvailable: number): DisruptionBudget => ({
  namespace: NAMESPACE,
  name: 'budget',
  spec: { minAvailable, selector: { matchLabels } },
});

describe('the pods that serve beside those of a workload', () => {
  const WEB = { app: 'web' };
  const [a, b, c, d, e] = ['a', 'b', 'c', 'd', 'e'].map((name) => workload(name, { ...WEB, of: name }));
  if (!a || !b || !c || !d || !e) throw new Error('five workloads');
  const bare = workload('lone', WEB, 'Pod');
  const unowned = (count: number): PodsOf => ({ of: anyPodOf(NAMESPACE), by: 'Pod', labels: WEB, count });
  const beside = (of: Workload, groups: readonly PodsOf[], ...services: readonly ServiceRecord[]) =>
    servingBeside({ workload: of, namespace: NAMESPACE }, services, known(...groups));

  it.each<[what: string, Workload, groups: readonly PodsOf[], said: string | undefined]>([
    ['none but its own', a, [groupOf(a, 3)], undefined],
    ['another workload', a, [groupOf(a), groupOf(b, 2)], 'Deployment b (2)'],
    ['another with none', a, [groupOf(a), groupOf(b, 0)], undefined],
    [
      'another in two ReplicaSets',
      a,
      [groupOf(b, 2), { ...groupOf(b), labels: { ...WEB, 'pod-template-hash': 'x' } }],
      'Deployment b (3)',
    ],
    [
      'exactly three',
      d,
      [a, b, c, d].map((each) => groupOf(each)),
      'Deployment a (1), Deployment b (1), Deployment c (1)',
    ],
    [
      'more than are named',
      e,
      [a, b, c, d, e].map((each) => groupOf(each)),
      'Deployment a (1), Deployment b (1), Deployment c (1) and others',
    ],
    ['a bare pod, which is one of several', bare, [unowned(3)], 'Pod (2)'],
    ['a bare pod alone', bare, [unowned(1)], undefined],
  ])('%s', (_, of, groups, said) => {
    expect(beside(of, groups, service(WEB))).toBe(said);
  });

  it('for each of its Services', () => {
    const groups = [groupOf(a), groupOf(b)];
    expect(beside(a, groups, service(WEB), service({ of: 'a' }))).toBeUndefined();
    expect(beside(a, groups, service(WEB), service({ of: 'a' }, { headless: true }))).toBe(
      'Deployment b (1)',
    );
    expect(beside(a, groups, service({ ...WEB, 'pod-template-hash': 'stable' }))).toBe('Deployment b (1)');
    expect(beside(a, groups)).toBeUndefined();
  });

  it('for a budget, with its own at the count that is asked about', () => {
    const refusing = (minAvailable: number, groups: readonly PodsOf[]) => {
      const budgets = new Map([[NAMESPACE, [budget(WEB, minAvailable)]]]);
      const member = { workload: a, namespace: NAMESPACE, labels: { ...WEB, of: 'a' }, count: 2 };
      return budgetsOf(budgets, member, known(...groups)).refusing !== undefined;
    };
    expect(refusing(2, [groupOf(a, 7)])).toBe(true);
    expect(refusing(2, [groupOf(a, 7), groupOf(b)])).toBe(false);
    expect(refusing(3, [groupOf(a, 7), groupOf(b)])).toBe(true);
    expect(refusing(3, [groupOf(b), unowned(1)])).toBe(false);
  });
});

describe('how often the labels of pods are read, for twice the workloads', () => {
  /** Each workload has a Service and a budget of its own, and shares others with all. */
  function reads(count: number): number {
    let steps = 0;
    const own = range(count).map((i) => ({ app: `app-${i}`, tier: 'web' }));
    const workloads = own.map((labels, i) => workload(`app-${i}`, labels));
    const pods = known(
      ...workloads.map((each) => {
        const { labels, ...group } = groupOf(each, 2);
        return Object.defineProperty({ ...group, labels }, 'labels', {
          get: () => {
            steps += 1;
            return labels;
          },
        });
      }),
    );
    const shared = service({ tier: 'web' });
    const budgets = new Map([
      [NAMESPACE, [...own.map(({ app }) => budget({ app }, 1)), budget({ tier: 'web' }, 1)]],
    ]);
    for (const [i, each] of workloads.entries()) {
      const member = { workload: each, namespace: NAMESPACE, labels: own[i], count: 2 };
      servingBeside(member, [service({ app: `app-${i}` }), shared], pods);
      budgetsOf(budgets, member, pods);
    }
    return steps;
  }

  it('is about twice as often', () => {
    expect(reads(200)).toBeGreaterThan(200);
    expect(reads(400) / reads(200)).toBeLessThan(2.2);
  });
});
