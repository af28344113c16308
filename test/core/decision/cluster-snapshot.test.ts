import { describe, expect, it } from 'vitest';
import { namespaceRecord, serviceIndex } from '../../../src/core/api/index.ts';
import {
  type ClusterSnapshot,
  NO_DOCUMENTS,
  NO_SOURCES,
  newSnapshotHolder,
  snapshotOf,
} from '../../../src/core/decision/cluster-snapshot.ts';
import { decide } from '../../../src/core/decision/decide.ts';
import { fleetOf } from '../../../src/core/decision/fleet.ts';
import { consumerOf } from '../../../src/core/lag/index.ts';
import { sortDocuments } from '../../../src/core/manifest/index.ts';
import { empiricalDistribution } from './empirical-distribution.ts';
import { container, creationOf, type JsonObject, pod, podOf } from './sample-pod.ts';
import { clusterPolicy, consumer, namespace, policy, sampleNode, service } from './sample-snapshot.ts';

const located = (...values: unknown[]) =>
  values.map((value, index) => ({ value, where: `file document ${index + 1}` }));
const documentsOf = (...values: unknown[]) => sortDocuments(located(...values));

function reasonIn(snapshot: ClusterSnapshot, object: unknown = podOf(container('quiet'))): string {
  const decision = decide(creationOf(object), snapshot);
  return decision.outcome === 'skip' ? decision.reason : 'inject';
}

describe('sorting what files hold', () => {
  it('each kind to its own', () => {
    const { clusterPolicies, policies, consumers, namespaces, services } = documentsOf(
      clusterPolicy({}, 'a'),
      policy({}, 'b'),
      consumer({}, 'c'),
      namespace({ note: 'x' }, { team: 'y' }, 'd'),
      service({ selector: { app: 'web' } }, 'e'),
    );
    expect([clusterPolicies, policies, consumers].map(([first]) => first?.metadata.name)).toEqual([
      'a',
      'b',
      'c',
    ]);
    expect(namespaces).toEqual([
      { name: 'd', labels: { team: 'y', 'kubernetes.io/metadata.name': 'd' }, annotations: { note: 'x' } },
    ]);
    expect(services).toEqual([
      {
        namespace: 'shop',
        name: 'e',
        labels: {},
        selector: { app: 'web' },
        externalName: false,
        headless: false,
      },
    ]);
  });

  it.each([
    ['another kind', { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'a' } }],
    [
      'a Service of another group',
      { apiVersion: 'serving.knative.dev/v1', kind: 'Service', metadata: { name: 'a' }, spec: {} },
    ],
    ['no object at all', 'text'],
    ['null', null],
    ['a list', []],
    ['a Service without metadata', { apiVersion: 'v1', kind: 'Service', spec: {} }],
    ['a Service without a spec', { apiVersion: 'v1', kind: 'Service', metadata: { name: 'a' } }],
    ['a Namespace whose name is a number', { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 7 } }],
    [
      'a group that only begins like ours',
      { apiVersion: 'linger.dev.example/v1', kind: 'X', metadata: { name: 'a' } },
    ],
  ])('passes over %s', (_what, value) => {
    expect(documentsOf(value)).toEqual(NO_DOCUMENTS);
  });

  it('the namespace of a Service that names none', () => {
    const nowhere = { apiVersion: 'v1', kind: 'Service', metadata: { name: 'a' }, spec: {} };
    expect(sortDocuments(located(nowhere)).services[0]?.namespace).toBe('default');
    expect(sortDocuments(located(nowhere), 'team').services[0]?.namespace).toBe('team');
  });

  it.each([
    ['a cluster policy', clusterPolicy({}, 'a'), 'ClusterTerminationPolicy/a'],
    ['a policy', policy({}, 'a'), 'TerminationPolicy/shop/a'],
    ['a consumer', consumer({}, 'a'), 'DiscoveryConsumer/a'],
  ])('%s that is there twice is refused', (_what, value, key) => {
    expect(() => documentsOf(value, structuredClone(value))).toThrow(
      `file document 2: ${key} is already defined in file document 1; rename or remove one`,
    );
  });

  it('the same name in another namespace, or of another kind, is another document', () => {
    const documents = documentsOf(
      clusterPolicy({}, 'a'),
      policy({}, 'a', 'one'),
      policy({}, 'a', 'two'),
      consumer({}, 'a'),
    );
    expect(
      [documents.clusterPolicies, documents.policies, documents.consumers].map(({ length }) => length),
    ).toEqual([1, 2, 1]);
  });

  it('an invalid document is refused with its place, and nothing is taken', () => {
    expect(() => documentsOf(clusterPolicy({}), policy({ ceiling: { wait: '1s' } }))).toThrow(
      /^file document 2: .*spec\.ceiling/,
    );
  });
});

