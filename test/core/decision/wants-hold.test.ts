import { describe, expect, it } from 'vitest';
import { namespaceRecord } from '../../../src/core/api/index.ts';
import { wantsHold } from '../../../src/core/decision/policy-set.ts';
import { clusterPolicy, policy, snapshotOf } from './sample-snapshot.ts';

const SHOP = namespaceRecord('shop', { team: 'web' }, {});
const annotated = (hook: string) => namespaceRecord('shop', {}, { 'linger.dev/hook': hook });

describe('a namespace wants the helper of Hold', () => {
  it.each([
    ['by a policy for all', [clusterPolicy({ hook: 'Hold' }, 'a')], SHOP, true],
    [
      'by one among others',
      [clusterPolicy({ hook: 'Sleep' }, 'a'), clusterPolicy({ hook: 'Hold' }, 'b')],
      SHOP,
      true,
    ],
    [
      'by one for some of its pods',
      [clusterPolicy({ hook: 'Hold', podSelector: { matchLabels: { a: 'b' } } }, 'a')],
      SHOP,
      true,
    ],
    [
      'by one that selects it',
      [clusterPolicy({ hook: 'Hold', namespaceSelector: { matchLabels: { team: 'web' } } }, 'a')],
      SHOP,
      true,
    ],
    [
      'not by one that selects others',
      [clusterPolicy({ hook: 'Hold', namespaceSelector: { matchLabels: { team: 'pay' } } }, 'a')],
      SHOP,
      false,
    ],
    ['by a policy of its own', [policy({ hook: 'Hold' }, 'a', 'shop')], SHOP, true],
    ['not by one of another namespace', [policy({ hook: 'Hold' }, 'a', 'pay')], SHOP, false],
    ['not for other hooks', [clusterPolicy({ hook: 'Exec' }, 'a'), clusterPolicy({}, 'b')], SHOP, false],
    [
      'not where the helper comes in an image',
      [clusterPolicy({ hook: 'Hold', hold: { delivery: 'Image' } }, 'a')],
      SHOP,
      false,
    ],
    ['by its annotation', [], annotated('Hold'), true],
    ['by its annotation in other letters', [], annotated('hold'), true],
    ['by its annotation, written as a block of YAML', [], annotated('Hold\n'), true],
    ['not by another annotation', [], annotated('Auto'), false],
    ['not by none', [], SHOP, false],
  ])('%s', (_what, documents, namespace, wants) => {
    expect(wantsHold(snapshotOf(documents).policies, namespace)).toBe(wants);
  });
});
