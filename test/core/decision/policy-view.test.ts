import { describe, expect, it } from 'vitest';
import { type ClusterTerminationPolicy, parseDocument } from '../../../src/core/api/index.ts';
import { policyView } from '../../../src/core/decision/policy-view.ts';
import type { JsonObject } from './sample-pod.ts';
import { clusterPolicy, snapshotOf } from './sample-snapshot.ts';

describe('what a policy gives the pods that it selects', () => {
  it.each<[string, JsonObject]>([
    ['everything', {}],
    ['a label', { matchLabels: { tier: 'web' } }],
    [
      'one of several values',
      { matchExpressions: [{ key: 'tier', operator: 'In', values: ['web', 'api'] }] },
    ],
    ['a label of any value', { matchExpressions: [{ key: 'tier', operator: 'Exists' }] }],
    ['no such label', { matchExpressions: [{ key: 'tier', operator: 'DoesNotExist' }] }],
    ['none of these values', { matchExpressions: [{ key: 'tier', operator: 'NotIn', values: ['batch'] }] }],
  ])('by %s', (_, selector) => {
    for (const selectors of [{ namespaceSelector: selector }, { podSelector: selector }]) {
      const document = clusterPolicy({ ...selectors, wait: { from: 'Fixed', fixed: '7s' } });
      const parsed = parseDocument(document, 'policy') as ClusterTerminationPolicy;
      expect(policyView(parsed, snapshotOf([document]))).toMatchObject({ wait: 7, why: 'fixed' });
    }
  });
});
