import { describe, expect, test } from 'vitest';
import { isCalledForPods, type LabelSelector, selects } from '../../../src/core/api/selector.ts';

const labels = { app: 'web', tier: 'front', empty: '' };

function expression(key: string, operator: 'In' | 'NotIn' | 'Exists' | 'DoesNotExist', ...values: string[]) {
  const requirement = values.length === 0 ? { key, operator } : { key, operator, values };
  return { matchExpressions: [requirement] };
}

describe('a LabelSelector selects as metav1 says', () => {
  test.each<[string, LabelSelector, boolean]>([
    ['nothing asked: everything', {}, true],
    ['no expression: everything', { matchLabels: {}, matchExpressions: [] }, true],
    ['an equal label', { matchLabels: { app: 'web' } }, true],
    ['another value', { matchLabels: { app: 'api' } }, false],
    ['all labels equal', { matchLabels: { app: 'web', tier: 'front' } }, true],
    ['one of two differs', { matchLabels: { app: 'web', tier: 'back' } }, false],
    ['an absent label', { matchLabels: { zone: 'a' } }, false],
    ['an empty value is a value', { matchLabels: { empty: '' } }, true],
    ['an absent label is no empty value', { matchLabels: { zone: '' } }, false],
    ['In', expression('app', 'In', 'api', 'web'), true],
    ['In, none of them', expression('app', 'In', 'api'), false],
    ['In, absent', expression('zone', 'In', 'a'), false],
    ['NotIn', expression('app', 'NotIn', 'api'), true],
    ['NotIn, one of them', expression('app', 'NotIn', 'web'), false],
    ['NotIn, absent: holds', expression('zone', 'NotIn', 'a'), true],
    ['Exists', expression('app', 'Exists'), true],
    ['Exists, with an empty value', expression('empty', 'Exists'), true],
    ['Exists, absent', expression('zone', 'Exists'), false],
    ['DoesNotExist', expression('zone', 'DoesNotExist'), true],
    ['DoesNotExist, present', expression('app', 'DoesNotExist'), false],
    [
      'labels and expressions both',
      { matchLabels: { app: 'web' }, ...expression('tier', 'In', 'back') },
      false,
    ],
    ['an inherited member is no label', expression('constructor', 'Exists'), false],
    ['an inherited member is absent', expression('toString', 'DoesNotExist'), true],
  ])('%s', (_, selector, expected) => {
    expect(selects(selector, labels)).toBe(expected);
  });
});

// Source: k8s.io/apiserver pkg/admission/plugin/webhook/predicates/rules: `*` behind the slash is also no subresource.
test.each([
  ['pods', true],
  ['pods/*', true],
  ['*', true],
  ['*/*', true],
  ['pods/status', false],
  ['*/status', false],
  ['podtemplates', false],
])('a webhook for %s is called for the creation of pods: %s', (resource, expected) => {
  const rule = { apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: [resource] };
  expect(isCalledForPods({ rules: [rule] })).toBe(expected);
});
