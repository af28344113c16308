import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { codeOf, read, tableUnder } from './markdown.ts';
import { groupsIn, labelsOf, misreadIn, selectorsIn } from './promql.ts';

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly for?: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
}

interface RuleFile {
  readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[];
}

const { groups } = parse(read('deploy/alerts.yaml')) as RuleFile;
const rules = groups.flatMap((group) => group.rules);
const documented = tableUnder('docs/reference.md', 'Alerts');

test('the table has exactly the alerts, in their order', () => {
  expect(documented.map((row) => codeOf(row.alert))).toEqual(rules.map(({ alert }) => alert));
  for (const row of documented) expect(row['what to do']).not.toBe('');
});

test('no two groups or alerts have one name', () => {
  const names = [...groups, ...rules.map(({ alert }) => ({ name: alert }))].map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
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
    expect(annotations.summary).toMatch(/^[A-Z\d].*\.$/);
    expect(hold).toMatch(/^\d+[smhd]$/);
    expect(Object.keys(others)).toEqual(['alert']);
  });
});
