import { expect, test } from 'vitest';
import { CLUSTER_TERMINATION_POLICY, DISCOVERY_CONSUMER } from '../../../deploy/generate/crd.ts';
import { structuralSchema } from '../../../deploy/generate/structural.ts';
import { parseDocument } from '../../../src/core/api/documents.ts';
import { CONSUMER_SPECS } from './consumer-specs.ts';
import { CLUSTER_POLICY_SPECS, POLICY_SPECS } from './policy-specs.ts';

/** The messages of all rules (CEL) in a schema. */
function messagesIn(schema: unknown): readonly string[] {
  if (typeof schema !== 'object' || schema === null) return [];
  const rules = 'x-kubernetes-validations' in schema ? schema['x-kubernetes-validations'] : [];
  const own = (rules as readonly { readonly message: string }[]).map(({ message }) => message);
  return [...own, ...Object.values(schema).flatMap(messagesIn)];
}

function refusalOf(kind: string, spec: unknown): string {
  try {
    parseDocument({ apiVersion: 'linger.dev/v1alpha1', kind, metadata: { name: 'a' }, spec }, 'here');
    return '';
  } catch (thrown) {
    return String(thrown);
  }
}

// The same cases are run against the rules by a real API server: test/cluster-suite/policy-crd.test.ts and consumer-crd.test.ts.
test('each rule that the API server has refuses a case in files, too', () => {
  const rules = new Set(
    [CLUSTER_TERMINATION_POLICY, DISCOVERY_CONSUMER].flatMap(({ spec }) =>
      messagesIn(structuralSchema(spec)),
    ),
  );
  const refusals = [
    ...[...POLICY_SPECS, ...CLUSTER_POLICY_SPECS].map(({ spec }) =>
      refusalOf('ClusterTerminationPolicy', spec),
    ),
    ...CONSUMER_SPECS.map(({ spec }) => refusalOf('DiscoveryConsumer', spec)),
  ].join('\n');
  expect(rules.size).toBeGreaterThan(20);
  // The API server's rule of a parent names the field first; in files the field is the error's path.
  expect([...rules].filter((message) => !refusals.includes(message.replace(/^\w+: /, '')))).toEqual([]);
});
