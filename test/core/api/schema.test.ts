import { describe, expect, it, test } from 'vitest';
import { isLingerObject, parseDocument } from '../../../src/core/api/documents.ts';
import { LingerError } from '../../../src/core/api/errors.ts';
import type { JsonObject } from '../decision/sample-pod.ts';
import { clusterPolicy, consumer, policy } from '../decision/sample-snapshot.ts';

/** The message with which a document is refused. */
function refusal(document: JsonObject): string {
  try {
    parseDocument(document, 'base.yaml document 2');
  } catch (error) {
    if (error instanceof LingerError && error.code === 'policy-invalid') return error.message;
    throw error;
  }
  throw new Error('the document was accepted');
}

const fullSpec = {
  podSelector: { matchLabels: { 'app.kubernetes.io/name': 'web' } },
  priority: 10,
  mode: 'Audit',
  pods: 'Selected',
  exclude: [],
  containers: ['app'],
  wait: {
    from: 'Measured',
    percentile: 99.5,
    safetyFactor: 2,
    margin: '1s',
    min: '5s',
    max: '1m',
    initial: '20s',
    minSamples: 100,
    minHistory: '12h',
  },
  hook: 'Exec',
  existingHook: 'Extend',
  grace: { max: '10m' },
};

describe('a valid document', () => {
  test.each([
    ['an empty cluster policy', clusterPolicy({})],
    ['an empty policy', policy({})],
    ['a full policy', policy(fullSpec)],
    [
      'a full cluster policy',
      clusterPolicy({
        ...fullSpec,
        namespaceSelector: { matchExpressions: [{ key: 'team', operator: 'In', values: ['a', ''] }] },
        ceiling: { wait: '300s', mode: 'Enforce' },
        overrides: { namespaces: true, pods: false },
      }),
    ],
    ['one with a status and labels', { ...clusterPolicy({}), status: { conditions: [] } }],
    ['a consumer', consumer({ podSelector: {}, serviceSelector: {}, namespaceSelector: {} })],
  ])('%s is accepted', (_, document) => {
    expect(parseDocument(document, 'here')).toMatchObject({ kind: document.kind });
  });

  it('gets no defaults: a defaulted field would count as set and break the layering', () => {
    expect(parseDocument(clusterPolicy({}), 'here').spec).toEqual({});
  });

  it('has its durations in seconds', () => {
    const document = parseDocument(policy({ wait: { from: 'Fixed', fixed: '1m30s' } }), 'here');
    expect(document.spec).toEqual({ wait: { from: 'Fixed', fixed: 90 } });
  });

  test.each([
    ['linger.dev/v1alpha1', true],
    ['linger.dev/v9', true],
    ['linger.dev', true],
    ['v1', false],
    ['notlinger.dev/v1alpha1', false],
    [7, false],
  ])('of apiVersion %s belongs to the group: %s', (apiVersion, expected) => {
    expect(isLingerObject({ apiVersion })).toBe(expected);
  });
});

const DURATION = 'expected a duration such as 30s or 1m30s';

