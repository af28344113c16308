import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { selects } from '../../src/api/selector.ts';
import { decide } from '../../src/decision/decide.ts';
import { runs } from '../property/runs.ts';
import { creationOf, type JsonObject, pod } from './sample-pod.ts';
import { clusterPolicy, namespace, policy, worldOf } from './sample-world.ts';

const KEY = fc.constantFrom('app', 'tier', 'env');
const VALUE = fc.constantFrom('web', 'api', 'prod');
const LABELS = fc.dictionary(KEY, VALUE, { maxKeys: 3 });
const REQUIREMENT = fc.oneof(
  fc.record({
    key: KEY,
    operator: fc.constantFrom('In', 'NotIn'),
    values: fc.array(VALUE, { minLength: 1, maxLength: 3 }),
  }),
  fc.record({ key: KEY, operator: fc.constantFrom('Exists', 'DoesNotExist') }),
);
const SELECTOR = fc.record(
  { matchLabels: LABELS, matchExpressions: fc.array(REQUIREMENT, { maxLength: 2 }) },
  { requiredKeys: [] },
);

describe('policies are looked up by the labels that they ask for', () => {
  it('and those that apply are those whose selectors match, in layer order', () => {
    const policies = fc.array(
      fc.record({
        namespaceSelector: SELECTOR,
        podSelector: SELECTOR,
        priority: fc.integer({ min: 0, max: 2 }),
      }),
      { minLength: 20, maxLength: 60, size: 'max' },
    );
    fc.assert(
      fc.property(policies, LABELS, LABELS, (specs, labels, ofNamespace) => {
        const documents = specs.map((spec, index) => {
          const fixed = `${index + 10}s`;
          return clusterPolicy(
            { ...spec, wait: { from: 'Fixed', fixed } },
            `policy-${String(index).padStart(2, '0')}`,
          );
        });
        const applying = specs
          .map((spec, index) => ({ ...spec, index }))
          .filter(
            ({ namespaceSelector, podSelector }) =>
              selects(podSelector as never, labels) &&
              selects(namespaceSelector as never, { ...ofNamespace, 'kubernetes.io/metadata.name': 'shop' }),
          )
          .toSorted((a, b) => a.priority - b.priority || a.index - b.index);
        const last = applying.at(-1);
        const world = worldOf([namespace({}, ofNamespace), ...documents]);
        const { policy: inForce } = decide(creationOf(pod({}, { labels })), world);
        expect(inForce?.['wait.fixed'].value).toBe(last === undefined ? undefined : last.index + 10);
      }),
      runs(500),
    );
  });

  const many = (make: (index: number) => JsonObject) =>
    Array.from({ length: 10_000 }, (_, index) => make(index));
  const app = (index: number) => ({ podSelector: { matchLabels: { app: `app-${index}` } } });
  const team = (index: number) => ({ namespaceSelector: { matchLabels: { team: `team-${index}` } } });

  it.each([
    ['of a pod', [namespace(), ...many((index) => clusterPolicy(app(index), `p-${index}`))]],
    ['of a Namespace', [namespace(), ...many((index) => clusterPolicy(team(index), `p-${index}`))]],
    ['of a pod of one Namespace', many((index) => policy(app(index), `p-${index}`))],
  ])('10,000 that ask for a label %s cost a review little more than none', (_, documents) => {
    const request = creationOf(pod());
    // The shortest of several rounds: a busy machine makes any one of them long.
    const timed = (world: ReturnType<typeof worldOf>) =>
      Math.min(
        ...Array.from({ length: 5 }, () => {
          const started = performance.now();
          for (let count = 0; count < 100; count++) decide(request, world);
          return performance.now() - started;
        }),
      );
    const few = timed(worldOf([namespace()]));
    // One pass over 10,000 policies takes some 50 times as long as the whole decision.
    expect(timed(worldOf(documents))).toBeLessThan(Math.max(few, 1) * 10);
  });
});
