import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type LabelSelector,
  NAMESPACE_NAME_LABEL,
  selects,
  selectsNamespace,
  unseenNamespace,
} from '../../../src/core/api/index.ts';
import { decide } from '../../../src/core/decision/decide.ts';
import { runs } from '../../property/runs.ts';
import { creationOf, pod } from './sample-pod.ts';
import { clusterPolicy, namespace, snapshotOf } from './sample-snapshot.ts';

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
/** `shop` is the pod's. */
const NAME = fc.constantFrom('shop', 'blog');
const OF_NAME = fc.record({
  key: fc.constant(NAMESPACE_NAME_LABEL),
  operator: fc.constantFrom('In', 'NotIn'),
  values: fc.array(NAME, { minLength: 1, maxLength: 2 }),
});
const SELECTOR = fc.record(
  { matchLabels: LABELS, matchExpressions: fc.array(REQUIREMENT, { maxLength: 2 }) },
  { requiredKeys: [] },
);

describe('of many policies', () => {
  const POLICY = {
    namespaceSelector: SELECTOR,
    podSelector: SELECTOR,
    priority: fc.integer({ min: 0, max: 2 }),
  };
  const many60 = { minLength: 20, maxLength: 60, size: 'max' } as const;

  it('those that apply are those whose selectors match, in layer order', () => {
    const policies = fc.array(fc.record(POLICY), many60);
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
        const snapshot = snapshotOf([namespace({}, ofNamespace), ...documents]);
        const { policy: inForce } = decide(creationOf(pod({}, { labels })), snapshot);
        expect(inForce?.['wait.fixed'].value).toBe(last === undefined ? undefined : last.index + 10);
      }),
      runs(200),
    );
  });

  it('of a Namespace that has not been seen, those that may apply restrain, and those that do apply', () => {
    const namespaceSelector = fc.oneof(
      SELECTOR,
      fc.record({ matchLabels: fc.dictionary(fc.constant(NAMESPACE_NAME_LABEL), NAME, { minKeys: 1 }) }),
      fc.record({ matchLabels: LABELS, matchExpressions: fc.array(OF_NAME, { maxLength: 2 }) }),
    );
    const policies = fc.array(
      fc.record({
        ...POLICY,
        namespaceSelector,
        mode: fc.option(fc.constantFrom('Enforce', 'Audit'), { nil: undefined, freq: 50 }),
        refused: fc.option(fc.constant(false), { nil: undefined, freq: 50 }),
      }),
      many60,
    );
    fc.assert(
      fc.property(policies, LABELS, (specs, labels) => {
        const documents = specs.map(({ refused, ...spec }, index) =>
          clusterPolicy(
            {
              ...spec,
              wait: { from: 'Fixed', fixed: `${index + 10}s` },
              ...(refused === undefined ? {} : { overrides: { pods: refused } }),
            },
            `policy-${String(index).padStart(2, '0')}`,
          ),
        );
        const ofPod = specs
          .map((spec, index) => ({
            ...spec,
            index,
            applies: selectsNamespace(spec.namespaceSelector as LabelSelector, unseenNamespace('shop')),
          }))
          .filter(({ podSelector }) => selects(podSelector as LabelSelector, labels))
          .toSorted((a, b) => a.priority - b.priority || a.index - b.index);
        const applying = ofPod.filter(({ applies }) => applies === true);
        const unknown = ofPod.filter(({ applies }) => applies === 'unknown');
        const { policy: inForce } = decide(creationOf(pod({}, { labels })), snapshotOf(documents));
        const last = applying.at(-1);
        expect(inForce?.['wait.fixed'].value).toBe(last === undefined ? undefined : last.index + 10);
        const mode = applying.findLast((each) => each.mode !== undefined)?.mode ?? 'Enforce';
        const held = unknown.some((each) => each.mode === 'Audit');
        expect(inForce?.mode.value).toBe(held ? 'Audit' : mode);
        const refusing = [...applying, ...unknown].some(({ refused }) => refused === false);
        expect(inForce?.['overrides.pods'].value).toBe(!refusing);
      }),
      runs(200),
    );
  });
});
