import { describe, expect, test } from 'vitest';
import { atStart, registered } from '../../deploy/generate/registered-metrics.ts';
import { alertCases, alertGroups as groups, alertRules as rules } from './alert-cases.ts';
import { groupsIn, labelsOf, misreadIn, selectorsIn } from './promql.ts';

test('no two groups or alerts have one name', () => {
  const names = [...groups, ...rules.map(({ alert }) => ({ name: alert }))].map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
});

test('each has courses of things for Prometheus to judge it by', () => {
  expect(Object.keys(alertCases)).toEqual(rules.map(({ alert }) => alert));
});

test.each(Object.entries(alertCases))('%s is judged by series that there are', (_, courses) => {
  const series = courses.flatMap(({ fires, silent }) => [...Object.keys(fires), ...Object.keys(silent)]);
  for (const { name, labels } of selectorsIn(series.join(' + '))) {
    expect([name, labelsOf(name)]).not.toEqual([name, undefined]);
    expect(labelsOf(name)).toEqual(expect.arrayContaining([...labels]));
  }
});

test('counters that alerts wait for are there before the first time, or it would be no increase', async () => {
  const exposed = await atStart;
  const counters = new Set(registered.filter(({ type }) => type === 'counter').map(({ name }) => name));
  const waitedFor = Object.values(alertCases)
    .flat()
    .flatMap(({ fires }) => Object.entries(fires))
    // Those of watches come with the watches.
    .filter(([series, values]) => values.startsWith('0+0x') && !series.includes('resource='))
    .map(([series]) => series.replace(',instance="a"', ''))
    .filter((series) => counters.has(series.replace(/\{.*/, '')));
  expect(waitedFor.length).toBeGreaterThan(3);
  for (const series of waitedFor) expect(exposed).toContain(`\n${series} 0\n`);
});

describe.each(rules)('$alert', ({ expr, for: hold = '0s', labels, annotations, ...others }) => {
  const selectors = selectorsIn(expr);

  test('names metrics and labels that there are', () => {
    expect(selectors).not.toEqual([]);
    for (const { name, labels: used } of selectors) {
      expect([name, labelsOf(name)]).not.toEqual([name, undefined]);
      expect(labelsOf(name)).toEqual(expect.arrayContaining([...used]));
    }
  });

  test('reads counters as rates, and gauges as they are', () => expect(misreadIn(expr)).toEqual([]));

  test('keeps only labels that its metrics have', () => {
    const known = selectors.flatMap(({ name }) => labelsOf(name) ?? []);
    expect(known).toEqual(expect.arrayContaining([...groupsIn(expr)]));
  });

  test('has a severity and a sentence, and nothing that Prometheus does not know', () => {
    expect(['critical', 'warning', 'info']).toContain(labels.severity);
    for (const text of [annotations.summary, annotations.description])
      expect(text).toMatch(/^[A-Za-z\d].*\.$/);
    for (const text of Object.values(annotations)) expect(text).not.toMatch(/[[\]`]|\{\{/);
    expect(hold).toMatch(/^\d+[smhd]$/);
    expect(Object.keys(others)).toEqual(['alert']);
  });
});