describe('manifests that are about to be applied', () => {
  const selecting = (app: string) => service({ selector: { app } });
  const web = { ...podOf(container('quiet')), metadata: { name: 'web', labels: { app: 'web' } } };
  const elsewhere = serviceIndex(documentsOf(selecting('x')).services, true);

  it('add to the Services of files, and of the cluster', () => {
    const applied = documentsOf(service({ selector: { app: 'web' } }, 'another'));
    const files = documentsOf(selecting('x'));
    expect(reasonIn(snapshotOf({ ...NO_SOURCES, files }), web)).toBe('NotServing');
    expect(reasonIn(snapshotOf({ ...NO_SOURCES, files, applied }), web)).toBe('inject');
    const cluster = { services: elsewhere };
    expect(reasonIn(snapshotOf({ ...NO_SOURCES, cluster }), web)).toBe('NotServing');
    expect(reasonIn(snapshotOf({ ...NO_SOURCES, cluster, applied }), web)).toBe('inject');
  });

  it('leave it known that other namespaces have no Service', () => {
    const applied = documentsOf(service({ selector: { app: 'web' } }, 'web', 'another'));
    const snapshot = snapshotOf({ ...NO_SOURCES, cluster: { services: serviceIndex([], true) }, applied });
    expect(reasonIn(snapshot, web)).toBe('NotServing');
  });

  it('replace a Namespace and a Service of the same name', () => {
    const optedOut = namespace({ 'linger.dev/inject': 'false' });
    const of = (files: unknown, applied: unknown) =>
      snapshotOf({ ...NO_SOURCES, files: documentsOf(files), applied: documentsOf(applied) });
    expect(reasonIn(of(optedOut, namespace()), pod())).toBe('inject');
    expect(reasonIn(of(namespace(), optedOut), pod())).toBe('OptedOut');
    expect(reasonIn(of(selecting('web'), selecting('other')), web)).toBe('NotServing');
    const namespaces = new Map(documentsOf(optedOut).namespaces.map((each) => [each.name, each]));
    const over = { ...NO_SOURCES, cluster: { namespaces }, applied: documentsOf(namespace()) };
    expect(reasonIn(snapshotOf(over), pod())).toBe('inject');
  });
});

