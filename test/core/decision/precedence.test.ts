import { describe, expect, it, test } from 'vitest';
import { BUILT_IN_VALUES, type Field } from '../../../src/core/decision/policy-values.ts';
import { ANNOTATIONS, FIELDS, specOf } from './field-values.ts';
import { merge, said } from './sample-merge.ts';
import { NAMESPACE } from './sample-pod.ts';
import { clusterPolicy, namespace, policy } from './sample-snapshot.ts';

/** Lowest first. */
const LAYERS = [
  'built-in',
  'ClusterTerminationPolicy',
  'ClusterTerminationPolicy of a higher priority',
  'TerminationPolicy',
  'TerminationPolicy of a higher priority',
  'Namespace annotation',
  'Pod annotation',
] as const;
type Layer = (typeof LAYERS)[number];

/** What a layer says, and under which name; undefined: it cannot say that. */
function saying(layer: Layer, field: Field, written: unknown) {
  const spec = specOf(field, written);
  const key = ANNOTATIONS[field];
  switch (layer) {
    case 'built-in':
      return { documents: [], annotations: {}, origin: 'built-in' };
    case 'ClusterTerminationPolicy':
      return { documents: [clusterPolicy(spec, 'z')], annotations: {}, origin: 'ClusterTerminationPolicy/z' };
    case 'ClusterTerminationPolicy of a higher priority': {
      const higher = clusterPolicy({ ...spec, priority: 1 }, 'a');
      return { documents: [higher], annotations: {}, origin: 'ClusterTerminationPolicy/a' };
    }
    case 'TerminationPolicy': {
      const lowest = policy({ ...spec, priority: -9 }, 'z');
      return { documents: [lowest], annotations: {}, origin: `TerminationPolicy/${NAMESPACE}/z` };
    }
    case 'TerminationPolicy of a higher priority':
      return { documents: [policy(spec, 'a')], annotations: {}, origin: `TerminationPolicy/${NAMESPACE}/a` };
    case 'Namespace annotation':
      if (key === undefined) return undefined;
      return {
        documents: [namespace({ [key]: String(written) })],
        annotations: {},
        origin: `Namespace/${NAMESPACE} ${key}`,
      };
    case 'Pod annotation':
      if (key === undefined) return undefined;
      return { documents: [], annotations: { [key]: String(written) }, origin: `Pod ${key}` };
  }
}

const PAIRS = LAYERS.flatMap((lower, rank) => LAYERS.slice(rank + 1).map((higher) => ({ lower, higher })));
const CASES = Object.entries(FIELDS).flatMap(([name, [first, second]]) => {
  const field = name as Field;
  return PAIRS.flatMap(({ lower, higher }) => {
    const [below, above] = [saying(lower, field, first[0]), saying(higher, field, second[0])];
    if (below === undefined || above === undefined) return [];
    return [{ field, lower, higher, below, above, value: second[1] }];
  });
});

describe('of any two layers the later one wins, in every field that both can set', () => {
  test.each(CASES)('$field: $higher over $lower', ({ field, below, above, value }) => {
    // In whatever order they are read.
    for (const documents of [
      [...below.documents, ...above.documents],
      [...above.documents, ...below.documents],
    ]) {
      const { policy: inForce } = merge(documents, { ...below.annotations, ...above.annotations });
      expect(said(inForce, field)).toEqual([value, above.origin]);
    }
  });

  test.each(CASES.filter(({ lower }) => lower !== 'built-in'))(
    '$field: what $lower says is left where $higher says nothing of it',
    ({ field, lower, below, higher }) => {
      const other: Field = field === 'mode' ? 'hook' : 'mode';
      const beside = saying(higher, other, FIELDS[other]?.[0][0]);
      const { policy: inForce } = merge([...below.documents, ...(beside?.documents ?? [])], {
        ...below.annotations,
        ...beside?.annotations,
      });
      const first = FIELDS[field]?.[0][1];
      expect([lower, ...said(inForce, field)]).toEqual([lower, first, below.origin]);
      expect(said(inForce, other)[1]).toBe(beside?.origin);
    },
  );

  it('the table has every field but those that merge otherwise', () => {
    const otherwise = [
      'wait.from',
      'ceiling.wait',
      'ceiling.mode',
      'overrides.namespaces',
      'overrides.pods',
      'inject',
    ];
    expect(Object.keys(BUILT_IN_VALUES).toSorted()).toEqual(
      [...Object.keys(FIELDS), ...otherwise].toSorted(),
    );
    expect(CASES.length).toBeGreaterThan(200);
  });
});
