import { setTimeout as delay } from 'node:timers/promises';
import { Registry } from '@prometheus-io/client';
import { describe, expect, it } from 'vitest';
import type { KubeConnection } from '../../src/cluster/index.ts';
import { namespaceRecord, serviceIndex } from '../../src/core/api/index.ts';
import {
  fleetOf,
  type HoldSupply,
  newSnapshotHolder,
  nodeKind,
  type SnapshotHolder,
} from '../../src/core/decision/index.ts';
import {
  Delivery,
  type DeliverySettings,
  readTrials,
  TRIED_ANNOTATION,
  testPod,
  trialsText,
} from '../../src/hold/delivery.ts';
import { readHelperObject } from '../../src/hold/helper-object.ts';
import { createLogger } from '../../src/telemetry/index.ts';

import { pause } from '../../src/timing/index.ts';
import { sampleNode } from '../core/decision/sample-snapshot.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { DeliveryApi } from './delivery-api.ts';

const { name: CONFIG_MAP, digest } = readHelperObject();
const AMD = sampleNode({ name: 'a' });
const ARM = sampleNode({ name: 'b', architecture: 'arm64' });
const UNKNOWN = sampleNode({ name: 'c', architecture: 's390x' });

const atEnd = atEndOfFile();

interface Start {
  readonly settings?: Partial<DeliverySettings>;
  /** Namespaces, apart from Linger's own, that request Hold by annotation. */
  readonly holding?: readonly string[];
  readonly refuse?: DeliveryApi['refuse'];
  /** ClusterIP of the Service; empty: none. */
  readonly clusterIp?: string;
  /** By how much its clock is faster than real time. Default 1. */
  readonly times?: number;
}

/** The part of a replica that delivers the helper. */
async function start({ settings, holding = [], clusterIp = '10.201.0.7', refuse, times = 1 }: Start = {}) {
  const api = await DeliveryApi.start();
  if (refuse !== undefined) api.refuse = refuse;
  const container = {
    image: 'registry.example/linger:1',
    securityContext: { runAsUser: 1_000_650_000 },
  };
  api.put('pods', 'linger', 'replica', { spec: { containers: [container] } });
  const ended = new AbortController();
  atEnd(() => {
    ended.abort();
    api.close();
  });
  const snapshot = newSnapshotHolder('Enforce');
  const named = ['linger', 'shop', ...holding].map((name) => {
    const annotations = holding.includes(name) ? { 'linger.dev/hook': 'hold' } : {};
    return namespaceRecord(name, {}, annotations);
  });
  snapshot.apply({ kind: 'namespaces', namespaces: new Map(named.map((each) => [each.name, each])) });
  const service = { namespace: 'linger', name: 'linger-hold', labels: {}, selector: {}, headless: false };
  const services = [{ ...service, externalName: false, clusterIp: clusterIp || undefined }];
  snapshot.apply({ kind: 'services', services: serviceIndex(services, true) });
  snapshot.apply({ kind: 'fleet', fleet: fleetOf('v1.36.3', [AMD, UNKNOWN]) });
  const registry = new Registry();
  const delivery = new Delivery({
    connection: {
      server: api.url,
      credentials: async () => ({ headers: {} }),
      invalidate: () => undefined,
    } as unknown as KubeConnection,
    place: { namespace: 'linger', identity: 'replica' },
    settings: { port: 8445, address: undefined, testImage: undefined, image: undefined, ...settings },
    snapshot,
    logger: createLogger('silent', process.stdout),
    registry,
    signal: ended.signal,
    clock: () => times * performance.now(),
    random: Math.random,
    pause: (milliseconds, signal) => pause(milliseconds / times, signal),
    onFailure: () => undefined,
    onCurrent: () => undefined,
    onHandlerError: (error) => expect.fail(String(error)),
  });
  await delivery.read;
  return {
    api,
    snapshot,
    delivery,
    lead: () => {
      const leadership = { signal: ended.signal, holds: () => !ended.signal.aborted };
      for (const each of delivery.runnables) void each.lead?.(leadership);
    },
    metric: async (name: string) => (await registry.getSingleMetricAsString(name)).split('\n').slice(2),
  };
}

function supplyIn(snapshot: SnapshotHolder): HoldSupply | undefined {
  const { hold } = snapshot.current();
  return hold === undefined || 'why' in hold ? undefined : hold;
}

