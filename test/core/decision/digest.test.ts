import { describe, expect, it, test } from 'vitest';
import { parsePlan, renderPlan } from '../../../src/core/decision/plan-codec.ts';
import { digestOf } from '../../../src/core/decision/policy-values.ts';
import { merge } from './sample-merge.ts';
import { pass } from './sample-pass.ts';
import { samplePlan } from './sample-plan.ts';
import { annotated, type JsonObject, pod } from './sample-pod.ts';
import { clusterPolicy, namespace, policy, snapshotOf } from './sample-snapshot.ts';

const NONE = '00000000';
const digest = (...args: Parameters<typeof merge>) => digestOf(merge(...args).policy);

/** A value of each field that is not built-in. */
const SPECS: readonly JsonObject[] = [
  { mode: 'Audit' },
  { pods: 'All' },
  { pods: 'Selected' },
  { exclude: ['Job'] },
  { containers: ['app'] },
  { containers: ['app', 'side'] },
  { wait: { fixed: '30s', from: 'Fixed' } },
  { wait: { percentile: 99.9 } },
  { wait: { safetyFactor: 2 } },
  { wait: { margin: '1s' } },
  { wait: { min: '6s' } },
  { wait: { max: '61s' } },
  { wait: { initial: '61s' } },
  { wait: { minSamples: 61 } },
  { wait: { minHistory: '61s' } },
  { hook: 'Sleep' },
  { hook: 'Exec' },
  { hold: { min: '6s' } },
  { hold: { max: '61s' } },
  { hold: { observe: true } },
  { hold: { delivery: 'Image' } },
  { existingHook: 'Extend' },
  { grace: { max: '61s' } },
  { ceiling: { wait: '61s' } },
  { ceiling: { mode: 'Audit' } },
  { overrides: { namespaces: false } },
  { overrides: { pods: false } },
];

describe('the digest of an effective policy', () => {
  it('differs for each value of each field', () => {
    const digests = SPECS.map((spec) => digest([clusterPolicy(spec)]));
    expect(new Set([NONE, ...digests]).size).toBe(SPECS.length + 1);
    for (const each of digests) expect(each).toMatch(/^[0-9a-f]{8}$/);
  });

  test.each<[string, string, string]>([
    [
      'what is built-in is what is declared to be so',
      digest([]),
      digest([clusterPolicy({ mode: 'Enforce' })]),
    ],
    [
      'a policy of the namespace and one of the cluster',
      digest([policy({ hook: 'Exec' })]),
      digest([clusterPolicy({ hook: 'Exec' })]),
    ],
    [
      'two policies and one that says as much',
      digest([clusterPolicy({ hook: 'Exec' }, 'a'), clusterPolicy({ pods: 'All' }, 'b')]),
      digest([clusterPolicy({ hook: 'Exec', pods: 'All' })]),
    ],
    [
      'a value that loses, and none',
      digest([clusterPolicy({ hook: 'Sleep' }), policy({ hook: 'Exec' })]),
      digest([policy({ hook: 'Exec' })]),
    ],
    [
      'a value that is forbidden, and none',
      digest([clusterPolicy({ overrides: { pods: false } })], { 'linger.dev/hook': 'Exec' }),
      digest([clusterPolicy({ overrides: { pods: false } })]),
    ],
    [
      'an annotation and a policy',
      digest([namespace({ 'linger.dev/wait': '45s' })]),
      digest([], { 'linger.dev/wait': '0.75m' }),
    ],
    [
      'a mode that a flag lowers, and one that a policy sets',
      digest([], {}, 'Audit'),
      digest([clusterPolicy({ mode: 'Audit' })]),
    ],
  ])('is the same of %s', (_, one, other) => expect(one).toBe(other));
});

describe('a plan', () => {
  const EXEC = snapshotOf([clusterPolicy({ hook: 'Exec' })]);
  const planIn = (object: JsonObject) =>
    (object.metadata as { annotations: Record<string, string> }).annotations['linger.dev/plan'] ?? '';

  it('names the digest of the policy in force when it was made, whatever is in force when it is asked again', () => {
    const { result } = pass(pod(), EXEC);
    expect(parsePlan(planIn(result))?.digest).toBe(digest([clusterPolicy({ hook: 'Exec' })]));
    expect(pass(result, snapshotOf([])).operations).toEqual([]);
  });

  it('of an older version has none, and gets none', () => {
    const { digest: _, ...older } = parsePlan(samplePlan()) ?? {};
    const text = renderPlan(older as Parameters<typeof renderPlan>[0]);
    expect(text).not.toContain('digest');
    expect(parsePlan(text)).toEqual(older);
    const { result } = pass(pod(), snapshotOf([]));
    expect(pass(annotated({ 'linger.dev/plan': text }, result.spec), snapshotOf([])).operations).toEqual([]);
  });

  test.each(['', 'x0000000', '0000000', '000000000', '0000000A', 7, null])(
    'counts without a digest that is none: %j',
    (none) =>
      expect(parsePlan(samplePlan({ digest: none }))).toEqual(parsePlan(samplePlan({ digest: undefined }))),
  );
});
