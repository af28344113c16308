import { describe, expect, it, test } from 'vitest';
import type { Field } from '../../../src/core/decision/policy-values.ts';
import { merge, said } from './sample-merge.ts';
import { type JsonObject, NAMESPACE } from './sample-pod.ts';
import { clusterPolicy, namespace, policy } from './sample-snapshot.ts';

/** `a.b` and a value as the document that says it. */
function fragment(field: string, value: unknown): JsonObject {
  const [outer = '', inner] = field.split('.');
  if (inner === undefined) return { [outer]: value };
  const extra = field === 'wait.fixed' ? { from: 'Fixed' } : {};
  return { [outer]: { [inner]: value, ...extra } };
}

describe('the built-in layer', () => {
  test.each<[Field, unknown]>([
    ['mode', 'Enforce'],
    ['pods', 'Serving'],
    ['exclude', ['Job', 'DaemonSet']],
    ['containers', []],
    ['wait.from', 'Measured'],
    ['wait.fixed', undefined],
    ['wait.percentile', 99],
    ['wait.safetyFactor', 1.5],
    ['wait.margin', 0],
    ['wait.min', 5],
    ['wait.max', 60],
    ['wait.initial', 30],
    ['wait.minSamples', 200],
    ['wait.minHistory', 86_400],
    ['hook', 'Auto'],
    ['existingHook', 'Keep'],
    ['grace.max', 600],
    ['ceiling.wait', 300],
    ['ceiling.mode', 'Enforce'],
    ['overrides.namespaces', true],
    ['overrides.pods', true],
  ])('%s is %j', (field, value) => {
    expect(said(merge([]).policy, field)).toEqual([value, 'built-in']);
  });
});

/** Each leaf that both kinds of policy may set, with two values: as written, and as in force. */
const SHARED_LEAVES: readonly [Field, [unknown, unknown], [unknown, unknown]][] = [
  ['mode', ['Audit', 'Audit'], ['Off', 'Off']],
  ['pods', ['All', 'All'], ['Selected', 'Selected']],
  ['exclude', [['Job'], ['Job']], [[], []]],
  [
    'containers',
    [
      ['a', 'b'],
      ['a', 'b'],
    ],
    [['c'], ['c']],
  ],
  ['wait.from', ['Measured', 'Measured'], ['Measured', 'Measured']],
  ['wait.fixed', ['40s', 40], ['1m', 60]],
  ['wait.percentile', [90, 90], [99.9, 99.9]],
  ['wait.safetyFactor', [2, 2], [1, 1]],
  ['wait.margin', ['1s', 1], ['2s', 2]],
  ['wait.min', ['1s', 1], ['10s', 10]],
  ['wait.max', ['50s', 50], ['2m', 120]],
  ['wait.initial', ['12s', 12], ['45s', 45]],
  ['wait.minSamples', [10, 10], [1000, 1000]],
  ['wait.minHistory', ['1h', 3600], ['48h', 172_800]],
  ['hook', ['Exec', 'Exec'], ['Sleep', 'Sleep']],
  ['existingHook', ['Extend', 'Extend'], ['Keep', 'Keep']],
  ['grace.max', ['100s', 100], ['900s', 900]],
];

