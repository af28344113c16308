import { describe, expect, it } from 'vitest';
import { waysToInstall } from '../../../src/core/judge/index.ts';
import { JudgedManifests } from '../../../src/core/report/index.ts';

const doc = (kind: string, name: string, spec: string, apiVersion = 'v1') =>
  `apiVersion: ${apiVersion}\nkind: ${kind}\nmetadata: {name: ${name}}\nspec: ${spec}\n---\n`;
const workload = (name: string, replicas: number, kind = 'Deployment') =>
  doc(
    kind,
    name,
    `{replicas: ${replicas}, ${replicas === 1 ? 'strategy: {type: Recreate}, ' : ''}template: {metadata: {labels: {app: web, of: ${name}}}, spec: {containers: [{name: a, ports: [{name: http, containerPort: 80}]}]}}}`,
    'apps/v1',
  );
const service = (name: string, port = 'http') =>
  doc('Service', name, `{selector: {app: web}, ports: [{name: ${port}, port: 80}]}`);
const METRICS = service('web-metrics', 'metrics');
const budget = (name: string, minAvailable: number) =>
  doc(
    'PodDisruptionBudget',
    name,
    `{minAvailable: ${minAvailable}, selector: {matchLabels: {app: web}}}`,
    'policy/v1',
  );
const ingress = (of: string) =>
  doc(
    'Ingress',
    'web',
    `{defaultBackend: {service: {name: ${of}, port: {number: 80}}}}`,
    'networking.k8s.io/v1',
  );

/** By file, what the page says of its workloads: as an audit does. */
function reasonsOf(files: Readonly<Record<string, string>>) {
  const inputs = Object.entries(files).map(([name, text]) => ({ name, text }));
  const { rows } = new JudgedManifests(inputs, '').report;
  const findings = rows.flatMap((each) => each.findings);
  const reasons = Map.groupBy(findings, ({ file = '' }) => file);
  return Object.fromEntries(
    [...reasons].map(([file, all]) => [file, all.map(({ reason }) => reason).join()]),
  );
}

const SERVED = 'NotInjected';
const METRICS_ONLY = 'MetricsOnly';
const ROUTED = 'NotInjected,UndeclaredConsumer';