describe('the snapshot that is held', () => {
  const apply = (held: ReturnType<typeof newSnapshotHolder>, ...values: JsonObject[]) =>
    held.apply({ kind: 'documents', documents: documentsOf(...values) });

  it('has the mode limit that it was given, whatever comes', () => {
    const held = newSnapshotHolder('Off');
    expect(reasonIn(held.current(), pod())).toBe('ModeOff');
    apply(held, clusterPolicy({ mode: 'Enforce' }));
    expect(reasonIn(held.current(), pod())).toBe('ModeOff');
  });

  it('is replaced as a whole: what is no longer there no longer counts', () => {
    const held = newSnapshotHolder('Enforce');
    apply(
      held,
      clusterPolicy({ mode: 'Off' }),
      namespace({ 'linger.dev/inject': 'false' }),
      service({ selector: { app: 'x' } }),
    );
    expect(reasonIn(held.current(), pod())).toBe('OptedOut');
    apply(held, clusterPolicy({ mode: 'Off' }));
    expect(reasonIn(held.current(), pod())).toBe('ModeOff');
    apply(held);
    expect(reasonIn(held.current(), pod())).toBe('inject');
    expect(reasonIn(held.current())).toBe('inject');
  });

  it('never changes under its reader', () => {
    const held = newSnapshotHolder('Enforce');
    const before = held.current();
    apply(held, clusterPolicy({ mode: 'Off' }));
    expect(reasonIn(before, pod())).toBe('inject');
    expect(held.current()).not.toBe(before);
  });

  it('a namespace without a Service in the files may have some all the same', () => {
    const held = newSnapshotHolder('Enforce');
    apply(held, service({ selector: { app: 'web' } }, 'web', 'elsewhere'));
    expect(reasonIn(held.current())).toBe('inject');
    apply(held, service({ selector: { app: 'other' } }));
    expect(reasonIn(held.current())).toBe('NotServing');
  });

  it('a consumer with a podSelector makes the pods that it selects serve', () => {
    const held = newSnapshotHolder('Enforce');
    const unrelated = service({ selector: { app: 'other' } });
    apply(held, unrelated, consumer({ podSelector: { matchLabels: { app: 'web' } } }));
    const selected = { ...podOf(container('quiet')), metadata: { name: 'web', labels: { app: 'web' } } };
    expect(reasonIn(held.current(), selected)).toBe('inject');
    apply(held, unrelated, consumer({}));
    expect(reasonIn(held.current(), selected)).toBe('NotServing');
  });
});

describe('thousands of policies', () => {
  const applying = (held: ReturnType<typeof newSnapshotHolder>, count: number, ...more: JsonObject[]) => {
    const many = Array.from({ length: count }, (_, index) =>
      clusterPolicy({ podSelector: { matchLabels: { app: `app-${index}` } } }, `p-${index}`),
    );
    return held.applying({ kind: 'documents', documents: documentsOf(...many, ...more) });
  };

  it('are applied in steps, each of which costs what a hundred policies do at most', () => {
    const steps = (count: number) => [...applying(newSnapshotHolder('Enforce'), count)].length;
    expect(steps(10)).toBeLessThan(5);
    // Each is read once, and put in its place in the order once.
    expect(steps(1_000)).toBeGreaterThanOrEqual(2 * 10);
  });

  it('are in force with the last step and not before, and what else was applied meanwhile stays', () => {
    const held = newSnapshotHolder('Enforce');
    const steps = applying(held, 500, clusterPolicy({ mode: 'Off' }));
    for (let count = 0; count < 5; count += 1) expect(steps.next().done).toBe(false);
    const shop = namespaceRecord('shop', {}, { 'linger.dev/inject': 'false' });
    held.apply({ kind: 'namespaces', namespaces: new Map([['shop', shop]]) });
    const { namespaces } = held.current();
    for (const _ of steps) {
      expect(reasonIn(held.current(), pod())).toBe('OptedOut');
      held.apply({ kind: 'services', services: serviceIndex([], true) });
    }
    expect(held.current()).toMatchObject({ namespaces, services: { complete: true } });
    held.apply({ kind: 'namespaces', namespaces: new Map() });
    expect(reasonIn(held.current(), pod())).toBe('ModeOff');
  });
});

