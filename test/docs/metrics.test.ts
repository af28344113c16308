import { describe, expect, test } from 'vitest';
import { createMetrics } from '../../src/telemetry/metrics.ts';
import { codeOf, codesOf, PAGES, read, tableUnder } from './markdown.ts';

/** What the registry's metrics carry beside their declared type. */
interface Described {
  readonly name: string;
  readonly type: string;
  readonly labelNames: readonly string[];
}

const registered = createMetrics('0.0.0').registry.getMetricsAsArray() as unknown as readonly Described[];
const own = registered.filter(({ name }) => name.startsWith('linger_'));
const documented = tableUnder('docs/metrics.md', 'Metrics');

test('the table has exactly the metrics of the registry, in its order', () => {
  expect(documented.map((row) => codeOf(row.metric))).toEqual(own.map(({ name }) => name));
});

describe.each(own)('$name', ({ name, type, labelNames }) => {
  const row = documented.find((each) => codeOf(each.metric) === name);

  test('its type is documented', () => expect(row?.type).toBe(type));
  test('its labels are documented', () => expect(codesOf(row?.labels)).toEqual(labelNames));
});

test('all others have one of the prefixes that the page names', () => {
  const prefixes = [...read('docs/metrics.md').matchAll(/`(\w+_)\*`/g)].map(([, prefix]) => prefix ?? '');
  const others = registered.filter((metric) => !own.includes(metric));
  expect(others.filter(({ name }) => !prefixes.some((prefix) => name.startsWith(prefix)))).toEqual([]);
});

test.each(PAGES)('%s names no metric that does not exist', (page) => {
  const names = new Set(own.flatMap(({ name, type }) => (type === 'histogram' ? seriesOf(name) : [name])));
  const named = [...read(page).matchAll(/\blinger_\w+/g)].map(([name]) => name);
  expect(named.filter((name) => !names.has(name))).toEqual([]);
});

function seriesOf(histogram: string): readonly string[] {
  return [histogram, `${histogram}_bucket`, `${histogram}_sum`, `${histogram}_count`];
}