async function soon<T>(look: () => T | undefined | false, what = 'it'): Promise<T> {
  for (let waited = 0; waited < 8_000; waited += 20) {
    const found = look();
    if (found !== undefined && found !== false) return found;
    await delay(20);
  }
  throw new Error(`${what} has not happened`);
}

describe.concurrent('what decisions learn', () => {
  it.each([
    ['the Service’s address', {}, '10.201.0.7:8445'],
    ['its IPv6 address', { clusterIp: 'fd00::7' }, '[fd00::7]:8445'],
    ['the flag’s', { settings: { address: '192.0.2.1:99' } }, '192.0.2.1:99'],
    ['another port', { settings: { port: 1234 } }, '10.201.0.7:1234'],
  ])('%s', async (_what, given, address) => {
    const { snapshot } = await start(given);
    const hold = await soon(() => supplyIn(snapshot));
    expect(hold).toEqual({
      address,
      digest,
      namespaces: new Set(),
      tested: new Set(),
      architectures: new Set(['amd64', 'arm64']),
    });
  });

  it('why there is none, where the Service has no address', async () => {
    const { snapshot } = await start({ settings: { image: 'x' }, clusterIp: '' });
    const hold = await soon(() => snapshot.current().hold);
    expect(hold).toEqual({ why: 'there is no Service linger/linger-hold with an address' });
  });

  it('no namespace, where Linger may not look; and nothing waits for it', async () => {
    const refuse = (_method: string, path: string) => (path === '/api/v1/configmaps' ? 403 : undefined);
    const { snapshot } = await start({ refuse });
    const hold = await soon(() => supplyIn(snapshot));
    expect(hold.namespaces.size).toBe(0);
  });

  it('in which namespaces the helper is, as that changes', async () => {
    const { api, snapshot } = await start();
    const namespaces = () => [...(supplyIn(snapshot)?.namespaces ?? [])].join();
    api.put('configmaps', 'shop', CONFIG_MAP);
    api.put('configmaps', 'pay', CONFIG_MAP);
    await soon(() => namespaces() === 'shop,pay');
    api.remove('configmaps', 'shop', CONFIG_MAP);
    await soon(() => namespaces() === 'pay');
  });

  it('the results of trials: from Linger’s own ConfigMap only', async () => {
    const { api, snapshot } = await start();
    const trials = (kind: string) => ({
      metadata: {
        annotations: {
          [TRIED_ANNOTATION]: trialsText(
            new Map([
              [kind, ''],
              ['bad', 'no'],
            ]),
          ),
        },
      },
    });
    api.put('configmaps', 'shop', CONFIG_MAP, trials('forged'));
    api.put('configmaps', 'linger', CONFIG_MAP, trials('true'));
    await soon(() => supplyIn(snapshot)?.tested.has('true'));
    expect([...(supplyIn(snapshot)?.tested ?? [])]).toEqual(['true']);
  });
});