describe('what relates to a workload', () => {
  it.each<readonly [string, Readonly<Record<string, string>>, Readonly<Record<string, string>>]>([
    [
      'ways to install the same, as files of one folder',
      { 'a/plain.yaml': workload('web', 2) + METRICS, 'a/ha.yaml': workload('web', 3) + service('web') },
      { 'a/plain.yaml': METRICS_ONLY, 'a/ha.yaml': SERVED },
    ],
    [
      'as folders of many files',
      {
        'a/web.yaml': workload('web', 2),
        'a/service.yaml': METRICS,
        'b/web.yaml': workload('web', 3),
        'b/service.yaml': service('web'),
      },
      { 'a/web.yaml': METRICS_ONLY, 'b/web.yaml': SERVED },
    ],
    [
      'a base and its overlays',
      {
        base: workload('web', 2) + METRICS,
        'overlays/dev': workload('web', 2) + METRICS,
        'overlays/prod': workload('web', 3) + METRICS + service('web'),
      },
      { base: METRICS_ONLY, 'overlays/dev': METRICS_ONLY, 'overlays/prod': SERVED },
    ],
    [
      'as another kind',
      {
        'a/a.yaml': workload('web', 2) + METRICS,
        'b/b.yaml': workload('web', 2, 'StatefulSet') + service('b'),
      },
      { 'a/a.yaml': METRICS_ONLY, 'b/b.yaml': SERVED },
    ],
    [
      'one way in many files of a folder',
      { 'a/web.yaml': workload('web', 2) + METRICS, 'a/public.yaml': service('web') },
      { 'a/web.yaml': SERVED },
    ],
    [
      'a Service in another folder',
      { 'a/web.yaml': workload('web', 2) + METRICS, 'b/public.yaml': service('web') },
      { 'a/web.yaml': SERVED },
    ],
    [
      'a Service in another folder, of two ways',
      {
        'a/web.yaml': workload('web', 2) + METRICS,
        'b/web.yaml': workload('web', 3) + METRICS,
        'c/public.yaml': service('web'),
      },
      { 'a/web.yaml': SERVED, 'b/web.yaml': SERVED },
    ],
    [
      'an identical workload in two files beside their Service',
      { 'a/1.yaml': workload('web', 2), 'a/2.yaml': workload('web', 2), 'a/service.yaml': service('web') },
      { 'a/1.yaml': SERVED, 'a/2.yaml': SERVED },
    ],
    [
      'an identical workload without a Service: the other’s counts',
      { 'a/1.yaml': workload('web', 2) + service('web'), 'a/2.yaml': workload('web', 2) },
      { 'a/1.yaml': SERVED, 'a/2.yaml': SERVED },
    ],
    [
      'one Service in both',
      {
        'a/1.yaml': workload('web', 2) + service('web', 'metrics'),
        'a/2.yaml': workload('web', 2) + service('web'),
      },
      { 'a/1.yaml': METRICS_ONLY, 'a/2.yaml': SERVED },
    ],
    [
      'a budget of one way',
      {
        'a/web.yaml': workload('web', 2) + service('web'),
        'b/web.yaml': workload('web', 2) + service('web') + budget('web', 2),
      },
      { 'a/web.yaml': SERVED, 'b/web.yaml': 'NotInjected,DrainRefused' },
    ],
    [
      'a budget of its own in each',
      {
        'a/web.yaml': workload('web', 2) + service('web') + budget('one', 1),
        'b/web.yaml': workload('web', 2) + service('web') + budget('two', 1),
      },
      { 'a/web.yaml': SERVED, 'b/web.yaml': SERVED },
    ],
    [
      'a budget of all',
      {
        'a/web.yaml': workload('web', 2) + service('web'),
        'b/web.yaml': workload('web', 2) + service('web'),
        'budget.yaml': budget('web', 2),
      },
      { 'a/web.yaml': 'NotInjected,DrainRefused', 'b/web.yaml': 'NotInjected,DrainRefused' },
    ],
    [
      'a route of one way',
      {
        'a/web.yaml': workload('web', 2) + METRICS,
        'b/web.yaml': workload('web', 2) + METRICS + ingress('web-metrics'),
      },
      { 'a/web.yaml': METRICS_ONLY, 'b/web.yaml': ROUTED },
    ],
    [
      'a route of all',
      {
        'a/web.yaml': workload('web', 2) + METRICS,
        'b/web.yaml': workload('web', 2) + METRICS,
        'route.yaml': ingress('web-metrics'),
      },
      { 'a/web.yaml': ROUTED, 'b/web.yaml': ROUTED },
    ],
    [
      'pods of another way',
      {
        'a/web.yaml': workload('web', 1) + service('web'),
        'b/web.yaml': workload('web', 1) + workload('more', 2) + service('web'),
      },
      { 'a/web.yaml': 'NotInjected,NoOtherEndpoint', 'b/web.yaml': 'NotInjected,RollsTogether,NotInjected' },
    ],
    [
      'pods of another folder',
      { 'a/web.yaml': workload('web', 1) + service('web'), 'b/more.yaml': workload('more', 2) },
      { 'a/web.yaml': 'NotInjected,RollsTogether', 'b/more.yaml': SERVED },
    ],
  ])('%s', (_, files, expected) => {
    expect(reasonsOf(files)).toEqual(expected);
  });

  it('is everything where nothing is made twice', () => {
    const files = { 'a/web.yaml': 'shop/web', 'b/web.yaml': 'other/web', 'b/api.yaml': 'shop/api' };
    const wayOf = waysToInstall(Object.entries(files).map(([origin, name]) => ({ origin, name })));
    expect(Object.keys(files).map(wayOf)).toEqual([undefined, undefined, undefined]);
  });
});
