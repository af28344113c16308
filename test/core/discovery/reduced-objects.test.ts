import { expect, test } from 'vitest';
import { Budget, FOREIGN_LIMITS } from '../../../src/core/api/index.ts';
import { discover, discovering, reduced } from '../../../src/core/discovery/index.ts';

const LONG = 'x'.repeat(2_000);

const ingress = (paths: number, services: number, name = 'a') => ({
  apiVersion: 'networking.k8s.io/v1',
  kind: 'Ingress',
  metadata: {
    name,
    namespace: 'shop',
    annotations: { snippet: LONG, 'kubernetes.io/ingress.class': 'contour' },
  },
  spec: {
    rules: [
      {
        host: LONG,
        http: {
          paths: Array.from({ length: paths }, (_, index) => ({
            path: `/${index}${LONG}`,
            backend: { service: { name: `web-${index % services}`, port: { number: 80 } } },
          })),
        },
      },
    ],
  },
});

test('an Ingress of 300 KB is kept as the Services that it names', () => {
  const large = ingress(150, 3);
  expect(JSON.stringify(large).length).toBeGreaterThan(300_000);
  expect(reduced(large)).toEqual({
    apiVersion: 'networking.k8s.io/v1',
    kind: 'Ingress',
    metadata: { name: 'a', namespace: 'shop', annotations: { 'kubernetes.io/ingress.class': 'contour' } },
    spec: {
      rules: [
        {
          http: {
            paths: ['web-0', 'web-1', 'web-2'].map((name) => ({ backend: { service: { name } } })),
          },
        },
      ],
    },
  });
});

test('of a kind that nothing is read of, its identity is kept', () => {
  const object = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'a' }, data: { a: LONG } };
  expect(reduced(object)).toEqual({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'a' } });
});

test('a member that is no member of the table is data, and never merged into a prototype', () => {
  const labels = JSON.parse('{"__proto__":"x","app":"web"}') as object;
  const kept = reduced({ apiVersion: 'v1', kind: 'Service', metadata: { name: 'web', labels } });
  expect(JSON.stringify(kept)).toContain('"__proto__":"x"');
  expect(({} as { app?: string }).app).toBeUndefined();
});

test('twice the entries are at most twice the steps, and beyond the budget the object is not known', () => {
  const stepsFor = (paths: number) => {
    const budget = new Budget({ ...FOREIGN_LIMITS.related, steps: 1e9 });
    reduced(ingress(paths, paths), budget);
    return budget.spent;
  };
  expect(stepsFor(2_000)).toBeLessThanOrEqual(2 * stepsFor(1_000));
  expect(reduced(ingress(8_000, 1))).toBeDefined();
  expect(reduced(ingress(9_000, 1))).toBeUndefined();
  const selector = `${'{"a":'.repeat(20)}1${'}'.repeat(20)}`;
  const deep = { apiVersion: 'policy/v1', kind: 'PodDisruptionBudget', metadata: { name: 'a' } };
  expect(reduced({ ...deep, spec: { selector: JSON.parse(selector) as object } })).toBeUndefined();
});

test('Deployments that run gateways × Services that Ingresses name: in small steps, and what they share is made once', () => {
  const gateways = Array.from({ length: 300 }, (_, index) => ({
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: `envoy-${index}`, namespace: 'evil' },
    spec: {
      selector: { matchLabels: { app: 'envoy', n: String(index) } },
      template: { metadata: { labels: { app: 'envoy' } }, spec: { containers: [{ image: 'envoy' }] } },
    },
  }));
  const ingresses = Array.from({ length: 40 }, (_, index) => ingress(50, 50, `i${index}`));
  const objects = [...gateways, ...ingresses];
  const { consumers } = discover(objects, 'default');
  expect(consumers).toHaveLength(gateways.length);
  expect(new Set(consumers.map(({ services }) => services)).size).toBe(1);
  const applies = consumers.map(({ spec }) => (spec?.spec as { appliesTo?: unknown } | undefined)?.appliesTo);
  expect(new Set(applies).size).toBe(1);
  const steps = discovering(
    objects.map((object) => reduced(object)).filter((each) => each !== undefined),
    'default',
  );
  let count = 0;
  while (steps.next().done !== true) count += 1;
  // Each object in turn, thrice, and each instance.
  expect(count).toBeGreaterThan(3 * objects.length + gateways.length - ingresses.length);
});
