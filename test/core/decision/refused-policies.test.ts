import { describe, expect, it } from 'vitest';
import { parseDocument, type TerminationPolicy } from '../../../src/core/api/index.ts';
import { effectivePolicy } from '../../../src/core/decision/policy-merge.ts';
import { policyView } from '../../../src/core/decision/policy-view.ts';
import { codesOf, NAMESPACE } from './sample-pod.ts';
import { clusterPolicy, namespace, policy, snapshotOf } from './sample-snapshot.ts';

const forbidding = clusterPolicy({ overrides: { namespaces: false } });
const SPEC = { mode: 'Off', hook: 'Exec', wait: { from: 'Fixed', fixed: '9s' }, grace: { max: '90s' } };
const nameOf = (index: number) => `p${String(index).padStart(5, '0')}`;

/** What a decision tells of this many TerminationPolicies that may not override. */
function refusing(count: number) {
  const policies = Array.from({ length: count }, (_, index) => policy(SPEC, nameOf(index)));
  const snapshot = snapshotOf([forbidding, namespace(), namespace({}, {}, 'other'), ...policies]);
  const merge = (name: string) => {
    const record = snapshot.namespaces.get(name);
    if (record === undefined) throw new Error(`no namespace ${name}`);
    return effectivePolicy(snapshot.policies, { namespace: record, labels: {}, annotations: {} }, 'Enforce');
  };
  const own = merge(NAMESPACE);
  const texts = own.notes.map(({ text }) => text);
  const ignored = Object.values(own.policy).map((leaf) => leaf.ignored.length);
  return { snapshot, merge, texts, mostIgnored: Math.max(...ignored), codes: codesOf(own) };
}

describe('TerminationPolicies that may not override', () => {
  it('are refused once each, with their fields', () => {
    const { texts, codes } = refusing(2);
    expect(codes).toEqual(['OverrideIgnored', 'OverrideIgnored']);
    expect(texts).toEqual(
      [0, 1].map(
        (index) =>
          `mode, wait.from, wait.fixed and 2 more from TerminationPolicy/shop/${nameOf(index)} are ignored: overrides.namespaces is false (ClusterTerminationPolicy/base)`,
      ),
    );
  });

  it('cost a decision the same, however many there are', () => {
    const [some, many] = [refusing(100), refusing(5_000)];
    expect(many.texts.length).toBe(some.texts.length);
    expect(many.texts.length).toBeLessThan(10);
    expect(many.mostIgnored).toBe(some.mostIgnored);
    expect(many.texts.join('').length).toBeLessThan(some.texts.join('').length + 100);
    expect(many.texts.at(-1)).toContain('4992 more TerminationPolicies of the namespace');
    // The last one, which would have won, is among those that are named.
    expect(many.texts.join()).toContain(nameOf(4_999));
  });

  it('are nothing to the pods of another namespace', () => {
    expect(refusing(5_000).merge('other').notes).toEqual([]);
  });

  it('have a status that says so of each field, without the others’ refusals', () => {
    const { snapshot } = refusing(1_000);
    const view = policyView(parseDocument(policy(SPEC, nameOf(0)), 'p') as TerminationPolicy, snapshot);
    expect(view.forbiddenBy).toBe('ClusterTerminationPolicy/base');
    const why = 'overrides.namespaces (ClusterTerminationPolicy/base)';
    const fields = ['mode', 'wait.from', 'wait.fixed', 'hook', 'grace.max'];
    expect(view.ignored).toEqual(fields.map((field) => `${field}: ${why}`));
  });
});