describe('what the cluster says', () => {
  const files = (...values: JsonObject[]) =>
    ({ kind: 'documents', documents: documentsOf(...values) }) as const;
  const services = (...names: string[]) => {
    const records = names.map((name) => ({
      namespace: 'shop',
      name,
      labels: {},
      selector: { app: name },
      externalName: false,
      headless: false,
    }));
    return { kind: 'services', services: serviceIndex(records, true) } as const;
  };
  const namespaces = (annotations: Record<string, string>) => {
    const shop = namespaceRecord('shop', {}, annotations);
    return { kind: 'namespaces', namespaces: new Map([['shop', shop]]) } as const;
  };

  it('of Services is the truth: a namespace without any has none', () => {
    const held = newSnapshotHolder('Enforce');
    expect(reasonIn(held.current())).toBe('inject');
    held.apply(services());
    expect(reasonIn(held.current())).toBe('NotServing');
  });

  it('wins over the Services and Namespaces of files, whichever comes later', () => {
    const selected = { ...podOf(container('quiet')), metadata: { name: 'web', labels: { app: 'web' } } };
    const selecting = service({ selector: { app: 'web' } });
    const optedOut = namespace({ 'linger.dev/inject': 'false' });
    const later = newSnapshotHolder('Enforce');
    for (const event of [files(selecting, optedOut), services('other'), namespaces({})]) later.apply(event);
    const earlier = newSnapshotHolder('Enforce');
    for (const event of [services('other'), namespaces({}), files(selecting, optedOut)]) earlier.apply(event);
    for (const held of [later, earlier]) expect(reasonIn(held.current(), selected)).toBe('NotServing');
  });

  it('leaves the policies of files alone, and they leave it alone', () => {
    const held = newSnapshotHolder('Enforce');
    held.apply(files(clusterPolicy({ mode: 'Off' })));
    held.apply(namespaces({ 'linger.dev/mode': 'Enforce' }));
    expect(reasonIn(held.current(), pod())).toBe('inject');
    held.apply(files());
    held.apply(namespaces({ 'linger.dev/mode': 'Off' }));
    expect(reasonIn(held.current(), pod())).toBe('ModeOff');
  });

  it('of policies stands beside those of files, and wins where both have one of a name', () => {
    const held = newSnapshotHolder('Enforce');
    held.apply(files(clusterPolicy({ mode: 'Off' }, 'a'), policy({ mode: 'Off' }, 'b')));
    const { clusterPolicies, policies } = documentsOf(
      clusterPolicy({ mode: 'Enforce' }, 'a'),
      policy({ mode: 'Enforce' }, 'b'),
    );
    held.apply({ kind: 'clusterPolicies', clusterPolicies });
    expect(reasonIn(held.current(), pod())).toBe('ModeOff');
    held.apply({ kind: 'policies', policies });
    expect(reasonIn(held.current(), pod())).toBe('inject');
    held.apply({ kind: 'clusterPolicies', clusterPolicies: [] });
    held.apply({ kind: 'policies', policies: [] });
    expect(reasonIn(held.current(), pod())).toBe('ModeOff');
  });

  it('of versions and lags counts at once', () => {
    const held = newSnapshotHolder('Enforce');
    const old = fleetOf('v1.29.0', [sampleNode({ kubeletVersion: 'v1.28.1' })]);
    held.apply({ kind: 'fleet', fleet: old });
    const lag = empiricalDistribution(Array<number>(1_000).fill(4), 2 * 86_400);
    held.apply({ kind: 'lags', lags: { planned: (_namespace, _consumers, enough) => lag.planned(enough) } });
    expect(decide(creationOf(pod()), held.current())).toMatchObject({
      plan: { hook: 'Exec', why: 'measured', wait: 10 },
    });
  });
});

it('knows what its policies take for enough history, to have it published at once when it is reached', () => {
  const files = documentsOf(clusterPolicy({ wait: { minSamples: 5_000, minHistory: '48h' } }));
  const { policies } = snapshotOf({ ...NO_SOURCES, files });
  expect(policies.thresholds).toEqual([
    { minSamples: 200, minHistory: 0 },
    { minSamples: 5_000, minHistory: 0 },
    { minSamples: 0, minHistory: 86_400 },
    { minSamples: 0, minHistory: 2 * 86_400 },
  ]);
});

