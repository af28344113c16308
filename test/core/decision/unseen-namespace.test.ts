import { describe, expect, it, test } from 'vitest';
import {
  type LabelSelector,
  namespaceRecord,
  selectsNamespace,
  unseenNamespace,
} from '../../../src/core/api/index.ts';
import { decide } from '../../../src/core/decision/decide.ts';
import { annotated, creationOf, type JsonObject, pod } from './sample-pod.ts';
import { clusterPolicy, namespace, policy, snapshotOf } from './sample-snapshot.ts';

const PROD = { namespaceSelector: { matchLabels: { env: 'prod' } } };

const decided = (documents: readonly JsonObject[], object: JsonObject = pod()) =>
  decide(creationOf(object), snapshotOf(documents));
const modeOf = (...documents: readonly JsonObject[]) => decided(documents).policy?.mode;

describe('whether a selector matches a Namespace that has not been seen', () => {
  const NAME = 'kubernetes.io/metadata.name';
  test.each<[string, LabelSelector, boolean | 'unknown']>([
    ['everything', {}, true],
    ['its name', { matchLabels: { [NAME]: 'shop' } }, true],
    ['another name', { matchLabels: { [NAME]: 'api' } }, false],
    ['a label', { matchLabels: { env: 'prod' } }, 'unknown'],
    ['its name and a label', { matchLabels: { [NAME]: 'shop', env: 'prod' } }, 'unknown'],
    ['another name and a label', { matchLabels: { [NAME]: 'api', env: 'prod' } }, false],
    ['not its name', { matchExpressions: [{ key: NAME, operator: 'NotIn', values: ['shop'] }] }, false],
    ['not another', { matchExpressions: [{ key: NAME, operator: 'NotIn', values: ['api'] }] }, true],
    ['no label', { matchExpressions: [{ key: 'env', operator: 'DoesNotExist' }] }, 'unknown'],
    ['any value', { matchExpressions: [{ key: 'env', operator: 'Exists' }] }, 'unknown'],
  ])('%s: as it should', (_, selector, expected) => {
    expect(selectsNamespace(selector, unseenNamespace('shop'))).toBe(expected);
  });

  it('of one that has been seen it is never unknown', () => {
    const seen = namespaceRecord('shop', {}, {});
    expect(selectsNamespace({ matchLabels: { env: 'prod' } }, seen)).toBe(false);
  });
});

describe('while a policy that may apply says Audit or Off, nothing is enforced', () => {
  test.each(['Audit', 'Off'])('mode %s', (mode) => {
    const { policy: inForce, notes } = decided([clusterPolicy({ ...PROD, mode })]);
    expect(inForce?.mode).toMatchObject({ value: 'Audit', origin: 'ClusterTerminationPolicy/base' });
    expect(notes.map(({ code }) => code)).toContain('NamespaceUnknown');
    expect(notes.find(({ code }) => code === 'NamespaceUnknown')?.text).toContain(
      'ClusterTerminationPolicy/base',
    );
  });

  test.each(['Audit', 'Off'])('ceiling.mode %s', (mode) => {
    expect(modeOf(clusterPolicy({ ...PROD, ceiling: { mode } }))?.value).toBe('Audit');
  });

  it('whatever the pod asks for', () => {
    const object = annotated({ 'linger.dev/mode': 'Enforce' });
    expect(decided([clusterPolicy({ ...PROD, mode: 'Audit' })], object).policy?.mode.value).toBe('Audit');
  });

  it('Off stays Off', () => {
    expect(
      modeOf(clusterPolicy({ ...PROD, mode: 'Audit' }), clusterPolicy({ mode: 'Off' }, 'all'))?.value,
    ).toBe('Off');
  });

  it('an override that it forbids is ignored', () => {
    const documents = [clusterPolicy({ ...PROD, overrides: { pods: false } })];
    const { policy: inForce } = decided(documents, annotated({ 'linger.dev/wait': '90s' }));
    expect(inForce?.['wait.from'].value).toBe('Measured');
  });

  it('but what it says of the wait does not count', () => {
    const documents = [clusterPolicy({ ...PROD, wait: { from: 'Fixed', fixed: '5s' } })];
    expect(decided(documents)).toMatchObject({ outcome: 'inject', plan: { wait: 30 } });
  });
});

describe('is enforced', () => {
  test.each<[string, JsonObject[]]>([
    ['where no policy says otherwise', [clusterPolicy({ ...PROD, mode: 'Enforce' })]],
    ['where the policy is for another Namespace', [policy({ mode: 'Audit' }, 'team', 'other')]],
    [
      'where the policy is for other pods',
      [clusterPolicy({ ...PROD, podSelector: { matchLabels: { app: 'api' } }, mode: 'Off' })],
    ],
    [
      'once the Namespace has been seen without the label',
      [namespace(), clusterPolicy({ ...PROD, mode: 'Audit' })],
    ],
  ])('%s', (_, documents) => {
    expect(decided(documents).policy?.mode.value).toBe('Enforce');
    expect(decided(documents).notes.map(({ code }) => code)).not.toContain('NamespaceUnknown');
  });
});
