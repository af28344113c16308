import { describe, expect, test } from 'vitest';
import { parseDocument } from '../../../src/core/api/documents.ts';
import { CLUSTER_POLICY_SPECS, POLICY_SPECS } from './policy-specs.ts';

const parse = (kind: string, spec: unknown) => {
  const namespace = kind === 'TerminationPolicy' ? { namespace: 'shop' } : {};
  return parseDocument(
    { apiVersion: 'linger.dev/v1alpha1', kind, metadata: { name: 'sample', ...namespace }, spec },
    'here',
  );
};

describe.each([
  ['ClusterTerminationPolicy', [...POLICY_SPECS, ...CLUSTER_POLICY_SPECS]],
  ['TerminationPolicy', POLICY_SPECS],
] as const)('a %s in a file', (kind, specs) => {
  test.each(specs.filter(({ refused }) => refused === undefined))('$name: is taken', ({ spec }) => {
    expect(parse(kind, spec)).toMatchObject({ kind });
  });

  test.each(specs.filter(({ refused }) => refused !== undefined))(
    '$name: is refused',
    ({ spec, refused }) => {
      expect(() => parse(kind, spec)).toThrow(refused);
    },
  );
});

test.each(CLUSTER_POLICY_SPECS)('$name: not for the owners of a namespace', ({ spec }) => {
  expect(() => parse('TerminationPolicy', spec)).toThrow(/unknown field/);
});