describe('consumers', () => {
  const named = (name: string, lag: number) => consumerOf(name, { measure: { declared: { lag } } });
  const inFile = (...names: string[]) =>
    ({ kind: 'documents', documents: documentsOf(...names.map((name) => consumer({}, name))) }) as const;
  const shown = ({ consumers }: ClusterSnapshot) => consumers.map(({ name, lagKey }) => `${name} ${lagKey}`);

  it('are those of files and of the cluster together, and the built-in one', () => {
    const snapshot = newSnapshotHolder('Enforce');
    snapshot.apply(inFile('a', 'b'));
    snapshot.apply({ kind: 'consumers', consumers: [named('c', 1)] });
    expect(snapshot.current().consumers.map(({ name }) => name)).toEqual([
      'cluster-ip',
      'cluster-dns',
      'a',
      'b',
      'c',
    ]);
    expect(snapshot.shadowed()).toEqual([]);
  });

  it('the cluster’s wins where both have one of a name, in either order', () => {
    const cluster = { kind: 'consumers', consumers: [named('a', 7)] } as const;
    for (const events of [
      [inFile('a', 'b'), cluster],
      [cluster, inFile('a', 'b')],
    ]) {
      const snapshot = newSnapshotHolder('Enforce');
      for (const event of events) snapshot.apply(event);
      expect(shown(snapshot.current())).toEqual([
        'cluster-ip cluster-ip',
        'cluster-dns cluster-dns',
        'a a={"lag":7}',
        'b b={"syncInterval":10}',
      ]);
      expect(snapshot.shadowed()).toEqual(['a']);
    }
  });

  it('one that is only observed is measured, considered by no decision, and replaces none of its name', () => {
    const observed = (name: string) =>
      consumerOf(name, { mode: 'Observe', measure: { declared: { lag: 99 } } });
    const snapshot = newSnapshotHolder('Enforce');
    snapshot.apply(inFile('a'));
    const { consumers } = snapshot.current();
    snapshot.apply({ kind: 'consumers', consumers: ['a', 'b', 'cluster-ip'].map(observed) });
    expect(snapshot.current().consumers).toEqual(consumers);
    expect(snapshot.current().measured.map(({ name }) => name)).toEqual([
      'cluster-ip',
      'cluster-dns',
      'a',
      'b',
    ]);
    expect(snapshot.shadowed()).toEqual([]);
  });

  it('one of a built-in name replaces it, wherever it is declared', () => {
    const snapshot = newSnapshotHolder('Enforce');
    snapshot.apply(inFile('cluster-ip'));
    expect(shown(snapshot.current())).toEqual([
      'cluster-ip cluster-ip={"syncInterval":10}',
      'cluster-dns cluster-dns',
    ]);
    snapshot.apply({ kind: 'consumers', consumers: [named('cluster-ip', 7)] });
    expect(shown(snapshot.current())).toEqual(['cluster-ip cluster-ip={"lag":7}', 'cluster-dns cluster-dns']);
  });

  it('a file’s counts again once the cluster’s is gone', () => {
    const snapshot = newSnapshotHolder('Enforce');
    snapshot.apply(inFile('a'));
    snapshot.apply({ kind: 'consumers', consumers: [named('a', 7)] });
    snapshot.apply({ kind: 'consumers', consumers: [] });
    expect(shown(snapshot.current())).toEqual([
      'cluster-ip cluster-ip',
      'cluster-dns cluster-dns',
      'a a={"syncInterval":10}',
    ]);
    expect(snapshot.shadowed()).toEqual([]);
  });

  it('and every other part stay the same value while only something else changes', () => {
    const snapshot = newSnapshotHolder('Enforce');
    snapshot.apply(inFile('a'));
    snapshot.apply({ kind: 'namespaces', namespaces: new Map() });
    const before = snapshot.current();
    snapshot.apply({ kind: 'services', services: serviceIndex([], true) });
    const { services, ...others } = snapshot.current();
    for (const [part, value] of Object.entries(others))
      expect(before[part as keyof ClusterSnapshot]).toBe(value);
    expect(services).not.toBe(before.services);
  });

  it('stay the same value while only something else changes: what is measured of them hangs on it', () => {
    const snapshot = newSnapshotHolder('Enforce');
    snapshot.apply({ kind: 'consumers', consumers: [named('a', 7)] });
    const { consumers } = snapshot.current();
    snapshot.apply({ kind: 'services', services: serviceIndex([], true) });
    expect(snapshot.current().consumers).toBe(consumers);
  });
});
