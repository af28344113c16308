import { EventEmitter, once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, type TestContext } from 'vitest';
import { CLUSTER_DNS, CLUSTER_IP, type Consumer, consumerOf } from '../../src/core/lag/index.ts';
import {
  CANARY_LABEL,
  chooseCanary,
  everyMsOf,
  type Flipped,
  runCanary,
} from '../../src/measurement/canary/canary.ts';
import { CanaryEndpoints, type FlipLimits } from '../../src/measurement/canary/flip.ts';
import type { KnownReplica } from '../../src/measurement/canary/timed.ts';
import type { ClusterDns } from '../../src/measurement/cluster-dns/dns.ts';
import { Measurement } from '../../src/measurement/measurement.ts';
import { nodeTimerApp } from '../../src/measurement/node-timers/node-timers.ts';
import { attempt } from '../../src/measurement/requests/probe.ts';
import { canaryServer } from '../../src/webhook/index.ts';
import { OwnPods } from '../cluster/own-pods.ts';
import { dnsServer } from './dns-server.ts';

const NAMESPACE = 'linger';
const SLICE = { namespace: NAMESPACE, addressType: 'IPv4' };
const FIXED = {
  dns: { domain: 'svc.cluster.local' },
  allowLinkLocal: false,
  removals: new EventEmitter<{ removal: [] }>(),
};
const clock = () => performance.now();

/* Nearly all of what these tests take is waiting: they wait side by side, so each knows its own end. */
type AtEnd = TestContext['onTestFinished'];