describe('a document that is refused says where, which field, and the way out', () => {
  test.each<[string, JsonObject, string, string | RegExp]>([
    ['a typing error', clusterPolicy({ waits: {} }), 'spec.waits', 'unknown field; check its spelling'],
    ['a deeper one', policy({ wait: { maximum: '1m' } }), 'spec.wait.maximum', 'unknown field'],
    ['ceiling in a namespace', policy({ ceiling: { wait: '1s' } }), 'spec.ceiling', 'unknown field'],
    ['overrides in a namespace', policy({ overrides: {} }), 'spec.overrides', 'unknown field'],
    [
      'namespaceSelector in a namespace',
      policy({ namespaceSelector: {} }),
      'spec.namespaceSelector',
      'unknown field',
    ],
    ['a member beside spec', { ...clusterPolicy({}), specs: {} }, 'specs', 'unknown field'],
    ['Fixed without fixed', policy({ wait: { from: 'Fixed' } }), 'spec.wait.fixed', 'in the same document'],
    [
      'fixed without Fixed',
      policy({ wait: { fixed: '30s' } }),
      'spec.wait.fixed',
      /without from: Fixed .*add that, or remove this/,
    ],
    [
      'fixed with Measured',
      policy({ wait: { from: 'Measured', fixed: '30s' } }),
      'spec.wait.fixed',
      'without from: Fixed',
    ],
    ['min > max', policy({ wait: { min: '2m', max: '90s' } }), 'spec.wait.min', 'longer than max'],
    ['an unknown hook', policy({ hook: 'hold' }), 'spec.hook', /Auto.*Sleep.*Exec.*Hold/],
    ['hold.min > hold.max', policy({ hold: { min: '2m', max: '90s' } }), 'spec.hold.min', 'longer than max'],
    ['a number as duration', policy({ wait: { max: 60 } }), 'spec.wait.max', `${DURATION}, got 60`],
    ['a bare number as text', policy({ wait: { max: '60' } }), 'spec.wait.max', `${DURATION}`],
    ['a negative duration', policy({ wait: { min: '-1s' } }), 'spec.wait.min', DURATION],
    ['grace.max of 0s', policy({ grace: { max: '0s' } }), 'spec.grace.max', 'at least 1s'],
    ['percentile 100', policy({ wait: { percentile: 100 } }), 'spec.wait.percentile', '100'],
    ['percentile 0.99', policy({ wait: { percentile: 0.99 } }), 'spec.wait.percentile', '50'],
    ['safetyFactor 0.5', policy({ wait: { safetyFactor: 0.5 } }), 'spec.wait.safetyFactor', '1'],
    ['minSamples 0', policy({ wait: { minSamples: 0 } }), 'spec.wait.minSamples', '1'],
    ['an unknown mode', policy({ mode: 'enforce' }), 'spec.mode', /Enforce.*Audit.*Off/],
    ['an unknown pods', policy({ pods: 'Any' }), 'spec.pods', /Serving.*Selected.*All/],
    ['an unknown existingHook', policy({ existingHook: 'keep' }), 'spec.existingHook', /Keep.*Extend/],
    ['an unknown kind to exclude', policy({ exclude: ['Pod'] }), 'spec.exclude.0', /Job.*DaemonSet/],
    ['a list that is none', policy({ containers: 'app' }), 'spec.containers', 'array'],
    ['null', policy({ wait: null }), 'spec.wait', 'null'],
    ['a fraction as priority', policy({ priority: 1.5 }), 'spec.priority', '1.5'],
    [
      'a number as label value',
      policy({ podSelector: { matchLabels: { a: 1 } } }),
      'spec.podSelector.matchLabels.a',
      'quotes',
    ],
    [
      'a label key that is none',
      policy({ podSelector: { matchLabels: { 'a b': 'c' } } }),
      'spec.podSelector.matchLabels.a b',
      'expected a label key',
    ],
    [
      'In without values',
      policy({ podSelector: { matchExpressions: [{ key: 'a', operator: 'In' }] } }),
      'spec.podSelector.matchExpressions.0.values',
      'values with In and NotIn',
    ],
    [
      'Exists with values',
      policy({ podSelector: { matchExpressions: [{ key: 'a', operator: 'Exists', values: ['b'] }] } }),
      'spec.podSelector.matchExpressions.0.values',
      'none with Exists and DoesNotExist',
    ],
    [
      'a namespace on a cluster kind',
      { ...clusterPolicy({}), metadata: { name: 'base', namespace: 'shop' } },
      'metadata.namespace',
      /cluster-scoped: remove the namespace/,
    ],
    [
      'a namespace on a consumer',
      { ...consumer({}), metadata: { name: 'gateway', namespace: 'shop' } },
      'metadata.namespace',
      /remove the namespace/,
    ],
    [
      'no namespace on a policy',
      { ...policy({}), metadata: { name: 'team' } },
      'metadata.namespace',
      'missing',
    ],
    ['no name', { ...clusterPolicy({}), metadata: {} }, 'metadata.name', 'missing'],
    ['a name that is none', clusterPolicy({}, 'Base_1'), 'metadata.name', 'lower-case'],
    ['no spec', { ...clusterPolicy({}), spec: undefined }, 'spec', 'missing'],
    [
      'another version',
      { ...clusterPolicy({}), apiVersion: 'linger.dev/v1' },
      'apiVersion',
      'linger.dev/v1alpha1',
    ],
    [
      'another kind',
      { ...clusterPolicy({}), kind: 'Policy' },
      'kind',
      /ClusterTerminationPolicy, TerminationPolicy/,
    ],
    ['an inherited kind', { ...clusterPolicy({}), kind: 'constructor' }, 'kind', 'expected one of'],
  ])('%s', (_, document, field, wayOut) => {
    const message = refusal(document);
    expect(message).toMatch(/^base\.yaml document 2: /);
    expect(message).toContain(` ${field}: `);
    expect(message).toMatch(wayOut);
  });

  test.each<[string, JsonObject, string]>([
    ['none', {}, 'spec.measure'],
    ['two', { declared: { lag: '1s' }, reports: {} }, 'spec.measure'],
    ['a later one', { http: {} }, 'spec.measure.http'],
    ['declared, nothing in it', { declared: {} }, 'spec.measure.declared'],
    ['declared, both', { declared: { lag: '1s', syncInterval: '1s' } }, 'spec.measure.declared'],
    ['declared, zero', { declared: { lag: '0s' } }, 'spec.measure.declared.lag'],
    ['a probe without a scheme', { probe: { url: 'edge.example' } }, 'spec.measure.probe.url'],
    ['a probe of another scheme', { probe: { url: 'ftp://edge.example' } }, 'spec.measure.probe.url'],
  ])('a consumer that is measured in exactly one way: %s', (_, measure, field) => {
    const document = { ...consumer({}), spec: { measure } };
    expect(refusal(document)).toContain(` ${field}: `);
  });

  it('names every field that is wrong, not only the first', () => {
    const message = refusal(policy({ mode: 'on', pods: 'none', priorities: 1 }));
    expect(message).toContain('spec.mode: ');
    expect(message).toContain('spec.pods: ');
    expect(message).toContain('spec.priorities: ');
  });

  it('does not drop a __proto__ key: a selector that lost its only label would select everything', () => {
    const podSelector = { matchLabels: JSON.parse('{"__proto__":"web"}') as JsonObject };
    expect(refusal(policy({ podSelector }))).toContain('spec.podSelector.matchLabels');
  });
});
