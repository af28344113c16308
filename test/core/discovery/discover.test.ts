import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { parseDocument } from '../../../src/core/api/index.ts';
import { CATALOGUE } from '../../../src/core/discovery/catalogue.ts';
import { type DiscoveredConsumer, discover } from '../../../src/core/discovery/discover.ts';
import { backendsOf } from '../../../src/core/discovery/traffic-kinds.ts';

const FOLDER = join(import.meta.dirname, '../..', 'testdata', 'discovery');
const NAMES = readdirSync(FOLDER).flatMap((each) => (each.endsWith('.yaml') ? [each.slice(0, -5)] : []));
const textOf = (file: string) => readFileSync(join(FOLDER, file), 'utf8');
const objectsOf = (name: string): unknown[] =>
  parseAllDocuments(textOf(`${name}.yaml`)).map((document) => document.toJS());

function lineOf({ name, ecosystem: { measure }, services, instances }: DiscoveredConsumer): string {
  const how =
    measure.by === 'inspect'
      ? `inspect ${measure.format} ${measure.port}`
      : measure.by === 'declared'
        ? `declared ${measure.syncInterval ?? measure.lag}`
        : measure.by;
  return `${name} ${how} | ${services.join(' ') || 'all'} | ${instances?.workload ?? 'assumed'}`;
}

describe('the reference manifests of each ecosystem', () => {
  it('are twelve', () => expect(NAMES).toHaveLength(12));

  it.each(NAMES)('%s: exactly what is expected, and nothing beside it', (name) => {
    const { consumers, unrecognised } = discover(objectsOf(name), 'default');
    expect(`${consumers.map(lineOf).join('\n')}\n`).toBe(textOf(`${name}.expected`));
    expect(unrecognised).toEqual([]);
  });

  it.each(NAMES)('%s: what is printed is a valid DiscoveryConsumer in mode Observe', (name) => {
    for (const { spec } of discover(objectsOf(name), 'default').consumers)
      if (spec !== undefined)
        expect(parseDocument({ ...spec }, name)).toMatchObject({ spec: { mode: 'Observe' } });
  });
});

it('all together are found beside each other', () => {
  const { consumers } = discover(NAMES.flatMap(objectsOf), 'default');
  const alone = NAMES.flatMap((name) => discover(objectsOf(name), 'default').consumers);
  const namesOf = (each: readonly DiscoveredConsumer[]) =>
    new Set(each.map(({ ecosystem: { name } }) => name));
  expect(namesOf(consumers)).toEqual(namesOf(alone));
});

it('names what is declared already: by name, or because the same pods are asked', () => {
  const objects = objectsOf('contour');
  const [found] = discover(objects, 'default').consumers;
  expect(found?.declaredBy).toBeUndefined();
  const own = { ...(found?.spec as object), metadata: { name: 'my-edge' } };
  expect(discover([...objects, own], 'default').consumers[0]?.declaredBy).toBe('my-edge');
  expect(discover([...objects, found?.spec], 'default').consumers[0]?.declaredBy).toBe('contour');
});

/** The part of a printed spec that cases change. */
interface Written {
  appliesTo?: {
    namespaceSelector: { matchExpressions: { values: string[] }[] };
    serviceSelector?: object;
  };
  measure: { inspect: { instances: { namespaceSelector: object; podSelector: object } } };
}

const asking = (name: string, found: DiscoveredConsumer | undefined, change: (spec: Written) => void) => {
  const { spec } = structuredClone(found?.spec) as { spec: Written };
  change(spec);
  return { ...found?.spec, metadata: { name }, spec };
};

it.each<[string, boolean, (spec: Written) => void]>([
  [
    'the same pods by another of their labels',
    true,
    ({ measure }) => {
      measure.inspect.instances.podSelector = { matchExpressions: [{ key: 'app', operator: 'Exists' }] };
    },
  ],
  ['the same pods for all Services', true, (spec) => delete spec.appliesTo],
  [
    'pods of those labels in another namespace',
    false,
    ({ measure }) => {
      measure.inspect.instances.namespaceSelector = {
        matchLabels: { 'kubernetes.io/metadata.name': 'elsewhere' },
      };
    },
  ],
  [
    'other pods',
    false,
    ({ measure }) => {
      measure.inspect.instances.podSelector = { matchLabels: { app: 'other' } };
    },
  ],
  [
    'the same pods for Services of another namespace',
    false,
    ({ appliesTo }) => {
      for (const each of appliesTo?.namespaceSelector.matchExpressions ?? []) each.values = ['elsewhere'];
    },
  ],
  [
    'the same pods for Services with a label that these do not have',
    false,
    ({ appliesTo }) => {
      Object.assign(appliesTo ?? {}, { serviceSelector: { matchLabels: { exposed: 'edge' } } });
    },
  ],
])('a consumer that asks %s is that one: %s', (_title, isSame, change) => {
  const objects = objectsOf('contour');
  const [found] = discover(objects, 'default').consumers;
  const services = (found?.services ?? []).map((each) => {
    const [namespace, name] = each.split('/');
    return { apiVersion: 'v1', kind: 'Service', metadata: { namespace, name }, spec: {} };
  });
  const own = asking('my-edge', found, change);
  const again = discover([...objects, ...services, own], 'default');
  expect(again.consumers[0]?.declaredBy).toBe(isSame ? 'my-edge' : undefined);
});

