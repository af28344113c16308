import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { codeOf, read, tableUnder } from './markdown.ts';
import { series } from './registered-metrics.ts';

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

/** Metrics of others, which the registry does not have. */
const OTHERS = ['apiserver_admission_webhook_fail_open_count'];

test('the table has exactly the alerts, in their order', () => {
  expect(documented.map((row) => codeOf(row.alert))).toEqual(rules.map(({ alert }) => alert));
  for (const row of documented) expect(row['what to do']).not.toBe('');
});

test('no two groups or alerts have one name', () => {
  const names = [...groups, ...rules.map(({ alert }) => ({ name: alert }))].map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
});

describe.each(rules)('$alert', ({ expr, for: hold = '0s', labels, annotations, ...others }) => {
  const selectors = [...expr.matchAll(/\b([a-z]+_\w+)(?:\{([^}]*)\})?/g)];
  const metrics = selectors.filter(([, name = '']) => /^(linger|apiserver)_/.test(name));

  test('names metrics and labels that there are', () => {
    expect(metrics).not.toEqual([]);
    for (const [, name = '', matchers = ''] of metrics) {
      if (OTHERS.includes(name)) continue;
      expect(series.has(name), name).toBe(true);
      const used = [...matchers.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g)].map(([, label]) => label);
      expect(series.get(name)?.labelNames).toEqual(expect.arrayContaining(used));
    }
  });

  test('keeps only labels that its metrics have', () => {
    const kept = [...expr.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, names = '']) => names.split(/,\s*/));
    const known = metrics.flatMap(([, name = '']) => series.get(name)?.labelNames ?? []);
    expect([...known, 'le']).toEqual(expect.arrayContaining(kept));
  });

  test('has a severity and a sentence, and nothing that Prometheus does not know', () => {
    expect(['critical', 'warning', 'info']).toContain(labels.severity);
    expect(annotations.summary).toMatch(/^[A-Z\d].*\.$/);
    expect(hold).toMatch(/^\d+[smhd]$/);
    expect(Object.keys(others)).toEqual(['alert']);
  });
});
