import { registered, seriesOf } from '../../deploy/generate/registered-metrics.ts';

/** A metric that an expression names, with the labels that it is selected by. */
export interface Selector {
  readonly name: string;
  readonly labels: readonly string[];
}

/** Linger's and its process's metrics by series: what a scrape of a server that follows a cluster brings. */
const scraped = new Map(registered.flatMap((metric) => seriesOf(metric).map((name) => [name, metric])));

/** Metrics of others, which the registry does not have. */
const OTHERS: Readonly<Record<string, readonly string[]>> = {
  apiserver_admission_webhook_fail_open_count: ['name', 'type'],
  apiserver_mutating_admission_policy_check_total: ['policy', 'policy_binding', 'error_type'],
  apiserver_admission_webhook_rejection_count: ['name', 'type', 'operation', 'error_type', 'rejection_code'],
};

/** What Prometheus adds to whatever it scrapes from a pod. */
const ADDED = ['job', 'instance', 'namespace', 'pod'];

/** The metrics of an expression. Anything with an underscore that is no function's name is taken for one. */
export function selectorsIn(expr: string): readonly Selector[] {
  const names = expr.replaceAll(/"[^"]*"|\b(?:by|without|on|ignoring)\s*\([^)]*\)/g, '""');
  return [...names.matchAll(/\b([a-z]+_[\w:]+)\b(?:\{([^}]*)\})?(?!\s*\()/g)].map(
    ([, name = '', matchers = '']) => ({
      name,
      labels: [...matchers.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g)].map(([, label = '']) => label),
    }),
  );
}

/** The labels by which an expression aggregates. */
export function groupsIn(expr: string): readonly string[] {
  return [...expr.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, names = '']) => names.split(/,\s*/));
}

/** The labels of a metric's samples; undefined where there is no such metric. */
export function labelsOf(name: string): readonly string[] | undefined {
  const labels = OTHERS[name] ?? scraped.get(name)?.labelNames;
  return labels && [...labels, ...ADDED, ...(name.endsWith('_bucket') ? ['le'] : [])];
}

/** Functions of counters that are given a gauge, and counters that are read as if they were gauges. */
export function misreadIn(expr: string): readonly string[] {
  const ranged = new Set(
    [...expr.matchAll(/\b(?:rate|increase|irate)\(\s*([a-z_:]+)/g)].map(([, name = '']) => name),
  );
  return selectorsIn(expr)
    .map(({ name }) => name)
    .filter((name) => {
      if (name in OTHERS) return !ranged.has(name);
      const type = scraped.get(name)?.type;
      return (type === 'counter' || type === 'histogram') !== ranged.has(name);
    });
}