describe('a later layer wins, leaf by leaf', () => {
  test.each(SHARED_LEAVES)('%s: ClusterTerminationPolicy over built-in', (field, [written, value]) => {
    const { policy: inForce } = merge([clusterPolicy(fragment(field, written))]);
    expect(said(inForce, field)).toEqual([value, 'ClusterTerminationPolicy/base']);
  });

  test.each(SHARED_LEAVES)('%s: higher priority over lower', (field, [low], [written, value]) => {
    const { policy: inForce } = merge([
      clusterPolicy({ ...fragment(field, written), priority: 1 }, 'a-high'),
      clusterPolicy({ ...fragment(field, low), priority: -1 }, 'z-low'),
    ]);
    expect(said(inForce, field)).toEqual([value, 'ClusterTerminationPolicy/a-high']);
  });

  test.each(SHARED_LEAVES)(
    '%s: TerminationPolicy over ClusterTerminationPolicy',
    (field, [low], [written, value]) => {
      const { policy: inForce } = merge([
        policy({ ...fragment(field, written), priority: -9 }),
        clusterPolicy({ ...fragment(field, low), priority: 9 }),
      ]);
      expect(said(inForce, field)).toEqual([value, `TerminationPolicy/${NAMESPACE}/team`]);
    },
  );

  test.each<[Field, string, unknown, string, unknown]>([
    ['mode', 'linger.dev/mode', 'Audit', 'Off', 'Off'],
    ['wait.fixed', 'linger.dev/wait', '40s', '45s', 45],
    ['wait.from', 'linger.dev/wait', 'Measured', '45s', 'Fixed'],
    ['hook', 'linger.dev/hook', 'Sleep', 'Exec', 'Exec'],
    ['containers', 'linger.dev/containers', ['a', 'b'], 'c', ['c']],
    ['existingHook', 'linger.dev/existing-hook', 'Keep', 'Extend', 'Extend'],
  ])(
    '%s: Namespace annotation over TerminationPolicy, Pod annotation over both',
    (field, key, low, text, value) => {
      const documents = [policy(fragment(field, low)), namespace({ [key]: text })];
      expect(said(merge(documents).policy, field)).toEqual([value, `Namespace/${NAMESPACE} ${key}`]);

      const below = [policy(fragment(field, low)), namespace({ [key]: 'not valid' })];
      expect(said(merge(below, { [key]: text }).policy, field)).toEqual([value, `Pod ${key}`]);
    },
  );

  it('of equal priority, the later name wins, compared by code unit', () => {
    const { policy: inForce } = merge([
      clusterPolicy({ mode: 'Off' }, 'b'),
      clusterPolicy({ mode: 'Audit' }, 'a10'),
      clusterPolicy({ mode: 'Enforce' }, 'a2'),
    ]);
    expect(said(inForce, 'mode')).toEqual(['Off', 'ClusterTerminationPolicy/b']);
  });

  it('each leaf keeps the origin of the layer that set it', () => {
    const { policy: inForce } = merge(
      [
        clusterPolicy({ wait: { max: '90s', min: '10s' } }),
        policy({ wait: { max: '80s' } }),
        namespace({ 'linger.dev/hook': 'Exec' }),
      ],
      { 'linger.dev/mode': 'Audit' },
    );
    expect(said(inForce, 'wait.min')).toEqual([10, 'ClusterTerminationPolicy/base']);
    expect(said(inForce, 'wait.max')).toEqual([80, 'TerminationPolicy/shop/team']);
    expect(said(inForce, 'hook')).toEqual(['Exec', 'Namespace/shop linger.dev/hook']);
    expect(said(inForce, 'mode')).toEqual(['Audit', 'Pod linger.dev/mode']);
    expect(said(inForce, 'wait.initial')).toEqual([30, 'built-in']);
  });

  it('lists replace and do not add up', () => {
    const { policy: inForce } = merge([
      clusterPolicy({ exclude: ['StatefulSet'], containers: ['a'] }),
      policy({ containers: [] }),
    ]);
    expect(inForce.exclude.value).toEqual(['StatefulSet']);
    expect(said(inForce, 'containers')).toEqual([[], 'TerminationPolicy/shop/team']);
  });
});

describe('a policy counts only where it selects', () => {
  test.each<[string, JsonObject, boolean]>([
    ['the pod’s labels', clusterPolicy({ mode: 'Off', podSelector: { matchLabels: { app: 'web' } } }), true],
    [
      'other pods’ labels',
      clusterPolicy({ mode: 'Off', podSelector: { matchLabels: { app: 'api' } } }),
      false,
    ],
    [
      'the namespace by its own name',
      clusterPolicy({
        mode: 'Off',
        namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': NAMESPACE } },
      }),
      true,
    ],
    [
      'other namespaces',
      clusterPolicy({ mode: 'Off', namespaceSelector: { matchLabels: { team: 'payments' } } }),
      false,
    ],
    ['a policy of this namespace', policy({ mode: 'Off' }), true],
    ['a policy of another namespace', policy({ mode: 'Off' }, 'team', 'other'), false],
    [
      'one with another podSelector',
      policy({ mode: 'Off', podSelector: { matchLabels: { app: 'api' } } }),
      false,
    ],
  ])('%s', (_, document, counts) => {
    expect(merge([document]).policy.mode.value).toBe(counts ? 'Off' : 'Enforce');
  });

  it('a ceiling of a policy that does not select the pod does not bind it', () => {
    const podSelector = { matchLabels: { app: 'api' } };
    expect(
      merge([clusterPolicy({ podSelector, ceiling: { wait: '1s' } })]).policy['ceiling.wait'].value,
    ).toBe(300);
  });
});
