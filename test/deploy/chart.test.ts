import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { parse } from 'yaml';
import { CHART, IN_CHART } from '../../deploy/generate/chart.ts';
import { ROOT } from '../cli/linger.ts';
import { read } from '../docs/markdown.ts';

it('the chart has every manifest that kustomize applies, but the Namespace, which Helm makes', () => {
  const { resources } = parse(read('deploy/kustomization.yaml')) as { resources: readonly string[] };
  // Which kustomize applies for those who ask for it.
  const optional = [
    'rbac-policy-reports.yaml',
    'rbac-node-shutdown.yaml',
    'node-timer.yaml',
    'floor/floor.yaml',
  ];
  const applied = [...resources.filter((file) => file !== 'namespace.yaml'), ...optional];
  expect(IN_CHART.toSorted()).toEqual(applied.toSorted());
});

it('and no template that nothing makes any more', () => {
  const made = CHART.map(({ path }) => path.slice(path.lastIndexOf('/') + 1));
  const present = readdirSync(join(ROOT, 'deploy/chart/templates'));
  const ofTheChart = ['NOTES.txt', '_helpers.tpl', 'certificate.yaml', 'checks.yaml', 'servicemonitor.yaml'];
  expect(present.toSorted()).toEqual([...made, ...ofTheChart].toSorted());
});

it('every value has a schema, and the other way round', () => {
  const values = parse(read('deploy/chart/values.yaml')) as object;
  const { properties } = JSON.parse(read('deploy/chart/values.schema.json')) as { properties: object };
  // Helm's own, for charts within charts, and what their conditions are called.
  const known = Object.keys(properties).filter((name) => !['global', 'enabled'].includes(name));
  expect(known.toSorted()).toEqual(Object.keys(values).toSorted());
});
