import { describe, expect, it, test } from 'vitest';
import { own } from '../../deploy/generate/registered-metrics.ts';
import { read } from './markdown.ts';
import { groupsIn, labelsOf, misreadIn, selectorsIn } from './promql.ts';

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly description?: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
}

const { panels } = JSON.parse(read('deploy/dashboard.json')) as { panels: readonly Panel[] };
const shown = panels.filter(({ type }) => type !== 'row');
const queries = shown.flatMap(({ title, targets = [] }) => targets.map((target) => ({ title, ...target })));

describe.each(queries)('$title: $expr', ({ expr, legendFormat }) => {
  const selectors = selectorsIn(expr);

  it('names metrics that there are, and their labels', () => {
    expect(selectors).not.toEqual([]);
    for (const { name, labels } of selectors) {
      expect([name, labelsOf(name)]).not.toEqual([name, undefined]);
      expect(labelsOf(name)).toEqual(expect.arrayContaining([...labels]));
    }
  });

  it('reads counters as rates, and gauges as they are', () => expect(misreadIn(expr)).toEqual([]));

  it('does not count with a label that only some ways of scraping give to replicas', () => {
    if (!legendFormat.includes('{{pod}}')) expect(groupsIn(expr)).not.toContain('pod');
  });

  it('groups by labels that there are, and its legend shows what is left of them', () => {
    const known = selectors.flatMap(({ name }) => labelsOf(name) ?? []);
    expect(known).toEqual(expect.arrayContaining([...groupsIn(expr)]));
    const left = groupsIn(expr).length === 0 ? known : groupsIn(expr);
    const told = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label = '']) => label);
    expect(left).toEqual(expect.arrayContaining(told));
  });
});

test('it shows every part of Linger: each family of metrics is there', () => {
  const used = new Set(
    queries.flatMap(({ expr }) => selectorsIn(expr).map(({ name }) => name.split('_')[1])),
  );
  const families = new Set(own.map(({ name }) => name.split('_')[1]));
  // Sizes and dates, of no use beside what is shown.
  const left = [
    'draining',
    'published',
    'estimator',
    'recorder',
    'lease',
    'planned',
    'cluster',
    'report',
    'audited',
    'audit',
  ];
  expect([...families].filter((family) => !used.has(family) && !left.includes(family ?? ''))).toEqual([]);
});

test('panels have their own ids and places, and say what they show', () => {
  expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
  const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
    Array.from({ length: w * h }, (_, index) => `${x + (index % w)},${y + Math.floor(index / w)}`),
  );
  expect(new Set(cells).size).toBe(cells.length);
  for (const { description, gridPos } of shown) {
    expect(description).toMatch(/^[A-Z\d].*\.$/);
    expect(gridPos.x + gridPos.w).toBeLessThanOrEqual(24);
  }
});