it('gives the pods of each place a name of their own', () => {
  const objects = objectsOf('contour');
  const envoy = objects.find((each) => (each as { kind?: unknown }).kind === 'DaemonSet') as object;
  const at = (namespace: string, name: string) => ({ ...envoy, metadata: { namespace, name } });
  const long = 'public-gateway-of-all-the-shops-in-all-of-the-countries';
  const more = [at('a', 'b-c'), at('a-b', 'c'), at('edge', `${long}-1`), at('edge', `${long}-2`)];
  const { consumers } = discover([...objects, ...more], 'default');
  const names = consumers.map(({ spec }) => spec?.metadata.name ?? '');
  expect([names.length, new Set(names).size]).toEqual([5, 5]);
  for (const name of names) expect(name).toMatch(/^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/);
});

it.each([
  ['api.shop.example', []],
  ['https://accounts.example.com:443/login', []],
  ['web', ['shop/web']],
  ['http://web:80', ['shop/web']],
  ['http://web.pay/path', ['pay/web']],
  ['web.pay.svc.cluster.local', ['pay/web']],
])('a route to the host %s leads to %j', (service, expected) => {
  const metadata = { name: 'x', namespace: 'shop' };
  const mapping = { apiVersion: 'getambassador.io/v3alpha1', kind: 'Mapping', metadata, spec: { service } };
  const services = backendsOf(mapping, 'shop').map((each) => `${each.namespace}/${each.service}`);
  expect(services).toEqual(expected);
});

it('says which routes are of a Gateway that is not among the manifests', () => {
  const metadata = { name: 'web', namespace: 'shop' };
  const spec = {
    parentRefs: [{ name: 'edge', namespace: 'infra' }],
    rules: [{ backendRefs: [{ name: 'web' }] }],
  };
  const route = { apiVersion: 'gateway.networking.k8s.io/v1', kind: 'HTTPRoute', metadata, spec };
  expect(discover([route], 'default')).toEqual({
    consumers: [],
    unrecognised: [{ seen: 'HTTPRoute shop/web', services: ['shop/web'] }],
  });
  const other = { ...route, kind: 'Gateway', metadata: { name: 'other', namespace: 'infra' }, spec: {} };
  expect(discover([route, other], 'default')).toEqual({ consumers: [], unrecognised: [] });
});

it('takes a NEG for Ingresses for a way in only where there is one', () => {
  const metadata = { name: 'web', namespace: 'shop' };
  const annotations = { 'cloud.google.com/neg': '{"ingress": true}' };
  const service = { apiVersion: 'v1', kind: 'Service', metadata: { ...metadata, annotations }, spec: {} };
  const spec = { defaultBackend: { service: { name: 'web' } } };
  const ingress = { apiVersion: 'networking.k8s.io/v1', kind: 'Ingress', metadata, spec };
  const namesOf = (objects: unknown[]) => discover(objects, 'default').consumers.map(({ name }) => name);
  expect(namesOf([service])).toEqual([]);
  expect(namesOf([service, ingress])).toEqual(['gke-neg']);
});

it('says which routes are of a class that it does not know', () => {
  const ingress = {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'Ingress',
    metadata: { name: 'x', namespace: 'shop' },
    spec: { ingressClassName: 'home-made', defaultBackend: { service: { name: 'web' } } },
  };
  expect(discover([ingress], 'default')).toEqual({
    consumers: [],
    unrecognised: [{ seen: 'Ingress shop/x', services: ['shop/web'] }],
  });
});

const hostile = (apiVersion: string, kind: string, name: unknown, spec: unknown) => ({
  apiVersion,
  kind,
  metadata: { name },
  spec,
});

it.each<[string, unknown]>([
  ['no object', null],
  ['a spec of another shape', hostile('projectcontour.io/v1', 'HTTPProxy', 'x', 7)],
  ['a name that is none', hostile('v1', 'Service', { a: 1 }, { type: 'NodePort' })],
  [
    'references that are none',
    hostile('traefik.io/v1alpha1', 'IngressRoute', 'x', {
      routes: [null, { services: ['', null, { kind: 'TraefikService', name: 3 }] }],
    }),
  ],
])('finds nothing in %s', (_, object) => {
  expect(discover([object], 'default').consumers).toEqual([]);
});

it('takes names with markup for names, and 10,000 routes', () => {
  const route = (index: number) => ({
    apiVersion: 'route.openshift.io/v1',
    kind: 'Route',
    metadata: { name: `<b>${index}\n# x`, namespace: `team-${index}` },
    spec: { to: { kind: 'Service', name: 'web' } },
  });
  const [found] = discover(
    Array.from({ length: 10_000 }, (_, index) => route(index)),
    'default',
  ).consumers;
  expect(found?.services).toHaveLength(10_000);
  // More namespaces than a selector has room for: it applies to all.
  expect(parseDocument({ ...found?.spec }, 'many')).toMatchObject({ spec: { measure: { declared: {} } } });
});

it('the catalogue has each name once, and a source for each number', () => {
  expect(new Set(CATALOGUE.map(({ name }) => name)).size).toBe(CATALOGUE.length);
  for (const { source } of CATALOGUE) expect(source).toMatch(/^(https:\/\/|assumed: |kube-proxy )/);
});