describe.concurrent('the leader', () => {
  it('does nothing while no policy asks for Hold', async () => {
    const { api, lead } = await start();
    lead();
    await delay(1_500);
    expect(api.applied).toEqual([]);
  });

  it.each<[string, Start, number]>([
    ['the helper, but in namespaces whose pods are not sent to Linger', {}, 1],
    ['the Service', { clusterIp: '' }, 1],
    ['nothing', { holding: [] }, 0],
  ])('counts the namespaces that lack %s', async (_what, given, count) => {
    const { metric } = await start({ holding: ['pay', 'kube-system'], ...given });
    expect(await metric('linger_hold_namespaces_lacking')).toEqual([
      `linger_hold_namespaces_lacking ${count}`,
    ]);
  });

  it('brings the helper to who asks for it, tries it once, and tells all', async () => {
    const { api, snapshot, lead, metric } = await start({ holding: ['pay', 'web'] });
    const lacking = async () => (await metric('linger_hold_namespaces_lacking')).join();
    expect(await lacking()).toBe('linger_hold_namespaces_lacking 2');
    lead();
    await soon(() => supplyIn(snapshot)?.tested.has(nodeKind(AMD)), 'the trial');
    expect([...(supplyIn(snapshot)?.namespaces ?? [])].sort()).toEqual(['linger', 'pay', 'web']);
    await delay(1_200);
    const paths = api.applied.map(({ path }) => path);
    const of = (namespace: string) => `/api/v1/namespaces/${namespace}/configmaps/${CONFIG_MAP}`;
    const pod = '/api/v1/namespaces/linger/pods/linger-hold-test';
    // Its own first, and again with the result of the trial.
    expect(paths[0]).toBe(of('linger'));
    expect(paths.toSorted()).toEqual([of('linger'), of('linger'), of('pay'), of('web'), pod].toSorted());
    expect(api.objects.has('pods/linger/linger-hold-test')).toBe(false);
    const { metadata } = api.objects.get(`configmaps/linger/${CONFIG_MAP}`)!;
    expect(metadata.annotations).toEqual({ [TRIED_ANNOTATION]: JSON.stringify({ [nodeKind(AMD)]: '' }) });
    expect(await metric('linger_hold_namespaces')).toEqual(['linger_hold_namespaces 3']);
    expect(await lacking()).toBe('linger_hold_namespaces_lacking 0');
    expect(await metric('linger_hold_node_kinds')).toEqual([
      'linger_hold_node_kinds{result="passed"} 1',
      'linger_hold_node_kinds{result="failed"} 0',
      'linger_hold_node_kinds{result="untried"} 0',
    ]);
  });

  it('tries a kind of node that is new, with the architecture’s helper, on that node', async () => {
    const { api, snapshot, lead } = await start({ holding: ['pay'] });
    lead();
    await soon(() => supplyIn(snapshot)?.tested.size === 1);
    snapshot.apply({ kind: 'fleet', fleet: fleetOf('v1.36.3', [AMD, ARM, UNKNOWN]) });
    await soon(() => supplyIn(snapshot)?.tested.size === 2);
    const pods = api.applied.filter(({ path }) => path.endsWith('/linger-hold-test'));
    expect(pods.map(({ body }) => body)).toEqual(
      [AMD, ARM].map(({ name, architecture }) =>
        testPod({
          namespace: 'linger',
          nodeName: name,
          image: 'registry.example/linger:1',
          secrets: [],
          runAsUser: 1_000_650_000,
          key: `hold-${architecture}`,
          configMap: CONFIG_MAP,
        }),
      ),
    );
  });

  it('tries it in a pod that has all that quotas may ask for', () => {
    const of = { namespace: 'linger', nodeName: 'n', image: 'i', key: 'k', configMap: 'c' };
    const { spec } = testPod({ ...of, secrets: [], runAsUser: 1 }) as {
      spec: { containers: { resources: object }[] };
    };
    const both = { cpu: expect.any(String) as string, memory: expect.any(String) as string };
    expect(spec.containers[0]?.resources).toEqual({ requests: both, limits: both });
  });

  it('tries a kind of node on one that runs pods', async () => {
    const { api, snapshot, lead } = await start({ holding: ['pay'], times: 50 });
    const idle = ['x', 'y', 'z'].map((name) => sampleNode({ name }));
    snapshot.apply({ kind: 'fleet', fleet: fleetOf('v1.36.3', [...idle, AMD]) });
    const nodeOf = ({ spec }: Record<string, unknown>) => (spec as { nodeName: string }).nodeName;
    api.run = (pod) => (nodeOf(pod) === AMD.name ? { phase: 'Succeeded' } : {});
    lead();
    await soon(() => supplyIn(snapshot)?.tested.has(nodeKind(AMD)));
    const tried = api.applied.filter(({ path }) => path.endsWith('/linger-hold-test'));
    const nodes = tried.map(({ body }) => nodeOf(body));
    expect(nodes).toEqual([...new Set(nodes)]);
  });

  it('notes where no node of a kind runs pods, and tries them again later', async () => {
    const { api, snapshot, lead } = await start({ holding: ['pay'], times: 50 });
    api.run = () => ({});
    lead();
    const noted = () => api.objects.get(`configmaps/linger/${CONFIG_MAP}`)?.metadata.annotations;
    await soon(() => readTrials(noted()?.[TRIED_ANNOTATION]).has(nodeKind(AMD)));
    expect(readTrials(noted()?.[TRIED_ANNOTATION]).get(nodeKind(AMD))).toMatch(/kubelet/);
    api.run = () => ({ phase: 'Succeeded' });
    await soon(() => supplyIn(snapshot)?.tested.has(nodeKind(AMD)));
  });

  it('goes on where the only node that had not been tried is taken away meanwhile', async () => {
    const { api, snapshot, lead } = await start({ holding: ['pay'], times: 50 });
    const nodes = ['x', 'y'].map((name) => sampleNode({ name }));
    snapshot.apply({ kind: 'fleet', fleet: fleetOf('v1.36.3', nodes) });
    api.run = () => ({});
    lead();
    const tried = await soon(() => api.applied.find(({ path }) => path.endsWith('/linger-hold-test')));
    const { nodeName } = tried.body.spec as { nodeName: string };
    snapshot.apply({
      kind: 'fleet',
      fleet: fleetOf(
        'v1.36.3',
        nodes.filter(({ name }) => name === nodeName),
      ),
    });
    api.run = () => ({ phase: 'Succeeded' });
    await soon(() => supplyIn(snapshot)?.tested.has(nodeKind(AMD)));
  });

  it('records why a trial failed, and goes on delivering', async () => {
    const { api, snapshot, lead } = await start({ holding: ['pay'] });
    const terminated = { exitCode: 128, reason: 'StartError', message: 'permission denied' };
    api.run = () => ({ phase: 'Failed', containerStatuses: [{ state: { terminated } }] });
    lead();
    const noted = await soon(
      () =>
        api.objects
          .get(`configmaps/linger/${CONFIG_MAP}`)
          ?.metadata.annotations?.[TRIED_ANNOTATION]?.includes('StartError') &&
        api.objects.get(`configmaps/linger/${CONFIG_MAP}`),
    );
    expect(readTrials(noted.metadata.annotations?.[TRIED_ANNOTATION]).get(nodeKind(AMD))).toBe(
      'StartError: exit code 128: permission denied',
    );
    await soon(() => supplyIn(snapshot)?.namespaces.has('pay'));
    expect(supplyIn(snapshot)?.tested.size).toBe(0);
  });

  it('needs no pod of its name where the operator names an image', async () => {
    const { api, snapshot, lead } = await start({ holding: ['pay'], settings: { testImage: 'other:2' } });
    api.remove('pods', 'linger', 'replica');
    lead();
    await soon(() => supplyIn(snapshot)?.tested.size === 1);
    expect(JSON.stringify(api.applied)).toContain('"image":"other:2"');
  });

  it('asks a namespace that refuses it once, and serves the others', async () => {
    const { api, snapshot, lead } = await start({ holding: ['gone', 'pay'] });
    const asked: string[] = [];
    api.refuse = (method, path) => {
      if (method === 'PATCH') asked.push(path);
      return method === 'PATCH' && path.includes('/gone/') ? 403 : undefined;
    };
    lead();
    await soon(() => supplyIn(snapshot)?.namespaces.has('pay'));
    await delay(1_500);
    expect(asked.filter((path) => path.includes('/gone/'))).toHaveLength(1);
  });

  it('brings the helper within 30 s after a right that was missing has been given back', async () => {
    const times = 20;
    const { api, snapshot, lead } = await start({ holding: ['gone', 'pay'], times });
    let denied = true;
    let asked = 0;
    api.refuse = (method, path) => {
      if (method === 'PATCH') asked += 1;
      if (method !== 'PATCH') return undefined;
      return denied || path.includes('/gone/') ? 403 : undefined;
    };
    lead();
    // A minute: three namespaces at once, then one every 12 s.
    await delay(60_000 / times);
    expect(asked).toBeGreaterThan(3);
    expect(asked).toBeLessThanOrEqual(3 + 5);
    denied = false;
    const from = performance.now();
    await soon(() => supplyIn(snapshot)?.namespaces.has('pay'));
    // One of the three stays refused, and the success of either of the others is enough.
    expect((performance.now() - from) * times).toBeLessThan(30_000);
  });

  it('goes on after an API server that was away', async () => {
    const { api, snapshot, lead } = await start({ holding: ['pay'] });
    let refused = 0;
    api.refuse = (method) => {
      if (method !== 'PATCH') return undefined;
      refused += 1;
      return refused <= 2 ? 503 : undefined;
    };
    lead();
    await soon(() => supplyIn(snapshot)?.namespaces.has('pay'));
    expect(refused).toBeGreaterThan(2);
  });
});

describe('the record of trials', () => {
  it.each([undefined, '', '[]', '{"a":1}', 'x', '{"a":{}}', 'null'])('%j is none', (text) => {
    expect(readTrials(text).size).toBe(0);
  });

  it('holds the last hundred kinds', () => {
    const many = new Map(Array.from({ length: 150 }, (_, index) => [`kind-${index}`, '']));
    expect([...readTrials(trialsText(many)).keys()]).toEqual([...many.keys()].slice(50));
  });
});