async function started(atEnd: AtEnd, server: Server, host: string, port = 0): Promise<number> {
  server.listen(port, host);
  await once(server, 'listening');
  atEnd(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** Replicas on loopback addresses of their own, the API server, and a watch that follows it at once. */
async function open(atEnd: AtEnd, names: readonly string[]) {
  const own = await OwnPods.start();
  atEnd(() => own.close());
  const measurement = new Measurement({ clock, epochSeconds: () => Date.now() / 1000 });
  const endpoints = new CanaryEndpoints(measurement, NAMESPACE);
  const services = ['linger-canary'];
  const tell = () => {
    const states = [...own.pods.values()].map(({ metadata }) => ({
      targetUid: metadata.uid,
      ready: metadata.labels[CANARY_LABEL] === 'in',
    }));
    for (const serviceName of services) {
      const slice = { ...SLICE, name: serviceName, serviceName, endpoints: states };
      measurement.apply({ type: 'Slice', at: clock(), slice });
    }
  };
  own.onPatched = tell;
  let port = 0;
  const identities = new Map<string, string>();
  const servers = new Map<string, Server>();
  for (const [index, name] of names.entries()) {
    const identity = String(index + 1).repeat(32);
    const server = canaryServer(identity);
    servers.set(name, server);
    port = await started(atEnd, server, `127.0.0.${index + 1}`, port);
    own.add(name, { [CANARY_LABEL]: 'in' }, `127.0.0.${index + 1}`);
    identities.set(name, identity);
  }
  tell();
  return { atEnd, own, endpoints, services, tell, port, identities, servers };
}

/** kube-proxy, or a gateway: to one replica of those in the Service after the other. It follows a change so late. */
async function consumerOfAll(
  { atEnd, own, identities }: Awaited<ReturnType<typeof open>>,
  lateMs = 0,
): Promise<number> {
  let turn = 0;
  const { createServer } = await import('node:http');
  const isThere = () =>
    [...own.pods.values()].filter(({ metadata }) => metadata.labels[CANARY_LABEL] === 'in');
  let known = isThere();
  const { onPatched } = own;
  own.onPatched = (pod) => {
    onPatched(pod);
    const now = isThere();
    setTimeout(() => (known = now), lateMs);
  };
  return started(
    atEnd,
    createServer((_, response) => {
      const there = lateMs === 0 ? isThere() : known;
      const { metadata } = there[turn++ % there.length] ?? {};
      if (metadata === undefined) response.destroy();
      else response.writeHead(200, { 'linger-canary': identities.get(metadata.name) }).end();
    }),
    '127.0.0.1',
  );
}

const probe = (port: number, every = 0.05): Consumer =>
  consumerOf('edge', { measure: { probe: { url: `http://127.0.0.1:${port}/`, every } } });

type Opened = Awaited<ReturnType<typeof open>>;

/** Runs until so many flips have ended. */
async function flips(
  opened: Opened,
  consumers: readonly Consumer[],
  most: number,
  dns: ClusterDns = FIXED.dns,
  limits: Partial<FlipLimits> = {},
  {
    everyMs = 50,
    removals = new EventEmitter<{ removal: [] }>(),
    at = [] as number[],
    onFlip = (): void => undefined,
    onProbe = (_address: string): void => undefined,
    timed = (): number => 0,
    nodeTimerPort = 1,
  } = {},
): Promise<Flipped[]> {
  const { own, endpoints, port, identities } = opened;
  const ending = new AbortController();
  const flipped: Flipped[] = [];
  const running = runCanary(
    {
      connection: own.connection,
      namespace: NAMESPACE,
      port,
      identity: identities.get('web-1') ?? '',
      endpoints,
      dns,
      allowLinkLocal: false,
      consumers: () => consumers,
      everyMs,
      removals,
      timed,
      onFlip: (each) => {
        flipped.push(each);
        at.push(clock());
        onFlip();
        if (flipped.length === most) ending.abort();
      },
      onProbe,
      clock,
      random: Math.random,
      nodeTimerPort,
      // A busy machine is no standstill here: what is asked for is not how long things take.
      limits: { standstillMs: 60_000, attemptMs: 10_000, baselineMs: 30_000, everyMs: 5, ...limits },
    },
    { signal: ending.signal, holds: () => !ending.signal.aborted },
  );
  await running;
  return flipped;
}

describe.concurrent('with two replicas', { timeout: 60_000 }, () => {
  it('takes the other one out and back, measures, and puts everything back', async ({ onTestFinished }) => {
    const opened = await open(onTestFinished, ['web-1', 'web-2']);
    opened.own.service = { clusterIP: '127.0.0.1', ports: [{ port: await consumerOfAll(opened) }] };
    const probed: string[] = [];
    const consumers = [CLUSTER_IP, probe(await consumerOfAll(opened))];
    const onProbe = (address: string) => void probed.push(address);
    const [one, two] = await flips(opened, consumers, 2, FIXED.dns, {}, { onProbe });
    // Not those through the ClusterIP, which reach nothing but replicas.
    expect(new Set(probed)).toEqual(new Set(['127.0.0.1']));
    expect(probed.length).toBeLessThan(one!.attempts + two!.attempts);
    for (const flipped of [one!, two!]) {
      expect(flipped).toMatchObject({ result: 'Measured', pod: 'web-2' });
      for (const name of ['cluster-ip', 'edge']) {
        const { removal, trouble } = flipped.consumers.get(name)!;
        expect(trouble).toBeUndefined();
        expect(removal).toBeGreaterThanOrEqual(0);
      }
      expect(flipped.asked.get('cluster-ip')).toContainEqual(expect.stringContaining('of the node where'));
    }
    expect(opened.own.patches).toEqual([
      ...['web-2 linger.dev/canary=out', 'web-2 linger.dev/canary=in'],
      ...['web-2 linger.dev/canary=out', 'web-2 linger.dev/canary=in'],
    ]);
  });

  describe('and timers on other nodes', () => {
    /** A node with a kube-proxy that follows so late, and a timer on it. */
    async function node(opened: Opened, name: string, address: string, port: number, lateMs: number) {
      const proxy = await consumerOfAll(opened, lateMs);
      const url = new URL(`http://127.0.0.1:${proxy}/canary`);
      const ask = () => attempt({ url, address: '127.0.0.1', timeoutMs: 2_000 });
      const { createServer } = await import('node:http');
      const bound = await started(opened.atEnd, createServer(nodeTimerApp(ask, clock)), address, port);
      opened.own.add(`timer-${name}`, TIMER, address, true, name);
      return bound;
    }
    const TIMER = { 'app.kubernetes.io/name': 'linger-node-timer' };
    const MS = 1_500;

    async function twoNodes(atEnd: AtEnd) {
      const opened = await open(atEnd, ['web-1', 'web-2']);
      opened.own.service = { clusterIP: '127.0.0.1', ports: [{ port: await consumerOfAll(opened) }] };
      const nodeTimerPort = await node(opened, 'fast', '127.0.0.11', 0, 0);
      await node(opened, 'slow', '127.0.0.12', nodeTimerPort, MS);
      return { opened, nodeTimerPort };
    }

    it('the lag is that of the slowest node, which is named', async ({ onTestFinished }) => {
      const { opened, nodeTimerPort } = await twoNodes(onTestFinished);
      const [flipped] = await flips(opened, [CLUSTER_IP], 1, FIXED.dns, {}, { nodeTimerPort });
      const { removal, addition } = flipped!.consumers.get('cluster-ip')!;
      expect([...flipped!.consumers.keys()]).toEqual(['cluster-ip']);
      expect(removal).toBeGreaterThan(MS / 1000 - 0.2);
      expect(addition).toBeGreaterThan(MS / 1000 - 0.3);
      expect(flipped!.asked.get('cluster-ip')?.[0]).toMatch(
        /^It sees the kube-proxies of 2 of 2 nodes, .* The slowest is slow: up to [\d.]+s\.$/,
      );
    });

    it('one whose pod has been replaced does not count, nor one that does not answer; both are named', async ({
      onTestFinished,
    }) => {
      const { opened, nodeTimerPort } = await twoNodes(onTestFinished);
      opened.own.add('timer-off', TIMER, '127.0.0.13', true, 'off');
      const answers = { ...opened.own.pods.get('timer-slow')! };
      // Another pod has its name and address by now.
      const { onPatched } = opened.own;
      opened.own.onPatched = (pod) => {
        const metadata = { ...answers.metadata, uid: 'another' };
        opened.own.pods.set('timer-slow', { ...answers, metadata });
        onPatched(pod);
      };
      // Until the one that is off has been given up.
      const limits = { baselineMs: 5_000 };
      const [flipped] = await flips(opened, [CLUSTER_IP], 1, FIXED.dns, limits, { nodeTimerPort });
      expect(flipped!.consumers.get('cluster-ip')!.removal).toBeLessThan(MS / 1000 - 0.3);
      const [limit] = flipped!.asked.get('cluster-ip')!;
      expect(limit).toContain('1 of 3 nodes');
      expect(limit).toContain('The slowest is fast');
      expect(limit).toContain('Not timed, and possibly slower: off (');
    });
  });

  it('flips for ClusterIPs while pods are removed, and no more often than every 5 s', async ({
    onTestFinished,
  }) => {
    const opened = await open(onTestFinished, ['web-1', 'web-2']);
    opened.own.service = { clusterIP: '127.0.0.1', ports: [{ port: await consumerOfAll(opened) }] };
    const removals = new EventEmitter<{ removal: [] }>();
    const rollout = setInterval(() => removals.emit('removal'), 50);
    onTestFinished(() => clearInterval(rollout));
    const at: number[] = [];
    const begun = clock();
    const consumers = [CLUSTER_IP, probe(await consumerOfAll(opened), 3_600)];
    const flipped = await flips(opened, consumers, 2, FIXED.dns, {}, { everyMs: 3_600_000, removals, at });
    // A gateway that polls would be met just after it has polled.
    for (const { result, problem, asked } of flipped)
      expect({ result, problem, asked: [...asked.keys()] }).toEqual({
        result: 'Measured',
        asked: ['cluster-ip'],
      });
    expect(at[0]! - begun).toBeLessThan(30_000);
    expect(at[1]! - at[0]!).toBeGreaterThanOrEqual(5_000);
    expect(removals.listenerCount('removal')).toBe(0);
  });

  it('flips for a ClusterIP alone, often enough for a hundred samples in 20 minutes, until it has them', async ({
    onTestFinished,
  }) => {
    const opened = await open(onTestFinished, ['web-1', 'web-2']);
    opened.own.service = { clusterIP: '127.0.0.1', ports: [{ port: await consumerOfAll(opened) }] };
    const at: number[] = [];
    let samples = 98;
    const options = { everyMs: 60_000, at, timed: () => samples, onFlip: () => void samples++ };
    const begun = clock();
    const flipped = await flips(opened, [CLUSTER_IP], 2, FIXED.dns, {}, options);
    expect(
      flipped.every(({ result, consumers }) => result === 'Measured' && consumers.has('cluster-ip')),
    ).toBe(true);
    // 12 s each would be 20 minutes; the machine may be busy.
    expect(at[1]! - begun).toBeLessThan(20_000);
    expect(samples).toBe(100);
    const quiet = new AbortController();
    const { own, endpoints, port, identities } = opened;
    const more: Flipped[] = [];
    const running = runCanary(
      {
        ...FIXED,
        connection: own.connection,
        namespace: NAMESPACE,
        port,
        endpoints,
        everyMs: 60_000,
        clock,
        identity: identities.get('web-1')!,
        consumers: () => [CLUSTER_IP],
        timed: () => samples,
        onFlip: (each: Flipped) => void more.push(each),
        onProbe: () => undefined,
        random: () => 0.5,
      },
      { signal: quiet.signal, holds: () => true },
    );
    await sleep(8_000);
    quiet.abort();
    await running;
    expect(more).toEqual([]);
  });

  it('a lead that ends in the middle leaves no replica out', async ({ onTestFinished }) => {
    const opened = await open(onTestFinished, ['web-1', 'web-2']);
    const { own, endpoints, port, identities } = opened;
    const consumer = probe(await consumerOfAll(opened));
    const ending = new AbortController();
    const { onPatched } = own;
    own.onPatched = (pod) => {
      onPatched(pod);
      ending.abort();
    };
    const context = { connection: own.connection, namespace: NAMESPACE, port, endpoints, everyMs: 50 };
    own.service = { clusterIP: '127.0.0.1', ports: [{ port }] };
    await runCanary(
      {
        ...context,
        ...FIXED,
        identity: identities.get('web-1')!,
        consumers: () => [consumer],
        timed: () => 0,
        onFlip: () => undefined,
        clock,
        onProbe: () => undefined,
        random: Math.random,
      },
      { signal: ending.signal, holds: () => true },
    );
    expect(own.patches).toEqual(['web-2 linger.dev/canary=out', 'web-2 linger.dev/canary=in']);
  });

  it('a replica that dies while it is out ends the flip at once, and the next flip takes another', async ({
    onTestFinished,
  }) => {
    const opened = await open(onTestFinished, ['web-1', 'web-2', 'web-3']);
    const { own, servers } = opened;
    own.service = { clusterIP: '127.0.0.1', ports: [{ port: await consumerOfAll(opened) }] };
    const { onPatched } = own;
    let diedAt = Number.NaN;
    own.onPatched = (pod) => {
      onPatched(pod);
      if (!Number.isNaN(diedAt)) return;
      servers.get('web-2')!.close();
      servers.get('web-2')!.closeAllConnections();
      diedAt = clock();
    };
    const at: number[] = [];
    const [lost, next] = await flips(opened, [CLUSTER_IP], 2, FIXED.dns, {}, { at });
    expect(lost).toMatchObject({ result: 'ReplicaLost', pod: 'web-2', consumers: new Map() });
    expect(next).toMatchObject({ result: 'Measured', pod: 'web-3' });
    expect(at[0]! - diedAt).toBeLessThan(2_000);
    expect(own.patches.slice(0, 2)).toEqual(['web-2 linger.dev/canary=out', 'web-2 linger.dev/canary=in']);
  });

  it('a leader that cannot reach the API server at first puts back whatever was left out as soon as it can', async ({
    onTestFinished,
  }) => {
    const opened = await open(onTestFinished, ['web-1', 'web-2']);
    const { own } = opened;
    for (const name of ['web-1', 'web-2']) own.labels(name)![CANARY_LABEL] = 'out';
    opened.tell();
    own.service = { clusterIP: '127.0.0.1', ports: [{ port: await consumerOfAll(opened) }] };
    own.failing = 503;
    const onFlip = () => {
      own.failing = undefined;
    };
    const flipped = await flips(opened, [CLUSTER_IP], 2, FIXED.dns, {}, { onFlip });
    expect(flipped[0]).toMatchObject({ result: 'Refused' });
    expect(flipped[1]).toMatchObject({ result: 'Measured', pod: 'web-2' });
    for (const name of ['web-1', 'web-2']) expect(own.labels(name)).toEqual({ [CANARY_LABEL]: 'in' });
  });

  it('the next leader puts back what a vanished leader has left out', async ({ onTestFinished }) => {
    const opened = await open(onTestFinished, ['web-1', 'web-2']);
    opened.own.labels('web-2')![CANARY_LABEL] = 'out';
    opened.tell();
    const ending = new AbortController();
    opened.own.onPatched = () => ending.abort();
    const { own, endpoints, port } = opened;
    const context = { connection: own.connection, namespace: NAMESPACE, port, endpoints, clock };
    await runCanary(
      {
        ...context,
        ...FIXED,
        identity: '1'.repeat(32),
        consumers: () => [CLUSTER_IP],
        everyMs: 3_600_000,
        timed: () => 0,
        onFlip: () => undefined,
        onProbe: () => undefined,
        random: Math.random,
      },
      { signal: ending.signal, holds: () => true },
    );
    expect(own.labels('web-2')).toEqual({ [CANARY_LABEL]: 'in' });
  });
});

it.concurrent('alone, it takes itself out, and says that this is another way', { timeout: 60_000 }, async ({
  onTestFinished,
}) => {
  const opened = await open(onTestFinished, ['web-1']);
  opened.own.service = { clusterIP: '127.0.0.1', ports: [{ port: await consumerOfAll(opened) }] };
  const [flipped] = await flips(opened, [CLUSTER_IP], 1);
  expect(flipped).toMatchObject({ result: 'Measured', pod: 'web-1' });
  expect(flipped!.asked.get('cluster-ip')).toContainEqual(expect.stringContaining('calls itself'));
});

/** Answers for a second what it answered before, as CoreDNS does for longer. */
async function openDns(opened: Opened) {
  const { own } = opened;
  let cached: { until: number; addresses: string[] } | undefined;
  const { server, close, asked } = await dnsServer((name, type) => {
    if (name !== 'linger-canary-dns.linger.svc.cluster.local' || type !== 'A') return undefined;
    if (cached === undefined || clock() >= cached.until) {
      const there = [...own.pods.values()].filter(({ metadata }) => metadata.labels[CANARY_LABEL] === 'in');
      cached = { until: clock() + 1_000, addresses: there.map(({ status }) => status.podIP ?? '') };
    }
    return { addresses: cached.addresses, ttl: 2 };
  });
  opened.atEnd(() => void close());
  return { dns: { domain: 'svc.cluster.local', servers: [server] }, asked };
}

it.concurrent('a replica that never answers on its canary port is named, and DNS is timed all the same', {
  timeout: 60_000,
}, async ({ onTestFinished }) => {
  const opened = await open(onTestFinished, ['web-1', 'web-2']);
  opened.services.push('linger-canary-dns');
  opened.own.add('web-3', { [CANARY_LABEL]: 'in' }, '127.0.0.9');
  opened.servers.get('web-2')!.close();
  opened.tell();
  // Whom kube-proxy leads to web-1, only web-1 answers.
  const { dns } = await openDns(opened);
  const isIn = () => opened.own.labels('web-1')?.[CANARY_LABEL] === 'in';
  const { createServer } = await import('node:http');
  const proxy = createServer((_, response) => {
    if (isIn()) response.writeHead(200, { 'linger-canary': '1'.repeat(32) }).end();
  });
  opened.own.service = {
    clusterIP: '127.0.0.1',
    ports: [{ port: await started(onTestFinished, proxy, '127.0.0.1') }],
  };
  const limits = { silentMs: 3_000, attemptMs: 1_000 };
  const [flipped] = await flips(opened, [CLUSTER_IP, CLUSTER_DNS], 1, dns, limits);
  expect(flipped).toMatchObject({ pod: 'web-1' });
  const { message } = flipped!.consumers.get('cluster-ip')!.trouble!;
  expect(message).toMatch(
    /gets no answer within 1 s\. The Service linger-canary also lists .*: web-2, web-3\.$/,
  );
  expect(flipped!.consumers.get('cluster-dns')!.removal).toBeGreaterThan(0);
});

describe.concurrent('the clients of headless Services', { timeout: 60_000 }, () => {
  it('are timed by what DNS answers, and by how long they may keep that', async ({ onTestFinished }) => {
    const opened = await open(onTestFinished, ['web-1', 'web-2']);
    opened.services.push('linger-canary-dns');
    opened.tell();
    const { dns, asked } = await openDns(opened);
    opened.own.service = { clusterIP: '127.0.0.1', ports: [{ port: await consumerOfAll(opened) }] };
    const [flipped] = await flips(opened, [CLUSTER_IP, CLUSTER_DNS], 1, dns);
    expect(flipped).toMatchObject({ result: 'Measured', pod: 'web-2' });
    const { removal, trouble } = flipped!.consumers.get('cluster-dns')!;
    expect(trouble).toBeUndefined();
    // What is left of the second for which the server repeats itself, and the TTL of its last answer.
    expect(removal).toBeGreaterThan(2);
    expect(removal).toBeLessThan(4);
    expect(asked.length).toBeGreaterThan(100);
  });

  it('cannot be timed without the headless Service: the condition says so, and the others are', async ({
    onTestFinished,
  }) => {
    const opened = await open(onTestFinished, ['web-1', 'web-2']);
    const { dns, asked } = await openDns(opened);
    opened.own.service = { clusterIP: '127.0.0.1', ports: [{ port: await consumerOfAll(opened) }] };
    const [flipped] = await flips(opened, [CLUSTER_IP, CLUSTER_DNS], 1, dns);
    expect(flipped?.result).toBe('Measured');
    expect(flipped?.consumers.get('cluster-dns')?.trouble).toMatchObject({
      reason: 'Unreachable',
      message: expect.stringContaining('linger-canary-dns'),
    });
    expect(asked).toEqual([]);
  });
});

it.concurrent('a consumer that cannot be seen takes part again after half a minute, and holds up no other flip', {
  timeout: 60_000,
}, async ({ onTestFinished }) => {
  const opened = await open(onTestFinished, ['web-1', 'web-2']);
  opened.services.push('linger-canary-dns');
  opened.tell();
  const silent = await dnsServer(() => undefined);
  onTestFinished(() => void silent.close());
  const dns = { domain: 'svc.cluster.local', servers: [silent.server] };
  opened.own.service = { clusterIP: '127.0.0.1', ports: [{ port: await consumerOfAll(opened) }] };
  const flipped = await flips(opened, [CLUSTER_IP, CLUSTER_DNS], 3, dns, { baselineMs: 2_000 });
  expect(flipped.map(({ asked }) => [...asked.keys()])).toEqual([
    expect.arrayContaining(['cluster-ip', 'cluster-dns']),
    ['cluster-ip'],
    ['cluster-ip'],
  ]);
  expect(flipped[0]?.consumers.get('cluster-dns')?.trouble).toMatchObject({ reason: 'Unreachable' });
});

describe.concurrent('where nothing can be flipped', () => {
  it.for([
    { what: 'there is no Service', service: undefined, result: 'NoService' },
    { what: 'it is headless', service: { clusterIP: 'None', ports: [{ port: 80 }] }, result: 'NoService' },
    {
      what: 'no pod bears the label',
      service: { clusterIP: '127.0.0.1', ports: [{ port: 9 }] },
      result: 'NoReplica',
    },
  ])('$what: $result, and the condition says what to do', async ({ service, result }, { onTestFinished }) => {
    const opened = await open(onTestFinished, []);
    opened.own.service = service;
    const [flipped] = await flips(opened, [CLUSTER_IP], 1);
    expect(flipped).toMatchObject({ result, pod: undefined, attempts: 0 });
    expect(flipped!.consumers.get('cluster-ip')?.trouble).toMatchObject({ reason: 'Unreachable' });
  });

  it('the API server refuses: Refused, with its words', async ({ onTestFinished }) => {
    const opened = await open(onTestFinished, ['web-1']);
    opened.own.failing = 403;
    const [flipped] = await flips(opened, [CLUSTER_IP], 1);
    expect(flipped).toMatchObject({ result: 'Refused', problem: '403: failing' });
  });

  it('no consumer is timed by it: nothing is asked of anybody', async ({ onTestFinished }) => {
    const opened = await open(onTestFinished, ['web-1', 'web-2']);
    const ending = new AbortController();
    const { own, endpoints, port } = opened;
    const told: Flipped[] = [];
    const running = runCanary(
      {
        connection: own.connection,
        namespace: NAMESPACE,
        port,
        identity: '1'.repeat(32),
        endpoints,
        ...FIXED,
        consumers: () => [consumerOf('gateways', { measure: { reports: {} } })],
        everyMs: 1,
        timed: () => 0,
        onFlip: (each) => told.push(each),
        clock,
        onProbe: () => undefined,
        random: Math.random,
      },
      { signal: ending.signal, holds: () => true },
    );
    // Long enough for more than one flip, were there any: rests are half a second on average.
    await sleep(2_000);
    ending.abort();
    await running;
    expect([told, own.patches]).toEqual([[], []]);
  });
});

describe('how often it is flipped for', () => {
  const timed = (measure: object) => ({ ...CLUSTER_IP, measure }) as Parameters<typeof everyMsOf>[0];
  it.each([
    ['a built-in consumer at first', { kind: 'clusterIp' }, 99, 10_000],
    ['one that has been timed a hundred times', { kind: 'clusterIp' }, 100, 300_000],
    ['DNS, the same', { kind: 'clusterDns' }, 100, 300_000],
    ['a probe, as its author says, however often', { kind: 'probe', every: 10 }, 1_000, 10_000],
    ['a probe whose author does not say', { kind: 'probe' }, 1_000, 30_000],
  ])('%s', (_, measure, times, everyMs) => {
    expect(everyMsOf(timed(measure), 60_000, times)).toBe(everyMs);
  });
});

describe('who is taken out', () => {
  const replica = (name: string): KnownReplica => ({
    identity: name,
    address: '10.0.0.1',
    pod: { name, uid: name, labels: {}, address: undefined, ready: true },
  });
  const three = ['c', 'a', 'b'].map(replica);

  it('each of the others in turn, never the leader', () => {
    const chosen = [0, 1, 2, 3].map((turn) => chooseCanary(three, 'b', turn)?.identity);
    expect(chosen).toEqual(['a', 'c', 'a', 'c']);
  });
  it('the leader, where it is alone', () => expect(chooseCanary([replica('b')], 'b', 7)?.identity).toBe('b'));
  it('none, where there is none', () => expect(chooseCanary([], 'b', 0)).toBeUndefined());
});
