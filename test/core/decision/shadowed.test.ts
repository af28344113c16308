import fc from 'fast-check';
import { expect, test } from 'vitest';
import { parseDocument } from '../../../src/core/api/index.ts';
import { shadowedPolicies } from '../../../src/core/decision/policy-shadowing.ts';
import { digestOf } from '../../../src/core/decision/policy-values.ts';
import { runs } from '../../property/runs.ts';
import { members, oftenAbsent } from './arbitrary-json.ts';
import { merge } from './sample-merge.ts';
import type { JsonObject } from './sample-pod.ts';
import { clusterPolicy, policy } from './sample-snapshot.ts';

/** `b by c`: what is shadowed, and by what. */
const shadowed = (...documents: readonly JsonObject[]) =>
  shadowedPolicies(documents.map((each) => parseDocument(each, 'a test') as never)).map(
    ({ policy: origin, by }) =>
      `${origin.split('/').at(-1)} by ${by.map((each) => each.split('/').at(-1)).join(', ')}`,
  );

const web = { podSelector: { matchLabels: { app: 'web', tier: 'front' } } };
const webAgain = { podSelector: { matchLabels: { tier: 'front', app: 'web' } } };

test.each<[string, readonly JsonObject[], readonly string[]]>([
  ['nothing, alone', [clusterPolicy({ mode: 'Off' }, 'a')], []],
  [
    'by a later name',
    [clusterPolicy({ mode: 'Off' }, 'b'), clusterPolicy({ mode: 'Audit' }, 'a')],
    ['a by b'],
  ],
  [
    'by a higher priority, with the same labels in another order',
    [
      clusterPolicy({ mode: 'Off', ...web }, 'b'),
      clusterPolicy({ mode: 'Audit', priority: 1, ...webAgain }, 'a'),
    ],
    ['b by a'],
  ],
  ['by one for all pods', [policy({ mode: 'Off', ...web }, 'a'), policy({ mode: 'Audit' }, 'b')], ['a by b']],
  ['not by one for fewer pods', [policy({ mode: 'Off' }, 'a'), policy({ mode: 'Audit', ...web }, 'b')], []],
  [
    'not while a field is left',
    [policy({ mode: 'Off', hook: 'Exec' }, 'a'), policy({ mode: 'Audit' }, 'b')],
    [],
  ],
  [
    'by two together',
    [
      policy({ mode: 'Off', hook: 'Exec' }, 'a'),
      policy({ mode: 'Audit' }, 'b'),
      policy({ hook: 'Sleep', ...web }, 'c'),
      policy({ hook: 'Auto' }, 'd'),
    ],
    ['a by b, d', 'c by d'],
  ],
  [
    'not of another namespace, nor of the cluster',
    [
      policy({ mode: 'Off' }, 'a'),
      policy({ mode: 'Audit' }, 'b', 'other'),
      clusterPolicy({ mode: 'Audit' }, 'c'),
    ],
    [],
  ],
  [
    'not with the tighter ceiling',
    [clusterPolicy({ ceiling: { wait: '40s' } }, 'a'), clusterPolicy({ ceiling: { wait: '60s' } }, 'b')],
    [],
  ],
  [
    'with a ceiling that is no tighter',
    [clusterPolicy({ ceiling: { wait: '60s' } }, 'a'), clusterPolicy({ ceiling: { wait: '40s' } }, 'b')],
    ['a by b'],
  ],
])('%s', (_title, documents, expected) => expect(shadowed(...documents)).toEqual(expected));

const SPEC = fc
  .record({
    podSelector: oftenAbsent(
      fc.constantFrom({}, { matchLabels: { app: 'web' } }, { matchLabels: { app: 'db' } }),
    ),
    priority: oftenAbsent(fc.integer({ min: -1, max: 1 })),
    mode: oftenAbsent(fc.constantFrom('Enforce', 'Audit', 'Off')),
    hook: oftenAbsent(fc.constantFrom('Sleep', 'Exec')),
    ceiling: oftenAbsent(fc.record({ wait: fc.constantFrom('40s', '60s') })),
    overrides: oftenAbsent(fc.record({ pods: fc.boolean() })),
  })
  .map(members);

test('without what is shadowed, every pod has the policy that it had', () => {
  let found = 0;
  fc.assert(
    fc.property(
      fc.array(SPEC, { minLength: 2, maxLength: 6 }),
      fc.constantFrom('web', 'db', 'api'),
      (specs, app) => {
        const documents = specs.map((spec, index) => clusterPolicy(spec, `p${index}`));
        const names = shadowed(...documents).map((said) => said.split(' ')[0]);
        found += names.length;
        const rest = documents.filter(({ metadata }) => !names.includes((metadata as { name: string }).name));
        const digest = (of: readonly JsonObject[]) =>
          digestOf(merge(of, { 'linger.dev/hook': 'Exec' }, 'Enforce', { app }).policy);
        expect(digest(rest)).toBe(digest(documents));
      },
    ),
    runs(300),
  );
  expect(found).toBeGreaterThan(30);
});
