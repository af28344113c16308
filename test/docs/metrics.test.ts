import { expect, test } from 'vitest';
import { own, registered, series } from '../../deploy/generate/registered-metrics.ts';
import { PAGES, read } from './markdown.ts';

const PAGE = 'docs/reference/metrics.md';

test('all others have one of the prefixes that the page names', () => {
  const prefixes = [...read(PAGE).matchAll(/`(\w+_)\*`/g)].map(([, prefix]) => prefix ?? '');
  const others = registered.filter((metric) => !own.includes(metric));
  expect(others.filter(({ name }) => !prefixes.some((prefix) => name.startsWith(prefix)))).toEqual([]);
});

test('labels that Prometheus gives to targets, too, are kept by the ServiceMonitor, and named', () => {
  const ofTargets = ['job', 'instance', 'namespace', 'pod', 'service', 'container', 'endpoint'];
  const common = own.flatMap(({ name, labelNames }) =>
    labelNames.filter((label) => ofTargets.includes(label)).map((label) => `\`${label}\` of \`${name}\``),
  );
  const page = read(PAGE).replaceAll('\n', ' ');
  for (const each of common) expect(page).toContain(each);
  expect(read('deploy/chart/templates/servicemonitor.yaml')).toMatch(/^ +honorLabels: true$/m);
});

test.each([
  'linger_removal_lag_seconds',
  'linger_removals_unresolved',
  'linger_removals_oldest_unresolved_seconds',
])('%s, which a diagnosis reads of a running Linger, has a stage', (name) => {
  expect(own.find((metric) => metric.name === name)?.labelNames).toEqual(['stage']);
});

test.each(PAGES)('%s names no metric that does not exist', (page) => {
  const named = [...read(page).matchAll(/\blinger_\w+/g)].map(([name]) => name);
  expect(named.filter((name) => !series.has(name))).toEqual([]);
});
